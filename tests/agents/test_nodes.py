"""The nodes of agents: views, transcripts and accounts."""

import asyncio
import dataclasses
from decimal import Decimal
from typing import Any

import pytest

from agent_scripts import StagedModel, agent_node, ended, run, run_agent, seen, until, worker
from support import look
from treefold import (
    AgentFunction,
    AgentNode,
    CodeFunction,
    FunctionArg,
    ModelText,
    Node,
    NodeState,
    Provider,
    RunContext,
    Runtime,
    ThinkingPart,
    TokenUsage,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
    tool,
)
from treefold.testing import ScriptedFailure, ScriptedModel

SPENT = TokenUsage(input=100, cache_read=10, reasoning=5, output=20)


def looking(id: str, at: str = "x") -> ToolUse:
    return ToolUse(id, "look", {"at": at})


def claude(script: ScriptedModel) -> StagedModel:
    """Return *script* as a model that has a price."""
    return StagedModel(script, name="anthropic:claude-opus-4-1", provider=Provider.Anthropic)


# --- fields


async def test_a_node_has_its_function_its_inputs_and_its_outputs():
    greet = AgentFunction(
        "greet", "", args=[FunctionArg("who", str)], user_prompt_template="Greet {who}."
    )
    node = await run_agent(greet, {"who": "Ann"}, models=ScriptedModel("Hi Ann"))
    assert node.function is greet
    assert node.inputs == {"who": "Ann"}
    assert node.outputs == "Hi Ann"
    assert node.exception is None
    assert node.state is NodeState.Success
    assert node.waiting_on is None
    assert node.started_at is not None
    assert node.ended_at is not None
    assert node.started_at <= node.ended_at


async def test_a_node_that_failed_has_its_exception_and_no_outputs():
    node = await run_agent(worker("boss"), models=ScriptedModel(ScriptedFailure(400, "bad")))
    assert node.state is NodeState.Error
    assert node.outputs is None
    assert node.exception is not None


async def test_the_result_of_a_node_is_its_output_or_raises_its_exception():
    async with Runtime([worker("boss"), look]) as runtime, asyncio.timeout(60):
        good = await ended(runtime.invoke(worker("a"), model=ScriptedModel("done")))
        assert good.result() == "done"
        bad = await ended(runtime.invoke(worker("b"), model=ScriptedModel(ScriptedFailure(400))))
        with pytest.raises(type(bad.exception)) as caught:  # pyright: ignore
            bad.result()
        assert caught.value is bad.exception
        code = await ended(runtime.invoke(look, {"att": "x"}))
        with pytest.raises(ValueError, match="att"):
            code.result()


async def test_an_agent_waits_runs_and_succeeds():
    model = StagedModel(ScriptedModel("done"), held=True)
    async with Runtime([worker("boss")], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(runtime.invocable_functions["boss"])
        states = {node.state}
        await until(lambda: model.in_flight)
        states.add(node.state)
        model.gate.set()
        await node
        states.add(node.state)
    assert states >= {NodeState.Running, NodeState.Success}
    assert states <= {NodeState.Waiting, NodeState.Running, NodeState.Success}


async def test_the_same_objects_represent_present_and_past():
    go_on, inside = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        inside.set()
        await go_on.wait()
        return "over"

    boss = worker("boss", wait)
    model = ScriptedModel([ModelText("Waiting."), ToolUse("a", "wait")], "done")
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = agent_node(runtime.invoke(boss))
        await inside.wait()
        [child] = node.get_children()
        assert isinstance(child, Node)
        assert child.state is NodeState.Running
        assert list(node.get_transcript()) == [
            UserText("I am boss."),
            ModelText("Waiting."),
            ToolUse("a", "wait"),
        ]
        go_on.set()
        await node
        assert node.get_children() == [child]
        assert child.state is NodeState.Success
        assert runtime.get_subtree(node.id) == [node, child]


# --- transcripts


async def test_a_transcript_is_a_list_of_parts_common_to_all_models():
    model = ScriptedModel([ThinkingPart("Hm."), ModelText("Looking."), looking("a")], "done")
    node = await run_agent(worker("boss", look), models=model)
    parts = node.get_transcript()
    assert isinstance(parts, list)
    assert all(isinstance(part, TranscriptPart) for part in parts)
    assert parts == [
        UserText("I am boss."),
        ThinkingPart("Hm."),
        ModelText("Looking."),
        looking("a"),
        ToolResult("a", "x is fine"),
        ModelText("done"),
    ]


async def test_changing_the_list_that_was_returned_does_not_change_the_transcript():
    node = await run_agent(worker("boss"), models=ScriptedModel("done"))
    node.get_transcript().clear()
    assert len(node.get_transcript()) == 2


async def test_an_agent_that_failed_still_has_what_was_said_till_then():
    model = ScriptedModel([ModelText("Looking."), looking("a")], ScriptedFailure(400, "bad"))
    node = await run_agent(worker("boss", look), models=model)
    assert node.state is NodeState.Error
    parts = node.get_transcript()
    assert parts[:3] == [UserText("I am boss."), ModelText("Looking."), looking("a")]


async def test_each_agent_of_a_tree_has_its_own_transcript():
    helper = worker("helper")
    boss = worker("boss", helper)
    model = ScriptedModel([ToolUse("a", "helper")], "helped", "done")
    node = await run_agent(boss, models=model)
    [child] = map(agent_node, node.get_children())
    assert child.get_transcript() == [UserText("I am helper."), ModelText("helped")]
    assert ToolResult("a", "helped") in node.get_transcript()
    assert UserText("I am helper.") not in node.get_transcript()


# --- children


async def test_children_of_code_are_in_the_order_in_which_they_were_called():
    boss = worker("boss")

    async def top(ctx: RunContext) -> None:
        await ctx.invoke(look, {"at": "1"})
        await ctx.invoke(boss)
        await ctx.invoke(look, {"at": "2"})

    node = await run(CodeFunction(callable=top, uses=[look, boss]), models=ScriptedModel("done"))
    children = node.get_children()
    names = [child.function.name for child in children if isinstance(child, Node)]
    assert names == ["look", "boss", "look"]
    assert [child.sequence for child in children if isinstance(child, Node)] == [1, 2, 3]


async def test_calls_that_code_asked_for_in_parallel_can_be_tied():
    async def top(ctx: RunContext) -> None:
        first = ctx.invoke(look, {"at": "1"})
        second = ctx.invoke(look, {"at": "2"}, tied_with=first)
        await first
        await second

    node = await run(CodeFunction(callable=top, uses=[look]))
    [tied] = node.get_children()
    assert isinstance(tied, list)
    assert len(tied) == 2


# --- views


async def test_a_view_is_an_immutable_snapshot_with_all_that_a_node_has():
    helper = worker("helper", look)
    boss = worker("boss", helper)
    model = ScriptedModel(
        [ToolUse("a", "helper")], [looking("b")], "helped", "done", name="mine", usage=SPENT
    )
    async with Runtime([boss], models=model) as runtime:
        node = agent_node(await ended(runtime.invoke(boss)))
        view = runtime.get_view(node.id)
        [child] = view.children
        [leaf] = child.children
    assert (view.id, view.path, view.fn) == (node.id, "1", "boss")
    assert (view.inputs, view.outputs, view.exception) == ({}, "done", None)
    assert view.state is NodeState.Success
    assert view.model == child.model == "mine"
    assert leaf.model is None
    assert list(view.transcript) == node.get_transcript()
    assert list(leaf.transcript) == []
    assert (view.tool_use_id, child.tool_use_id, leaf.tool_use_id) == (None, "a", "b")
    assert view.usage == SPENT + SPENT
    assert view.total_usage == SPENT + SPENT + SPENT + SPENT
    assert child.usage == child.total_usage == SPENT + SPENT
    assert leaf.usage == TokenUsage()
    assert view.cost is view.total_cost is None
    assert view.started_at is not None
    assert view.ended_at is not None
    assert view.status == child.status == leaf.status == ""
    assert view.update_seqnum > 0
    with pytest.raises((AttributeError, dataclasses.FrozenInstanceError)):
        view.fn = "other"  # pyright: ignore


async def test_watching_shows_a_transcript_as_it_grows():
    model = ScriptedModel([looking("a")], [looking("b")], "done")
    async with Runtime([worker("boss", look)], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(runtime.invocable_functions["boss"])
        lengths = [len(view.transcript) async for view in runtime.watch(node)]
    assert lengths == sorted(lengths)
    assert lengths[-1] == 6


async def test_a_status_says_what_a_node_does_or_waits_for_now():
    model = StagedModel(ScriptedModel("done", name="mine"), name="mine", held=True)
    async with Runtime([worker("boss")], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(runtime.invocable_functions["boss"])
        await until(lambda: model.in_flight)
        view = await seen(runtime, node, lambda view: view.status)
        assert isinstance(view.status, str)
        assert "\n" not in view.status
        model.gate.set()
        await node
        assert runtime.get_view(node.id).status == ""


async def test_a_view_of_a_failed_agent_tells_why():
    model = ScriptedModel(ScriptedFailure(400, "a bad request"))
    async with Runtime([worker("boss")], models=model) as runtime:
        node = await ended(runtime.invoke(runtime.invocable_functions["boss"]))
        view = runtime.get_view(node.id)
    assert view.state is NodeState.Error
    assert "a bad request" in str(view.exception)


# --- accounts


async def test_the_account_of_a_node_is_the_sum_of_its_own_requests():
    model = ScriptedModel([looking("a")], [looking("b")], "done", usage=SPENT)
    node = await run_agent(worker("boss", look), models=model)
    assert node.usage == SPENT + SPENT + SPENT


async def test_the_account_of_a_subtree_includes_all_below():
    helper = worker("helper")
    boss = worker("boss", helper)

    async def top(ctx: RunContext) -> Any:
        await ctx.invoke(helper)
        return await ctx.invoke(boss)

    model = ScriptedModel("helped", [ToolUse("a", "helper")], "helped", "done", usage=SPENT)
    node = await run(CodeFunction(callable=top, uses=[helper, boss]), models=model)
    assert node.usage == TokenUsage()
    assert node.total_usage == SPENT + SPENT + SPENT + SPENT
    first, second = node.get_children()
    assert agent_node(first).total_usage == SPENT
    assert agent_node(second).usage == SPENT + SPENT
    assert agent_node(second).total_usage == SPENT + SPENT + SPENT


async def test_accounts_are_in_money_where_the_price_is_known():
    helper = worker("helper")
    boss = worker("boss", helper)
    script = ScriptedModel([ToolUse("a", "helper")], "helped", "done", usage=TokenUsage(input=1000))
    node = await run_agent(boss, models=claude(script))
    assert node.cost == Decimal("0.030")
    assert node.total_cost == Decimal("0.045")
    [child] = map(agent_node, node.get_children())
    assert child.cost == child.total_cost == Decimal("0.015")


async def test_a_price_that_is_not_known_is_never_guessed():
    node = await run_agent(worker("boss"), models=ScriptedModel("done", usage=SPENT))
    assert node.cost is None
    assert node.total_cost is None


async def test_a_sum_with_an_unknown_price_in_it_is_unknown():
    helper = worker("helper", default_model=ScriptedModel("helped", usage=SPENT))
    boss = worker("boss", helper)
    script = ScriptedModel([ToolUse("a", "helper")], "done", usage=SPENT)
    node = await run_agent(boss, models=claude(script))
    assert node.cost is not None
    assert node.total_cost is None


async def test_what_failed_was_paid_for_all_the_same():
    model = ScriptedModel([looking("a")], ScriptedFailure(400), usage=SPENT)
    node = await run_agent(worker("boss", look), models=model)
    assert node.state is NodeState.Error
    assert node.usage == SPENT


async def test_there_is_one_class_of_node_for_the_agents_of_all_providers():
    for provider in Provider:
        model = StagedModel(ScriptedModel("done"), name=f"{provider}:x", provider=provider)
        node = await run_agent(worker("boss"), models=model)
        assert type(node) is AgentNode
        assert node.model == f"{provider}:x"
