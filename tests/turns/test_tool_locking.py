"""`lock=True`: what it serializes, and what it leaves outside."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from support import settle
from treefold import StopReason, Turn, tool


class Meeting:
    """Says how many were inside at once; everybody stays until let out."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()

    async def attend(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.entered.set()
        await self.leave.wait()
        self.inside -= 1


async def test_calls_of_a_tool_run_in_parallel_by_default() -> None:
    meeting = Meeting()

    @tool
    async def attend() -> None:
        await meeting.attend()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(attend())
        group.create_task(Turn(attend).returning())
        await settle()
        meeting.leave.set()

    assert meeting.most == 2


async def test_calls_of_a_locked_tool_run_one_after_the_other() -> None:
    meeting = Meeting()

    @tool(lock=True)
    async def attend() -> None:
        await meeting.attend()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(attend())
        group.create_task(Turn(attend).returning())
        group.create_task(Turn(attend).returning())
        await settle()
        meeting.leave.set()

    assert meeting.most == 1


async def test_locking_is_per_tool() -> None:
    meeting = Meeting()

    @tool(lock=True)
    async def one() -> None:
        await meeting.attend()

    @tool(lock=True)
    async def other() -> None:
        await meeting.attend()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(one())
        group.create_task(other())
        await settle()
        meeting.leave.set()

    assert meeting.most == 2


async def test_a_locked_stream_keeps_the_lock_until_its_end() -> None:
    seen: list[str] = []

    @tool(lock=True)
    async def pair(name: str) -> AsyncGenerator[str, None]:
        yield f"{name}1"
        yield f"{name}2"

    async def consume(name: str) -> None:
        async for value in pair(name):
            seen.append(value)
            await settle()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(consume("a"))
        group.create_task(consume("b"))

    assert seen in (["a1", "a2", "b1", "b2"], ["b1", "b2", "a1", "a2"])


async def test_before_invoke_runs_outside_the_lock() -> None:
    meeting = Meeting()
    announced: list[str] = []

    @tool(lock=True)
    async def attend(name: str) -> None:
        await meeting.attend()

    @attend.before_invoke
    async def announce(name: str) -> None:
        announced.append(name)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(attend("first"))
        await meeting.entered.wait()
        group.create_task(attend("second"))
        await settle()
        early = list(announced)
        meeting.leave.set()

    assert early == ["first", "second"]
    assert meeting.most == 1


async def test_after_invoke_runs_outside_the_lock() -> None:
    results: list[int] = []

    @tool(lock=True)
    async def count_down(x: int) -> int:
        return x

    @count_down.after_invoke
    async def again(result: int) -> None:
        results.append(result)
        if result:
            await count_down(result - 1)

    async with asyncio.timeout(60):
        await count_down(2)

    assert results == [2, 1, 0]


async def test_on_error_runs_outside_the_lock() -> None:
    results: list[int] = []

    @tool(lock=True)
    async def divide(by: int) -> float:
        return 1 / by

    @divide.on_error
    async def again(exc: Exception) -> None:
        results.append(int(await divide(1)))

    async with asyncio.timeout(60):
        with pytest.raises(ZeroDivisionError):
            await divide(0)

    assert results == [1]


async def test_on_yield_runs_inside_the_lock() -> None:
    meeting = Meeting()

    @tool(lock=True)
    async def one() -> AsyncGenerator[int, None]:
        yield 1

    @one.on_yield
    async def attend(value: int) -> None:
        await meeting.attend()

    async def consume() -> None:
        async for _ in one():
            pass

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(consume())
        group.create_task(consume())
        await settle()
        meeting.leave.set()

    assert meeting.most == 1


async def test_a_locked_tool_can_be_called_again_after_it_raised() -> None:

    @tool(lock=True)
    async def divide(by: int) -> float:
        return 1 / by

    async with asyncio.timeout(60):
        with pytest.raises(ZeroDivisionError):
            await divide(0)
        assert await divide(1) == 1


async def test_a_turn_cancelled_while_it_waits_for_the_lock_does_not_take_it() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool(lock=True)
    async def work() -> str:
        entered.set()
        await leave.wait()
        return "done"

    waiting = Turn(work)
    async with asyncio.timeout(60):
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
