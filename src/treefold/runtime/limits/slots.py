"""Slots: a limited number of requests to models may be under way, first come, first served.

A pool is shared between loops and threads; it knows nothing of trees.
"""

import asyncio
import threading
from contextlib import suppress
from typing import Any, Protocol


class SlotHolder(Protocol):
    """A lease: it holds a slot for several requests."""

    def is_lost(self) -> bool:
        """Whether its owner will never put the slot back."""
        ...

    def close(self) -> None:
        """Put the slot back."""
        ...


class SlotRequest:
    """A queued request for a slot."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def give(self, lease: Any) -> None:
        """Grant the request, on its own loop: with a *lease*, or None for a slot of the pool."""
        if not self.future.done():
            self.future.set_result(lease)


class SlotPool:
    """A number of slots, granted in the order of the requests, on any loop."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = size
        self._mutex = threading.Lock()
        self._queue: dict[SlotRequest, None] = {}  # ordered, with cheap removal
        self.leases: set[SlotHolder] = set()

    @property
    def is_full(self) -> bool:
        """Whether a new request has to wait."""
        return not self._free

    def try_take(self) -> bool:
        """Take a slot if one is free, or if a lost lease has one; return whether it was taken."""
        with self._mutex:
            if self._free:
                self._free -= 1
                return True
        lost = [lease for lease in tuple(self.leases) if lease.is_lost()]
        for lease in lost:
            lease.close()
        return bool(lost) and self.try_take()

    async def take(self) -> None:
        """Take a slot, waiting for one if need be."""
        if not self.try_take():
            await self.wait(SlotRequest())

    async def wait(self, waiter: SlotRequest) -> Any:
        """Wait for a slot; return None, or the lease that *waiter* was given instead."""
        with self._mutex:
            if self._free:
                self._free -= 1
                return None
            self._queue[waiter] = None
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if not self.withdraw(waiter) and waiter.future.done() and not waiter.future.cancelled():
                # It was granted just before the cancellation arrived.
                lease = waiter.future.result()
                if lease is None:
                    self.put_back()
            raise

    def withdraw(self, waiter: SlotRequest) -> bool:
        """Remove *waiter* from the queue; return False if it was granted already."""
        with self._mutex:
            if waiter not in self._queue:
                return False
            del self._queue[waiter]
            return True

    def put_back(self) -> None:
        """Put a slot back, and grant it to the oldest request in the queue."""
        with self._mutex:
            while self._queue:
                waiter = next(iter(self._queue))
                del self._queue[waiter]
                with suppress(RuntimeError):  # its loop has closed: try the next
                    waiter.future.get_loop().call_soon_threadsafe(self._hand_over, waiter)
                    return
            self._free += 1

    def _hand_over(self, waiter: SlotRequest) -> None:
        if waiter.future.cancelled():
            self.put_back()
        else:
            waiter.give(None)
