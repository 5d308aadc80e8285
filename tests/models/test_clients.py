"""Clients are shared on a loop, and closed with it."""

import asyncio
import gc
import threading
import warnings

from ramify.core.transcript import UserText
from ramify.models.clients import shared_client
from wire.protocols import Protocol, answer


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
            thread.join(30)
            assert not thread.is_alive()
        gc.collect()
