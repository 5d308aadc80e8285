"""The hooks table of the tools document, row by row."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from support import watch_tool
from treefold import Turn, tool


async def test_before_invoke_gets_the_arguments_of_the_tool_by_name() -> None:

    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    seen = watch_tool(add)
    await add(1, b=2)

    assert seen == [("before", {"a": 1, "b": 2}), ("after", 3)]


async def test_before_invoke_may_name_the_parameters_of_the_tool() -> None:
    seen: list[int] = []

    @tool()
    async def my_tool(x: int) -> int:
        return x * 2

    @my_tool.before_invoke
    async def audit(x: int) -> None:
        seen.append(x)

    await my_tool(3)
    await Turn(my_tool, kwargs={"x": 4}).returning()

    assert seen == [3, 4]


async def test_before_invoke_is_told_evaluated_and_fixed_arguments_and_no_extra_ones() -> None:

    @tool(key=lambda: "secret")
    async def call(path: str, key: str) -> str:
        return path + key

    seen = watch_tool(call)
    await cast("Any", call)(path="/", other=1)

    assert seen == [("before", {"path": "/", "key": "secret"}), ("after", "/secret")]


async def test_before_invoke_comes_before_the_call() -> None:
    order: list[str] = []

    @tool
    async def work() -> None:
        order.append("tool")

    @work.before_invoke
    async def before() -> None:
        order.append("before")

    @work.after_invoke
    async def after(result: None) -> None:
        order.append("after")

    await work()

    assert order == ["before", "tool", "after"]


async def test_on_yield_gets_each_value_and_after_invoke_the_list_of_all() -> None:

    @tool
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    seen = watch_tool(count)
    values = [value async for value in count(2)]

    assert values == [0, 1]
    assert seen == [("before", {"to": 2}), ("yield", 0), ("yield", 1), ("after", [0, 1])]


async def test_the_hooks_of_a_stream_fire_in_a_turn_as_in_a_call() -> None:

    @tool
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    seen = watch_tool(count)
    values = [value async for value in Turn(count, kwargs={"to": 2}).yielding()]

    assert values == [0, 1]
    assert seen == [("before", {"to": 2}), ("yield", 0), ("yield", 1), ("after", [0, 1])]


async def test_on_yield_does_not_fire_for_a_coroutine() -> None:

    @tool
    async def one() -> int:
        return 1

    seen = watch_tool(one)
    await one()

    assert seen == [("before", {}), ("after", 1)]


async def test_after_invoke_gets_the_partial_list_on_an_early_break() -> None:

    @tool
    async def forever() -> AsyncGenerator[int, None]:
        number = 0
        while True:
            yield number
            number += 1

    seen = watch_tool(forever)
    async with aclosing(forever()) as values:
        async for value in values:
            if value == 1:
                break

    assert seen == [("before", {}), ("yield", 0), ("yield", 1), ("after", [0, 1])]


async def test_after_invoke_gets_the_partial_list_on_an_early_break_of_a_turn() -> None:

    @tool
    async def forever() -> AsyncGenerator[int, None]:
        number = 0
        while True:
            yield number
            number += 1

    seen = watch_tool(forever)
    async with aclosing(Turn(forever).yielding()) as values:
        async for value in values:
            if value == 1:
                break

    assert [name for name, _ in seen if name in {"after", "error"}] == ["after"]
    assert seen[-1][1][:2] == [0, 1]


async def test_hooks_fire_only_for_their_own_tool() -> None:

    @tool
    async def one() -> int:
        return 1

    @tool
    async def other() -> int:
        return 2

    seen = watch_tool(one)
    await other()

    assert seen == []
