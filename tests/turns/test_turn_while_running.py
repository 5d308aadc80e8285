"""What is refused while a turn runs, and what may change."""

import asyncio
from typing import Any

import pytest

from treefold import SafeExecutionError, StopReason, Turn, tool


async def test_a_second_returning_of_a_running_turn_is_refused() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        entered.set()
        await leave.wait()
        return "done"

    turn = Turn(work)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        first = group.create_task(turn.returning())
        await entered.wait()
        with pytest.raises(SafeExecutionError):
            await turn.returning()
        leave.set()

    assert (first.result(), turn.stop_reason) == ("done", StopReason.COMPLETED)


async def test_a_turn_cannot_be_run_by_its_own_tool() -> None:
    turns: list[Turn] = []

    @tool
    async def again() -> None:
        await turns[0].returning()

    turns.append(Turn(again))
    async with asyncio.timeout(60):
        with pytest.raises(SafeExecutionError):
            await turns[0].returning()

    assert turns[0].stop_reason is StopReason.ERROR


async def test_a_finished_turn_can_be_run_again() -> None:
    numbers = iter([1, 2])

    @tool
    async def next_number() -> int:
        return next(numbers)

    turn = Turn(next_number)
    values = [await turn.returning(), await turn.returning()]

    assert (values, turn.output, turn.stop_reason) == ([1, 2], 2, StopReason.COMPLETED)


@pytest.mark.parametrize("name", ["tool", "args", "kwargs", "timeout", "tags", "hooks", "uuid"])
async def test_other_attributes_cannot_be_set_while_running(name: str) -> None:
    turns: list[Any] = []

    @tool
    async def meddle() -> None:
        setattr(turns[0], name, None)

    turns.append(Turn(meddle))
    before = getattr(turns[0], name)
    with pytest.raises(SafeExecutionError):
        await turns[0].returning()

    assert getattr(turns[0], name) == before


@pytest.mark.parametrize("name", ["start_time", "end_time", "output", "stop_reason", "metadata"])
async def test_results_and_metadata_can_be_set_while_running(name: str) -> None:
    turns: list[Any] = []

    @tool
    async def meddle() -> Any:
        before = getattr(turns[0], name)
        setattr(turns[0], name, before)
        return getattr(turns[0], name) == before

    turns.append(Turn(meddle))

    assert await turns[0].returning() is True


async def test_attributes_can_be_set_before_and_after_a_run() -> None:

    @tool
    async def double(x: int) -> int:
        return 2 * x

    turn = Turn(double, kwargs={"x": 1})
    turn.kwargs = {"x": 2}
    first = await turn.returning()
    turn.kwargs = {"x": 3}

    assert (first, await turn.returning()) == (4, 6)


async def test_metadata_can_be_changed_by_the_running_tool() -> None:
    turns: list[Turn] = []

    @tool
    async def note() -> None:
        turns[0].metadata["step"] = 2

    turns.append(Turn(note, metadata={"step": 1, "who": "me"}))
    await turns[0].returning()

    assert turns[0].metadata == {"step": 2, "who": "me"}
