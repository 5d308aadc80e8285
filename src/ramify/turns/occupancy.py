"""One run at a time."""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from ramify.core.errors import SafeExecutionError
from ramify.runtime.home import settle_from_anywhere

T = TypeVar("T")
Holder = Callable[[], object | None]  # gives the stream that holds the place, while it is alive


class Occupancy:
    """The place of whoever runs a turn or an agent.

    A stream that its consumer let go of keeps the place until the event loop has closed it, which
    it does by itself and soon. Whoever comes next waits for that instead of being refused.
    """

    __slots__ = ("_freed", "_holder", "_loop", "taken")

    def __init__(self) -> None:
        self.taken = False
        self._holder: Holder | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._freed: asyncio.Future[None] | None = None

    async def take(self, owner: object, holder: Holder | None = None) -> None:
        """Take the place, of which the owner is to be run.

        Raises:
            SafeExecutionError: somebody else has it, and does not mean to give it up.
        """
        loop = asyncio.get_running_loop()
        while self.taken and not (self._loop is not None and self._loop.is_closed()):
            if self._holder is None or self._holder() is not None:
                raise SafeExecutionError(
                    f"{owner!r} is running already; wait until it has ended, or make another"
                )
            if self._freed is None:
                self._freed = loop.create_future()
            await asyncio.shield(self._freed)
        self.taken = True
        self._holder = holder
        self._loop = loop

    def give_up(self) -> None:
        """Leave the place to the next."""
        self.taken = False
        self._holder = self._loop = None
        if self._freed is not None:
            settle_from_anywhere(self._freed)()
            self._freed = None


def held_by_itself(
    make: Callable[[Holder], AsyncGenerator[T, None]],
) -> AsyncGenerator[T, None]:
    """Return the generator that *make* makes, having told it how to see if it is still used."""
    found: list[weakref.ref[Any]] = []
    stream = make(lambda: found[0]())
    found.append(weakref.ref(stream))
    return stream
