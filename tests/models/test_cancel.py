"""A stop that stops: the connection goes with the stream."""

import asyncio

from treefold.core.model_events import TextDelta
from treefold.core.transcript import UserText
from wire import Stall, stream, then
from wire.protocols import Protocol, answer


async def test_cancelling_a_stream_closes_its_connection_within_a_second(protocol: Protocol):
    reply = protocol.text("one ", "two ", "three")
    script = then(stream(*reply.steps[: len(reply.steps) // 2]), Stall())
    async with protocol.server(script) as server:
        session = protocol.model(server).open()
        begun = asyncio.Event()

        async def read() -> None:
            async for event in session.send(UserText("Hi")):
                if isinstance(event, TextDelta):
                    begun.set()

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            task = group.create_task(read())
            await begun.wait()
            task.cancel()
            async with asyncio.timeout(60):
                await server.disconnected.wait()
        assert task.cancelled()


async def test_cancelling_before_the_first_byte_closes_the_connection_too(protocol: Protocol):
    async with protocol.server(stream(Stall())) as server:
        session = protocol.model(server).open()

        async def read() -> None:
            await answer(session, UserText("Hi"))

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            task = group.create_task(read())
            await server.arrived.wait()
            task.cancel()
            async with asyncio.timeout(60):
                await server.disconnected.wait()


async def test_leaving_the_stream_early_closes_the_connection(protocol: Protocol):
    reply = protocol.text("one ", "two ", "three")
    script = then(stream(*reply.steps[: len(reply.steps) // 2]), Stall())
    async with protocol.server(script, protocol.text("fine")) as server:
        session = protocol.model(server).open()
        events = session.send(UserText("Hi"))
        await anext(events)
        await events.aclose()
        async with asyncio.timeout(60):
            await server.disconnected.wait()
        await answer(session, UserText("Hi"))
    assert len(session.transcript) == 2
