"""Clients of providers, shared by all sessions on an event loop and closed with the loop.

A client owns a pool of connections, and a pool belongs to one event loop. Creating one takes tens
of milliseconds and a handshake, so sessions do not have clients of their own.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class _LoopClients:
    """The clients of one event loop."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, Any] = {}
        self.closers: list[Callable[[], Awaitable[None]]] = []
        self._closer = self._close_at_end()

    async def start(self) -> None:
        """Register the clients to be closed when the loop ends."""
        # On shutdown a loop closes every async generator that was started on it.
        await anext(self._closer)

    async def _close_at_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _loops.pop(asyncio.get_running_loop(), None)  # the clients refer to their loop
            closers, self.closers = self.closers, []
            self.by_key.clear()
            async with AsyncExitStack() as stack:  # closes the others if one fails
                for close in closers:
                    stack.push_async_callback(close)


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClients] = WeakKeyDictionary()


async def shared_client(
    key: Hashable, make: Callable[[], T], close: Callable[[T], Awaitable[None]]
) -> T:
    """Return the client for *key* on the running loop, created by *make* if there is none."""
    loop = asyncio.get_running_loop()
    clients = _loops.get(loop)
    if clients is None:
        clients = _loops[loop] = _LoopClients()
        await clients.start()
    found = clients.by_key.get(key)
    if found is None:
        found = clients.by_key[key] = make()
        clients.closers.append(lambda: close(found))
    return found
