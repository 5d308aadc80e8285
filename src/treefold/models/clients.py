"""The providers' clients: one for each address and loop, shared by all, closed with the loop.

A client owns a pool of connections, and a pool belongs to one event loop. Making one takes tens of
milliseconds and a handshake, so sessions do not have clients of their own.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import AsyncExitStack
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

MOST_CONNECTIONS: Final = 10_000
KEEP_CONNECTION: Final = 60.0  # seconds for which an idle one is kept
CONNECT_IN: Final = 15.0  # seconds
MOST_OF_A_COMPLAINT: Final = 65_536  # bytes of an answer that is none


class _LoopClients:
    """The clients of one loop."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, Any] = {}
        self.closers: list[Callable[[], Awaitable[None]]] = []
        self._keeper = self._keep()

    async def begin(self) -> None:
        """Have the loop close the clients when it ends: it closes the generators that it began."""
        await anext(self._keeper)

    async def _keep(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _loops.pop(asyncio.get_running_loop(), None)  # or else the clients keep their loop
            closers, self.closers = self.closers, []
            self.by_key.clear()
            async with AsyncExitStack() as stack:  # which goes on when one of them fails
                for close in closers:
                    stack.push_async_callback(close)


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClients] = WeakKeyDictionary()


async def shared_client(
    key: Hashable, make: Callable[[], T], close: Callable[[T], Awaitable[None]]
) -> T:
    """Return the client for *key* on the running loop, made if need be."""
    loop = asyncio.get_running_loop()
    clients = _loops.get(loop)
    if clients is None:
        clients = _loops[loop] = _LoopClients()
        await clients.begin()
    found = clients.by_key.get(key)
    if found is None:
        found = clients.by_key[key] = make()
        clients.closers.append(lambda: close(found))
    return found
