"""What happens when a turn takes longer than it may."""

import asyncio
from typing import Any

import pytest

from support import watch_turn
from treefold import StopReason, Turn, TurnTimeoutError, tool

Told = list[tuple[Any, ...]]


async def test_a_turn_that_takes_too_long() -> None:

    @tool
    async def wait() -> None:
        await asyncio.Event().wait()

    turn = Turn(wait, timeout=0.01)
    told = watch_turn(turn)
    async with asyncio.timeout(60):
        with pytest.raises(TurnTimeoutError):
            await turn.returning()

    assert turn.stop_reason is StopReason.TIMEOUT
    assert turn.end_time is not None
    assert told == [
        ("before_run", turn),
        ("on_timeout", turn),
        ("on_complete", turn, StopReason.TIMEOUT),
    ]


async def test_a_stream_that_takes_too_long() -> None:

    @tool
    async def wait() -> Any:
        yield 1
        await asyncio.Event().wait()

    turn = Turn(wait, timeout=0.01)
    told = watch_turn(turn)
    async with asyncio.timeout(60):
        values = turn.yielding()
        first = await anext(values)
        with pytest.raises(TurnTimeoutError):
            await anext(values)

    assert (first, turn.stop_reason) == (1, StopReason.TIMEOUT)
    assert turn.end_time is not None
    assert told == [
        ("before_run", turn),
        ("on_timeout", turn),
        ("on_complete", turn, StopReason.TIMEOUT),
    ]


async def test_the_timeout_of_a_stream_is_for_the_whole_run() -> None:

    @tool
    async def drip() -> Any:
        while True:
            yield 1
            await asyncio.sleep(0.01)

    turn = Turn(drip, timeout=0.1)
    async with asyncio.timeout(60):
        with pytest.raises(TurnTimeoutError):
            async for _ in turn.yielding():
                pass

    assert turn.stop_reason is StopReason.TIMEOUT


async def test_a_timeout_stops_the_tool() -> None:
    ended: list[str] = []

    @tool
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("tool")

    before = asyncio.all_tasks()
    async with asyncio.timeout(60):
        with pytest.raises(TurnTimeoutError):
            await Turn(wait, timeout=0.01).returning()

    assert ended == ["tool"]
    assert asyncio.all_tasks() == before


async def test_a_timeout_error_of_the_tool_is_an_error_and_no_timeout() -> None:
    error = TimeoutError("the server is slow")

    @tool
    async def fail() -> None:
        raise error

    turn = Turn(fail)
    with pytest.raises(TimeoutError) as caught:
        await turn.returning()

    assert caught.value is error
    assert turn.stop_reason is StopReason.ERROR
