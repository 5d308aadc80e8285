"""A lock for tools and hooks, which may be used on several event loops at once."""

import asyncio
import threading
from contextlib import suppress
from typing import Literal

from treefold.runtime.home import settle


class CrossLoopLock(asyncio.Lock):
    """An asyncio.Lock that also holds between loops in different threads.

    It is handed from the holder to the longest waiting task, on whichever loop that one runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._locked = False
        self._mutex = threading.Lock()
        self._queue: dict[asyncio.Future[None], None] = {}  # in order, and quick to leave

    def locked(self) -> bool:
        return self._locked

    async def acquire(self) -> Literal[True]:
        with self._mutex:
            if not self._locked:
                self._locked = True
                return True
            turn = asyncio.get_running_loop().create_future()
            self._queue[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            with self._mutex:
                waiting = turn in self._queue
                self._queue.pop(turn, None)
            if not waiting:  # it had been handed over already
                self.release()
            raise
        return True

    def release(self) -> None:
        with self._mutex:
            if not self._locked:
                raise RuntimeError("the lock is not held")
            while self._queue:
                turn = next(iter(self._queue))
                del self._queue[turn]
                with suppress(RuntimeError):  # its loop has closed: try the next
                    turn.get_loop().call_soon_threadsafe(settle, turn)
                    return
            self._locked = False
