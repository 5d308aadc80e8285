"""The calls on the way to what is waited for, as a debugger would show them."""

import asyncio
from decimal import Decimal

from agent_scripts import ended, until
from treefold import AgentFunction, CodeFunction, RunContext, Runtime
from treefold.testing import ScriptedModel


async def test_a_stack_goes_to_the_call_that_is_waited_for_and_not_to_one_beside_it():
    done = asyncio.Event()

    async def wait(ctx: RunContext) -> None:
        await done.wait()

    first = CodeFunction(callable=wait, name="first")
    second = CodeFunction(callable=wait, name="second")

    async def work(ctx: RunContext) -> None:
        nodes = [ctx.invoke(first), ctx.invoke(second)]
        for node in nodes:
            await node

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(CodeFunction(callable=work, uses=[first, second]))
        await until(lambda: len(runtime.get_subtree(node.id)) == 3)
        stack = runtime.stack(node.id)
        done.set()
        await ended(node)
    assert [frame.function for frame in stack] == ["work", "first"]


async def test_a_frame_has_the_cost_of_all_calls_below_it():
    think = AgentFunction("think", "Think.", user_prompt_template="Think.")

    async def work(ctx: RunContext) -> None:
        await ctx.invoke(think)

    model = ScriptedModel("Well.", price=lambda usage: Decimal(3))
    working = CodeFunction(callable=work, uses=[think])
    async with Runtime([working], models=model) as runtime:
        node = await ended(runtime.invoke(working))
        (frame,) = runtime.stack(node.id)
    assert frame.cost == Decimal(3)
