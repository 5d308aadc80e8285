"""Leaving `agent.run()` half way, in all the ways there are."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

from ramify import Agent, StopReason, Tool, Turn, tool

Leave = Callable[[Agent], Awaitable[None]]


class ConsumerError(Exception):
    pass


class Scene:
    """An agent with an endless, locked stream as its first turn and another behind it."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.count = self.make_tool()
        self.agent = Agent("clerk", "", [self.count])
        self.first = Turn(self.count)
        self.second = Turn(self.count)

    def make_tool(self) -> Tool[Any, Any]:
        ended = self.ended

        @tool(lock=True)
        async def count() -> Any:
            number = 0
            try:
                while True:
                    yield number
                    number += 1
                    await asyncio.sleep(0)
            finally:
                ended.append("tool")

        return count

    async def fill(self) -> None:
        await self.agent.put(self.first)
        await self.agent.put(self.second)


async def closed(agent: Agent) -> None:
    async with aclosing(agent.run()) as pairs:
        async for _ in pairs:
            break


async def broken_off(agent: Agent) -> None:
    async for _ in agent.run():
        break


async def failed_in_the_consumer(agent: Agent) -> None:
    with suppress(ConsumerError):
        async for _ in agent.run():
            raise ConsumerError


async def cancelled(agent: Agent) -> None:
    started = asyncio.Event()

    async def consume() -> None:
        async for _ in agent.run():
            started.set()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(consume())
        await started.wait()
        task.cancel()


async def cancelled_between_values(agent: Agent) -> None:
    started = asyncio.Event()

    async def consume() -> None:
        async for _ in agent.run():
            started.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(consume())
        await started.wait()
        task.cancel()


async def dropped(agent: Agent) -> None:
    pairs = agent.run()
    await anext(pairs)
    del pairs
    gc.collect()


WAYS = [closed, broken_off, failed_in_the_consumer, cancelled, cancelled_between_values, dropped]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("leave", WAYS)
async def test_an_abandoned_run_cancels_its_turn_and_leaves_no_task(leave: Leave) -> None:
    """§3: "a cancelled or abandoned turn records CANCELLED and is no longer running"."""
    scene = Scene()
    await scene.fill()
    before = asyncio.all_tasks()

    async with asyncio.timeout(5):
        await leave(scene.agent)
        await settle()

    assert asyncio.all_tasks() == before
    assert scene.ended == ["tool"]
    assert scene.first.stop_reason is StopReason.CANCELLED
    assert scene.first.end_time is not None


@pytest.mark.parametrize("leave", WAYS)
async def test_the_turn_of_an_abandoned_run_can_be_run_again(leave: Leave) -> None:
    """§3: "is no longer running"; and the lock of its tool is free."""
    scene = Scene()
    await scene.fill()

    async with asyncio.timeout(5):
        await leave(scene.agent)
        await settle()
        async with aclosing(scene.first.yielding()) as values:
            assert await anext(values) == 0
        async with aclosing(scene.count()) as values:
            assert await anext(values) == 0


@pytest.mark.parametrize("leave", WAYS)
async def test_the_turn_of_an_abandoned_run_is_not_lost(leave: Leave) -> None:
    """§3: "A turn that raised is not lost: it stays first in the queue for the next `run()`"."""
    scene = Scene()
    await scene.fill()

    async with asyncio.timeout(5):
        await leave(scene.agent)
        await settle()

    assert list(scene.agent.turns) == [scene.first, scene.second]


@pytest.mark.parametrize("leave", WAYS)
async def test_an_abandoned_agent_can_be_run_again(leave: Leave) -> None:
    """Tables: a second run is refused only "while already running"."""
    scene = Scene()
    await scene.fill()

    async with asyncio.timeout(5):
        await leave(scene.agent)
        await settle()
        async with aclosing(scene.agent.run()) as pairs:
            assert await anext(pairs) == (scene.first, 0)


async def test_a_run_cancelled_inside_a_single_value_tool_records_it() -> None:
    """§10: "a cancelled turn with no stop reason"."""
    entered, ended = asyncio.Event(), asyncio.Event()

    @tool(lock=True)
    async def work() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    agent = Agent("clerk", "", [work])
    turn = Turn(work)
    await agent.put(turn)
    before = asyncio.all_tasks()

    async def consume() -> None:
        async for _ in agent.run():
            pass

    async with asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(consume())
            await entered.wait()
            task.cancel()
        await settle()

    assert task.cancelled()
    assert ended.is_set()
    assert asyncio.all_tasks() == before
    assert turn.stop_reason is StopReason.CANCELLED
    assert list(agent.turns) == [turn]


async def test_a_turn_whose_value_was_handed_out_is_done_and_not_run_again() -> None:
    """Decisions: "Single-value tools yield once": leaving after that abandons no turn."""
    calls: list[str] = []

    @tool
    async def work() -> str:
        calls.append("work")
        return "worked"

    agent = Agent("clerk", "", [work])
    first, second = Turn(work), Turn(work)
    await agent.put(first)
    await agent.put(second)

    async with asyncio.timeout(5):
        async with aclosing(agent.run()) as pairs:
            assert await anext(pairs) == (first, "worked")
        await settle()

    assert first.stop_reason is StopReason.COMPLETED
    assert (calls, list(agent.turns)) == (["work"], [second])


async def test_a_paused_run_can_be_abandoned() -> None:
    """§3: `pause()`; an agent that waits holds nothing."""
    scene = Scene()
    await scene.fill()
    scene.agent.pause()
    before = asyncio.all_tasks()

    async def consume() -> None:
        async for _ in scene.agent.run():
            pass

    async with asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(consume())
            await settle()
            task.cancel()
        await settle()

    assert asyncio.all_tasks() == before
    assert (scene.first.stop_reason, list(scene.agent.turns)) == (None, [scene.first, scene.second])
