"""A second cancellation while the tool still cleans up after the first."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from treefold import Agent, StopReason, Turn, tool

Consume = Callable[[Turn], Awaitable[None]]


class Cleaning:
    """Two tools that wait for ever and clean up at leisure."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.cleaned: list[str] = []

        @tool
        async def single() -> None:
            await self.work()

        @tool
        async def stream() -> Any:
            yield 1
            await self.work()

        self.single, self.stream = single, stream

    async def work(self) -> None:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            self.cleaned.append("tool")


async def returning(turn: Turn) -> None:
    await turn.returning()


async def yielding(turn: Turn) -> None:
    async for _ in turn.yielding():
        pass


async def running(turn: Turn) -> None:
    agent = Agent("clerk", "", [turn.tool])
    await agent.put(turn)
    async for _ in agent.run():
        pass


async def cancel_twice(consume: Consume, turn: Turn, scene: Cleaning) -> None:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:

        async def run() -> None:
            await consume(turn)

        task = group.create_task(run())
        await scene.entered.wait()
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()


@pytest.mark.parametrize("consume", [returning, yielding, running])
async def test_a_turn_cancelled_twice_records_that(consume: Consume) -> None:
    scene = Cleaning()
    turn = Turn(scene.single if consume is returning else scene.stream)
    told: list[StopReason] = []

    @turn.on_complete
    async def complete(turn: Turn, stop_reason: StopReason) -> None:
        told.append(stop_reason)

    await cancel_twice(consume, turn, scene)

    assert turn.stop_reason is StopReason.CANCELLED
    assert told == [StopReason.CANCELLED]


@pytest.mark.parametrize("consume", [returning, yielding, running])
async def test_a_tool_does_not_outlive_its_turn_that_was_cancelled_twice(consume: Consume) -> None:
    scene = Cleaning()
    turn = Turn(scene.single if consume is returning else scene.stream)
    before = asyncio.all_tasks()

    await cancel_twice(consume, turn, scene)

    assert (asyncio.all_tasks() - before, scene.cleaned) == (set(), ["tool"])
