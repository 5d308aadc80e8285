"""``ReplayOrder``: lets recorded outcomes happen in their recorded order.

A task that is about to receive a recorded outcome waits here, by the position of the outcome in the
recording. One task is released at a time: the one with the earliest position, as soon as everything
before it has happened. If that does not happen, because the replay differs from the recording, the
earliest is released when there is no progress any more.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

# Iterations of the event loop without progress, after which the next task is released.
_SOON: Final = 5  # everything before it has happened
_LATER: Final = 200  # something before it has not happened, and probably will not


class ReplayOrder:
    """Releases one waiting task at a time; to be used on one event loop only.

    Args:
        positions: the positions of all recorded outcomes.
        when_quiet: is called when no task waits and there was no progress for a while.
    """

    def __init__(self, positions: Iterable[int], when_quiet: Callable[[], None]) -> None:
        self._expected = deque(sorted(positions))
        self._done: set[int] = set()
        self._when_quiet = when_quiet
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._idle_steps = 0  # iterations of the event loop without progress
        self._scheduled = False

    def at(self, position: int) -> asyncio.Future[None]:
        """Return a future that is done when it is the turn of *position*."""
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (position, next(self._numbers), turn))
        self.note_progress()
        return turn

    def mark_done(self, positions: Iterable[int]) -> None:
        """Record that the outcomes at *positions* have happened, or will not happen any more."""
        self._done.update(positions)
        self.note_progress()

    def note_progress(self) -> None:
        """Record that there was progress, and start again to count idle iterations."""
        self._idle_steps = 0
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self._idle_steps += 1
        # A waiting task may have been cancelled.
        while self._waiting and self._waiting[0][2].done():
            heapq.heappop(self._waiting)
        if self._idle_steps >= self._patience():
            if not self._waiting:
                self._scheduled = False
                self._when_quiet()
                return
            position, _, turn = heapq.heappop(self._waiting)
            self._done.add(position)
            self._idle_steps = 0
            turn.set_result(None)
        asyncio.get_running_loop().call_soon(self._step)

    def _patience(self) -> int:
        while self._expected and self._expected[0] in self._done:
            self._expected.popleft()
        is_next = self._waiting and (not self._expected or self._waiting[0][0] <= self._expected[0])
        return _SOON if is_next else _LATER
