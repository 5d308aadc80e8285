"""The server: what it sends is what was scripted, faults included, and it tells what it saw."""

import asyncio
import http.client
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from wire import (
    Cut,
    ModelServer,
    Pause,
    Reply,
    Request,
    Stall,
    Wait,
    closed_after,
    cut_after,
    failure,
    in_pieces,
    slow_first_byte,
    stalled_after,
    stream,
    then,
)

ASK = b"POST /v1/x HTTP/1.1\r\nHost: wire\r\nContent-Length: 2\r\n\r\n{}"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
REPLY = stream(b"data: one\n\n", b"data: two\n\n")


@asynccontextmanager
async def connected(
    server: ModelServer,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


async def test_a_connection_is_kept_for_the_replies_of_a_script():
    def ask(address: str) -> list[tuple[int, bytes]]:
        line = http.client.HTTPConnection(address, timeout=60)
        got: list[tuple[int, bytes]] = []
        for body in ("{}", json.dumps({"n": 1}), "{}"):
            line.request("POST", "/v1/chat?x=1", body, {"X-Key": "K"})
            answer = line.getresponse()
            got.append((answer.status, answer.read()))
        line.close()
        return got

    async with asyncio.timeout(60), ModelServer([REPLY]) as server:
        server.add(failure(429, {"error": "slow down"}))
        got = await asyncio.to_thread(ask, urlsplit(server.url).netloc)
    assert got[0] == (200, b"data: one\n\ndata: two\n\n")
    assert got[1] == (429, b'{"error":"slow down"}')
    assert got[2] == (500, b'{"error":{"message":"the script is over"}}')
    assert (server.connections, server.unexpected, server.left, server.disconnects) == (1, 1, 0, 0)
    second = server.requests[1]
    assert (second.method, second.path, second.json) == ("POST", "/v1/chat?x=1", {"n": 1})
    assert second.headers["x-key"] == "K"


async def test_a_chunked_request_is_read_to_its_end():
    ask = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b'3;note=x\r\n{"a\r\n4\r\n":1}\r\n0\r\nTrailer: x\r\n\r\n'
    async with ModelServer([REPLY, REPLY]) as server, connected(server) as (reader, writer):
        writer.write(ask + body + ASK)  # and the next request at once
        got = await reader.readexactly(2 * len(HEAD + b"b\r\ndata: one\n\n\r\n" * 2 + b"0\r\n\r\n"))
    assert got.count(HEAD) == 2
    assert [request.path for request in server.requests] == ["/a", "/v1/x"]
    assert server.requests[0].json == {"a": 1}


async def test_replies_can_depend_on_the_request():
    def choose(request: Request) -> Reply | None:
        return failure(404, "nothing here") if request.path == "/v1/x" else None

    async with ModelServer([REPLY]) as server, connected(server) as (reader, writer):
        server.on_request = choose
        writer.write(ASK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        got = await reader.read()
    assert got.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert got.endswith(b"\r\n\r\nnothing here")
    assert server.left == 1


async def test_pieces_have_chunks_of_their_own():
    async with ModelServer([in_pieces(REPLY, 8)]) as server, connected(server) as (reader, writer):
        writer.write(ASK)
        got = await reader.readuntil(b"\r\n0\r\n\r\n")
    chunks = b"8\r\ndata: on\r\n8\r\ne\n\ndata:\r\n6\r\n two\n\n\r\n0\r\n\r\n"
    assert got == HEAD + chunks
    assert in_pieces(REPLY, 8).body == REPLY.body


async def test_a_reply_can_be_cut():
    async with ModelServer([cut_after(REPLY, 14)]) as server, connected(server) as (reader, writer):
        writer.write(ASK)
        got = await reader.readuntil(b"3\r\ndat\r\n")
        with pytest.raises(ConnectionResetError):
            await reader.read()
    assert got == HEAD + b"b\r\ndata: one\n\n\r\n3\r\ndat\r\n"
    assert server.disconnects == 0  # it was not the client who went


async def test_a_connection_can_be_reset_before_the_first_byte():
    reply = Reply(before=(Cut(),))
    async with ModelServer([reply]) as server, connected(server) as (reader, writer):
        writer.write(ASK)
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_a_reply_can_end_too_early_in_order():
    async with (
        ModelServer([closed_after(REPLY, 11)]) as server,
        connected(server) as (reader, writer),
    ):
        writer.write(ASK)
        assert await reader.read() == HEAD + b"b\r\ndata: one\n\n\r\n"


async def test_a_client_that_leaves_a_stalled_reply_is_counted():
    async with ModelServer([stalled_after(REPLY, 11), REPLY]) as server:
        async with connected(server) as (reader, writer):
            writer.write(ASK)
            await reader.readuntil(b"data: one\n\n\r\n")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await reader.read(1)
            assert server.disconnects == 0
        async with asyncio.timeout(60):
            await server.disconnected.wait()
        assert server.disconnects == 1


async def test_a_client_that_leaves_after_the_reply_is_not_counted():
    async with ModelServer([REPLY]) as server:
        async with connected(server) as (reader, writer):
            writer.write(ASK)
            await reader.readuntil(b"0\r\n\r\n")
        async with connected(server) as (reader, writer):  # by then the first one is gone
            writer.write(ASK)
            await reader.readuntil(b"over")
    assert (server.disconnects, server.connections) == (0, 2)


async def test_a_reply_waits_before_and_between_its_bytes():
    gate, later = asyncio.Event(), asyncio.Event()
    reply = then(Reply(before=(Wait(gate),)), b"a", Pause(0.01), Wait(later), b"b")
    async with ModelServer([reply]) as server, connected(server) as (reader, writer):
        writer.write(ASK)
        for event, end in ((gate, b"1\r\na\r\n"), (later, b"1\r\nb\r\n0\r\n\r\n")):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await reader.read(1)
            event.set()
            await reader.readuntil(end)


async def test_the_first_byte_can_be_slow():
    loop = asyncio.get_running_loop()
    async with (
        ModelServer([slow_first_byte(REPLY, 0.1)]) as server,
        connected(server) as (reader, writer),
    ):
        start = loop.time()
        writer.write(ASK)
        await reader.readexactly(1)
        assert loop.time() - start >= 0.09


async def test_a_server_that_closes_ends_what_is_under_way():
    async with ModelServer([stream(Stall())]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
        writer.write(ASK)
        async with asyncio.timeout(60):
            await reader.readexactly(len(HEAD))
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()
    assert server.disconnects == 0


BAD = b"""POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 29\r\n\r
{"model":"m", "messages": []}"""


async def test_a_bad_request_is_refused_and_raised_when_the_server_is_left():
    async def ask() -> None:
        async with server, connected(server) as (reader, writer):
            writer.write(BAD)
            got = await reader.readuntil(b"}}")
            assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert b'"type":"invalid_request_error","param":"messages"' in got

    server = ModelServer([REPLY])
    with pytest.raises(AssertionError, match=r"openai \(shape\): Invalid 'messages': empty array"):
        await ask()
    assert len(server.faults) == 1
    assert (server.refusals, server.left) == ({"shape": 1}, 1)


async def test_a_refusal_that_is_expected_is_counted_only():
    async with ModelServer([REPLY], expects={"shape"}) as server, connected(server) as line:
        reader, writer = line
        writer.write(BAD)
        assert b"400 Bad Request" in await reader.readuntil(b"}}")
    assert server.refusals == {"shape": 1}


async def test_a_fault_that_is_allowed_is_answered_by_the_script():
    async with ModelServer([REPLY], allows={"shape"}) as server, connected(server) as line:
        reader, writer = line
        writer.write(BAD)
        assert b"200 OK" in await reader.readuntil(b"0\r\n\r\n")
    assert not server.refusals


async def test_faults_do_not_hide_what_a_test_has_raised():
    async def fail() -> None:
        async with ModelServer([]) as server:
            server.on_request = lambda request: request.json["missing"]
            async with connected(server) as (reader, writer):
                writer.write(ASK)
                assert b"500 Internal Server Error" in await reader.readuntil(b"missing")
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine") as caught:
        await fail()
    assert "missing" in caught.value.__notes__[0]
