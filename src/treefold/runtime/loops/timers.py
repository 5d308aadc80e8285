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

from msgspec import Struct

_LENGTHS: Final = 8  # lengths that have a queue; other timers are timers of the loop
_FEW: Final = 100  # stopped timers that a queue may hold in any case


class Timer(Struct, eq=False, weakref=True):
    """A started timer; its function is None when it was stopped or has ended."""

    _queue: "_Queue"
    when: float
    function: Callable[..., None] | None
    _args: tuple[Any, ...]

    def cancel(self) -> None:
        """Stop it; it refers to nothing any more."""
        if self.function is None:
            return
        self.function, self._args = None, ()
        queue = self._queue
        timers = queue.timers
        queue.stopped += 1
        while timers and timers[0].function is None:
            timers.popleft()
            queue.stopped -= 1
        if queue.stopped > _FEW and 2 * queue.stopped > len(timers):
            queue.drop_stopped()

    def end(self) -> None:
        """Call its function, unless it was stopped."""
        function, args = self.function, self._args
        if function is None:
            self._queue.stopped -= 1
        else:
            self.function, self._args = None, ()
            function(*args)


AnyTimer = Timer | asyncio.TimerHandle


class LoopTimers:
    """The timers of one loop; to be used on the loop itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[float, _Queue] = {}
        # A stopped timer may stay in the loop's heap for long, and the current context variables
        # would keep the caller alive meanwhile. All timers share an empty context: they run one
        # after the other.
        self._context = contextvars.Context()

    def call_later(self, seconds: float, function: Callable[..., None], *args: Any) -> AnyTimer:
        """Call *function* after a delay, unless the timer is cancelled before."""
        queue = self._queues.get(seconds)
        if queue is None:
            if len(self._queues) >= _LENGTHS:
                return self._loop.call_later(seconds, function, *args, context=self._context)
            queue = self._queues[seconds] = _Queue(self._loop, self._context)
        timer = Timer(queue, self._loop.time() + seconds, function, args)
        queue.timers.append(timer)
        if not queue.is_set:
            queue.set()
        return timer


class _Queue:
    """The timers of one length, the first to end first.

    Attributes:
        stopped: how many of them are stopped.
        is_set: whether a timer of the loop will end the first ones.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, context: contextvars.Context) -> None:
        self._loop = loop
        self._context = context
        self.timers: deque[Timer] = deque()
        self.stopped = 0
        self.is_set = False

    def set(self) -> None:
        """Set the timer of the loop for the first one, if there is one."""
        self.is_set = bool(self.timers)
        if self.is_set:
            self._loop.call_at(self.timers[0].when, self._end_first, context=self._context)

    def _end_first(self) -> None:
        """End the timers that are due; the timer of the loop was for one that may be gone."""
        now = self._loop.time()
        try:
            while self.timers and self.timers[0].when <= now:
                self.timers.popleft().end()
        finally:
            self.set()

    def drop_stopped(self) -> None:
        """Drop the timers that were stopped."""
        self.timers = deque([timer for timer in self.timers if timer.function is not None])
        self.stopped = 0
