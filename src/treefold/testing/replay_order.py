"""What was recorded comes about again in the same order, however quickly it could.

Whoever is to be told something that was recorded waits here, by its place in the recording. One at
a time is let through, the earliest of those who wait, when all that came before has come about. If
that does not happen, since something is different now, the earliest goes when nothing moves.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

# Turns of the loop without news, after which the next may go.
_SOON: Final = 5  # nothing that came before is still to come
_LATER: Final = 200  # something is, but it seems that it will not


class ReplayOrder:
    """Lets one through at a time; all of it happens on one loop.

    Args:
        places: all that was recorded.
        when_quiet: called when nobody waits, and nothing has moved for a while.
    """

    def __init__(self, places: Iterable[int], when_quiet: Callable[[], None]) -> None:
        self._due = deque(sorted(places))
        self._come: set[int] = set()
        self._when_quiet = when_quiet
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._still = 0  # turns of the loop without news
        self._looking = False

    def at(self, place: int) -> asyncio.Future[None]:
        """Return what is done when it is the turn of *place*; to be awaited by one."""
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (place, next(self._numbers), turn))
        self.stir()
        return turn

    def has_come(self, places: Iterable[int]) -> None:
        """Take note that all of *places* have come about, or will not any more."""
        self._come.update(places)
        self.stir()

    def stir(self) -> None:
        """Take note that something has moved."""
        self._still = 0
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._still += 1
        while self._waiting and self._waiting[0][2].done():  # it was cancelled
            heapq.heappop(self._waiting)
        if self._still >= self._patience():
            if not self._waiting:
                self._looking = False
                self._when_quiet()
                return
            place, _, turn = heapq.heappop(self._waiting)
            self._come.add(place)
            self._still = 0
            turn.set_result(None)
        asyncio.get_running_loop().call_soon(self._look)

    def _patience(self) -> int:
        while self._due and self._due[0] in self._come:
            self._due.popleft()
        is_next = self._waiting and (not self._due or self._waiting[0][0] <= self._due[0])
        return _SOON if is_next else _LATER
