"""How a turn ends, what it records, and the arguments of its hooks."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support import watch_turn
from treefold import StopReason, Turn, TurnHook, hook, tool

Told = list[tuple[Any, ...]]


async def test_a_turn_that_succeeds() -> None:

    @tool
    async def one() -> int:
        return 1

    turn = Turn(one)
    told = watch_turn(turn)
    await turn.returning()

    assert told == [
        ("before_run", turn),
        ("after_run", turn, 1),
        ("on_complete", turn, StopReason.COMPLETED),
    ]


async def test_a_stream_that_succeeds() -> None:

    @tool
    async def two() -> AsyncIterator[int]:
        yield 1
        yield 2

    turn = Turn(two)
    told = watch_turn(turn)
    values = [value async for value in turn.yielding()]

    assert values == [1, 2]
    assert told == [
        ("before_run", turn),
        ("after_run", turn, turn.output),
        ("on_complete", turn, StopReason.COMPLETED),
    ]


async def test_a_turn_whose_tool_raises() -> None:
    error = RuntimeError("no")

    @tool
    async def fail() -> None:
        raise error

    turn = Turn(fail)
    told = watch_turn(turn)
    with pytest.raises(RuntimeError) as caught:
        await turn.returning()

    assert caught.value is error
    assert turn.stop_reason is StopReason.ERROR
    assert turn.end_time is not None
    assert told == [
        ("before_run", turn),
        ("on_error", turn, error),
        ("on_complete", turn, StopReason.ERROR),
    ]


async def test_a_stream_that_raises_half_way() -> None:
    error = RuntimeError("no")

    @tool
    async def fail() -> Any:
        yield 1
        raise error

    turn = Turn(fail)
    told = watch_turn(turn)
    with pytest.raises(RuntimeError) as caught:
        async for _ in turn.yielding():
            pass

    assert caught.value is error
    assert turn.stop_reason is StopReason.ERROR
    assert told == [
        ("before_run", turn),
        ("on_error", turn, error),
        ("on_complete", turn, StopReason.ERROR),
    ]


@pytest.mark.parametrize("point", ["before_run", "after_run"])
async def test_a_turn_whose_own_hook_raises(point: str) -> None:
    error = PermissionError(point)

    @tool
    async def work() -> None: ...

    turn = Turn(work)

    @getattr(turn, point)
    async def refuse(*args: Any) -> None:
        raise error

    with pytest.raises(PermissionError) as caught:
        await turn.returning()

    assert caught.value is error
    assert turn.stop_reason is StopReason.ERROR
    assert turn.end_time is not None


@pytest.mark.parametrize("point", ["before_invoke", "after_invoke"])
async def test_a_turn_whose_tool_has_a_hook_that_raises(point: str) -> None:
    error = PermissionError(point)

    @tool
    async def work() -> None: ...

    @getattr(work, point)
    async def refuse(*args: Any) -> None:
        raise error

    turn = Turn(work)
    with pytest.raises(PermissionError) as caught:
        await turn.returning()

    assert caught.value is error
    assert turn.stop_reason is StopReason.ERROR


@pytest.mark.parametrize("point", ["on_error", "on_complete"])
async def test_what_a_late_hook_raises_comes_out_and_the_turn_is_over(point: str) -> None:
    calls: list[str] = []

    @tool
    async def fail() -> None:
        calls.append("fail")
        raise RuntimeError

    turn = Turn(fail)

    @getattr(turn, point)
    async def refuse(*args: Any) -> None:
        raise PermissionError(point)

    for _ in range(2):
        with pytest.raises(PermissionError, match=point):
            await turn.returning()

    assert calls == ["fail", "fail"]
    assert turn.stop_reason is StopReason.ERROR


async def test_global_turn_hooks_fire_for_every_turn() -> None:
    told: Told = []

    @hook([TurnHook.BEFORE_RUN, TurnHook.ON_COMPLETE])
    async def log(turn: Turn, stop_reason: StopReason | None = None) -> None:
        told.append((turn, stop_reason))

    @tool
    async def work() -> None: ...

    first, second = Turn(work), Turn(work)
    await first.returning()
    await second.returning()

    assert told == [
        (first, None),
        (first, StopReason.COMPLETED),
        (second, None),
        (second, StopReason.COMPLETED),
    ]


async def test_hooks_of_one_turn_do_not_fire_for_another_of_the_same_tool() -> None:

    @tool
    async def work() -> None: ...

    told = watch_turn(Turn(work))
    await Turn(work).returning()

    assert told == []
