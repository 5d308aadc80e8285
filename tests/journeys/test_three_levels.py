"""Code calls an agent, that calls agents, those call tools, and all comes back."""

import pytest

from agent_scripts import agent_node
from journeys.roles import REPORTED, Result, Said, actor, assert_same, call, children, playing
from support import look
from treefold import (
    CodeFunction,
    Function,
    ModelText,
    Node,
    NodeState,
    RunContext,
    Runtime,
    ThinkingPart,
    TokenUsage,
    ToolResult,
    ToolUse,
    UserText,
)
from wire import Reply
from wire.protocols import Protocol


def program(lead: Function) -> CodeFunction:
    async def survey(ctx: RunContext, town: str) -> str:
        return f"Report: {await ctx.invoke(lead, {'task': f'Survey {town}.'})}"

    return CodeFunction(callable=survey, uses=[lead])


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
async def test_a_tree_of_three_levels_runs_to_its_end(protocol: Protocol, *, at_once: bool):
    def scouting(said: Said) -> Reply:
        if said.results:
            return protocol.text(f"{said.task} ", "is ", "fine.")
        return protocol.calls(
            call("l1", "look", at=f"left of {said.task}"),
            call("l2", "look", at=f"right of {said.task}"),
        )

    scout = actor("scout", look, parallel_tools=at_once)
    lead = actor("lead", scout, parallel_tools=at_once)
    survey = program(lead)
    asks = [
        protocol.calls(call("s1", "scout", task="the bridge"), call("s2", "scout", task="a tower")),
        protocol.calls(call("s3", "scout", task="the gate")),
        protocol.text("All ", "is ", "fine."),
    ]
    async with (
        playing(protocol, lead=asks, scout=scouting) as (server, play),
        Runtime([survey], models=protocol.model(server)) as runtime,
    ):
        root = runtime.invoke(survey, {"town": "Ulm"})
        assert await root == "Report: All is fine."
        view = runtime.get_view(root.id)

    # the tree
    [lead_node] = children(root)
    first, second = lead_node.get_children()
    assert isinstance(first, list)
    assert isinstance(second, Node)
    assert [node.sequence for node in [*first, second]] == [1, 1, 2]
    assert [node.path for node in [*first, second]] == ["1.1.1", "1.1.2", "1.1.3"]
    assert [node.tool_use_id for node in [*first, second]] == ["s1", "s2", "s3"]
    for scout_node in [*first, second]:
        [looks] = scout_node.get_children()
        assert isinstance(looks, list)
        assert [(node.sequence, node.state) for node in looks] == [(1, NodeState.Success)] * 2

    # what was said
    transcript = agent_node(lead_node).get_transcript()
    assert [part for part in transcript if not isinstance(part, ThinkingPart)] == [
        UserText("Survey Ulm."),
        ToolUse("s1", "scout", {"task": "the bridge"}),
        ToolUse("s2", "scout", {"task": "a tower"}),
        ToolResult("s1", "the bridge is fine."),
        ToolResult("s2", "a tower is fine."),
        ToolUse("s3", "scout", {"task": "the gate"}),
        ToolResult("s3", "the gate is fine."),
        ModelText("All is fine."),
    ]
    assert [said.results for said in play.told("lead")] == [
        (),
        (Result("the bridge is fine."), Result("a tower is fine.")),
        (Result("the gate is fine."),),
    ]
    answered = [said for said in play.told("scout") if said.results]
    assert {said.task: said.results for said in answered} == {
        task: (Result(f"left of {task} is fine"), Result(f"right of {task} is fine"))
        for task in ("the bridge", "a tower", "the gate")
    }

    # what it took
    each = REPORTED[protocol.name]
    assert len(server.requests) == 9
    assert lead_node.usage == sum([each] * 3, TokenUsage())
    assert [node.usage for node in first] == [each + each] * 2
    assert lead_node.total_usage == root.total_usage == sum([each] * 9, TokenUsage())
    assert root.usage == TokenUsage()

    assert_same(view, root)
