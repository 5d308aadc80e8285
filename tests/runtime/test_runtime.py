"""The runtime: where it lives, who may use it, how it ends."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from support import double, forever, wait
from treefold import CancellationException, CodeFunction, NodeState, RunContext, Runtime, Turn, tool
from treefold.core.errors import (
    BlockingCallError,
    CallGraphError,
    ClosedError,
    UnknownNodeError,
    UsageError,
)


def in_thread(function: Callable[[], Any]) -> Any:
    """Run *function* in another thread and return or raise what it does, within five seconds."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(function())
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert outcome, "it did not come back"
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def test_sync_code_gets_results_from_a_loop_in_the_background():
    with Runtime() as runtime:
        nodes = [runtime.get_ctx().invoke(double, {"n": n}) for n in range(10)]
        assert [node.result() for node in nodes] == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]


def test_many_threads_may_use_one_runtime():
    with Runtime() as runtime:

        def work(start: int) -> list[int]:
            return [runtime.invoke(double, {"n": n}).result(60) for n in range(start, start + 50)]

        results: dict[int, list[int]] = {}
        threads = [
            threading.Thread(target=lambda s=start: results.update({s: work(s)}))
            for start in range(0, 400, 50)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

        assert results == {s: [2 * n for n in range(s, s + 50)] for s in range(0, 400, 50)}
        assert len(runtime.list_toplevel()) == 400
        assert sorted(int(node.path) for node in runtime.list_toplevel()) == list(range(1, 401))


async def test_a_node_of_a_background_runtime_can_be_awaited_in_any_loop():
    runtime = Runtime()
    node = runtime.invoke(double, {"n": 4})
    assert await node == 8
    assert await asyncio.to_thread(lambda: asyncio.run(_await(node))) == 8
    pending = runtime.invoke(forever)
    await asyncio.to_thread(runtime.close)
    with pytest.raises(CancellationException, match="its runtime was closed"):
        await pending


async def _await(node: Any) -> Any:
    return await node


async def test_result_on_the_runtimes_own_loop_is_an_error_and_not_a_deadlock():
    async with Runtime() as runtime:
        node = runtime.invoke(double, {"n": 1})
        with pytest.raises(BlockingCallError, match="result.. of 'double'.*'await'"):
            node.result()
        assert await node == 2
        assert node.result() == 2  # it has ended: nothing to wait for


def test_result_on_the_background_loop_is_an_error_too():
    async def parent(ctx: RunContext) -> Any:
        return ctx.invoke(double, {"n": 1}).result()

    with Runtime() as runtime, pytest.raises(BlockingCallError):
        runtime.invoke(CodeFunction(callable=parent, uses=[double])).result(60)


async def test_result_from_another_thread_waits_for_a_runtime_in_the_callers_loop():
    async with Runtime() as runtime:
        node = runtime.invoke(double, {"n": 3})
        assert await asyncio.to_thread(node.result, 5) == 6


def test_result_gives_up_after_its_timeout_and_the_call_goes_on():
    with Runtime() as runtime:
        node = runtime.invoke(forever)
        wait(lambda: node.state is NodeState.Running or None)
        with pytest.raises(TimeoutError, match="forever .run 1. has not ended in 0.01 s"):
            node.result(timeout=0.01)
        assert node.state is NodeState.Running
        node.cancel("test is over")
        with pytest.raises(CancellationException):
            node.result(60)


async def test_calls_may_be_started_and_cancelled_from_other_threads():
    async with Runtime() as runtime, asyncio.timeout(60):
        node = await asyncio.to_thread(runtime.invoke, forever)
        await asyncio.to_thread(runtime.cancel, node.id, "from a thread")
        with pytest.raises(CancellationException, match="from a thread"):
            await node


async def test_leaving_the_block_waits_for_what_still_runs():
    release = asyncio.Event()

    @tool
    async def act() -> str:
        await release.wait()
        return "done"

    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(act)
        asyncio.get_running_loop().call_soon(release.set)
    assert node.outputs == "done"


async def test_an_exception_that_leaves_the_block_cancels_what_still_runs():
    runtime = Runtime()

    async def main() -> None:
        async with asyncio.timeout(60), runtime:
            runtime.invoke(forever)
            await asyncio.sleep(0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await main()
    assert [node.state for node in runtime.list_toplevel()] == [NodeState.Canceled]


async def test_cancelling_a_task_that_waits_at_the_end_of_the_block_cancels_what_still_runs():
    nodes: list[Any] = []

    async def main() -> None:
        async with Runtime() as runtime:
            nodes.append(runtime.invoke(forever))

    async with asyncio.timeout(60):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(main())
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
    assert task.cancelled()
    assert nodes[0].state is NodeState.Canceled


def test_close_cancels_what_still_runs_and_may_be_repeated():
    runtime = Runtime()
    node = runtime.invoke(forever)
    runtime.close()
    runtime.close()
    assert node.state is NodeState.Canceled
    with pytest.raises(ClosedError, match="make a new one"):
        runtime.invoke(double, {"n": 1})
    assert runtime.list_toplevel() == [node]  # what happened can still be seen
    assert runtime.get_view(node.id).state is NodeState.Canceled


def test_closing_a_runtime_that_never_ran_anything_starts_nothing():
    before = threading.active_count()
    Runtime().close()
    assert threading.active_count() <= before


async def test_closing_on_its_own_loop_is_an_error_that_says_what_to_do():
    async with Runtime() as runtime:
        with pytest.raises(BlockingCallError, match="closing the runtime"):
            runtime.close()
        assert await runtime.invoke(double, {"n": 1}) == 2


async def test_a_runtime_serves_one_block_only():
    runtime = Runtime()
    async with runtime:
        pass
    with pytest.raises(UsageError, match="make a new one"):
        async with runtime:
            pass
    with pytest.raises(ClosedError):
        runtime.invoke(double, {"n": 1})


def test_specs_bring_all_that_they_use():
    leaf = CodeFunction(name="leaf", callable=lambda ctx: None)
    middle = CodeFunction(name="middle", callable=lambda ctx: None, uses=[leaf])
    top = CodeFunction(name="top", callable=lambda ctx: None, uses=[middle, leaf])
    assert Runtime([top]).invocable_functions == {"top": top, "middle": middle, "leaf": leaf}


def test_two_functions_of_one_name_are_refused():
    one = CodeFunction(name="same", callable=lambda ctx: None)
    other = CodeFunction(name="same", callable=lambda ctx: None)
    with pytest.raises(CallGraphError, match="top > same: two functions are called 'same'"):
        Runtime([one, CodeFunction(name="top", callable=lambda ctx: None, uses=[other])])


async def test_trees_are_found_shown_and_deleted():
    @tool(uses=[double])
    async def parent(ctx: RunContext) -> None:
        await ctx.invoke(double, {"n": 1})

    async with Runtime() as runtime:
        node = runtime.invoke(parent)
        await node
        other = runtime.invoke(double, {"n": 2})
        await other
        (child,) = node.get_children()

        assert runtime.list_toplevel() == [node, other]
        assert runtime.get_subtree(node.id) == [node, child]
        with pytest.raises(UsageError, match=f"delete run {node.path} instead"):
            runtime.delete(node.id + 1)
        runtime.delete(node.id)
        assert runtime.list_toplevel() == [other]
        for id in (node.id, node.id + 1):
            with pytest.raises(UnknownNodeError, match=f"has no node:{id}"):
                runtime.get_view(id)
        running = runtime.invoke(forever)
        with pytest.raises(UsageError, match="cancel it first"):
            runtime.delete(running.id)
        running.cancel()


async def test_turns_inside_the_block_are_nodes_of_the_runtime():
    async with Runtime() as runtime:
        await Turn(double, kwargs={"n": 1}).returning()
        (node,) = runtime.list_toplevel()
    assert (node.function, node.inputs, node.outputs) == (double, {"n": 1}, 2)


async def test_turns_inside_a_call_are_its_children():
    @tool
    async def outer() -> int:
        return await Turn(double, kwargs={"n": 5}).returning()

    async with Runtime() as runtime:
        node = runtime.invoke(outer)
        assert await node == 10
    (child,) = node.get_children()
    assert getattr(child, "function", None) is double


async def test_the_ambient_runtime_keeps_no_finished_tree_that_nobody_holds():
    seen: list[weakref.ref[Any]] = []

    @tool
    async def look(ctx: RunContext) -> None:
        seen.append(weakref.ref(ctx.node))

    await Turn(look).returning()
    gc.collect()
    assert seen[0]() is None


async def test_calls_outside_any_runtime_are_trees_of_their_own():
    contexts: list[RunContext] = []

    @tool
    async def look(ctx: RunContext) -> None:
        contexts.append(ctx)

    await Turn(look).returning()
    await Turn(look).returning()
    first, second = (ctx.node.path for ctx in contexts)
    assert int(second) == int(first) + 1
    assert contexts[0].runtime is contexts[1].runtime
    assert contexts[0].runtime.list_toplevel() == []


async def test_a_tool_called_directly_outside_any_call_can_still_make_calls():
    @tool(uses=[double])
    async def outer(ctx: RunContext) -> int:
        return await ctx.invoke(double, {"n": 6})

    assert await outer() == 12  # pyright: ignore


async def test_a_context_outside_any_call_has_no_node():
    async with Runtime() as runtime:
        with pytest.raises(UsageError, match="no node: run the function by runtime.invoke"):
            _ = runtime.get_ctx().node


def test_a_loop_that_was_closed_is_reported_and_not_waited_for():
    async def main() -> Runtime:
        runtime = Runtime()
        await runtime.__aenter__()
        return runtime  # never left

    runtime = asyncio.run(main())
    for call in (lambda work: work(), in_thread):
        with pytest.raises(ClosedError, match="closed"):
            call(lambda: runtime.invoke(double, {"n": 1}))


async def test_leaving_the_block_by_an_exception_ends_calls_that_had_not_begun():
    runtime = Runtime()

    async def main() -> None:
        async with asyncio.timeout(60), runtime:
            runtime.invoke(double, {"n": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await main()
    assert [node.state for node in runtime.list_toplevel()] == [NodeState.Canceled]
