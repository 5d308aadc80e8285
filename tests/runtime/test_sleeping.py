"""Calls that sleep, in one process."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_scripts import until
from treefold import CodeFunction, MemoryStore, NodeState, RunContext, Runtime
from treefold.errors import CallTimeoutError, InvalidValueError, UnknownQuestionError
from treefold.events import QuestionSettled
from treefold.testing import replay

PATIENCE = 60  # seconds
LONG = 3600.0


async def nap(ctx: RunContext, seconds: float) -> str:
    await ctx.sleep(seconds)
    return "awake"


NAP = CodeFunction(callable=nap, repeatable=True)


async def test_a_call_sleeps_for_seconds_a_timedelta_or_until_a_time():
    async def rest(ctx: RunContext) -> str:
        await ctx.sleep(0.01)
        await ctx.sleep(timedelta(milliseconds=10))
        await ctx.sleep_until(datetime.now(UTC) + timedelta(milliseconds=10))
        await ctx.sleep_until(datetime.now(UTC) - timedelta(days=1))
        return "awake"

    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        assert await runtime.invoke(CodeFunction(callable=rest)) == "awake"


async def test_nobody_is_asked_about_a_sleep():
    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        node = runtime.invoke(NAP, {"seconds": LONG})
        await until(lambda: node.state is NodeState.Paused)
        view = runtime.get_view(node.id)
        assert (runtime.questions(), view.questions) == ([], ())
        assert view.status.startswith("sleeps until 20")
        with pytest.raises(UnknownQuestionError):
            runtime.answer(f"{node.id}-1", "wake up")
        node.cancel()


async def test_a_sleeping_call_is_cancelled_and_timed_out_as_any_other():
    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        node = runtime.invoke(NAP, {"seconds": LONG}, timeout=0.05)
        with pytest.raises(CallTimeoutError):
            await node
        other = runtime.invoke(NAP, {"seconds": LONG})
        await until(lambda: other.state is NodeState.Paused)
        other.cancel()
        await until(lambda: other.state.final)
        assert other.state is NodeState.Canceled


async def test_a_call_that_was_paused_while_it_slept_goes_on_when_it_is_resumed():
    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        node = runtime.invoke(NAP, {"seconds": 0.1})
        await until(lambda: node.state is NodeState.Paused)
        runtime.pause(node.id)
        events = runtime.events(node)
        await until(lambda: [e for e in events.read() if isinstance(e, QuestionSettled)])
        assert node.state is NodeState.Paused
        runtime.resume(node.id)
        assert await node == "awake"


async def test_several_sleeps_of_one_call_end_each_in_its_time():
    ends: list[str] = []

    async def rest(ctx: RunContext) -> None:
        async def one(seconds: float, name: str) -> None:
            await ctx.sleep(seconds)
            ends.append(name)

        async with asyncio.TaskGroup() as group:
            group.create_task(one(0.2, "late"))
            group.create_task(one(0.02, "early"))

    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        await runtime.invoke(CodeFunction(callable=rest))
    assert ends == ["early", "late"]


@pytest.mark.parametrize("wrong", ["soon", -1, None, float("inf"), datetime.now(UTC)])
async def test_a_duration_is_a_number_or_a_timedelta(wrong: Any):
    async def rest(ctx: RunContext) -> None:
        await ctx.sleep(wrong)

    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        with pytest.raises(InvalidValueError):
            await runtime.invoke(CodeFunction(callable=rest))


async def test_the_lease_is_given_up_while_a_call_sleeps():
    held: list[bool] = []

    async def rest(ctx: RunContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.sleep(0.05))
            await asyncio.sleep(0)
            held.append(ctx.has_lease)

    async with asyncio.timeout(PATIENCE), Runtime() as runtime:
        await runtime.invoke(CodeFunction(callable=rest))
    assert held == [False]


async def test_neither_a_replay_nor_a_fork_sleeps_or_waits_again():
    store, seconds = MemoryStore(), [0.01]

    async def week(ctx: RunContext) -> list[Any]:
        await ctx.sleep(seconds[0])
        said = await ctx.ask(int, "How many?", default=1, expires=seconds[0])
        return [said, await ctx.invoke(NAP, {"seconds": 0.01})]

    function = CodeFunction(callable=week, uses=[NAP])
    async with asyncio.timeout(PATIENCE):
        async with Runtime([function], store=store) as runtime:
            node = runtime.invoke(function)
            assert await node == [1, "awake"]
        seconds[0] = LONG
        assert (await asyncio.to_thread(replay, [function], store)).divergence is None
        async with Runtime([function], store=store) as runtime:
            fork = runtime.fork(runtime.get_subtree(node.id)[1])
            assert await fork == [1, "awake"]
