"""A number of places for requests to models, given in the order in which they were asked for.

Shared between loops and threads; knows nothing of trees.
"""

import asyncio
import threading
from contextlib import suppress
from typing import Any, Protocol


class Holding(Protocol):
    """Whoever holds a place for long."""

    def is_lost(self) -> bool:
        """Whether it will never be given back."""
        ...

    def close(self) -> None:
        """Give it back."""
        ...


class SlotRequest:
    """Somebody who wants a place, and where to tell him."""

    __slots__ = ("future", "node")

    def __init__(self, node: Any = None) -> None:
        self.node = node
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def give(self, lease: Any) -> None:
        """Tell him, on his own loop, that he has a place; None: one of the pool's."""
        if not self.future.done():
            self.future.set_result(lease)


class SlotPool:
    """A number of places, given in the order in which they were asked for, on any loop."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = size
        self._mutex = threading.Lock()
        self._queue: dict[SlotRequest, None] = {}  # in order, and quick to leave
        self.leases: set[Holding] = set()

    @property
    def is_full(self) -> bool:
        """Whether who wants a place has to wait."""
        return not self._free

    def try_take(self) -> bool:
        """Take a place if one is free."""
        with self._mutex:
            if self._free:
                self._free -= 1
                return True
        lost = [lease for lease in tuple(self.leases) if lease.is_lost()]
        for lease in lost:
            lease.close()
        return bool(lost) and self.try_take()

    async def take(self) -> None:
        """Take a place, having waited for it if need be."""
        if not self.try_take():
            await self.wait(SlotRequest())

    async def wait(self, waiter: SlotRequest) -> Any:
        """Wait for a place, or for the lease that *waiter* is given instead."""
        with self._mutex:
            if self._free:
                self._free -= 1
                return None
            self._queue[waiter] = None
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if not self.withdraw(waiter) and waiter.future.done() and not waiter.future.cancelled():
                lease = waiter.future.result()  # it was given in the very last moment
                if lease is None:
                    self.put_back()
            raise

    def withdraw(self, waiter: SlotRequest) -> bool:
        """Take *waiter* out of the queue; False if a place was given to him already."""
        with self._mutex:
            if waiter not in self._queue:
                return False
            del self._queue[waiter]
            return True

    def put_back(self) -> None:
        """Give a place back: to who has waited longest."""
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
