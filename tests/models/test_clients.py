"""Clients are shared on a loop, and closed with it."""

import asyncio
import gc
import threading
import warnings

import pytest

from treefold.core.errors import ModelProviderException
from treefold.core.transcript import UserText
from treefold.models.clients import shared_client
from wire import ModelServer, failure
from wire.protocols import KEY, Protocol, answer, noting


class Client:
    closed = False

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True


async def get(key: str) -> Client:
    return await shared_client(key, Client, Client.close)


def test_a_client_lives_as_long_as_its_loop():
    async def main() -> list[Client]:
        first, again, other = await get("a"), await get("a"), await get("b")
        assert first is again is not other
        return [first, other]

    clients = asyncio.run(main())
    assert all(client.closed for client in clients)
    assert clients != asyncio.run(main())


def test_a_client_that_cannot_be_made_is_not_kept():
    class RefusedError(Exception):
        pass

    def fail() -> Client:
        raise RefusedError

    async def main() -> None:
        for _ in range(2):
            try:
                await shared_client("x", fail, Client.close)
            except RefusedError:
                continue
            raise AssertionError
        assert not (await get("x")).closed

    asyncio.run(main())


def test_one_client_that_does_not_close_leaves_no_other_open():
    class Stubborn(Client):
        async def close(self) -> None:
            raise OSError("no")

    good: list[Client] = []

    async def main() -> None:
        await shared_client("bad", Stubborn, Stubborn.close)
        good.append(await get("good"))
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

    asyncio.run(main())
    assert good[0].closed


def test_each_thread_has_its_own_and_nothing_is_left_open(protocol: Protocol):
    async def main() -> None:
        async with protocol.server(protocol.text("ok"), protocol.text("ok")) as server:
            model = protocol.model(server)
            await answer(model.open(), UserText("Hi"))
            await answer(model.open(), UserText("Hi"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads = [threading.Thread(target=asyncio.run, args=[main()]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        gc.collect()


@pytest.mark.parametrize(("name", "value"), [("http_proxy", ""), ("all_proxy", "me:pass%40@")])
async def test_the_proxy_of_the_environment_is_used(
    protocol: Protocol, monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    for known in ("http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(known, raising=False)
        monkeypatch.delenv(known.upper(), raising=False)
    async with protocol.server(protocol.text("ok")) as proxy:
        monkeypatch.setenv(name, proxy.url.replace("://", f"://{value}"))
        model = protocol.make(base_url="http://model.invalid", api_key=KEY, retry=noting([], ()))
        await answer(model.open(), UserText("Hi"))
        assert proxy.requests[0].path.startswith("http://model.invalid/")
        credentials = proxy.requests[0].headers.get("proxy-authorization")
        assert credentials == ("Basic bWU6cGFzc0A=" if value else None)


async def test_a_proxy_that_opens_a_tunnel_does_not_see_the_key(
    protocol: Protocol, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("no_proxy", raising=False)
    async with ModelServer([failure(502, "No tunnel.")]) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        model = protocol.make(base_url="https://model.invalid", api_key=KEY, retry=noting([], ()))
        with pytest.raises(ModelProviderException):
            await answer(model.open(), UserText("Hi"))
        assert proxy.requests[0].method == "CONNECT"
        assert KEY not in repr(proxy.requests[0].headers)


async def test_a_host_that_needs_no_proxy_is_asked_itself(
    protocol: Protocol, monkeypatch: pytest.MonkeyPatch
):
    async with ModelServer() as proxy, protocol.server(protocol.text("ok")) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        await answer(protocol.model(server).open(), UserText("Hi"))
    assert (len(proxy.requests), len(server.requests)) == (0, 1)
