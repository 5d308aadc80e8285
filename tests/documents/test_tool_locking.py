"""`lock=True`: what it serializes, and what it leaves outside."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from ramify import Turn, tool


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


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_calls_of_a_tool_run_in_parallel_by_default() -> None:
    """Decisions: "the default is no lock so stateless ... tools can run in parallel"."""
    meeting = Meeting()

    @tool
    async def attend() -> None:
        await meeting.attend()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(attend())
        group.create_task(Turn(attend).returning())
        await settle()
        meeting.leave.set()

    assert meeting.most == 2


async def test_calls_of_a_locked_tool_run_one_after_the_other() -> None:
    """Decisions: "`@tool(lock=True)` serializes concurrent runs of that tool"."""
    meeting = Meeting()

    @tool(lock=True)
    async def attend() -> None:
        await meeting.attend()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(attend())
        group.create_task(Turn(attend).returning())
        group.create_task(Turn(attend).returning())
        await settle()
        meeting.leave.set()

    assert meeting.most == 1


async def test_locking_is_per_tool() -> None:
    """Decisions: "**Per-tool locking, default off.** Locking is per-tool"."""
    meeting = Meeting()

    @tool(lock=True)
    async def one() -> None:
        await meeting.attend()

    @tool(lock=True)
    async def other() -> None:
        await meeting.attend()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(one())
        group.create_task(other())
        await settle()
        meeting.leave.set()

    assert meeting.most == 2


async def test_a_locked_stream_keeps_the_lock_until_its_end() -> None:
    """Tools: the lock covers, "for async-gen tools, the iteration loop"."""
    seen: list[str] = []

    @tool(lock=True)
    async def pair(name: str) -> AsyncGenerator[str, None]:
        yield f"{name}1"
        yield f"{name}2"

    async def consume(name: str) -> None:
        async for value in pair(name):
            seen.append(value)
            await settle()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(consume("a"))
        group.create_task(consume("b"))

    assert seen in (["a1", "a2", "b1", "b2"], ["b1", "b2", "a1", "a2"])


async def test_before_invoke_runs_outside_the_lock() -> None:
    """Tools: "Lifecycle hooks ... run outside the lock": it fires while another call holds it."""
    meeting = Meeting()
    announced: list[str] = []

    @tool(lock=True)
    async def attend(name: str) -> None:
        await meeting.attend()

    @attend.before_invoke
    async def announce(name: str) -> None:
        announced.append(name)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(attend("first"))
        await meeting.entered.wait()
        group.create_task(attend("second"))
        await settle()
        early = list(announced)
        meeting.leave.set()

    assert early == ["first", "second"]
    assert meeting.most == 1


async def test_after_invoke_runs_outside_the_lock() -> None:
    """Tools: "Lifecycle hooks ... run outside the lock": the hook itself may call the tool."""
    results: list[int] = []

    @tool(lock=True)
    async def count_down(x: int) -> int:
        return x

    @count_down.after_invoke
    async def again(result: int) -> None:
        results.append(result)
        if result:
            await count_down(result - 1)

    async with asyncio.timeout(5):
        await count_down(2)

    assert results == [2, 1, 0]


async def test_on_error_runs_outside_the_lock() -> None:
    """Tools: "Lifecycle hooks (..., `ON_ERROR`) run outside the lock"."""
    results: list[int] = []

    @tool(lock=True)
    async def divide(by: int) -> float:
        return 1 / by

    @divide.on_error
    async def again(exc: Exception) -> None:
        results.append(int(await divide(1)))

    async with asyncio.timeout(5):
        with pytest.raises(ZeroDivisionError):
            await divide(0)

    assert results == [1]


async def test_on_yield_runs_inside_the_lock() -> None:
    """Tools: the lock covers "the iteration loop including `ON_YIELD`"."""
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

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(consume())
        group.create_task(consume())
        await settle()
        meeting.leave.set()

    assert meeting.most == 1


async def test_a_locked_tool_can_be_called_again_after_it_raised() -> None:
    """Decisions: the lock serializes; it is not lost with a failed call."""

    @tool(lock=True)
    async def divide(by: int) -> float:
        return 1 / by

    async with asyncio.timeout(5):
        with pytest.raises(ZeroDivisionError):
            await divide(0)
        assert await divide(1) == 1


async def test_a_locked_stream_can_be_called_again_after_an_early_break() -> None:
    """§10: closing a stream early; the lock goes with it."""

    @tool(lock=True)
    async def forever() -> AsyncGenerator[int, None]:
        while True:
            yield 1

    async with asyncio.timeout(5):
        for _ in range(2):
            async with aclosing(forever()) as values:
                async for value in values:
                    assert value == 1
                    break
