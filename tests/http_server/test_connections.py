"""Connections without a token, over real sockets."""

import asyncio
import os
import resource
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from logging import ERROR
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from mcp_servers import TOKEN, WITH_TOKEN
from support import double, settle
from treefold import MemoryStore
from treefold.http_server.connections import ConnectionLimits
from treefold.http_server.guard import AccessPolicy, Guard, Hosts
from treefold.http_server.serving import listen, serve_on, url_of
from treefold.mcp import McpServer, serve
from treefold.views.web import view

IDLE = 400  # connections
SPARE = 150  # file descriptors that the server may take


@asynccontextmanager
async def mcp_server() -> AsyncGenerator[str, None]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(serve([double], http="0", token=TOKEN, on_ready=ready.set_result))
        try:
            yield await ready
        finally:
            task.cancel()


@asynccontextmanager
async def served(
    limits: ConnectionLimits, answer: ASGIApp | None = None
) -> AsyncGenerator[str, None]:
    """Serve *answer*, or hello, to everybody, except at /secret, which needs the token."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for what in "startup", "shutdown":
                await receive()
                await send({"type": f"lifespan.{what}.complete"})
            return
        await (answer or PlainTextResponse("hello"))(scope, receive, send)

    policy = AccessPolicy(
        TOKEN,
        Hosts("127.0.0.1"),
        wrong_host="no",
        wrong_origin="no",
        wrong_token="no",
        needs_token=lambda path: path == "/secret",
    )
    ready = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        with listen("127.0.0.1", 0) as listening:
            serving = serve_on(listening, Guard(app, policy), ready.set, limits)
            task = group.create_task(serving)
            await ready.wait()
            try:
                yield url_of(listening, "127.0.0.1")
            finally:
                task.cancel()
                await asyncio.wait([task])


@asynccontextmanager
async def connected(url: str, sent: str = "") -> AsyncGenerator[asyncio.StreamReader, None]:
    """Make a connection, send something on it, and give what comes back."""
    address = httpx.URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(sent.encode())
        yield reader
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def until_closed(reader: asyncio.StreamReader) -> None:
    """Wait until the other end has closed a connection."""
    with suppress(ConnectionError):
        while await reader.read(10_000):
            pass


@contextmanager
def few_files(spare: int) -> Generator[None, None, None]:
    """Let this process open no more than so many files beyond those that it has open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_idle_connections_leave_files_for_a_run_and_room_for_its_viewer():
    with view(MemoryStore(), port=0) as viewer:
        headers = {"authorization": f"Bearer {viewer.token}"}
        async with (
            httpx.AsyncClient(base_url=viewer.address, headers=headers, timeout=30) as client,
            crowd(viewer.address),
        ):
            assert (await client.get("/api/trees")).json()["trees"] == []


async def test_idle_connections_leave_files_for_calls_and_room_for_clients_of_mcp():
    async with (
        mcp_server() as url,
        crowd(url),
        McpServer(url, headers=WITH_TOKEN) as client,
    ):
        assert await client.call("double", {"n": 4}) == 8


@asynccontextmanager
async def crowd(url: str) -> AsyncGenerator[None, None]:
    """Make many connections that send nothing, in a process that cannot open many more files."""
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        with few_files(IDLE + SPARE):
            for _ in range(IDLE):
                await stack.enter_async_context(connected(url))
            os.close(os.open(os.devnull, os.O_RDONLY))
            yield
            os.close(os.open(os.devnull, os.O_RDONLY))


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "GET /secret HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        "GET /secret HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nbody",
    ],
    ids=["nothing", "half a header", "no token", "half a body"],
)
async def test_a_connection_without_the_token_is_closed_in_time(sent: str):
    async with served(ConnectionLimits(seconds=0.05)) as url, connected(url, sent) as reader:
        await until_closed(reader)


async def test_one_connection_too_many_closes_the_oldest_without_the_token():
    async with (
        served(ConnectionLimits(count=2)) as url,
        httpx.AsyncClient(base_url=url, headers=WITH_TOKEN) as client,
        client.stream("GET", "/secret") as known,
        connected(url) as first,
        connected(url) as second,
        connected(url) as third,
    ):
        await until_closed(first)
        assert await known.aread() == b"hello"
        assert not second.at_eof()
        assert not third.at_eof()


async def test_a_connection_that_had_the_token_is_not_limited():
    end = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hel", "more_body": True})
        await end.wait()
        await send({"type": "http.response.body", "body": b"lo"})

    async with (
        served(ConnectionLimits(count=1, seconds=0.05), slow) as url,
        httpx.AsyncClient(base_url=url, headers=WITH_TOKEN) as client,
        client.stream("GET", "/secret") as answer,
    ):
        for _ in range(2):
            async with connected(url) as reader:
                await until_closed(reader)
        end.set()
        assert await answer.aread() == b"hello"


CHUNKED = "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "bad", ["what is this\r\n", "-5\r\n", "5\r\nhello!!\r\n", "GET / HTTP/1.1\r\n\r\n"]
)
@pytest.mark.parametrize("path", ["/", "/secret"])
@pytest.mark.parametrize("when", ["at once", "after the answer", "during the answer"])
async def test_a_body_that_is_no_http_closes_the_connection_and_logs_nothing(
    when: str, path: str, bad: str, caplog: pytest.LogCaptureFixture
):
    end = asyncio.Event()

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hel", "more_body": True})
        if when == "during the answer":
            await end.wait()
        await send({"type": "http.response.body", "body": b"lo"})

    async with served(ConnectionLimits(), answer) as url:
        address = httpx.URL(url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            if when == "at once":
                writer.write((CHUNKED.format(path) + bad).encode())
            else:
                writer.write(CHUNKED.format(path).encode())
                assert await reader.read(1)
                await settle()
                writer.write(bad.encode())
            await until_closed(reader)
            end.set()
            await settle()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
    assert [record.getMessage() for record in caplog.records if record.levelno >= ERROR] == []
