"""Pauses that come again, end early, or are asked to end where there is none."""

import asyncio
from contextvars import ContextVar
from pathlib import Path

import pytest

from agent_scripts import StagedModel, ended, until
from support import settle
from treefold import (
    AgentFunction,
    CodeFunction,
    Limits,
    NodeState,
    Provider,
    RunContext,
    Runtime,
    agent,
)
from treefold.core.errors import CancellationException, InvalidValueError, UsageError
from treefold.core.question import QuestionKind
from treefold.testing import ScriptedFailure, ScriptedModel

think = AgentFunction("think", "Think.", user_prompt_template="Think.")
who: ContextVar[str] = ContextVar("who", default="nobody")


async def test_a_call_that_ends_while_it_is_paused_a_second_time_leaves_no_question():
    done = asyncio.Event()

    async def work(ctx: RunContext) -> None:
        await done.wait()

    async with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=work))
        runtime.pause(node.id)
        runtime.resume(node.id)
        runtime.pause(node.id)
        done.set()
        await ended(node)
        assert runtime.questions() == []


async def test_no_guard_is_lifted_from_a_run_that_is_not_recorded():
    done = asyncio.Event()

    async def work(ctx: RunContext) -> None:
        await done.wait()

    async with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=work))
        runtime.pause(node.id)
        with pytest.raises(InvalidValueError, match="guards are recorded in a store"):
            runtime.resume(node.id, without=["budget"])
        [asked] = runtime.questions()
        assert asked.kind is QuestionKind.Paused
        runtime.resume(node.id)
        done.set()
        await ended(node)


async def test_a_call_that_is_paused_while_it_waits_for_its_turn_makes_no_request():
    model = StagedModel(ScriptedModel(lambda _: "Well."), held=True)
    limits = Limits(1, per_provider={Provider.OpenAI: 1})
    async with Runtime([think], models=model, limits=limits) as runtime, asyncio.timeout(60):
        first = runtime.invoke(think)
        await until(lambda: model.in_flight)
        second = runtime.invoke(think)
        await until(lambda: "fewer requests" in runtime.get_view(second.id).status)
        runtime.pause(second.id)
        model.gate.set()
        await first
        await until(lambda: second.state is NodeState.Paused)
        assert len(model.script.requests) == 1
        runtime.resume(second.id)
        await second


async def test_only_a_call_at_top_level_is_made_again_when_its_provider_has_failed():
    async def delegate(ctx: RunContext) -> str:
        return await ctx.invoke(think)

    function = CodeFunction(callable=delegate, uses=[think])
    async with Runtime([function], models=ScriptedModel(ScriptedFailure(400))) as runtime:
        node = await ended(runtime.invoke(function))
        (child,) = node.get_children()
        assert not isinstance(child, list)
        with pytest.raises(UsageError, match="is not paused"):
            runtime.resume(child.id)
        assert runtime.list_toplevel() == [node]


async def test_a_call_may_leave_a_task_behind_that_asks():
    async with asyncio.TaskGroup() as group:

        async def forget(ctx: RunContext) -> str:
            tasks.append(group.create_task(ctx.ask("Is anybody there?")))
            await until(ctx.runtime.questions)
            return "never mind"

        tasks: list[asyncio.Task[str]] = []
        async with Runtime() as runtime:
            node = await ended(runtime.invoke(CodeFunction(callable=forget)))
            assert (node.state, node.outputs) == (NodeState.Success, "never mind")
            assert runtime.questions() == []
        tasks[0].cancel()


async def test_a_call_that_was_kept_back_starts_as_it_would_have_and_its_caller_runs_again():
    go, done = asyncio.Event(), asyncio.Event()

    async def below(ctx: RunContext) -> str:
        await done.wait()
        return who.get()

    inner = CodeFunction(callable=below)

    async def work(ctx: RunContext) -> str:
        await go.wait()
        who.set("the caller")
        return await ctx.invoke(inner)

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(CodeFunction(callable=work, uses=[inner]))
        await until(lambda: node.state is NodeState.Running)
        runtime.pause(node.id)
        go.set()
        await until(lambda: node.state is NodeState.Paused)
        (child,) = runtime.get_subtree(node.id)[1:]
        assert child.state is NodeState.Waiting
        runtime.resume(node.id)
        await until(lambda: child.state is NodeState.Running)
        assert node.state is NodeState.Running
        done.set()
        assert await node == "the caller"


async def test_a_call_that_was_kept_back_and_is_cancelled_lets_its_caller_run_again():
    go, done = asyncio.Event(), asyncio.Event()
    inner = CodeFunction(name="inner", callable=lambda ctx: 1)

    async def work(ctx: RunContext) -> str:
        await go.wait()
        await ended(ctx.invoke(inner))
        await done.wait()
        return "without it"

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(CodeFunction(callable=work, uses=[inner]))
        await until(lambda: node.state is NodeState.Running)
        runtime.pause(node.id)
        go.set()
        await until(lambda: node.state is NodeState.Paused)
        (child,) = runtime.get_subtree(node.id)[1:]
        child.cancel()
        await until(lambda: child.state is NodeState.Canceled)
        assert node.state is NodeState.Running
        assert [question.node_id for question in runtime.questions()] == [node.id]
        runtime.resume(node.id)
        done.set()
        assert await node == "without it"


async def test_a_call_that_has_not_begun_and_is_cancelled_twice_at_once_ends(tmp_path: Path):
    goes_on = asyncio.Event()
    below = CodeFunction(name="below", callable=lambda ctx: "done")

    async def work(ctx: RunContext) -> str:
        await goes_on.wait()
        try:
            return await ctx.invoke(below)
        except CancellationException:
            return "it was cancelled"

    async with Runtime(store=tmp_path / "run.db") as runtime, asyncio.timeout(60):
        node = runtime.invoke(CodeFunction(callable=work, uses=[below]))
        runtime.pause(node.id)
        goes_on.set()
        await until(lambda: node.children)
        [kept_back] = node.children
        for _ in range(2):
            kept_back.cancel()
        assert await node == "it was cancelled"


async def test_a_call_stays_back_until_nothing_above_it_is_paused():
    go = asyncio.Event()
    leaf = CodeFunction(name="leaf", callable=lambda ctx: "done")

    async def middle(ctx: RunContext) -> str:
        await go.wait()
        return await ctx.invoke(leaf)

    between = CodeFunction(callable=middle, uses=[leaf])

    async def work(ctx: RunContext) -> str:
        return await ctx.invoke(between)

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(CodeFunction(callable=work, uses=[between]))
        await until(lambda: len(runtime.get_subtree(node.id)) == 2)
        mid = runtime.get_subtree(node.id)[1]
        runtime.pause(node.id)
        runtime.pause(mid.id)
        go.set()
        await until(lambda: mid.state is NodeState.Paused)
        runtime.resume(mid.id)
        await settle()
        assert runtime.get_subtree(node.id)[-1].state is NodeState.Waiting
        assert mid.state is NodeState.Paused
        runtime.resume(node.id)
        assert await node == "done"


async def test_an_agent_makes_no_request_until_nothing_above_it_is_paused():
    model = ScriptedModel("Well.")
    go = asyncio.Event()

    async def prompt(ctx: RunContext) -> str:
        await go.wait()
        return "Think."

    slow = agent(prompt)

    async def work(ctx: RunContext) -> str:
        return await ctx.invoke(slow)

    function = CodeFunction(callable=work, uses=[slow])
    async with Runtime([function], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(function)
        await until(lambda: len(runtime.get_subtree(node.id)) == 2)
        child = runtime.get_subtree(node.id)[1]
        runtime.pause(node.id)
        runtime.pause(child.id)
        go.set()
        await until(lambda: child.state is NodeState.Paused)
        runtime.resume(child.id)
        await settle()
        assert (child.state, model.requests) == (NodeState.Paused, [])
        runtime.resume(node.id)
        assert await node == "Well."


async def test_all_that_a_pause_has_stopped_goes_on():
    model = ScriptedModel(lambda _: "Well.")
    go = asyncio.Event()

    async def prompt(ctx: RunContext) -> str:
        await go.wait()
        return "Think."

    slow = agent(prompt)

    async def work(ctx: RunContext) -> list[str]:
        nodes = [ctx.invoke(slow) for _ in range(3)]
        return [await node for node in nodes]

    function = CodeFunction(callable=work, uses=[slow])
    async with Runtime([function], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(function)
        await until(lambda: len(runtime.get_subtree(node.id)) == 4)
        runtime.pause(node.id)
        go.set()
        children = runtime.get_subtree(node.id)[1:]
        await until(lambda: all(child.state is NodeState.Paused for child in children))
        runtime.resume(node.id)
        assert await node == ["Well."] * 3


async def test_a_paused_agent_that_is_cancelled_ends_as_cancelled():
    go = asyncio.Event()

    async def prompt(ctx: RunContext) -> str:
        await go.wait()
        return "Think."

    slow = agent(prompt)
    async with Runtime([slow], models=ScriptedModel("Well.")) as runtime, asyncio.timeout(60):
        node = runtime.invoke(slow)
        await until(lambda: node.state is NodeState.Running)
        runtime.pause(node.id)
        go.set()
        await until(lambda: node.state is NodeState.Paused)
        runtime.answer(runtime.questions()[0].id, "cancel")
        assert (await ended(node)).state is NodeState.Canceled
        assert str(node.exception).endswith("cancelled while it was paused")


async def test_a_paused_call_that_is_told_to_cancel_may_still_clean_up():
    inner = CodeFunction(name="inner", callable=lambda ctx: 1)
    cleaned: list[int] = []

    async def work(ctx: RunContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(await ctx.invoke(inner))

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(CodeFunction(callable=work, uses=[inner]))
        await until(lambda: node.state is NodeState.Running)
        runtime.pause(node.id)
        runtime.answer(runtime.questions()[0].id, "cancel")
        assert (await ended(node)).state is NodeState.Canceled
    assert cleaned == [1]


async def test_a_call_that_has_ended_cannot_be_paused():
    async with Runtime() as runtime:
        node = await ended(runtime.invoke(CodeFunction(name="three", callable=lambda ctx: 3)))
        with pytest.raises(UsageError, match="has ended"):
            runtime.pause(node.id)
