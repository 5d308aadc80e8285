"""Thousands of turns: nothing piles up."""

import asyncio
import gc
import tracemalloc

from treefold import Agent, RunContext, ToolType, Turn, tool


async def test_thousands_of_turns_through_one_agent_leave_memory_flat():
    @tool
    async def leaf(n: int) -> int:
        return n

    @tool(uses=[leaf])
    async def step(ctx: RunContext, n: int) -> Turn | int:
        if n % 3 == 0:
            await ctx.invoke(leaf, {"n": n})
        return n if n % 2 else Turn(step, kwargs={"n": n + 1})

    agent = Agent("runner", "Runs", [step])
    others = asyncio.all_tasks()

    async def run(turns: int) -> int:
        values = 0
        for start in range(0, turns, 50):
            for n in range(start, start + 50):
                await agent.put(Turn(step, kwargs={"n": n}))
            async for _ in agent.run():
                values += 1
        return values

    assert await run(500) == 500  # whatever is made once is made now
    gc.collect()
    tracemalloc.start()
    try:
        before, objects = tracemalloc.get_traced_memory()[0], len(gc.get_objects())
        assert await run(4_000) == 4_000
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        more = len(gc.get_objects()) - objects
    finally:
        tracemalloc.stop()
    assert grown < 50_000, f"{grown} bytes in 4,000 turns"
    assert more < 100, f"{more} objects in 4,000 turns"
    assert asyncio.all_tasks() == others


async def test_an_agent_that_feeds_itself_runs_until_it_is_done():
    @tool
    async def work(n: int) -> Turn:
        return Turn(check, kwargs={"n": n})

    @tool(type=ToolType.COMPLETION_CHECK)
    async def check(n: int) -> bool:
        if n < 1000:
            await agent.put(Turn(work, kwargs={"n": n + 1}))
        return n == 1000

    agent = Agent("self-feeder", "Feeds itself", [work, check])
    await agent.put(Turn(work, kwargs={"n": 0}))
    assert [value async for _, value in agent.run()] == [False] * 1000 + [True]
