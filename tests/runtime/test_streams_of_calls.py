"""``Function.stream``: a call as the stream of its events."""

import asyncio
from contextlib import aclosing

import pytest

from treefold import (
    CancellationException,
    CodeFunction,
    NodeState,
    RunContext,
    Runtime,
    ToolUse,
    agent,
)
from treefold.events import CallEnded, CallRequested, ResponseStreamed
from treefold.testing import ScriptedModel


async def look(ctx: RunContext) -> str:
    return "a cup"


LOOK = CodeFunction(callable=look)


async def test_a_call_is_streamed_with_all_calls_below_it():
    model = ScriptedModel(ToolUse("1", "look"), "There is a cup.")

    @agent(uses=[LOOK], model=model)
    def search(place: str) -> str:
        return f"Look at {place}."

    events = [event async for event in search.stream(place="the roof")]
    assert [event.function for event in events if isinstance(event, CallRequested)] == [
        "search",
        "look",
    ]
    assert "".join(e.text for e in events if isinstance(e, ResponseStreamed)) == "There is a cup."
    last = events[-1]
    assert isinstance(last, CallEnded)
    assert (last.outputs, last.state) == ("There is a cup.", NodeState.Success)


async def test_the_exception_of_a_streamed_call_is_raised_after_its_events():
    async def fail(ctx: RunContext) -> None:
        raise LookupError("nothing there")

    seen: list[type] = []

    async def read() -> None:
        async for event in CodeFunction(callable=fail).stream():
            seen.append(type(event))  # noqa: PERF401 - those before the exception count

    with pytest.raises(LookupError, match="nothing there"):
        await read()
    assert seen[-1] is CallEnded


async def test_leaving_a_stream_cancels_its_call():
    async def hang(ctx: RunContext) -> None:
        await asyncio.Event().wait()

    function = CodeFunction(callable=hang)
    async with asyncio.timeout(60), Runtime() as runtime:
        async with aclosing(function.stream()) as events:
            async for _ in events:
                break
        (node,) = runtime.list_toplevel()
        with pytest.raises(CancellationException, match="nobody reads its events"):
            await node
