"""Providers that fail: some recover, and some have to be waited for by people."""

import asyncio
from typing import Any

import pytest

from agent_scripts import agent_node, ended, until
from journeys.roles import (
    REPORTED,
    Result,
    actor,
    all_views,
    assert_same,
    call,
    children,
    playing,
    with_steps,
)
from treefold import (
    ModelProviderException,
    NodeState,
    NodeView,
    QuestionKind,
    Runtime,
    TokenUsage,
    registries,
    tool,
)
from treefold.models import Retry
from wire import Cut, Request, Wait
from wire.protocols import Protocol, noting
from wire.replies import stream

looked: list[str] = []

with registries():

    @tool
    async def look(at: str) -> str:
        """Look at something."""
        looked.append(at)
        return f"{at} is fine"


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    looked.clear()


def bodies(requests: list[Request], agent: str) -> list[Any]:
    return [request.json for request in requests if f"You are {agent}.".encode() in request.body]


def watching(retries: list[tuple[float, str]], current: list[Runtime]) -> Retry:
    """Return the usual schedule, with a clock that looks at the tree instead of waiting."""

    async def sleep(seconds: float) -> None:
        [root] = current[0].list_toplevel()
        view = next(v for v in all_views(current[0].get_view(root.id)) if v.fn == "scout")
        retries.append((seconds, view.status))

    return Retry(sleep=sleep)


def family() -> Any:
    return actor("lead", actor("scout", look))


def leading(protocol: Protocol) -> list[Any]:
    return [protocol.calls(call("s", "scout", task="Scout.")), protocol.text("Led.")]


async def test_a_provider_that_fails_four_times_and_recovers_is_waited_for_in_sight(
    protocol: Protocol,
):
    lead = family()
    retries: list[tuple[float, str]] = []
    current: list[Runtime] = []
    broken = with_steps(protocol.text("It ", "is ", "fine."), Cut())
    scouting = [
        protocol.calls(call("l", "look", at="the gate")),
        protocol.failure(503, "busy"),
        protocol.failure(500, "oops"),
        broken,
        protocol.failure(429, "slow down"),
        protocol.text("It is fine."),
    ]
    async with playing(protocol, lead=leading(protocol), scout=scouting) as (server, play):
        model = protocol.model(server, retry=watching(retries, current))
        async with Runtime([lead], models=model) as runtime:
            current.append(runtime)
            node = runtime.invoke(lead, {"task": "Lead."})
            assert await node == "Led."
            view = runtime.get_view(node.id)
            assert_same(view, node)
    assert [wait for wait, _ in retries] == [5, 10, 15, 20]
    for (wait, status), why in zip(
        retries, ["HTTP 503: busy", "HTTP 500: oops", "", "HTTP 429: slow down"], strict=True
    ):
        assert status.startswith(f"tries again in {wait:g} s: ")
        assert why in status
    assert [one.status for one in all_views(view)] == [""] * 3
    attempts = bodies(server.requests, "scout")[1:]
    assert attempts == [attempts[0]] * 5
    assert looked == ["the gate"]
    assert play.told("lead")[1].results == (Result("It is fine."),)
    assert len(server.requests) == 2 + 6


async def test_a_paused_agent_goes_on_from_its_last_success(protocol: Protocol):
    lead = family()
    waits: list[float] = []
    scouting = [
        protocol.calls(call("l", "look", at="the gate")),
        *[protocol.failure(503, "busy")] * 10,
        protocol.text("It is fine."),
    ]
    async with playing(protocol, lead=leading(protocol), scout=scouting) as (server, play):
        model = protocol.model(server, retry=noting(waits))
        async with Runtime([lead], models=model, on_provider_failure="pause") as runtime:
            node = runtime.invoke(lead, {"task": "Lead."})
            for times in (1, 2):
                [question] = await until(runtime.questions)
                assert question.kind is QuestionKind.Paused
                assert "busy" in question.text
                view = runtime.get_view(node.id)
                scout: NodeView = view.children[0]
                assert (scout.state, scout.id) == (NodeState.Paused, question.node_id)
                assert "busy" in scout.status
                assert len(waits) == 4 * times
                assert runtime.resume(node.id) is node  # whoever is paused below goes on
            assert await node == "Led."
            assert_same(runtime.get_view(node.id), node)
    assert waits == [5, 10, 15, 20] * 2
    attempts = bodies(server.requests, "scout")[1:]
    assert attempts == [attempts[0]] * 11
    assert len(bodies(server.requests, "lead")) == 2
    assert looked == ["the gate"]
    assert play.told("lead")[1].results == (Result("It is fine."),)
    assert node.total_usage == sum([REPORTED[protocol.name]] * 4, TokenUsage())


async def test_a_paused_agent_can_be_cancelled(protocol: Protocol):
    lead = family()
    scouting = [protocol.failure(503, "busy")] * 5
    async with (
        playing(protocol, lead=leading(protocol)[:1], scout=scouting) as (server, _),
        Runtime([lead], models=protocol.model(server), on_provider_failure="pause") as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        await until(runtime.questions)
        node.cancel("we gave up on them")
        await ended(node)
        assert {v.state for v in all_views(runtime.get_view(node.id))} == {NodeState.Canceled}
        assert runtime.questions() == []


async def test_an_agent_that_failed_is_resumed_as_a_new_call_from_its_last_response(
    protocol: Protocol,
):
    lead = family()
    scouting = [protocol.calls(call("l", "look", at="the gate")), protocol.text("It is fine.")]
    asks = [
        protocol.calls(call("s", "scout", task="Scout.")),
        *[protocol.failure(503, "busy")] * 5,
        protocol.text("Led."),
    ]
    async with (
        playing(protocol, lead=asks, scout=scouting) as (server, play),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        node = await ended(runtime.invoke(lead, {"task": "Lead."}))
        error = node.exception
        assert isinstance(error, ModelProviderException)
        assert (error.agent, error.node_id, error.path) == ("lead", node.id, "1")
        assert (error.status, error.attempts) == (503, 5)
        again = runtime.resume(node.id)
        assert again is not node
        assert await again == "Led."
        assert_same(runtime.get_view(node.id), node)
        assert_same(runtime.get_view(again.id), again)
    attempts = bodies(server.requests, "lead")[1:]
    assert attempts == [attempts[0]] * 6  # the first request was not made again
    assert play.told("lead")[-1].results == (Result("It is fine."),)
    assert looked == ["the gate"]
    assert len(play.told("scout")) == 2
    assert (again.path, children(again)) == ("2", [])
    assert again.total_usage == REPORTED[protocol.name]  # what was paid for is the first one's
    assert node.total_usage == sum([REPORTED[protocol.name]] * 3, TokenUsage())
    whole = agent_node(again).get_transcript()
    assert whole[: len(agent_node(node).get_transcript())] == agent_node(node).get_transcript()


async def test_an_agent_whose_first_request_failed_is_resumed_from_its_prompt(protocol: Protocol):
    lead = family()
    asks = [protocol.failure(401, "wrong key"), protocol.failure(401, "wrong key")]
    async with (
        playing(protocol, lead=[*asks, protocol.text("Led.")]) as (server, _),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        node = await ended(runtime.invoke(lead, {"task": "Lead."}))
        again = await ended(runtime.resume(node.id))
        assert isinstance(again.exception, ModelProviderException)
        last = runtime.resume(again.id)
        assert await last == "Led."
        assert_same(runtime.get_view(last.id), last)
    sent = [request.json for request in server.requests]
    assert sent == [sent[0]] * 3
    assert last.inputs == {"task": "Lead."}


async def test_a_failure_below_is_told_to_the_agent_above(protocol: Protocol):
    lead = family()
    scouting = [protocol.failure(401, "wrong key")]
    async with (
        playing(protocol, lead=leading(protocol), scout=scouting) as (server, play),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        assert await node == "Led."
        assert_same(runtime.get_view(node.id), node)
    [result] = play.told("lead")[1].results
    assert result.is_error
    assert result.content.startswith("ModelProviderException: ")
    assert "wrong key" in result.content
    assert "raceback" not in result.content
    [scout] = children(node)
    assert isinstance(scout.exception, ModelProviderException)
    assert [frame.function for frame in scout.exception.frames] == ["lead", "scout"]


async def test_a_wait_before_another_attempt_ends_with_its_tree(protocol: Protocol):
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    lead = family()
    async with playing(
        protocol, lead=leading(protocol)[:1], scout=[protocol.failure(503, "busy")]
    ) as (server, _):
        model = protocol.model(server, retry=Retry(sleep=sleep))
        async with Runtime([lead], models=model) as runtime:
            node = runtime.invoke(lead, {"task": "Lead."})
            async with asyncio.timeout(60):
                await waiting.wait()
            node.cancel("enough")
            await ended(node)
            assert {v.state for v in all_views(runtime.get_view(node.id))} == {NodeState.Canceled}
    assert len(server.requests) == 2


async def test_text_of_a_response_that_failed_half_way_is_not_shown_any_more(protocol: Protocol):
    lead = actor("lead")
    held = asyncio.Event()
    reply = protocol.text("one ", "two ", "three")
    broken = stream(*reply.steps[:4], Wait(held), protocol.failure_event("Overloaded."))
    async with protocol.server(broken, reply) as server:
        model = protocol.model(server, retry=Retry(()))
        async with (
            asyncio.timeout(60),
            Runtime([lead], models=model, on_provider_failure="pause") as runtime,
        ):
            node = runtime.invoke(lead, {"task": "Lead."})
            async for view in runtime.watch(node):
                if view.partial:
                    assert view.partial in {"one ", "one two ", "one two three"}
                    held.set()
                if view.state is NodeState.Paused:
                    break
            assert held.is_set()  # a part was shown
            assert runtime.get_view(node.id).partial == ""
            runtime.resume(node.id)
            assert await node == "one two three"
