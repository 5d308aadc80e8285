"""Pass values from a running call to its consumer, one at a time."""

import asyncio
from collections import deque
from typing import Any, Self

from treefold.runtime.home import settle


class Handoff:
    """A meeting point of producers and one consumer on the same loop.

    As in a plain generator, a producer rests from each value until the next is asked for: it never
    runs ahead, and what the consumer did not take was not made.
    """

    def __init__(self) -> None:
        self._offers: deque[tuple[Any, asyncio.Future[None]]] = deque()
        self._wanted: asyncio.Future[None] | None = None
        self._resting: asyncio.Future[None] | None = None  # of whom the last value came from
        self._closed = False

    async def put(self, value: Any) -> None:
        """Offer *value* and wait until the one after it is asked for."""
        resting = asyncio.get_running_loop().create_future()
        self._offers.append((value, resting))
        if self._wanted is not None:
            settle(self._wanted)
        await resting

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._resting is not None:
            settle(self._resting)
        while not self._offers:
            if self._closed:
                raise StopAsyncIteration
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        value, self._resting = self._offers.popleft()
        return value

    def close(self) -> None:
        """Say that there will be no more, and let those go who still rest."""
        self._closed = True
        for waiting in (self._wanted, self._resting, *(resting for _, resting in self._offers)):
            if waiting is not None:
                settle(waiting)
