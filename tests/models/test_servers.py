"""Finding the servers that run here: those that answer are found, nobody else is waited for."""

import asyncio
import gzip
from typing import Any

import pytest

from treefold.core.errors import InvalidValueError
from treefold.models import FoundServer, find_servers
from wire.replies import (
    Reply,
    Stall,
    compact,
    cut_after,
    failure,
    in_pieces,
    slow_first_byte,
    stalled_after,
)
from wire.server import ModelServer

TIMEOUT = 10.0  # seconds; whoever answers at all does so long before


def listing(*ids: str) -> Reply:
    return failure(200, {"object": "list", "data": [{"id": id, "object": "model"} for id in ids]})


def answer(body: Any) -> Reply:
    return failure(200, body if isinstance(body, str) else compact(body))


async def test_servers_are_found_in_the_order_of_their_addresses_with_their_models():
    async with (
        asyncio.timeout(60),
        ModelServer([listing("qwen3", "llama")]) as one,
        ModelServer([in_pieces(listing("phi"), 7)]) as other,
    ):
        addresses = {"other": f"{other.url}/v1/", "one": f"{one.url}/v1"}
        assert await find_servers(addresses, TIMEOUT) == [
            FoundServer("other", f"{other.url}/v1", ("phi",)),
            FoundServer("one", f"{one.url}/v1", ("qwen3", "llama")),
        ]
    assert [(request.method, request.path) for request in one.requests] == [("GET", "/v1/models")]


@pytest.mark.parametrize("data", [[], None])
async def test_a_server_without_models_is_found_too(data: Any):
    async with asyncio.timeout(60), ModelServer([answer({"data": data})]) as server:
        assert await find_servers({"new": server.url}, TIMEOUT) == [
            FoundServer("new", server.url, ())
        ]


@pytest.mark.parametrize(
    "reply",
    [
        answer("this is no JSON"),
        answer("<html><body>It works!</body></html>"),
        answer(""),
        answer("[" * 100_000),
        answer({"error": "Unexpected endpoint"}),
        answer({"data": "qwen3"}),
        answer({"data": ["qwen3", 1, {"name": "qwen3"}, {"id": 7}]}),
        answer([{"id": "qwen3"}]),
        failure(401, {"error": {"message": "no key"}}),
        failure(404, {"data": [{"id": "qwen3"}]}),
        failure(500, "oops"),
        Reply(302, {"location": "/v1/elsewhere", "content-length": "0"}),
        Reply(200, {"content-type": "application/json", "content-encoding": "gzip"}, (b"no gzip",)),
        cut_after(listing("qwen3"), 20),
        Reply(200, {"content-type": "application/json"}, (b'{"data": [', b" " * 8_000_000, b"]}")),
        Reply(
            200,
            {"content-type": "application/json", "content-encoding": "gzip"},
            (gzip.compress(b'{"data": [' + b" " * 50_000_000 + b"]}", mtime=0),),
        ),
    ],
    ids=lambda reply: f"{reply.status} {reply.body[:20]!r}",
)
async def test_whoever_gives_no_proper_answer_is_not_there(reply: Reply):
    async with (
        asyncio.timeout(60),
        ModelServer([reply]) as strange,
        ModelServer([listing("qwen3")]) as good,
    ):
        found = await find_servers({"strange": strange.url, "good": good.url}, TIMEOUT)

    assert [server.name for server in found] == ["good"]
    assert len(strange.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        slow_first_byte(listing("qwen3"), 60),
        Reply(before=(Stall(),)),
        stalled_after(listing("qwen3"), 0),
        stalled_after(listing("qwen3"), 20),
    ],
    ids=["slow", "silent", "no body", "half a body"],
)
async def test_nobody_is_waited_for_longer_than_the_timeout(reply: Reply):
    loop = asyncio.get_running_loop()
    async with (
        asyncio.timeout(60),
        ModelServer([reply, reply]) as late,
        ModelServer([listing("qwen3")]) as good,
    ):
        begun = loop.time()
        found = await find_servers(
            {"late": late.url, "good": good.url, "late too": late.url}, timeout=1
        )
        spent = loop.time() - begun

    assert [server.name for server in found] == ["good"]
    assert spent < 5
    assert late.most_in_flight == 2  # they were asked at the same time


async def test_addresses_that_lead_nowhere_are_not_there():
    async with ModelServer() as closed:
        url = closed.url
    addresses = {
        "closed": url,
        "no port": "http://localhost:99999/v1",
        "no address": "localhost",
        "no scheme": "gopher://localhost/v1",
        "empty": "",
    }
    async with asyncio.timeout(60):
        assert await find_servers(addresses, TIMEOUT) == []
        assert await find_servers({}) == []


async def test_a_search_that_is_cancelled_ends_and_leaves_no_connection():
    async with asyncio.timeout(60), ModelServer([Reply(before=(Stall(),))]) as silent:
        search = asyncio.get_running_loop().create_task(
            find_servers({"silent": silent.url}, TIMEOUT)
        )
        await silent.arrived.wait()
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        await silent.disconnected.wait()


async def test_proxies_are_not_asked(monkeypatch: pytest.MonkeyPatch):
    async with (
        asyncio.timeout(60),
        ModelServer() as proxy,
        ModelServer([listing("qwen3")]) as server,
    ):
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert len(await find_servers({"server": server.url}, TIMEOUT)) == 1
    assert proxy.requests == []


async def test_a_timeout_that_makes_no_sense_is_refused():
    with pytest.raises(InvalidValueError, match="a search for servers"):
        await find_servers({}, timeout=-1)
