"""Pass values from a running call to its consumer, one at a time."""

import asyncio
from collections import deque
from typing import Any, Self

from treefold.runtime.loops.loop_handle import settle


class Rendezvous:
    """An unbuffered channel between producers and one consumer on the same event loop.

    As in a plain generator, a producer is suspended after each value until the consumer asks for
    the next: it never runs ahead, and a value that the consumer did not take was not produced.
    """

    def __init__(self) -> None:
        self._offers: deque[tuple[Any, asyncio.Future[None]]] = deque()
        self._getter: asyncio.Future[None] | None = None
        # The producer of the value that the consumer took last.
        self._putter: asyncio.Future[None] | None = None
        self._closed = False

    async def put(self, value: Any) -> None:
        """Offer *value* and wait until the consumer asks for the next one."""
        putter = asyncio.get_running_loop().create_future()
        self._offers.append((value, putter))
        if self._getter is not None:
            settle(self._getter)
        await putter

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._putter is not None:
            settle(self._putter)
        while not self._offers:
            if self._closed:
                raise StopAsyncIteration
            self._getter = asyncio.get_running_loop().create_future()
            await self._getter
        value, self._putter = self._offers.popleft()
        return value

    def close(self) -> None:
        """End the iteration and release every producer and consumer that still waits."""
        self._closed = True
        for waiter in (self._getter, self._putter, *(putter for _, putter in self._offers)):
            if waiter is not None:
                settle(waiter)
