"""Pauses that come again, end early, or are asked to end where there is none."""

import asyncio

import pytest

from agent_scripts import StagedModel, ended, until
from ramify import (
    AgentFunction,
    CodeFunction,
    Limits,
    NodeState,
    Provider,
    RunContext,
    Runtime,
)
from ramify.core.errors import UsageError
from ramify.testing import ScriptedFailure, ScriptedModel

think = AgentFunction("think", "Think.", user_prompt_template="Think.")


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


async def test_a_call_that_is_paused_while_it_waits_for_its_turn_makes_no_request():
    model = StagedModel(ScriptedModel(lambda _: "Well."), held=True)
    limits = Limits(1, per_provider={Provider.OpenAI: 1})
    async with Runtime([think], models=model, limits=limits) as runtime, asyncio.timeout(10):
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
