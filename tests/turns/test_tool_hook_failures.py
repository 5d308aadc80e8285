"""Tools that raise, hooks that raise, and which hooks fire then."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from support import watch_tool
from treefold import Turn, TurnTimeoutError, tool


async def test_a_tool_that_raises_fires_on_error_and_not_after_invoke() -> None:
    error = RuntimeError("no")

    @tool
    async def fail() -> None:
        raise error

    seen = watch_tool(fail)
    with pytest.raises(RuntimeError) as caught:
        await fail()

    assert caught.value is error
    assert seen == [("before", {}), ("error", {"exc": error})]


async def test_a_stream_that_raises_fires_on_error_and_not_after_invoke() -> None:
    error = RuntimeError("no")

    @tool
    async def fail() -> AsyncGenerator[int, None]:
        yield 1
        raise error

    seen = watch_tool(fail)
    with pytest.raises(RuntimeError) as caught:
        async for _ in fail():
            pass

    assert caught.value is error
    assert seen == [("before", {}), ("yield", 1), ("error", {"exc": error})]


async def test_a_tool_that_is_stopped_by_a_timeout_did_not_return() -> None:

    @tool
    async def wait() -> None:
        await asyncio.Event().wait()

    @tool
    async def stream() -> AsyncGenerator[int, None]:
        yield 1
        await asyncio.Event().wait()

    seen, streamed = watch_tool(wait), watch_tool(stream)
    async with asyncio.timeout(60):
        with pytest.raises(TurnTimeoutError):
            await Turn(wait, timeout=0.01).returning()
        with pytest.raises(TurnTimeoutError):
            async for _ in Turn(stream, timeout=0.01).yielding():
                pass

    assert [name for name, _ in seen if name != "error"] == ["before"]
    assert [name for name, _ in streamed if name != "error"] == ["before", "yield"]


@pytest.mark.parametrize("point", ["before_invoke", "after_invoke", "on_yield"])
async def test_what_a_hook_raises_comes_out_of_the_call(point: str) -> None:

    @tool
    async def once() -> AsyncGenerator[int, None]:
        yield 1

    @getattr(once, point)
    async def refuse(*args: Any) -> None:
        raise PermissionError(point)

    with pytest.raises(PermissionError, match=point):
        async for _ in once():
            pass


async def test_what_an_error_hook_raises_comes_out_of_the_call() -> None:

    @tool
    async def fail() -> None:
        raise RuntimeError

    @fail.on_error
    async def refuse(exc: Exception) -> None:
        raise PermissionError

    with pytest.raises(PermissionError):
        await fail()


async def test_a_tool_is_not_called_when_before_invoke_raises() -> None:
    calls: list[str] = []

    @tool
    async def work() -> None:
        calls.append("work")

    @work.before_invoke
    async def refuse() -> None:
        raise PermissionError

    with pytest.raises(PermissionError):
        await work()

    assert calls == []
