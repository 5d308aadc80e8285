"""Allow one run of a turn or an agent at a time.

Knows nothing of turns or agents, only that a stream may be dropped while it runs.
"""

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from treefold.core.errors import SafeExecutionError
from treefold.runtime.loops.loop_handle import threadsafe_resolver

T = TypeVar("T")
StreamRef = Callable[[], object | None]  # a weak reference to the generator that holds a guard


# One lock for all guards: event loops in several threads may compete for the same one.
_lock = threading.Lock()


class RunGuard:
    """Held by the one run that a turn or an agent may have.

    A stream that its consumer dropped holds the guard until the event loop has closed it, which
    the loop soon does on its own. The next run waits for that instead of being refused.
    """

    __slots__ = ("_loop", "_stream", "_waiters")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None  # of the run that holds the guard
        self._stream: StreamRef | None = None
        self._waiters: tuple[Callable[[], None], ...] = ()  # mostly there are none

    @property
    def held(self) -> bool:
        """Whether a run holds the guard; a closed event loop holds nothing any more."""
        return self._loop is not None and not self._loop.is_closed()

    def take(
        self, owner: object, loop: asyncio.AbstractEventLoop, stream: StreamRef | None = None
    ) -> asyncio.Future[None] | None:
        """Take the guard of *owner*, for *stream* if the run is a generator.

        Return None, or a future of the running *loop*: when it is done, try again.

        Raises:
            SafeExecutionError: another run holds it, and its stream has not been dropped.
        """
        with _lock:
            if self._loop is None or self._loop.is_closed():
                self._loop = loop
                self._stream = stream
                return None
            if self._stream is None or self._stream() is not None:
                raise SafeExecutionError(
                    f"{owner!r} is running already; wait until it has ended, or make another"
                )
            released = loop.create_future()
            self._waiters += (threadsafe_resolver(released),)
            return released

    def release(self) -> None:
        """Release the guard and wake the runs that wait for it."""
        with _lock:
            self._loop = self._stream = None
            waiters, self._waiters = self._waiters, ()
        for wake in waiters:
            wake()


def guarded_stream(
    make: Callable[[StreamRef], AsyncGenerator[T, None]],
) -> AsyncGenerator[T, None]:
    """Return the generator that *make* creates, given a weak reference to that generator.

    With it, a RunGuard can tell whether the stream has been dropped.
    """
    refs: list[weakref.ref[Any]] = []
    stream = make(lambda: refs[0]())
    refs.append(weakref.ref(stream))
    return stream
