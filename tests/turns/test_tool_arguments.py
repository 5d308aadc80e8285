"""Fixed arguments, deferred arguments, and arguments that the tool does not take."""

import warnings
from typing import Any, cast

import pytest

from treefold import RunContext, Turn, tool


async def test_fixed_arguments_are_merged_into_every_call() -> None:

    @tool(greeting="Hello")
    async def greet(name: str, greeting: str) -> str:
        return f"{greeting}, {name}!"

    first: Any = cast("Any", greet)
    assert [await first("Ada"), await first(name="Bob")] == ["Hello, Ada!", "Hello, Bob!"]
    assert await Turn("greet", kwargs={"name": "Eve"}).returning() == "Hello, Eve!"


async def test_a_call_time_argument_overrides_the_fixed_one_with_a_warning() -> None:

    @tool(greeting="Hello")
    async def greet(name: str, greeting: str) -> str:
        return f"{greeting}, {name}!"

    with pytest.warns(Warning, match="greeting"):
        assert await greet(name="Ada", greeting="Bye") == "Bye, Ada!"


async def test_a_turn_overrides_the_fixed_argument_with_a_warning() -> None:

    @tool(greeting="Hello")
    async def greet(name: str, greeting: str) -> str:
        return f"{greeting}, {name}!"

    turn = Turn(greet, kwargs={"name": "Ada", "greeting": "Bye"})
    with pytest.warns(Warning, match="greeting"):
        assert await turn.returning() == "Bye, Ada!"


async def test_a_call_that_overrides_nothing_does_not_warn() -> None:

    @tool(greeting="Hello")
    async def greet(name: str, greeting: str) -> str:
        return f"{greeting}, {name}!"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert await cast("Any", greet)(name="Ada") == "Hello, Ada!"


async def test_a_fixed_callable_is_evaluated_at_each_call() -> None:
    tokens = ["old"]

    @tool(token=lambda: tokens[-1])
    async def call(token: str) -> str:
        return token

    seen = [await cast("Any", call)()]
    tokens.append("fresh")
    seen.append(await cast("Any", call)())

    assert seen == ["old", "fresh"]


def test_a_fixed_callable_is_not_evaluated_at_decoration() -> None:
    calls: list[str] = []

    @tool(token=lambda: calls.append("read"))
    async def call(token: None) -> None: ...

    assert calls == []


async def test_extra_arguments_of_a_call_are_ignored() -> None:

    @tool
    async def double(x: int) -> int:
        return 2 * x

    free = cast("Any", double)
    assert [await free(4, 5, 6), await free(x=4, y=5), await free(4, y=5)] == [8, 8, 8]


async def test_extra_arguments_of_a_stream_are_ignored() -> None:

    @tool
    async def once(x: int) -> Any:
        yield x

    assert [value async for value in cast("Any", once)(1, 2, y=3)] == [1]


async def test_extra_arguments_of_a_turn_are_ignored() -> None:

    @tool
    async def double(x: int) -> int:
        return 2 * x

    assert await Turn(double, args=[4, 5], kwargs={"y": 6}).returning() == 8


async def test_a_function_that_takes_everything_gets_everything() -> None:

    @tool
    async def echo(*args: int, **kwargs: int) -> tuple[tuple[int, ...], dict[str, int]]:
        return args, kwargs

    assert await echo(1, 2, a=3) == ((1, 2), {"a": 3})


async def test_a_missing_argument_is_a_type_error_when_the_tool_runs() -> None:

    @tool
    async def double(x: int) -> int:
        return 2 * x

    with pytest.raises(TypeError, match="x"):
        await cast("Any", double)()


async def test_a_missing_argument_of_a_turn_is_a_type_error_when_it_runs() -> None:

    @tool
    async def double(x: int) -> int:
        return 2 * x

    turn = Turn(double)
    with pytest.raises(TypeError, match="x"):
        await turn.returning()


async def test_a_turn_evaluates_a_callable_argument_each_time_it_runs() -> None:
    numbers = [1]

    @tool
    async def double(x: int) -> int:
        return 2 * x

    turn = Turn(double, kwargs={"x": lambda: numbers[-1]})
    numbers.append(2)
    first = await turn.returning()
    numbers.append(3)

    assert (first, await turn.returning()) == (4, 6)


def test_a_callable_argument_is_not_evaluated_when_the_turn_is_made() -> None:
    calls: list[str] = []

    @tool
    async def ignore(x: None) -> None: ...

    Turn(ignore, kwargs={"x": lambda: calls.append("read")})

    assert calls == []


async def test_a_positional_callable_is_evaluated_too() -> None:

    @tool
    async def double(x: int) -> int:
        return 2 * x

    assert await Turn(double, args=[lambda: 21]).returning() == 42


async def test_other_values_are_passed_through_unchanged() -> None:
    box = [1, 2]

    @tool
    async def give(box: list[int]) -> list[int]:
        return box

    assert await Turn(give, kwargs={"box": box}).returning() is box


async def test_a_turn_injects_the_run_context() -> None:

    @tool
    async def where(word: str, ctx: RunContext) -> tuple[str, bool]:
        return word, isinstance(ctx, RunContext)

    assert await Turn(where, kwargs={"word": "here"}).returning() == ("here", True)


async def test_a_context_without_an_annotation_is_an_argument_and_the_error_says_what_to_write():
    @tool
    async def work(ctx, n: int) -> int:  # pyright: ignore - as people write it
        return n

    with pytest.raises(ValueError, match="missing argument 'ctx'; annotate it with RunContext"):
        await work.run(n=1)
