"""Turns that are cancelled, or whose consumer goes away half way."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

from ramify import StopReason, Tool, Turn, tool

Leave = Callable[[Turn], Awaitable[None]]
Make = Callable[[list[str]], Tool[Any, Any]]


class ConsumerError(Exception):
    pass


def endless(ended: list[str]) -> Tool[Any, Any]:
    """Return a locked tool that gives numbers for ever and says when it has ended."""

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


def stuck(ended: list[str]) -> Tool[Any, Any]:
    """Return a locked tool that gives one number, waits for ever, and takes time to end."""

    @tool(lock=True)
    async def wait() -> Any:
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("tool")

    return wait


async def closed(turn: Turn) -> None:
    async with aclosing(turn.yielding()) as values:
        async for _ in values:
            break


async def broken_off(turn: Turn) -> None:
    async for _ in turn.yielding():
        break


async def failed_in_the_consumer(turn: Turn) -> None:
    with suppress(ConsumerError):
        async for _ in turn.yielding():
            raise ConsumerError


async def cancelled(turn: Turn) -> None:
    started = asyncio.Event()

    async def consume() -> None:
        async for _ in turn.yielding():
            started.set()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(consume())
        await started.wait()
        task.cancel()


async def cancelled_between_values(turn: Turn) -> None:
    started = asyncio.Event()

    async def consume() -> None:
        async for _ in turn.yielding():
            started.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(consume())
        await started.wait()
        task.cancel()


async def dropped(turn: Turn) -> None:
    values = turn.yielding()
    await anext(values)
    del values
    gc.collect()


TOOLS = [endless, stuck]
WAYS = [closed, broken_off, failed_in_the_consumer, cancelled, cancelled_between_values, dropped]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("make", TOOLS)
@pytest.mark.parametrize("leave", WAYS)
async def test_an_abandoned_stream_is_cancelled_and_leaves_nothing_behind(
    leave: Leave, make: Make
) -> None:
    """§3: "a cancelled or abandoned turn records CANCELLED and is no longer running"."""
    ended: list[str] = []
    turn = Turn(make(ended))
    before = asyncio.all_tasks()

    async with asyncio.timeout(5):
        await leave(turn)
        await settle()

    assert asyncio.all_tasks() == before
    assert ended == ["tool"]
    assert turn.stop_reason is StopReason.CANCELLED
    assert turn.end_time is not None


@pytest.mark.parametrize("make", TOOLS)
@pytest.mark.parametrize("leave", WAYS)
async def test_an_abandoned_stream_can_be_run_again(leave: Leave, make: Make) -> None:
    """§3: "is no longer running"; §10: "closing a stream early that raises"."""
    turn = Turn(make([]))

    async with asyncio.timeout(5):
        await leave(turn)
        await settle()
        async with aclosing(turn.yielding()) as values:
            assert await anext(values) == 0


@pytest.mark.parametrize("make", TOOLS)
@pytest.mark.parametrize("leave", WAYS)
async def test_the_locked_tool_of_an_abandoned_stream_can_be_called_again(
    leave: Leave, make: Make
) -> None:
    """Tools: the lock covers the call and the iteration; it ends with them."""
    made = make([])

    async with asyncio.timeout(5):
        await leave(Turn(made))
        await settle()
        async with aclosing(made()) as values:
            assert await anext(values) == 0


@pytest.mark.parametrize("leave", WAYS)
async def test_an_abandoned_stream_completes_as_cancelled_for_its_hooks(leave: Leave) -> None:
    """§3: ON_COMPLETE(turn, stop_reason); "abandoned turn records CANCELLED"."""
    turn = Turn(endless([]))
    told: list[tuple[str, Any]] = []

    @turn.on_complete
    async def complete(turn: Turn, stop_reason: StopReason) -> None:
        told.append(("on_complete", stop_reason))

    @turn.on_error
    async def error(turn: Turn, exc: BaseException) -> None:
        told.append(("on_error", exc))

    @turn.after_run
    async def after(turn: Turn, output: Any) -> None:
        told.append(("after_run", output))

    async with asyncio.timeout(5):
        await leave(turn)
        await settle()

    assert told == [("on_complete", StopReason.CANCELLED)]


async def test_a_cancelled_turn_records_that_and_can_be_run_again() -> None:
    """§10: "a cancelled turn with no stop reason"; §3: "records CANCELLED"."""
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool(lock=True)
    async def work() -> str:
        entered.set()
        await leave.wait()
        return "done"

    turn = Turn(work)
    before = asyncio.all_tasks()
    async with asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(turn.returning())
            await entered.wait()
            task.cancel()
        await settle()
        state = (task.cancelled(), turn.stop_reason, turn.output, asyncio.all_tasks() == before)
        leave.set()
        again = await turn.returning()

    assert state == (True, StopReason.CANCELLED, None, True)
    assert (again, turn.stop_reason) == ("done", StopReason.COMPLETED)


async def test_a_turn_cancelled_while_it_waits_for_the_lock_does_not_take_it() -> None:
    """§3: "a cancelled ... turn ... is no longer running"; the lock goes to whoever is next."""
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool(lock=True)
    async def work() -> str:
        entered.set()
        await leave.wait()
        return "done"

    waiting = Turn(work)
    async with asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            await entered.wait()
            task = group.create_task(waiting.returning())
            await settle()
            task.cancel()
            await settle()
            leave.set()
        assert await work() == "done"

    assert waiting.stop_reason is StopReason.CANCELLED


async def test_a_stream_that_was_never_begun_leaves_the_turn_alone() -> None:
    """Decisions, reentrancy: a turn is running only once its run has begun."""
    turn = Turn(endless([]))
    values = turn.yielding()
    await values.aclose()

    async with asyncio.timeout(5), aclosing(turn.yielding()) as again:
        assert await anext(again) == 0


async def test_closing_a_stream_of_a_tool_early_does_not_raise() -> None:
    """§10: "closing a stream early that raises"."""
    ended: list[str] = []
    made = endless(ended)

    async with asyncio.timeout(5):
        values = made()
        assert await anext(values) == 0
        await values.aclose()
        await settle()

    assert ended == ["tool"]
