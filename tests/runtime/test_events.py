"""Streams of events: every event once, from any thread, from the past on and then live."""

import asyncio
import json
import re
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import treefold
from support import settle, step
from treefold import (
    CodeFunction,
    MemoryStore,
    RunContext,
    Runtime,
    SqliteStore,
    ToolUse,
    agent,
    attach,
    registries,
    tool,
)
from treefold.core.errors import (
    BlockingCallError,
    ClosedError,
    InvalidValueError,
    UnknownNodeError,
)
from treefold.events import CallEnded, CallStarted, Event, ResponseStreamed
from treefold.models import OpenAIModel
from treefold.testing import ScriptedModel
from wire import openai_wire
from wire.replies import Wait
from wire.server import ModelServer


@pytest.fixture(params=["no store", "memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = {"memory": MemoryStore, "file": lambda: SqliteStore(tmp_path / "run.db")}
    return made[request.param]() if request.param in made else None


def kinds(events: list[Event]) -> list[tuple[int, int, str]]:
    return [(event.number, event.node, type(event).__name__) for event in events]


with registries():

    @tool(uses=[step])
    async def twice(ctx: RunContext, n: int) -> int:
        return await ctx.invoke(step, {"n": n}) + await ctx.invoke(step, {"n": n})


TWICE = [
    (1, 1, "CallRequested"),
    (2, 1, "CallStarted"),
    (3, 2, "CallRequested"),
    (4, 2, "CallStarted"),
    (5, 2, "CallEnded"),
    (6, 3, "CallRequested"),
    (7, 3, "CallStarted"),
    (8, 3, "CallEnded"),
    (9, 1, "CallEnded"),
]


async def test_a_stream_has_the_events_of_a_tree_until_its_end(store: Any):
    async with Runtime([twice], store=store) as runtime, asyncio.timeout(60):
        node = runtime.invoke(twice, {"n": 1})
        live = [event async for event in runtime.events(node)]
        past = [event async for event in runtime.events(node.id)]
    assert kinds(live) == kinds(past) == TWICE
    assert isinstance(live[-1], CallEnded)
    assert live[-1].outputs == 2


async def test_a_stream_is_resumed_after_the_last_number_that_is_known(store: Any):
    async with Runtime([twice], store=store) as runtime, asyncio.timeout(60):
        node = runtime.invoke(twice, {"n": 1})
        for after in range(10):
            found = [event async for event in runtime.events(node, after=after)]
            assert kinds(found) == TWICE[after:]


async def test_the_stream_of_a_call_has_what_happens_below_it_and_nothing_else(store: Any):
    @tool(uses=[twice, step])
    async def top(ctx: RunContext) -> None:
        await ctx.invoke(step, {"n": 0})
        await ctx.invoke(twice, {"n": 1})
        await ctx.invoke(step, {"n": 0})

    async with Runtime([top], store=store) as runtime, asyncio.timeout(60):
        node = runtime.invoke(top)
        await node
        middle = node.get_children()[1]
        assert isinstance(middle, treefold.Node)
        events = [event async for event in runtime.events(middle)]
    assert {event.node for event in events} == {3, 4, 5}
    assert [kind for _, _, kind in kinds(events)] == [kind for _, _, kind in TWICE]


async def test_an_observer_has_the_same_events(tmp_path: Path):
    path = tmp_path / "run.db"
    release = asyncio.Event()

    @tool(uses=[step])
    async def held(ctx: RunContext) -> None:
        await ctx.invoke(step, {"n": 1})
        await release.wait()

    async with Runtime([held], store=path) as runtime, asyncio.timeout(60):
        node = runtime.invoke(held)
        inside = runtime.events(node)
        async for event in inside:
            if isinstance(event, CallEnded):
                break
        with attach(path) as observer:
            seen: list[Event] = []
            async for event in observer.events(node.id):
                seen.append(event)
                release.set()
            rest = [event async for event in inside]
            assert kinds(seen)[-len(rest) :] == kinds(rest)
            assert [event.to_json() for event in seen] == [
                event.to_json() async for event in runtime.events(node)
            ]
            assert kinds([event async for event in observer.events(node.id, after=4)]) == kinds(
                seen[4:]
            )


@pytest.mark.parametrize("is_inside", [True, False])
async def test_the_stream_of_a_deleted_tree_does_not_wait_for_ever(
    tmp_path: Path, *, is_inside: bool
):
    path = tmp_path / "run.db"
    async with Runtime([twice], store=path) as runtime, asyncio.timeout(60):
        node = runtime.invoke(twice, {"n": 1})
        await node
        with attach(path) as observer:
            unread = runtime.events(node) if is_inside else observer.events(node.id)
            await asyncio.to_thread(runtime.delete, node.id)
            with pytest.raises(UnknownNodeError, match="it may have been deleted"):
                await anext(aiter(unread))


@pytest.mark.parametrize("after", ["3", None, 1.5])
async def test_a_number_that_is_none_is_refused_at_once(after: Any):
    async with Runtime([twice]) as runtime:
        node = runtime.invoke(twice, {"n": 1})
        with pytest.raises(InvalidValueError, match=f"after={after!r}: give the number of an"):
            runtime.events(node, after=after)


def test_threads_iterate_while_a_background_runtime_works(store: Any):
    go_on = threading.Event()

    def wait(ctx: RunContext) -> str:
        go_on.wait(60)
        return "done"

    with Runtime(store=store) as runtime:
        node = runtime.invoke(CodeFunction(callable=wait))
        found: list[list[Event]] = [[], [], []]
        ready = threading.Barrier(4)

        def follow(into: list[Event]) -> None:
            for event in runtime.events(node):
                into.append(event)
                if isinstance(event, CallStarted):
                    ready.wait(60)

        threads = [threading.Thread(target=follow, args=[events]) for events in found]
        for thread in threads:
            thread.start()
        ready.wait(60)
        go_on.set()
        for thread in threads:
            thread.join(60)
        expected = [(1, 1, "CallRequested"), (2, 1, "CallStarted"), (3, 1, "CallEnded")]
        assert [kinds(events) for events in found] == [expected] * 3


RUNS = 150  # before, three of a hundred streams ended before the call had


def test_a_stream_that_a_thread_reads_ends_after_its_call(store: Any):
    with Runtime([step], store=store) as runtime:
        for n in range(RUNS):
            node = runtime.invoke(step, {"n": n})
            for event in runtime.events(node, timeout=60):
                if isinstance(event, CallEnded):
                    assert node.state.final
            assert (node.state.final, node.outputs) == (True, node.result(60))
            runtime.delete(node.id)


async def test_a_stream_on_the_loop_of_its_runtime_ends_after_its_call(store: Any):
    async with Runtime([step], store=store) as runtime:
        for n in range(RUNS):
            node = runtime.invoke(step, {"n": n})
            async for event in runtime.events(node, timeout=60):
                if isinstance(event, CallEnded):
                    assert node.state.final
            runtime.delete(node.id)


async def test_a_stream_on_another_loop_ends_after_its_call(store: Any):
    with Runtime([step], store=store) as runtime:
        for n in range(RUNS):
            node = runtime.invoke(step, {"n": n})
            async for event in runtime.events(node, timeout=60):
                if isinstance(event, CallEnded):
                    assert node.state.final
            # All of it is known: there is nothing to return, and still the end to wait for.
            assert [event async for event in runtime.events(node, 3, timeout=60)] == []
            runtime.delete(node.id)


async def test_what_was_read_when_an_iteration_is_broken_off_is_not_lost(store: Any):
    async with Runtime([twice], store=store) as runtime, asyncio.timeout(60):
        node = runtime.invoke(twice, {"n": 1})
        await node
        stream, seen = runtime.events(node), list[Event]()
        for _ in range(9):
            async for event in stream:
                seen.append(event)
                break
        assert kinds(seen) == TWICE
        assert [event async for event in stream] == []
        assert kinds(runtime.events(node).read()) == TWICE


async def test_a_reader_that_waits_too_long_or_is_cancelled_leaves_nothing_behind(store: Any):
    async with Runtime(store=store) as runtime, asyncio.timeout(60):
        release = asyncio.Event()

        @tool
        async def held() -> None:
            await release.wait()

        node = runtime.invoke(held)
        stream = runtime.events(node, timeout=0.01)
        with pytest.raises(TimeoutError, match="nothing happened to node:1 in 0.01 s"):
            [event async for event in stream]

        async def follow() -> None:
            async for _ in runtime.events(node):
                started.set()

        started = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(follow())
            await started.wait()
            await settle()
            reader.cancel()
        source = stream._source.forget.__self__  # pyright: ignore
        assert source._waiting == []  # pyright: ignore
        release.set()


async def test_blocking_on_the_runtimes_own_loop_is_an_error():
    async with Runtime() as runtime:
        node = runtime.invoke(step, {"n": 1})
        with pytest.raises(BlockingCallError, match="'async for' instead"):
            list(runtime.events(node))


def test_a_stream_of_a_runtime_that_is_closed_says_so():
    async def forever(ctx: RunContext) -> None:
        await asyncio.Event().wait()

    runtime = Runtime(store=MemoryStore())
    stream = runtime.events(runtime.invoke(CodeFunction(callable=forever)))
    seen: list[Event] = []

    def follow() -> None:
        with pytest.raises(ClosedError, match="attach to memory"):
            seen.extend(stream)

    thread = threading.Thread(target=follow)
    thread.start()
    first = runtime.events(1)
    next(iter(first))
    runtime.close()
    thread.join(60)
    assert not thread.is_alive()


async def test_a_slow_reader_does_not_hold_up_the_run_and_misses_nothing(store: Any):
    @tool(uses=[step])
    async def many(ctx: RunContext) -> int:
        return sum([await ctx.invoke(step, {"n": n}) for n in range(200)])

    async with Runtime([many], store=store) as runtime, asyncio.timeout(60):
        node = runtime.invoke(many)
        slow = aiter(runtime.events(node))
        first = await anext(slow)
        assert await node == sum(range(200))
        rest = [event async for event in slow]
    assert [event.number for event in (first, *rest)] == list(range(1, 604))


async def test_a_reader_that_is_cancelled_again_and_again_misses_nothing(store: Any):
    @tool(uses=[step])
    async def several(ctx: RunContext) -> int:
        return sum([await ctx.invoke(step, {"n": n}) for n in range(30)])

    async with Runtime([several], store=store) as runtime, asyncio.timeout(60):
        node = runtime.invoke(several)
        stream, seen = runtime.events(node), list[int]()
        while len(seen) < 93:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.001):
                    async for event in stream:
                        seen.append(event.number)
        assert seen == list(range(1, 94))


@agent(uses=[step])
def talk() -> str:
    return "Talk."


def shown_at_the_end(events: list[Event]) -> str:
    shown = ""
    for event in events:
        if isinstance(event, ResponseStreamed):
            shown = shown[: event.start] + event.text
    return shown


async def test_text_is_streamed_between_the_events_and_is_not_numbered():
    model = ScriptedModel(ToolUse("c", "step", {"n": 1}), "Once upon a time there was a king.")
    async with Runtime([talk], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(talk)
        events = [event async for event in runtime.events(node)]
    streamed = [event for event in events if isinstance(event, ResponseStreamed)]
    recorded = [event for event in events if not isinstance(event, ResponseStreamed)]
    assert [event.number for event in recorded] == list(range(1, len(recorded) + 1))
    assert len(streamed) > 1
    assert shown_at_the_end(events) == "Once upon a time there was a king."
    sent = max(event.number for event in recorded if type(event).__name__ == "RequestSent")
    assert {event.number for event in streamed} == {sent}


async def test_a_reader_that_comes_back_in_the_middle_of_a_response_gets_all_that_has_arrived():
    gate = asyncio.Event()
    reply = openai_wire.text("Once upon ", "a time ", Wait(gate), "there was a king.")
    async with ModelServer([reply]) as server, asyncio.timeout(60):
        model = OpenAIModel("gpt-4o", api_key="sk-wire", base_url=f"{server.url}/v1")
        async with Runtime([talk], models=model) as runtime:
            node = runtime.invoke(talk)
            seen = 0
            async for event in runtime.events(node):
                seen = event.number
                if isinstance(event, ResponseStreamed) and event.text.endswith("time "):
                    break
            again = aiter(runtime.events(node, after=seen))
            known = await anext(again)
            assert isinstance(known, ResponseStreamed)
            assert (known.start, known.text) == (0, "Once upon a time ")
            gate.set()
            rest = [one async for one in again]
            assert shown_at_the_end([known, *rest]) == "Once upon a time there was a king."
            assert [one.number for one in rest if not isinstance(one, ResponseStreamed)] == [5, 6]


async def test_what_is_redacted_in_the_journal_is_redacted_in_the_stream():
    model = ScriptedModel("The password is octarine, as you know.")
    redact = partial(re.sub, "octarine", "***")
    async with Runtime([talk], models=model, store=MemoryStore(), redact=redact) as runtime:
        node = runtime.invoke(talk)
        async with asyncio.timeout(60):
            told = json.dumps([event.to_json() async for event in runtime.events(node)])
    assert "password is ***" in told
    assert "octarine" not in told
    assert "ResponseStreamed" not in told


async def test_the_events_of_a_fork_begin_with_those_that_it_shares():
    async with Runtime([twice], store=MemoryStore()) as runtime, asyncio.timeout(60):
        node = runtime.invoke(twice, {"n": 1})
        await node
        fork = runtime.fork(node.get_children()[1].id)  # pyright: ignore
        events = [event async for event in runtime.events(fork)]
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    names = [type(event).__name__ for event in events]
    assert names[:5] == [name for _, _, name in TWICE][:5]
    assert names.index("TreeForked") > names.index("CallEnded")
    assert isinstance(events[-1], CallEnded)
    assert events[-1].node == fork.id
