"""One run at a time: who has the place, and how the next one gets it.

Knows nothing of turns or agents, only that streams may be dropped while they run.
"""

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from treefold.core.errors import SafeExecutionError
from treefold.runtime.home import settle_from_anywhere

T = TypeVar("T")
Holder = Callable[[], object | None]  # gives the stream that holds the place, while it is alive


_lock = threading.Lock()  # of all places: loops in several threads may want the same one


class Occupancy:
    """The place of whoever runs a turn or an agent.

    A stream that its consumer let go of keeps the place until the event loop has closed it, which
    it does by itself and soon. Whoever comes next waits for that instead of being refused.
    """

    __slots__ = ("_freed", "_holder", "_loop")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None  # where it is held
        self._holder: Holder | None = None
        self._freed: list[Callable[[], None]] = []

    @property
    def taken(self) -> bool:
        """Whether somebody has the place; a loop that has closed holds nothing any more."""
        return self._loop is not None and not self._loop.is_closed()

    async def take(self, owner: object, holder: Holder | None = None) -> None:
        """Take the place at *owner*, who is to be run.

        Raises:
            SafeExecutionError: somebody else has it, and does not mean to give it up.
        """
        loop = asyncio.get_running_loop()
        while True:
            with _lock:
                if not self.taken:
                    self._loop = loop
                    self._holder = holder
                    return
                if self._holder is None or self._holder() is not None:
                    raise SafeExecutionError(
                        f"{owner!r} is running already; wait until it has ended, or make another"
                    )
                freed = loop.create_future()
                self._freed.append(settle_from_anywhere(freed))
            await freed

    def give_up(self) -> None:
        """Leave the place to the next."""
        with _lock:
            self._loop = self._holder = None
            freed, self._freed = self._freed, []
        for wake in freed:
            wake()


def held_by_itself(
    make: Callable[[Holder], AsyncGenerator[T, None]],
) -> AsyncGenerator[T, None]:
    """Return the generator that *make* makes, having told it how to see if it is still used."""
    found: list[weakref.ref[Any]] = []
    stream = make(lambda: found[0]())
    found.append(weakref.ref(stream))
    return stream
