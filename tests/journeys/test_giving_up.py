"""An agent that gives up, and one above it that goes on."""

from typing import Any

import pytest

from agent_scripts import agent_node, ended
from journeys.roles import Result, actor, assert_same, call, children, playing
from treefold import (
    AgentException,
    CodeFunction,
    Function,
    NodeState,
    RunContext,
    Runtime,
    ToolResult,
    registries,
    tool,
)
from treefold.toolbox import raise_exception
from wire.protocols import Protocol

WHY = "the map has no bridge"

with registries():

    @tool
    async def look(at: str) -> str:
        """Look at something."""
        raise LookupError(f"there is no {at}")


def flagged(protocol: Protocol, body: dict[str, Any]) -> Any:
    """Return how the newest message of a request says that a call failed."""
    if protocol.name == "anthropic":
        return body["messages"][-1]["content"][0]["is_error"]
    if protocol.name == "gemini":
        return list(body["contents"][-1]["parts"][0]["functionResponse"]["response"]) == ["error"]
    return body["messages"][-1]["content"].startswith('{"tool_error":')


async def test_a_parent_is_told_and_goes_on_another_way(protocol: Protocol):
    scout = actor("scout", look, raise_exception)
    lead = actor("lead", scout)
    asks = [
        protocol.calls(call("s1", "scout", task="the bridge")),
        protocol.calls(call("s2", "scout", task="the ford")),
        protocol.text("By the ford."),
    ]
    scouting = [
        protocol.calls(call("l1", "look", at="bridge")),
        protocol.calls(call("r1", "raise_exception", msg=WHY)),
        protocol.text("It is shallow."),
    ]
    async with (
        playing(protocol, lead=asks, scout=scouting) as (server, play),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Cross the river."})
        assert await node == "By the ford."
        view = runtime.get_view(node.id)
        assert_same(view, node)

    gave_up, found = children(node)
    assert (gave_up.state, found.state) == (NodeState.Error, NodeState.Success)
    error = gave_up.exception
    assert isinstance(error, AgentException)
    assert (error.message, error.agent, error.node_id, error.path) == (
        WHY,
        "scout",
        gave_up.id,
        "1.1",
    )
    assert [frame.function for frame in error.frames] == ["lead", "scout"]
    assert view.children[0].exception is not None
    assert view.children[0].exception.message == WHY

    # what the models were told: type and message, as a failure, and no traceback
    assert play.told("scout")[1].results == (
        Result("LookupError: there is no bridge", is_error=True),
    )
    assert play.told("lead")[1].results == (Result(f"AgentException: {WHY}", is_error=True),)
    assert play.told("lead")[2].results == (Result("It is shallow."),)
    second = [request for request in server.requests if b"You are lead." in request.body][1]
    assert flagged(protocol, second.json) is True
    assert b"raceback" not in b"".join(request.body for request in server.requests)
    results = [p for p in agent_node(node).get_transcript() if isinstance(p, ToolResult)]
    assert [result.is_error for result in results] == [True, False]


async def test_the_whole_batch_is_tried_before_an_agent_ends(protocol: Protocol):
    tried: list[int] = []

    async def work(ctx: RunContext, n: int) -> str:
        tried.append(n)
        return "done"

    worker = CodeFunction(callable=work)
    lead = actor("lead", worker, raise_exception)
    batch = protocol.calls(
        call("w1", "work", n=1), call("r1", "raise_exception", msg=WHY), call("w2", "work", n=2)
    )
    async with (
        playing(protocol, lead=[batch]) as (server, _),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        node = await ended(runtime.invoke(lead, {"task": "Work."}))
    assert tried == [1, 2]
    assert isinstance(node.exception, AgentException)
    assert node.exception.node_id == node.id
    assert len(server.requests) == 1


async def test_code_above_agents_gets_the_exception_with_the_way_to_it(protocol: Protocol):
    scout = actor("scout", raise_exception)
    lead = actor("lead", scout, raise_exception)

    def program(agent: Function) -> CodeFunction:
        async def survey(ctx: RunContext) -> str:
            try:
                return await ctx.invoke(agent, {"task": "Cross the river."})
            except AgentException as error:
                caught.append(error)
                return "We stay."

        return CodeFunction(callable=survey, uses=[agent])

    caught: list[AgentException] = []
    asks = [
        protocol.calls(call("s1", "scout", task="the bridge")),
        protocol.calls(call("r2", "raise_exception", msg="nobody can cross")),
    ]
    scouting = [protocol.calls(call("r1", "raise_exception", msg=WHY))]
    async with playing(protocol, lead=asks, scout=scouting) as (server, play):
        survey = program(lead)
        async with Runtime([survey], models=protocol.model(server)) as runtime:
            node = runtime.invoke(survey)
            assert await node == "We stay."
    [error] = caught
    assert (error.agent, error.message, error.path) == ("lead", "nobody can cross", "1.1")
    assert [frame.function for frame in error.frames] == ["survey", "lead"]
    assert str(error).startswith("nobody can cross\nAgent traceback (most recent call last):\n")
    assert play.told("lead")[1].results == (Result(f"AgentException: {WHY}", is_error=True),)


@pytest.mark.parametrize("length", [10, 100_000])
async def test_what_a_model_is_told_of_a_failure_is_bounded(protocol: Protocol, length: int):
    async def fail(ctx: RunContext) -> None:
        raise ValueError("x" * length)

    lead = actor("lead", CodeFunction(callable=fail))
    asks = [protocol.calls(call("f1", "fail")), protocol.text("Oh.")]
    async with (
        playing(protocol, lead=asks) as (server, play),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        assert await runtime.invoke(lead, {"task": "Fail."}) == "Oh."
    [result] = play.told("lead")[1].results
    assert result.is_error
    assert result.content.startswith("ValueError: xxxxx")
    assert len(result.content) < 5000
