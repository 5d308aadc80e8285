"""The loop that drives an agent, whatever its model is."""

import asyncio
import json
from typing import Any

import pytest

from agent_scripts import StagedModel, agent_node, ended, run_agent, told, until
from support import settle
from treefold import (
    AgentFunction,
    FunctionArg,
    ModelText,
    Node,
    NodeState,
    RunContext,
    Runtime,
    ThinkingPart,
    ToolResult,
    ToolUse,
    UserText,
    registries,
    tool,
)
from treefold.testing import ScriptedModel
from wire.protocols import PROTOCOLS

OPENAI, _, _ = PROTOCOLS

with registries():

    @tool
    async def look(at: str, times: int = 1) -> str:
        """Look at something."""
        return f"{at} is fine"

    @tool
    async def fail(why: str) -> None:
        """Fail."""
        raise LookupError(why)


def worker(*uses: Any, **options: Any) -> AgentFunction:
    return AgentFunction("work", "Work.", user_prompt_template="Work.", uses=uses, **options)


def looking(id: str, at: str = "x") -> ToolUse:
    return ToolUse(id, "look", {"at": at})


# --- one request after the other


async def test_each_request_replays_the_whole_conversation_in_order():
    model = ScriptedModel(
        [ThinkingPart("Hm."), ModelText("Looking."), looking("a")],
        [ThinkingPart("Again."), looking("b", "y")],
        "Done.",
    )
    node = await run_agent(worker(look), models=model)
    assert node.outputs == "Done."
    first, second, third = (request.transcript for request in model.requests)
    assert first == (UserText("Work."),)
    assert second == (
        *first,
        ThinkingPart("Hm."),
        ModelText("Looking."),
        looking("a"),
        ToolResult("a", "x is fine"),
    )
    assert third == (
        *second,
        ThinkingPart("Again."),
        looking("b", "y"),
        ToolResult("b", "y is fine"),
    )
    assert tuple(node.get_transcript()) == (*third, ModelText("Done."))


async def test_text_that_the_model_said_between_calls_is_in_the_transcript():
    model = ScriptedModel(
        [ModelText("First I look."), looking("a")],
        [ModelText("Then again."), looking("b")],
        "Done.",
    )
    node = await run_agent(worker(look), models=model)
    said = [part.text for part in node.get_transcript() if isinstance(part, ModelText)]
    assert said == ["First I look.", "Then again.", "Done."]


async def test_the_functions_stay_the_same_from_request_to_request():
    model = ScriptedModel([looking("a")], [looking("b")], "Done.")
    await run_agent(worker(look, fail), models=model)
    assert {request.functions for request in model.requests} == {("look", "fail")}


async def test_after_the_first_prompt_the_user_says_nothing_but_results():
    model = ScriptedModel([looking("a")], [looking("b"), looking("c")], "Done.")
    await run_agent(worker(look), models=model)
    said = [part for part in model.requests[-1].transcript if isinstance(part, UserText)]
    assert said == [UserText("Work.")]


# --- batches


def overlapping(active: list[str], log: list[str]) -> Any:
    @tool
    async def slow(name: str) -> str:
        """Take some time."""
        active.append(name)
        log.append("+".join(active))
        await settle()
        active.remove(name)
        return name

    return slow


async def test_parallel_calls_are_executed_one_by_one_in_order():
    log: list[str] = []
    slow = overlapping([], log)
    batch = [ToolUse(name, "slow", {"name": name}) for name in ("c", "a", "b")]
    node = await run_agent(worker(slow), models=ScriptedModel(batch, "done"))
    assert node.outputs == "done"
    assert log == ["c", "a", "b"]


async def test_parallel_calls_are_recorded_as_tied_and_others_by_themselves():
    model = ScriptedModel([looking("a")], [looking("b"), looking("c")], [looking("d")], "done")
    node = await run_agent(worker(look), models=model)
    one, two, three = node.get_children()
    assert isinstance(one, Node)
    assert isinstance(two, list)
    assert isinstance(three, Node)
    assert [child.sequence for child in (one, *two, three)] == [1, 2, 2, 3]
    assert [child.path for child in (one, *two, three)] == ["1.1", "1.2", "1.3", "1.4"]


async def test_the_results_of_a_batch_come_back_together_in_the_order_of_the_calls():
    model = ScriptedModel([looking("a", "1"), looking("b", "2"), looking("c", "3")], "done")
    await run_agent(worker(look), models=model)
    assert len(model.requests) == 2
    assert [(r.tool_use_id, r.content) for r in told(model.requests[1])] == [
        ("a", "1 is fine"),
        ("b", "2 is fine"),
        ("c", "3 is fine"),
    ]


async def test_of_a_batch_none_one_or_more_may_fail_and_this_is_normal():
    batch = [looking("a"), ToolUse("b", "fail", {"why": "one"}), looking("c")]
    model = ScriptedModel(batch, [ToolUse("d", "fail", {"why": "two"})], "done")
    node = await run_agent(worker(look, fail), models=model)
    assert node.outputs == "done"
    assert [result.is_error for result in told(model.requests[2])] == [False, True, False, True]


async def test_an_agent_that_lifts_it_starts_a_whole_batch_at_once():
    barrier = asyncio.Barrier(3)

    @tool
    async def meet(name: str) -> str:
        async with asyncio.timeout(60):
            await barrier.wait()
        return name

    batch = [ToolUse(name, "meet", {"name": name}) for name in "abc"]
    model = ScriptedModel(batch, "done")
    node = await run_agent(worker(meet, parallel_tools=True), models=model)
    assert [result.content for result in told(model.requests[1])] == ["a", "b", "c"]
    [tied] = node.get_children()
    assert isinstance(tied, list)
    assert len({child.sequence for child in tied}) == 1


async def test_a_call_that_fails_does_not_stop_those_that_were_started_with_it():
    failed = asyncio.Event()

    @tool
    async def first() -> None:
        failed.set()
        raise LookupError("first")

    @tool
    async def second() -> str:
        async with asyncio.timeout(60):
            await failed.wait()
        await settle()
        return "second"

    model = ScriptedModel([ToolUse("a", "first"), ToolUse("b", "second")], "done")
    node = await run_agent(worker(first, second, parallel_tools=True), models=model)
    assert node.outputs == "done"
    assert told(model.requests[1]) == [
        ToolResult("a", "LookupError: first", is_error=True),
        ToolResult("b", "second"),
    ]


async def test_an_agent_and_all_below_it_have_at_most_one_request_in_flight():
    helper = AgentFunction("help", "Help.", user_prompt_template="Help.", uses=[look])
    boss = worker(helper, look)

    def reply(request: Any) -> Any:
        results = len(told(request))
        if request.functions == ("look",):
            return [looking("x")] if results == 0 else "helped"
        return [ToolUse("a", "help"), ToolUse("b", "help")] if results == 0 else "done"

    model = StagedModel(ScriptedModel(reply))
    node = await run_agent(boss, models=model)
    assert node.outputs == "done"
    assert len(model.script.requests) == 6
    assert model.most_in_flight == 1


# --- what the model is told when a call goes wrong


async def test_a_function_that_raises_is_told_by_type_and_message_without_a_stack_trace():
    model = ScriptedModel([ToolUse("a", "fail", {"why": "no such key"})], "I see.")
    node = await run_agent(worker(fail), models=model)
    assert node.outputs == "I see."
    [result] = told(model.requests[1])
    assert result == ToolResult("a", "LookupError: no such key", is_error=True)


async def test_what_the_model_is_told_of_a_failure_is_never_too_verbose():
    model = ScriptedModel([ToolUse("a", "fail", {"why": "x" * 500_000})], "I see.")
    node = await run_agent(worker(fail), models=model)
    assert node.state is NodeState.Success
    [result] = told(model.requests[1])
    assert result.content.startswith("LookupError: xxx")
    assert len(result.content) < 50_000


async def test_an_unknown_function_is_told_and_the_model_may_go_on():
    model = ScriptedModel([ToolUse("a", "lok", {"at": "x"}), looking("b")], "done")
    node = await run_agent(worker(look), models=model)
    assert node.outputs == "done"
    wrong, right = told(model.requests[1])
    assert wrong.is_error
    assert "lok" in wrong.content
    assert not right.is_error


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({}, "at"),
        ({"at": ["x"]}, "at"),
        ({"at": "x", "times": "many"}, "times"),
        ({"at": "x", "tims": 2}, "tims"),
    ],
)
async def test_a_wrong_argument_is_named_to_the_model_which_may_try_again(
    args: dict[str, Any], named: str
):
    model = ScriptedModel([ToolUse("a", "look", args)], [looking("b")], "done")
    node = await run_agent(worker(look), models=model)
    assert node.outputs == "done"
    wrong, right = told(model.requests[2])
    assert wrong.is_error
    assert named in wrong.content
    assert right == ToolResult("b", "x is fine")


async def test_a_misspelt_argument_of_a_model_is_not_dropped():
    ran: list[int] = []

    @tool
    async def delete(path: str, dry_run: bool = False) -> None:  # noqa: FBT001, FBT002 - by name
        ran.append(1)

    model = ScriptedModel([ToolUse("a", "delete", {"path": "/", "dryrun": True})], "done")
    await run_agent(worker(delete), models=model)
    [result] = told(model.requests[1])
    assert result.is_error
    assert "dryrun" in result.content
    assert ran == []


async def test_a_misspelt_argument_for_a_sub_agent_is_not_dropped_either():
    helper = AgentFunction(
        "help", "", args=[FunctionArg("who", str)], user_prompt_template="Help {who}."
    )
    model = ScriptedModel([ToolUse("a", "help", {"who": "Ann", "hwo": "x"})], "done")
    node = await run_agent(worker(helper), models=model)
    assert node.outputs == "done"
    [result] = told(model.requests[1])
    assert result.is_error
    assert "hwo" in result.content


async def test_arguments_that_are_no_json_object_are_answered_and_not_run():
    script = [
        OPENAI.calls(("a", "look", '{"at": "x'), ("b", "look", "[1]")),
        OPENAI.calls(("c", "look", '{"at":"x"}')),
        OPENAI.text("done"),
    ]
    async with OPENAI.server(*script) as server:
        node = await run_agent(worker(look), models=OPENAI.model(server))
    assert node.outputs == "done"
    results = [part for part in node.get_transcript() if isinstance(part, ToolResult)]
    assert [result.is_error for result in results] == [True, True, False]


# --- what the model is told when a call goes well


@pytest.mark.parametrize("value", [5, 2.5, True, ["a", 1], {"a": {"b": None}}])
async def test_a_result_that_is_no_text_is_told_as_json(value: Any):
    @tool
    async def give() -> Any:
        return value

    model = ScriptedModel([ToolUse("a", "give")], "done")
    await run_agent(worker(give), models=model)
    [result] = told(model.requests[1])
    assert json.loads(result.content) == value
    assert not result.is_error


@pytest.mark.parametrize("value", [None, "", " "])
async def test_a_call_that_gives_nothing_is_still_answered(value: Any):
    @tool
    async def give() -> Any:
        return value

    model = ScriptedModel([ToolUse("a", "give")], "done")
    node = await run_agent(worker(give), models=model)
    assert node.outputs == "done"
    [result] = told(model.requests[1])
    assert not result.is_error


async def test_each_call_of_a_model_is_a_child_that_knows_which_call_it_was():
    model = ScriptedModel([looking("call_7", "x")], "done")
    node = await run_agent(worker(look), models=model)
    [child] = node.get_children()
    assert isinstance(child, Node)
    assert child.function is look
    assert child.inputs == {"at": "x"}
    assert child.outputs == "x is fine"
    assert child.parent is node


async def test_an_agent_that_a_model_called_knows_which_call_it_was():
    helper = AgentFunction("help", "", user_prompt_template="Help.")
    model = ScriptedModel([ToolUse("call_7", "help")], "helped", "done")
    async with Runtime([worker(helper)], models=model) as runtime:
        node = await ended(runtime.invoke(runtime.invocable_functions["work"]))
        [child] = map(agent_node, node.get_children())
        assert child.tool_use_id == "call_7"
        assert agent_node(node).tool_use_id is None
        [view] = runtime.get_view(node.id).children
        assert view.tool_use_id == "call_7"


# --- deeper


async def test_a_highly_specialised_agent_is_the_deepest_of_a_stack_of_agents():
    leaf = AgentFunction("leaf", "", user_prompt_template="Leaf.", uses=[look])
    middle = AgentFunction("middle", "", user_prompt_template="Middle.", uses=[leaf])
    top = AgentFunction("top", "", user_prompt_template="Top.", uses=[middle])
    model = ScriptedModel(
        [ToolUse("a", "middle")],
        [ToolUse("b", "leaf")],
        [looking("c")],
        "leaf done",
        "middle done",
        "top done",
    )
    async with Runtime([top], models=model) as runtime:
        node = await ended(runtime.invoke(top))
        assert node.outputs == "top done"
        paths = [(one.path, one.function.name) for one in runtime.get_subtree(node.id)]
    assert paths == [("1", "top"), ("1.1", "middle"), ("1.1.1", "leaf"), ("1.1.1.1", "look")]
    assert [request.functions for request in model.requests] == [
        ("middle",),
        ("leaf",),
        ("look",),
        ("look",),
        ("leaf",),
        ("middle",),
    ]


async def test_a_call_that_somebody_cancelled_is_answered_and_the_agent_goes_on():
    started = asyncio.Event()

    @tool
    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    model = ScriptedModel([ToolUse("a", "hang")], "then not")
    async with Runtime([worker(hang)], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(runtime.invocable_functions["work"])
        await started.wait()
        [child] = node.get_children()
        assert isinstance(child, Node)
        runtime.cancel(child.id, "it takes too long")
        assert await node == "then not"
        assert child.state is NodeState.Canceled
    [result] = told(model.requests[1])
    assert result.is_error
    assert "it takes too long" in result.content


async def test_cancelling_an_agent_cancels_its_request_and_all_below_it():
    model = StagedModel(ScriptedModel("never"), held=True)
    helper = AgentFunction("help", "", user_prompt_template="Help.", default_model=model)
    boss = worker(helper)
    script = ScriptedModel([ToolUse("a", "help")], "never")
    async with Runtime([boss], models=script) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        await until(lambda: model.in_flight)
        runtime.cancel(node.id, "enough")
        await ended(node)
        assert node.state is NodeState.Canceled
        assert [one.state for one in runtime.get_subtree(node.id)] == [NodeState.Canceled] * 2
        assert model.in_flight == 0
    assert len(script.requests) == 1


async def test_a_call_with_a_timeout_ends_the_agent_in_time():
    model = StagedModel(ScriptedModel("never"), held=True)
    async with Runtime([worker()], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(runtime.invocable_functions["work"], timeout=0.05)
        with pytest.raises(TimeoutError):
            await node
        assert node.state is NodeState.Error


async def test_an_agent_waits_on_the_function_that_it_called():
    go_on, inside = asyncio.Event(), asyncio.Event()

    @tool
    async def ponder(ctx: RunContext) -> str:
        inside.set()
        await go_on.wait()
        return "over"

    model = ScriptedModel([ToolUse("a", "ponder")], "done")
    async with Runtime([worker(ponder)], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(runtime.invocable_functions["work"])
        await inside.wait()
        [child] = node.get_children()
        assert node.waiting_on is child
        assert node.state is NodeState.Running
        assert "ponder" in runtime.get_view(node.id).status
        go_on.set()
        assert await node == "done"
        assert node.waiting_on is None
