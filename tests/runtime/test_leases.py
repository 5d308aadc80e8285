"""Who has the right to make a request, and gives it back, when several calls want it at once."""

import asyncio

from agent_scripts import StagedModel, ended, run, until
from ramify import AgentFunction, CodeFunction, Limits, NodeState, RunContext, Runtime, ToolUse
from ramify.testing import ScriptedModel

think = AgentFunction("think", "Think.", user_prompt_template="Think.")


def held_model() -> StagedModel:
    return StagedModel(ScriptedModel(lambda _: "Well."), held=True)


async def both(ctx: RunContext) -> None:
    nodes = [ctx.invoke(think), ctx.invoke(think)]
    for node in nodes:
        await node


think_twice = CodeFunction(callable=both, name="think_twice", uses=[think])


async def test_calls_that_waited_before_their_tree_had_a_lease_use_it_one_after_the_other():
    model = held_model()
    specs = [think, think_twice]
    async with Runtime(specs, models=model, limits=Limits(1)) as runtime, asyncio.timeout(10):
        first = runtime.invoke(think)
        await until(lambda: model.in_flight)
        second = runtime.invoke(think_twice)
        await until(lambda: len(second.get_children()) == 2)
        model.gate.set()
        await first
        await second


async def test_a_call_that_may_not_start_holds_up_nobody():
    model = held_model()

    async def again(ctx: RunContext) -> None:
        await ctx.invoke(think)
        await ctx.invoke(think)

    function = CodeFunction(callable=again, uses=[think])
    async with Runtime([function], models=model, limits=Limits(1)) as runtime, asyncio.timeout(10):
        stopped = runtime.invoke(function)
        await until(lambda: model.in_flight)
        runtime.pause(stopped.id)
        model.gate.set()
        await until(lambda: stopped.state is NodeState.Paused)
        await runtime.invoke(think)
        runtime.resume(stopped.id)
        await stopped


async def test_an_agent_that_may_not_make_its_next_request_holds_up_nobody():
    async def stop(ctx: RunContext) -> None:
        assert ctx.node.parent is not None
        ctx.runtime.pause(ctx.node.parent.id)

    stopping = CodeFunction(callable=stop)
    agent = AgentFunction("agent", "Stop.", user_prompt_template="Stop.", uses=[stopping])
    model = ScriptedModel(ToolUse("1", "stop"), "Well.", "Gone on.")
    async with Runtime([agent], models=model, limits=Limits(1)) as runtime, asyncio.timeout(10):
        stopped = runtime.invoke(agent)
        await until(lambda: stopped.state is NodeState.Paused)
        assert await runtime.invoke(think) == "Well."
        runtime.resume(stopped.id)
        assert await stopped == "Gone on."


async def test_who_asks_beside_a_call_that_makes_a_request_holds_up_nobody_after_it():
    model = held_model()

    async def ask(ctx: RunContext) -> str:
        ctx.invoke(think)
        await until(lambda: model.in_flight)
        return await ctx.ask("How?")

    function = CodeFunction(callable=ask, uses=[think])
    async with Runtime([function], models=model, limits=Limits(1)) as runtime:
        asking = runtime.invoke(function)
        question = (await until(runtime.questions))[0]
        model.gate.set()
        async with asyncio.timeout(10):
            await runtime.invoke(think)
        runtime.answer(question.id, "So.")
        await ended(asking)


async def test_a_lease_that_was_given_up_is_not_had_from_further_up():
    model = held_model()

    async def rest(ctx: RunContext) -> bool:
        await ctx.invoke(think)
        async with ctx.lease_released():
            return ctx.has_lease

    resting = CodeFunction(callable=rest, uses=[think])

    async def work(ctx: RunContext) -> bool:
        first = ctx.invoke(think)
        await until(lambda: model.in_flight == 1)
        second = ctx.invoke(resting)
        await until(lambda: model.in_flight == 2)
        model.gate.set()
        await first
        return await second

    working = CodeFunction(callable=work, uses=[think, resting])
    node = await run(working, models=model, limits=Limits(2))
    assert node.outputs is False
