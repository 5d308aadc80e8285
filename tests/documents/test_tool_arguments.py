"""Fixed arguments, arguments evaluated late, and arguments nobody takes."""

import warnings
from typing import Any, cast

import pytest

from ramify import RunContext, Turn, tool


async def test_fixed_arguments_are_merged_into_every_call() -> None:
    """Tools, parameters: "Any other keyword arguments are merged into every invocation"."""

    @tool(greeting="Hello")
    async def greet(name: str, greeting: str) -> str:
        return f"{greeting}, {name}!"

    first: Any = cast("Any", greet)
    assert [await first("Ada"), await first(name="Bob")] == ["Hello, Ada!", "Hello, Bob!"]
    assert await Turn("greet", kwargs={"name": "Eve"}).returning() == "Hello, Eve!"


async def test_a_call_time_argument_overrides_the_fixed_one_with_a_warning() -> None:
    """Tools, parameters: "Call-time kwargs override these (with a warning)"."""

    @tool(greeting="Hello")
    async def greet(name: str, greeting: str) -> str:
        return f"{greeting}, {name}!"

    with pytest.warns(Warning, match="greeting"):
        assert await greet(name="Ada", greeting="Bye") == "Bye, Ada!"


async def test_a_turn_overrides_the_fixed_argument_with_a_warning() -> None:
    """Tools, parameters: "Call-time kwargs override these (with a warning)"."""

    @tool(greeting="Hello")
    async def greet(name: str, greeting: str) -> str:
        return f"{greeting}, {name}!"

    turn = Turn(greet, kwargs={"name": "Ada", "greeting": "Bye"})
    with pytest.warns(Warning, match="greeting"):
        assert await turn.returning() == "Bye, Ada!"


async def test_a_call_that_overrides_nothing_does_not_warn() -> None:
    """Tools, parameters: the warning is for an override only."""

    @tool(greeting="Hello")
    async def greet(name: str, greeting: str) -> str:
        return f"{greeting}, {name}!"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert await cast("Any", greet)(name="Ada") == "Hello, Ada!"


async def test_a_fixed_callable_is_evaluated_at_each_call() -> None:
    """Tools: a callable decorator kwarg "is **evaluated at runtime** when the tool is invoked"."""
    tokens = ["old"]

    @tool(token=lambda: tokens[-1])
    async def call(token: str) -> str:
        return token

    seen = [await cast("Any", call)()]
    tokens.append("fresh")
    seen.append(await cast("Any", call)())

    assert seen == ["old", "fresh"]


def test_a_fixed_callable_is_not_evaluated_at_decoration() -> None:
    """Tools: "values that must be read at invocation time"."""
    calls: list[str] = []

    @tool(token=lambda: calls.append("read"))
    async def call(token: None) -> None: ...

    assert calls == []


async def test_extra_arguments_of_a_call_are_ignored() -> None:
    """Tools: "Invoking a tool with extra positional or keyword arguments does not raise"."""

    @tool
    async def double(x: int) -> int:
        return 2 * x

    free = cast("Any", double)
    assert [await free(4, 5, 6), await free(x=4, y=5), await free(4, y=5)] == [8, 8, 8]


async def test_extra_arguments_of_a_stream_are_ignored() -> None:
    """Tools: "Only the parameters accepted by the tool function are forwarded"."""

    @tool
    async def once(x: int) -> Any:
        yield x

    assert [value async for value in cast("Any", once)(1, 2, y=3)] == [1]


async def test_extra_arguments_of_a_turn_are_ignored() -> None:
    """§9: "direct calls and turns ignore them (as documented)"."""

    @tool
    async def double(x: int) -> int:
        return 2 * x

    assert await Turn(double, args=[4, 5], kwargs={"y": 6}).returning() == 8


async def test_a_function_that_takes_everything_gets_everything() -> None:
    """Tools: "Only the parameters accepted by the tool function are forwarded"."""

    @tool
    async def echo(*args: int, **kwargs: int) -> tuple[tuple[int, ...], dict[str, int]]:
        return args, kwargs

    assert await echo(1, 2, a=3) == ((1, 2), {"a": 3})


async def test_a_missing_argument_is_a_type_error_when_the_tool_runs() -> None:
    """Tools: "Missing required parameters still raise `TypeError` when the tool runs"."""

    @tool
    async def double(x: int) -> int:
        return 2 * x

    with pytest.raises(TypeError, match="x"):
        await cast("Any", double)()


async def test_a_missing_argument_of_a_turn_is_a_type_error_when_it_runs() -> None:
    """Tools: "Missing required parameters still raise `TypeError` when the tool runs"."""

    @tool
    async def double(x: int) -> int:
        return 2 * x

    turn = Turn(double)
    with pytest.raises(TypeError, match="x"):
        await turn.returning()


async def test_a_turn_evaluates_a_callable_argument_each_time_it_runs() -> None:
    """Decisions: "It is evaluated when the tool is invoked, and the result is passed"."""
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
    """Decisions: "any kwarg value that is a no-arg callable is not resolved at turn creation"."""
    calls: list[str] = []

    @tool
    async def ignore(x: None) -> None: ...

    Turn(ignore, kwargs={"x": lambda: calls.append("read")})

    assert calls == []


async def test_a_positional_callable_is_evaluated_too() -> None:
    """Decisions: "Tool arguments by reference are evaluated at runtime"."""

    @tool
    async def double(x: int) -> int:
        return 2 * x

    assert await Turn(double, args=[lambda: 21]).returning() == 42


async def test_other_values_are_passed_through_unchanged() -> None:
    """Decisions: "Non-callable values are passed through unchanged"."""
    box = [1, 2]

    @tool
    async def give(box: list[int]) -> list[int]:
        return box

    assert await Turn(give, kwargs={"box": box}).returning() is box


async def test_a_callable_that_needs_an_argument_is_passed_through() -> None:
    """Decisions: only "a no-arg callable" is evaluated."""

    def add_one(number: int) -> int:
        return number + 1

    @tool
    async def apply(function: Any) -> int:
        return function(1)

    assert await Turn(apply, kwargs={"function": add_one}).returning() == 2


async def test_a_turn_injects_the_run_context() -> None:
    """§3: "A tool declares what it wants injected by annotation: `RunContext`, ..."."""

    @tool
    async def where(word: str, ctx: RunContext) -> tuple[str, bool]:
        return word, isinstance(ctx, RunContext)

    assert await Turn(where, kwargs={"word": "here"}).returning() == ("here", True)
