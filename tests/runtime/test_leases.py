"""Who has the right to make a request, and gives it back, when several calls want it at once."""

import asyncio
import gc
from typing import Any
from weakref import ref

import pytest

from agent_scripts import StagedModel, asked, ended, run, told, until
from support import settle
from treefold import (
    AgentFunction,
    CodeFunction,
    FunctionArg,
    Limits,
    NodeState,
    Provider,
    RunContext,
    Runtime,
    ToolUse,
)
from treefold.core.errors import InvalidValueError
from treefold.runtime.limits.leases import SlotPool, SlotRequest
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.toolbox import human_in_loop

think = AgentFunction("think", "Think.", user_prompt_template="Think.")

about = AgentFunction(
    "about", "Think.", args=[FunctionArg("what", str)], user_prompt_template="{what}"
)


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
    async with Runtime(specs, models=model, limits=Limits(1)) as runtime, asyncio.timeout(60):
        first = runtime.invoke(think)
        await until(lambda: model.in_flight)
        second = runtime.invoke(think_twice)
        await until(lambda: len(second.get_children()) == 2)
        model.gate.set()
        await first
        await second
    assert model.most_in_flight == 1


async def test_a_call_that_may_not_start_holds_up_nobody():
    model = held_model()

    async def again(ctx: RunContext) -> None:
        await ctx.invoke(think)
        await ctx.invoke(think)

    function = CodeFunction(callable=again, uses=[think])
    async with Runtime([function], models=model, limits=Limits(1)) as runtime, asyncio.timeout(60):
        stopped = runtime.invoke(function)
        await until(lambda: model.in_flight)
        runtime.pause(stopped.id)
        model.gate.set()
        await until(lambda: stopped.state is NodeState.Paused)
        other = runtime.invoke(think)
        await other
        assert stopped.state is NodeState.Paused  # and the other did not wait for it
        runtime.resume(stopped.id)
        await stopped


async def test_an_agent_that_may_not_make_its_next_request_holds_up_nobody():
    async def stop(ctx: RunContext) -> None:
        assert ctx.node.parent is not None
        ctx.runtime.pause(ctx.node.parent.id)

    stopping = CodeFunction(callable=stop)
    agent = AgentFunction("agent", "Stop.", user_prompt_template="Stop.", uses=[stopping])
    model = ScriptedModel(ToolUse("1", "stop"), "Well.", "Gone on.")
    async with Runtime([agent], models=model, limits=Limits(1)) as runtime, asyncio.timeout(60):
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
        async with asyncio.timeout(60):
            await runtime.invoke(think)
        assert asking.state is NodeState.Paused  # and the other did not wait for it
        runtime.answer(question.id, "So.")
        assert (await ended(asking)).outputs == "So."


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


@pytest.mark.parametrize("sizes", [(0, {}), (-1, {}), (1, {Provider.OpenAI: 0})])
def test_limits_that_would_let_no_request_through_are_refused(sizes: tuple[int, Any]):
    with pytest.raises(InvalidValueError, match="would let no request through"):
        Limits(sizes[0], per_provider=sizes[1])


async def test_who_has_waited_longest_makes_the_next_request():
    model = held_model()
    async with Runtime([about], models=model, limits=Limits(1)) as runtime, asyncio.timeout(60):
        nodes = [runtime.invoke(about, {"what": str(n)}) for n in range(4)]
        await settle()
        model.gate.set()
        for node in nodes:
            await node
    assert [asked(request) for request in model.script.requests] == ["0", "1", "2", "3"]


async def test_a_place_that_is_put_back_just_before_somebody_waits_is_his():
    pool = SlotPool(1)
    async with asyncio.timeout(60):
        assert await pool.wait(SlotRequest()) is None
    assert pool.is_full


async def test_a_place_is_not_given_to_who_waited_on_a_loop_that_has_closed():
    pool = SlotPool(1)
    await pool.take()
    gone = asyncio.new_event_loop()

    async def somebody() -> SlotRequest:
        return SlotRequest()

    waiter = await asyncio.to_thread(gone.run_until_complete, somebody())
    waiting = pool.wait(waiter)
    waiting.send(None)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(pool.take())
        await settle()
        gone.close()
        pool.put_back()
    waiting.close()
    assert pool.is_full


async def test_the_calls_of_one_tree_follow_each_other_before_another_tree_begins():
    async def twice(ctx: RunContext, what: str) -> None:
        await ctx.invoke(about, {"what": what})
        await ctx.invoke(about, {"what": what})

    function = CodeFunction(callable=twice, uses=[about])
    model = held_model()
    async with Runtime([function], models=model, limits=Limits(1)) as runtime:
        nodes = [runtime.invoke(function, {"what": what}) for what in ("a", "b")]
        await settle()
        model.gate.set()
        async with asyncio.timeout(60):
            for node in nodes:
                await node
    assert [asked(request) for request in model.script.requests] == ["a", "a", "b", "b"]


async def test_an_agent_goes_on_after_its_call_before_a_call_beside_it_begins():
    boss = AgentFunction("boss", "Boss.", user_prompt_template="boss", uses=[about])

    def say(request: ScriptedRequest) -> Any:
        if asked(request) == "boss" and not told(request):
            return ToolUse("1", "about", {"what": "below"})
        return "Well."

    async def work(ctx: RunContext) -> None:
        nodes = [ctx.invoke(boss), ctx.invoke(about, {"what": "beside"})]
        await settle()
        model.gate.set()
        for node in nodes:
            await node

    model = StagedModel(ScriptedModel(say), held=True)
    working = CodeFunction(callable=work, uses=[boss, about])
    node = await run(working, models=model, limits=Limits(1))
    assert node.state is NodeState.Success
    requests = [asked(request) for request in model.script.requests]
    assert requests == ["boss", "below", "boss", "beside"]


async def test_a_branch_with_a_lease_of_its_own_makes_its_next_request_with_it():
    look = CodeFunction(name="look", callable=lambda ctx: "nothing")
    looker = AgentFunction("looker", "Look.", user_prompt_template="Look.", uses=[look])
    quick = ScriptedModel(ToolUse("1", "look"), ToolUse("2", "look"), "Seen.")
    slow = held_model()

    async def work(ctx: RunContext) -> str:
        looks = ctx.invoke(looker, model=quick)
        waits = ctx.invoke(think, model=slow)
        await until(lambda: slow.in_flight)
        async with asyncio.timeout(60):
            seen = await looks
        slow.gate.set()
        await waits
        return seen

    working = CodeFunction(callable=work, uses=[looker, think])
    node = await run(working, models=quick, limits=Limits(2))
    assert node.outputs == "Seen."


async def test_two_calls_of_a_tree_never_use_its_lease_at_the_same_time():
    model = StagedModel(ScriptedModel(lambda _: "Well."))

    async def late(ctx: RunContext, ticks: int) -> None:
        for _ in range(ticks):
            await asyncio.sleep(0)
        await ctx.invoke(think)

    waiting = CodeFunction(callable=late, uses=[think])

    async def work(ctx: RunContext, ticks: int) -> None:
        nodes = [ctx.invoke(think), ctx.invoke(think), ctx.invoke(waiting, {"ticks": ticks})]
        for node in nodes:
            await node

    working = CodeFunction(callable=work, uses=[think, waiting])
    async with Runtime([working], models=model, limits=Limits(1)) as runtime, asyncio.timeout(60):
        for ticks in range(40):
            await runtime.invoke(working, {"ticks": ticks})
    assert model.most_in_flight == 1


async def test_a_lease_that_was_given_up_is_not_handed_on():
    asker = AgentFunction("asker", "Ask.", user_prompt_template="Ask.", uses=[human_in_loop])
    asking = ScriptedModel(ToolUse("1", "human_in_loop", {"question": "How?"}))
    model = held_model()

    async def work(ctx: RunContext) -> None:
        asks = ctx.invoke(asker, model=asking)
        await until(ctx.runtime.questions)
        other = ctx.runtime.invoke(think)
        await until(lambda: model.in_flight)
        beside = ctx.invoke(think)
        await settle()
        asks.cancel()
        await ended(asks)
        await settle()
        model.gate.set()
        await beside
        await other

    working = CodeFunction(callable=work, uses=[asker, think])
    node = await run(working, models=model, limits=Limits(1))
    assert node.state is NodeState.Success
    assert model.most_in_flight == 1


async def test_limits_do_not_keep_trees_that_were_deleted():
    limits = Limits()
    async with Runtime([think], models=ScriptedModel("Well."), limits=limits) as runtime:
        node = runtime.invoke(think)
        await ended(node)
        runtime.delete(node.id)
        kept = ref(node)
        del node
        await settle()
        gc.collect()
        assert kept() is None


async def test_a_lease_is_given_up_at_once_in_a_function_that_is_not_async():
    model = held_model()
    model.gate.set()

    def rest(ctx: RunContext) -> list[bool]:
        ctx.invoke(think).result()
        had = ctx.has_lease
        ctx.give_up_lease()
        return [had, ctx.has_lease]

    resting = CodeFunction(callable=rest, uses=[think])
    node = await run(resting, models=model, limits=Limits(1))
    assert node.outputs == [True, False]
