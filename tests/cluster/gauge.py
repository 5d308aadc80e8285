"""Counts the requests that are under way in all processes, and a model that it answers.

A request is a connection. It counts from its first line until the answer is sent, or until the
connection ends because the process was killed.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from agent_scripts import WrappedSession
from treefold import Function, Provider, TokenUsage, ToolResult, UserText
from treefold.models import Exchange, Model, ModelEvent, ModelSettings, Session
from treefold.testing import ScriptedModel, ScriptedRequest

_MOMENT = 0.25  # seconds in which the end of a killed process is noticed


class Gauge:
    """A server on loopback, in a thread of its own.

    Attributes:
        most: the most requests that were under way at the same time.
        answered: how many were answered.
        begun: how many were sent, in all.
    """

    def __init__(self, *, seconds: float, limit: int | None = None) -> None:
        self._seconds = seconds
        self._limit = limit
        self._open: set[asyncio.Task[Any]] = set()
        self._killed: set[asyncio.Task[Any]] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self.most = self.answered = self.begun = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(60)

    def _run(self, ready: threading.Event) -> None:
        async def main() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await self._stop.wait()
            server.close()
            for task in self._serving:
                task.cancel()
            if self._serving:
                await asyncio.wait(self._serving)

        try:
            self._loop.run_until_complete(main())
        finally:
            self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._answer(task, reader, writer)
        finally:
            self._serving.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(
        self, task: asyncio.Task[Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            await reader.readline()
            self.begun += 1
            self._open.add(task)
            try:
                await self._measure()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds):
                        await reader.read()
                        self._killed.add(task)
                        return
            finally:
                self._open.discard(task)
            self.answered += 1
            writer.write(b"done\n")
            await writer.drain()

    async def _measure(self) -> None:
        there = set(self._open)
        if self._limit is not None and len(there) > self._limit:
            # The database may notice the end of a killed process a little earlier than this server.
            await asyncio.sleep(_MOMENT)
            there -= self._killed
        self.most = max(self.most, len(there))

    @property
    def under_way(self) -> int:
        return len(self._open)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)


class GaugedModel(Model):
    """Answers by a script after the gauge has answered."""

    def __init__(
        self,
        reply: Callable[[ScriptedRequest], Any],
        port: int,
        name: str = "openai:gauged",
        *,
        usage: TokenUsage | None = None,
        price: Callable[[TokenUsage], Decimal] | None = None,
    ) -> None:
        self.name = name
        self.provider = Provider.OpenAI
        self.port = port
        self.price = price
        self._script = ScriptedModel(reply, usage=usage)

    def open(
        self,
        system: str = "",
        functions: Sequence[Function] = (),
        settings: ModelSettings | None = None,
        *,
        exchanges: Sequence[Exchange] = (),
    ) -> Session:
        inner = self._script.open(system, functions, settings, exchanges=exchanges)
        return GaugedSession(self, inner)


class GaugedSession(WrappedSession):
    """A session of a GaugedModel."""

    def __init__(self, model: GaugedModel, inner: Session) -> None:
        super().__init__(inner)
        self._model = model

    async def send(self, *inputs: UserText | ToolResult) -> AsyncGenerator[ModelEvent, None]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._model.port)
        try:
            writer.write(b"request\n")
            assert await reader.readline() == b"done\n"
        finally:
            writer.close()
        events = self._inner.send(*inputs)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
