"""What `@tool` accepts and refuses, and what the resulting object looks like."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from treefold import (
    Tool,
    ToolRegistry,
    ToolType,
    UnregisteredToolError,
    tool,
)


async def test_a_coroutine_function_becomes_a_single_value_tool() -> None:

    @tool()
    async def double(x: int) -> int:
        return 2 * x

    assert await double(4) == 8


async def test_a_coroutine_that_returns_bool_becomes_a_completion_check() -> None:

    @tool(type=ToolType.COMPLETION_CHECK)
    async def done() -> bool:
        return True

    assert await done() is True


async def test_a_bool_annotation_written_as_a_string_is_a_bool_annotation() -> None:

    @tool(type=ToolType.COMPLETION_CHECK)
    async def done() -> "bool":
        return False

    assert await done() is False


async def test_an_async_generator_becomes_a_streaming_tool() -> None:

    @tool()
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    assert [number async for number in count(3)] == [0, 1, 2]


def test_a_completion_check_that_returns_something_else_is_refused() -> None:
    with pytest.raises(TypeError):

        @tool(type=ToolType.COMPLETION_CHECK)
        async def done() -> str:
            return "yes"


def test_a_completion_check_without_return_annotation_is_refused() -> None:

    async def done():
        return True

    with pytest.raises(TypeError):
        tool(type=ToolType.COMPLETION_CHECK)(done)


def test_a_completion_check_that_streams_is_refused() -> None:

    async def done() -> Any:
        yield True

    with pytest.raises(TypeError):
        tool(type=ToolType.COMPLETION_CHECK)(done)


@pytest.mark.parametrize("parentheses", [True, False])
def test_a_sync_function_is_refused_with_the_remedy(*, parentheses: bool) -> None:

    def fetch(url: str) -> str:
        return url

    decorate = cast("Any", tool() if parentheses else tool)
    with pytest.raises(TypeError, match="async def"):
        decorate(fetch)


def test_a_sync_generator_is_refused() -> None:

    def count() -> Any:
        yield 1

    with pytest.raises(TypeError):
        cast("Any", tool)(count)


def test_a_refused_function_is_not_registered() -> None:

    def fetch(url: str) -> str:
        return url

    with pytest.raises(TypeError):
        cast("Any", tool)(fetch)
    with pytest.raises(UnregisteredToolError):
        ToolRegistry.get("fetch")


async def test_the_decorator_works_without_parentheses() -> None:

    @tool
    async def double(x: int) -> int:
        return 2 * x

    assert await double(4) == 8
    assert ToolRegistry.get("double") is double


async def test_all_options_are_accepted_together() -> None:

    @tool
    async def helper() -> int:
        return 1

    @tool(
        lock=True,
        tags=["a"],
        type=ToolType.COMPLETION_CHECK,
        uses=[helper],
        repeatable=True,
        limit=3,
    )
    async def done(count: int, limit: int) -> bool:
        return count >= limit

    assert await cast("Any", done)(count=3) is True
    assert done.tags == frozenset({"a"})
    assert list(done.uses) == [helper]


async def test_a_tool_has_the_shape_of_the_protocol() -> None:

    async def plain(x: int) -> int:
        return x

    made = tool(plain)

    @made.before_invoke
    async def audit(x: int) -> None: ...

    assert isinstance(made, Tool)
    assert made.fn is plain
    assert made.hooks == [audit]
    assert made.lock is None
    assert made.tags == frozenset()
    assert (made.metadata.name, made.__name__) == ("plain", "plain")
    assert await made(3) == 3


def test_a_locked_tool_shows_an_asyncio_lock() -> None:

    @tool(lock=True)
    async def write() -> None: ...

    assert isinstance(write.lock, asyncio.Lock)


def accepting(*parameters: str) -> Callable[..., Any]:
    """Return a decorator that makes a tool with these fixed arguments."""
    return cast("Any", tool)(**dict.fromkeys(parameters, 1))


async def test_any_fixed_argument_is_taken_by_a_function_with_keyword_arguments() -> None:

    async def echo(**kwargs: Any) -> dict[str, Any]:
        return kwargs

    assert await accepting("a", "b")(echo)(c=2) == {"a": 1, "b": 1, "c": 2}
