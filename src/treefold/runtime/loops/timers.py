"""Timers of an event loop that are cheap to start and to stop.

Nearly every call has a timeout, and nearly none is reached. Timers of the same length end in the
order in which they were started, so they wait in a queue, and one timer of the loop serves the
queue: it is set for the first one, and set again when it is reached.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any, Final

_LENGTHS: Final = 8  # lengths that have a queue; other timers are timers of the loop
_FEW: Final = 100  # stopped timers that a queue may hold in any case


class Timer:
    """A started timer."""

    __slots__ = ("__weakref__", "_args", "_function", "_queue", "when")

    def __init__(
        self, queue: "_Queue", when: float, function: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        self._queue = queue
        self.when = when
        self._function: Callable[..., None] | None = function
        self._args = args

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped or has ended."""
        return self._function is None

    def cancel(self) -> None:
        """Stop it; it refers to nothing any more."""
        if self._function is not None:
            self._function, self._args = None, ()
            self._queue.forget_stopped()

    def end(self) -> None:
        """Call its function, unless it was stopped."""
        function, args = self._function, self._args
        if function is not None:
            self._function, self._args = None, ()
            function(*args)


AnyTimer = Timer | asyncio.TimerHandle


class Timers:
    """The timers of one loop; to be used on the loop itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[float, _Queue] = {}
        # A stopped timer may stay in the loop's heap for long, and the current context variables
        # would keep the caller alive meanwhile. All timers share an empty context: they run one
        # after the other.
        self._context = contextvars.Context()

    def start(
        self, seconds: float, function: Callable[..., None], args: tuple[Any, ...]
    ) -> AnyTimer:
        """Call *function* after a delay, unless the timer is cancelled before."""
        queue = self._queues.get(seconds)
        if queue is None:
            if len(self._queues) >= _LENGTHS:
                return self._loop.call_later(seconds, function, *args, context=self._context)
            queue = self._queues[seconds] = _Queue(self._loop, seconds, self._context)
        return queue.add(function, args)


class _Queue:
    """The timers of one length, the first to end first."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, context: contextvars.Context
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._context = context
        self._timers: deque[Timer] = deque()
        self._stopped = 0  # how many of them are stopped, about
        self._is_set = False  # whether a timer of the loop will call _end_first

    def add(self, function: Callable[..., None], args: tuple[Any, ...]) -> Timer:
        """Start a timer."""
        timer = Timer(self, self._loop.time() + self._seconds, function, args)
        self._timers.append(timer)
        if not self._is_set:
            self._set()
        return timer

    def forget_stopped(self) -> None:
        """Drop stopped timers: the first ones at once, others when they are more than half."""
        timers = self._timers
        while timers and timers[0].is_stopped:
            timers.popleft()
        self._stopped = min(self._stopped + 1, len(timers))
        if self._stopped > _FEW and 2 * self._stopped > len(timers):
            self._timers = deque([timer for timer in timers if not timer.is_stopped])
            self._stopped = 0

    def _set(self) -> None:
        """Set the timer of the loop for the first one, if there is one."""
        self._is_set = bool(self._timers)
        if self._is_set:
            self._loop.call_at(self._timers[0].when, self._end_first, context=self._context)

    def _end_first(self) -> None:
        """End the timers that are due; the timer of the loop was for one that may be gone."""
        now = self._loop.time()
        try:
            while self._timers and self._timers[0].when <= now:
                self._timers.popleft().end()
        finally:
            self._set()
