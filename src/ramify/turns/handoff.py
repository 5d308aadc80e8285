"""Pass values from a running call to its consumer, one at a time."""

import asyncio
from typing import Any

from ramify.runtime.home import settle


class Handoff:
    """A meeting point of one producer and one consumer on the same loop.

    As in a plain generator, the producer rests from each value until the next is asked for: it
    never runs ahead, and what the consumer did not take was not made.
    """

    def __init__(self) -> None:
        self._item: tuple[Any] | None = None
        self._wanted: asyncio.Future[None] | None = None
        self._taken: asyncio.Future[None] | None = None
        self._closed = False

    async def put(self, value: Any) -> None:
        """Offer *value* and wait until the one after it is asked for."""
        self._item = (value,)
        self._taken = asyncio.get_running_loop().create_future()
        if self._wanted is not None:
            settle(self._wanted)
        await self._taken

    async def get(self) -> tuple[Any] | None:
        """Return the next value, or None if there will be no more."""
        if self._taken is not None:
            settle(self._taken)
            self._taken = None
        if self._item is None and not self._closed:
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        item, self._item = self._item, None
        return item

    def close(self) -> None:
        """Say that there will be no more."""
        self._closed = True
        if self._wanted is not None:
            settle(self._wanted)
