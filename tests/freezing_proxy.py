"""A TCP proxy on loopback that can lose connections without closing them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Self

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class FreezingProxy:
    """Forwards connections to a port; use it in an ``async with`` block.

    Attributes:
        port: where it listens.
        connections: how many it has accepted.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.connections = 0

    def freeze(self) -> None:
        """Forward nothing more of the connections that there are; new ones work."""
        for link in self._links:
            link.to_target.clear()
            link.to_client.clear()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        links = list(self._links)
        for link in links:
            link.end()
        async with asyncio.timeout(60):
            for link in links:
                await link.ended.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        link = _Link()
        self._links.add(link)
        try:
            with suppress(OSError):
                target = await asyncio.open_connection("127.0.0.1", self._target)
                await link.run((reader, writer), target)
        finally:
            self._links.discard(link)
            writer.transport.abort()
            link.ended.set()


class _Link:
    """One connection, and whether each direction is forwarded."""

    def __init__(self) -> None:
        self.to_target = asyncio.Event()
        self.to_client = asyncio.Event()
        self.to_target.set()
        self.to_client.set()
        self.ended = asyncio.Event()
        self.end: Callable[[], None] = lambda: None

    async def run(self, client: Streams, target: Streams) -> None:
        def end() -> None:
            for _, writer in (client, target):
                writer.transport.abort()
            self.to_target.set()
            self.to_client.set()

        self.end = end
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(client[0], target[1], self.to_target))
            group.create_task(self._pump(target[0], client[1], self.to_client))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forwards: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await forwards.wait()
                writer.write(data)
                await writer.drain()
        if forwards.is_set():
            self.end()
