"""Watching: from any thread, several at once, at no cost to the run."""

import asyncio
import threading
from typing import Any

import pytest

from support import step
from treefold import CodeFunction, NodeView, RunContext, Runtime, tool
from treefold.core.errors import BlockingCallError


async def test_a_watch_gives_the_next_view_and_waits_if_there_is_none():
    go_on = asyncio.Event()

    @tool(uses=[step])
    async def parent(ctx: RunContext) -> None:
        await go_on.wait()
        await ctx.invoke(step, {"n": 1})

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(parent)
        first = await runtime.watch(node)
        assert first.state.value == "waiting"
        second = await runtime.watch(node, as_of_seq=first.update_seqnum)
        assert second.state.value == "running"
        with pytest.raises(TimeoutError, match="nothing happened to node:1 in 0.01 s"):
            await runtime.watch(node, second.update_seqnum, timeout=0.01)
        go_on.set()
        third = await runtime.watch(node, second.update_seqnum)
        assert third.update_seqnum > second.update_seqnum
        await node


async def test_iterating_gives_views_until_the_end():
    @tool(uses=[step])
    async def parent(ctx: RunContext) -> str:
        for n in range(3):
            await ctx.invoke(step, {"n": n})
        return "done"

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(parent)
        views = [view async for view in runtime.watch(node.id)]

    numbers = [view.update_seqnum for view in views]
    assert numbers == sorted(set(numbers))
    assert (views[-1].state.value, views[-1].outputs) == ("success", "done")
    assert [child.outputs for child in views[-1].children] == [0, 1, 2]


async def test_a_call_that_has_ended_gives_its_last_view_at_once():
    async with Runtime() as runtime:
        node = runtime.invoke(step, {"n": 1})
        await node
        last = await runtime.watch(node)
        assert await runtime.watch(node, last.update_seqnum) is last
        assert [view async for view in runtime.watch(node)] == [last]


def test_threads_watch_a_background_runtime():
    released = threading.Event()

    def wait(ctx: RunContext) -> str:
        released.wait(60)
        return "done"

    with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=wait))
        seen: list[list[NodeView]] = [[], [], []]
        ready = threading.Barrier(4)

        def follow(into: list[NodeView]) -> None:
            for number, view in enumerate(runtime.watch(node)):
                into.append(view)
                if number == 0:
                    ready.wait(60)

        threads = [threading.Thread(target=follow, args=[views]) for views in seen]
        for thread in threads:
            thread.start()
        ready.wait(60)
        released.set()
        for thread in threads:
            thread.join(60)
        assert [views[-1].outputs for views in seen] == ["done", "done", "done"]


def test_a_thread_waits_no_longer_than_it_wants():
    released = threading.Event()

    def wait(ctx: RunContext) -> None:
        released.wait(60)

    with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=wait))
        view = runtime.watch(node).result()
        while view.state.value != "running":
            view = runtime.watch(node, view.update_seqnum, timeout=60).result()
        with pytest.raises(TimeoutError):
            runtime.watch(node, view.update_seqnum, timeout=0.01).result()
        released.set()


async def test_blocking_on_the_runtimes_own_loop_is_an_error():
    async with Runtime() as runtime:
        node = runtime.invoke(step, {"n": 1})
        first = await runtime.watch(node)
        with pytest.raises(BlockingCallError, match="'await'"):
            runtime.watch(node, first.update_seqnum).result()


async def test_a_watcher_that_never_takes_its_views_does_not_hold_up_the_run():
    @tool(uses=[step])
    async def parent(ctx: RunContext) -> int:
        return sum([await ctx.invoke(step, {"n": n}) for n in range(500)])

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(parent)
        slow = aiter(runtime.watch(node))
        await anext(slow)  # and never again
        assert await node == sum(range(500))
        latest = await anext(slow)
        assert len(latest.children) == 500  # what it missed was skipped


async def test_a_view_stays_as_it_was():
    release = asyncio.Event()

    @tool(uses=[step])
    async def parent(ctx: RunContext) -> None:
        await release.wait()
        await ctx.invoke(step, {"n": 1})

    async with Runtime() as runtime:
        node = runtime.invoke(parent)
        await asyncio.sleep(0)
        early = runtime.get_view(node.id)
        release.set()
        await node
        late = runtime.get_view(node.id)

    assert (early.state.value, early.children) == ("running", ())
    assert len(late.children) == 1
    with pytest.raises(AttributeError):
        early.state = late.state  # pyright: ignore


async def test_watching_a_child_tells_of_the_child_only():
    release = asyncio.Event()

    @tool
    async def child() -> str:
        await release.wait()
        return "child"

    @tool(uses=[child, step])
    async def parent(ctx: RunContext) -> None:
        first = ctx.invoke(child)
        for n in range(10):
            await ctx.invoke(step, {"n": n})
        release.set()
        await first

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(parent)
        await asyncio.sleep(0)
        (first, *_) = node.get_children()
        target: Any = first
        views = [view async for view in runtime.watch(target)]
    assert [view.fn for view in views] == ["child"] * len(views)
    assert len(views) <= 3
    assert views[-1].outputs == "child"
