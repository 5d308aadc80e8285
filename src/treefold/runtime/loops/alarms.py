"""Alarms: functions that are called at times of the clock on the wall.

Timers of an event loop count seconds, and do not notice that a machine was asleep or that its clock
was set. All alarms share one timer of the loop, so thousands of them cost nothing while they wait.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Final

_LONGEST: Final = 30.0  # seconds until the clock is looked at again
_FEW: Final = 100  # stopped alarms that may wait in any case


class Alarm:
    """An alarm that was set; its function is None when it was stopped or is over."""

    __slots__ = ("_alarms", "at", "function")

    def __init__(self, alarms: "Alarms", at: float, function: Callable[[], object]) -> None:
        self._alarms = alarms
        self.at = at
        self.function: Callable[[], object] | None = function

    def stop(self) -> None:
        """Do not call its function any more."""
        if self.function is not None:
            self.function = None
            self._alarms.note_stopped()


class Alarms:
    """The alarms of one event loop; to be used on the loop itself.

    Args:
        now: returns the time by their clock.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self._waiting: list[tuple[float, int, Alarm]] = []
        self._numbers = itertools.count()
        self._stopped = 0
        self._timer: asyncio.TimerHandle | None = None
        self._set_for = 0.0

    def set(
        self, loop: asyncio.AbstractEventLoop, at: float, function: Callable[[], object]
    ) -> Alarm:
        """Call *function* at that time, in seconds since the epoch, or soon if it has passed."""
        alarm = Alarm(self, at, function)
        heapq.heappush(self._waiting, (at, next(self._numbers), alarm))
        if self._timer is None or at < self._set_for:
            self._set_timer(loop)
        return alarm

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            self._set_for = self._waiting[0][0]
            left = min(max(0.0, self._set_for - self.now()), _LONGEST)
            self._timer = loop.call_later(left, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call the functions that are due."""
        self._timer = None
        now = self.now()
        due: list[Callable[[], object]] = []
        while self._waiting and self._waiting[0][0] <= now:
            _, _, alarm = heapq.heappop(self._waiting)
            if alarm.function is None:
                self._stopped -= 1
            else:
                due.append(alarm.function)
                alarm.function = None
        self._set_timer(loop)
        for function in due:
            # One that raises is reported by the loop, and the others are called.
            loop.call_soon(function)

    def note_stopped(self) -> None:
        """Note that an alarm was stopped; drop the stopped ones if they are many."""
        self._stopped += 1
        if self._stopped > max(_FEW, len(self._waiting) // 2):
            self._waiting = [one for one in self._waiting if one[2].function is not None]
            heapq.heapify(self._waiting)
            self._stopped = 0

    def close(self) -> None:
        """Stop all alarms; from any thread when the loop does not run them any more."""
        if self._timer is not None:
            self._timer.cancel()
