"""Making turns, running them the right way, and not twice at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast, get_type_hints

import pytest

from treefold import Agent, CodeFunction, StopReason, Turn, WrongRunMethodError, tool


def test_a_new_turn_has_the_documented_attributes() -> None:

    @tool
    async def work(x: int) -> int:
        return x

    turn = Turn(work)

    assert (turn.tool, turn.timeout, turn.metadata, turn.tags) == (work, 60, {}, frozenset())
    assert (list(turn.args), dict(turn.kwargs), list(turn.hooks)) == ([], {}, [])
    assert (turn.start_time, turn.end_time, turn.stop_reason, turn.output) == (None,) * 4


def test_arguments_that_stand_where_others_are_expected_are_told_their_name() -> None:

    @tool
    async def work(x: int) -> int:
        return x

    with pytest.raises(ValueError, match="in seconds or None, not .*; .* given as kwargs={'x': 5}"):
        Turn("work", cast("Any", {"x": 5}))
    with pytest.raises(ValueError, match="in seconds or None, not .*; .* given as args=.5."):
        Turn(work, cast("Any", [5]))
    with pytest.raises(ValueError, match="a list of values, not {'x': 5}; values by name are kw"):
        Turn(work, args=cast("Any", {"x": 5}))


def test_a_turn_keeps_what_it_was_given() -> None:

    @tool
    async def work(a: int, b: int) -> int:
        return a + b

    turn = Turn("work", 5, [1], {"b": 2}, {"why": "test"}, ["io"])

    assert (turn.tool, turn.timeout, list(turn.args), dict(turn.kwargs)) == (work, 5, [1], {"b": 2})
    assert (turn.metadata, turn.tags) == ({"why": "test"}, frozenset({"io"}))


def test_every_turn_has_a_uuid_of_its_own() -> None:

    @tool
    async def work() -> None: ...

    assert len({Turn(work).uuid for _ in range(100)}) == 100


async def test_returning_runs_a_coroutine() -> None:

    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    turn = Turn(add, args=[1], kwargs={"b": 2})
    value = await turn.returning()

    assert (value, turn.output, turn.stop_reason) == (3, 3, StopReason.COMPLETED)
    assert turn.start_time is not None
    assert turn.end_time is not None
    assert turn.start_time <= turn.end_time


async def test_yielding_runs_an_async_generator() -> None:

    @tool
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    turn = Turn(count, args=[3])
    values = [value async for value in turn.yielding()]

    assert (values, turn.stop_reason) == ([0, 1, 2], StopReason.COMPLETED)
    assert turn.start_time is not None
    assert turn.end_time is not None


async def test_yielding_gives_each_value_as_it_is_produced() -> None:
    go_on = asyncio.Event()

    @tool
    async def two() -> AsyncIterator[int]:
        yield 1
        await go_on.wait()
        yield 2

    seen: list[int] = []
    async with asyncio.timeout(60):
        async for value in Turn(two).yielding():
            seen.append(value)
            go_on.set()  # only a caller who has the first value lets the second come

    assert seen == [1, 2]


async def test_yielding_a_coroutine_is_refused() -> None:
    calls: list[str] = []

    @tool
    async def work() -> None:
        calls.append("work")

    with pytest.raises(WrongRunMethodError):
        async for _ in Turn(work).yielding():
            pass

    assert calls == []


async def test_returning_an_async_generator_is_refused() -> None:
    calls: list[str] = []

    @tool
    async def work() -> Any:
        calls.append("work")
        yield 1

    with pytest.raises(WrongRunMethodError):
        await Turn(work).returning()

    assert calls == []


async def test_a_turn_can_be_run_the_right_way_after_the_wrong_one() -> None:

    @tool
    async def work() -> int:
        return 1

    turn = Turn(work)
    with pytest.raises(WrongRunMethodError):
        async for _ in turn.yielding():
            pass

    assert await turn.returning() == 1


async def test_a_turn_runs_any_function() -> None:

    def shout(ctx: Any, text: str) -> str:
        return text.upper()

    function = CodeFunction(callable=shout, name="shout", desc="Say it loud.")

    assert await Turn(function, kwargs={"text": "hey"}).returning() == "HEY"


def test_a_turn_of_something_that_is_no_tool_is_refused() -> None:

    async def plain() -> None: ...

    with pytest.raises((TypeError, ValueError)):
        Turn(cast("Any", plain))


async def test_a_turn_may_be_annotated_with_the_type_of_its_values():
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    @tool
    async def plan() -> Turn[int]:
        return Turn[int](add, kwargs={"a": 1, "b": 2})

    async def run(turn: Turn[int]) -> int:
        return await turn.returning()

    assert get_type_hints(run)["turn"] == Turn[int]
    assert await run(Turn(add, kwargs={"a": 1, "b": 2})) == 3
    made = Turn[int](add, kwargs={"a": 1, "b": 3})
    assert await run(Turn.from_dict(made.to_dict())) == 4
    agent = Agent("clerk", "", [add, plan])
    await agent.put(Turn(plan))
    assert [value async for _, value in agent.run()] == [3]
