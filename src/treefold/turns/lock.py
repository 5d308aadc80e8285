"""A lock for tools and hooks, which may be used on several event loops at once."""

import asyncio
import threading
from contextlib import suppress
from typing import Literal

from treefold.runtime.loops.loop_handle import settle


class CrossLoopLock(asyncio.Lock):
    """An asyncio.Lock that also excludes tasks of event loops in other threads.

    On release it passes to the task that has waited longest, on any loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self._locked = False
        self._mutex = threading.Lock()
        # A dict as an ordered set: a cancelled waiter is removed without a search.
        self._queue: dict[asyncio.Future[None], None] = {}

    def locked(self) -> bool:
        return self._locked

    async def acquire(self) -> Literal[True]:
        with self._mutex:
            if not self._locked:
                self._locked = True
                return True
            waiter = asyncio.get_running_loop().create_future()
            self._queue[waiter] = None
        try:
            await waiter
        except asyncio.CancelledError:
            with self._mutex:
                was_queued = waiter in self._queue
                self._queue.pop(waiter, None)
            if not was_queued:  # the lock had already passed to this task
                self.release()
            raise
        return True

    def release(self) -> None:
        with self._mutex:
            if not self._locked:
                raise RuntimeError("the lock is not held")
            while self._queue:
                waiter = next(iter(self._queue))
                del self._queue[waiter]
                with suppress(RuntimeError):  # the waiter's loop has closed: try the next
                    waiter.get_loop().call_soon_threadsafe(settle, waiter)
                    return
            self._locked = False
