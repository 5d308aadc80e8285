"""A request that meets a dead connection of the pool is repeated at once on a new one.

The replies have a length, so that their connections are in the pool when the next request is sent.
"""

import asyncio
from dataclasses import replace
from typing import Literal

import pytest

from treefold.core.model_events import AttemptFailed, ModelEvent
from treefold.core.transcript import ModelText, UserText
from wire import Close, Cut, ModelServer, Pause, Reply, Wait, then, with_length
from wire.protocols import Protocol, answer, noting


def text(protocol: Protocol, said: str) -> Reply:
    return with_length(protocol.text(said))


def failures(events: list[ModelEvent]) -> list[str]:
    return [event.failure.message for event in events if isinstance(event, AttemptFailed)]


@pytest.mark.parametrize("hangs_up", ["after the reply", "on the next request"])
async def test_a_server_that_hangs_up_after_each_answer_is_asked_without_retries(
    protocol: Protocol, hangs_up: Literal["after the reply", "on the next request"]
):
    texts = [f"answer {n}" for n in range(30)]
    script = [text(protocol, said) for said in texts]
    async with ModelServer(script, hangs_up=hangs_up) as server:
        session = protocol.model(server, retry=noting([], ())).open()
        for n in range(30):
            await answer(session, UserText(f"question {n}"))
    said = [part.text for part in session.transcript if isinstance(part, ModelText)]
    assert said == texts
    assert len(server.requests) == 30
    assert hangs_up == "after the reply" or server.dropped == 15  # the repeats are not pooled


async def test_six_requests_at_once_meet_six_dead_connections(protocol: Protocol):
    together = asyncio.Event()
    first = text(protocol, "ok")
    late = replace(first, before=(Wait(together),))
    script = [late] * 6 + [text(protocol, "again")] * 6
    async with ModelServer(script, hangs_up="on the next request") as server:
        sessions = [protocol.model(server, retry=noting([], ())).open() for _ in range(6)]
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(answer(session, UserText("Hi")))
            while server.in_flight < 6:
                server.arrived.clear()
                await server.arrived.wait()
            together.set()
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(answer(session, UserText("Hi")))
    assert (len(server.requests), server.dropped, server.connections) == (12, 6, 12)
    assert all(session.transcript[-1] == ModelText("again") for session in sessions)


@pytest.mark.parametrize("end", [Close(), Cut()])
async def test_the_repeat_is_the_same_request_and_is_not_shown_or_charged(
    protocol: Protocol, end: Close | Cut
):
    script = [text(protocol, "one"), Reply(before=(end,)), text(protocol, "two")]
    async with protocol.server(*script) as server:
        session = protocol.model(server, retry=noting([], ())).open()
        first = await answer(session, UserText("Hi"))
        second = await answer(session, UserText("Hi"))
    assert [type(event) for event in second] == [type(event) for event in first]
    assert server.requests[1].body == server.requests[2].body
    assert session.exchanges[0].usage == session.exchanges[1].usage


async def test_only_one_repeat_is_made_and_its_failure_is_a_failed_attempt(protocol: Protocol):
    gone = Reply(before=(Close(),))
    script = [text(protocol, "one"), gone, gone, text(protocol, "two")]
    waits: list[float] = []
    async with protocol.server(*script) as server:
        session = protocol.model(server, retry=noting(waits)).open()
        await answer(session, UserText("Hi"))
        events = await answer(session, UserText("Hi"))
        assert len(server.requests) == 4
    assert len(failures(events)) == 1
    assert waits == [5.0]


async def test_a_request_is_not_repeated_at_once_when_its_answer_had_begun(protocol: Protocol):
    begun = Reply(before=(b"HTTP/1.1 2", Close()))
    headers_only = Reply(200, {"content-type": "text/event-stream"}, (Close(),))
    for broken in (begun, headers_only):
        waits: list[float] = []
        script = [text(protocol, "one"), broken, text(protocol, "two")]
        async with protocol.server(*script) as server:
            session = protocol.model(server, retry=noting(waits)).open()
            await answer(session, UserText("Hi"))
            events = await answer(session, UserText("Hi"))
            assert len(server.requests) == 3
        assert len(failures(events)) == len(waits) == 1


async def test_a_pool_is_still_used_where_connections_last(protocol: Protocol):
    async with protocol.server(*[text(protocol, "ok")] * 10) as server:
        session = protocol.model(server).open()
        for _ in range(10):
            await answer(session, UserText("Hi"))
        assert server.connections == 1


async def test_the_end_of_a_stream_is_waited_for_to_use_its_connection_again(protocol: Protocol):
    late = then(protocol.text("ok"), Pause(0.001))  # the last event comes before the end
    async with protocol.server(*[late] * 10) as server:
        session = protocol.model(server).open()
        for _ in range(10):
            await answer(session, UserText("Hi"))
        assert server.connections < 10  # not 1: a client does not wait long for it
