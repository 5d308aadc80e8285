"""One call: its outcome, its children, its end."""

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from support import boom, double, forever
from treefold import CancellationException, CodeFunction, Node, NodeState, RunContext, Runtime, tool
from treefold.core.errors import (
    CallTimeoutError,
    ClosedError,
    InvalidArgumentsError,
    UsageError,
)


async def test_a_call_gives_its_value_and_is_recorded():
    async with Runtime() as runtime:
        node = runtime.invoke(double, {"n": 21})
        waiting = node.state
        assert await node == 42

    assert waiting is NodeState.Waiting
    assert (node.state, node.outputs, node.exception) == (NodeState.Success, 42, None)
    assert (node.function, node.inputs, node.parent) == (double, {"n": 21}, None)
    assert node.started_at is not None
    assert node.ended_at is not None
    assert node.started_at <= node.ended_at


async def test_what_a_function_raises_is_raised_where_it_is_awaited_each_time():
    async with Runtime() as runtime:
        node = runtime.invoke(boom)
        tracebacks: list[int] = []
        for _ in range(3):
            with pytest.raises(ZeroDivisionError, match="oops") as caught:
                await node
            tracebacks.append(len(caught.traceback))

    assert node.state is NodeState.Error
    assert isinstance(node.exception, ZeroDivisionError)
    assert len(set(tracebacks)) == 1  # it does not grow


async def test_a_wrong_argument_is_an_error_of_the_node():
    async with Runtime() as runtime:
        node = runtime.invoke(double, {"m": 1})
        with pytest.raises(
            InvalidArgumentsError, match="missing argument 'n'.*unknown argument 'm'"
        ):
            await node
    assert node.state is NodeState.Error


async def test_arguments_are_brought_to_their_declared_types():
    async with Runtime() as runtime:
        assert await runtime.invoke(double, {"n": "21"}) == 42


async def test_paths_and_sequence_numbers_tell_the_order_of_calls_and_ties():
    @tool(uses=[double])
    async def parent(ctx: RunContext) -> None:
        await ctx.invoke(double, {"n": 1})
        second = ctx.invoke(double, {"n": 2})
        tied = ctx.invoke(double, {"n": 3}, tied_with=second)
        await second
        await tied
        await ctx.invoke(double, {"n": 4})

    async with Runtime() as runtime:
        node = runtime.invoke(parent)
        await node
        other = runtime.invoke(double, {"n": 5})
        await other

    children: Any = node.get_children()
    first, (second, tied), last = children
    assert [child.path for child in (first, second, tied, last)] == ["1.1", "1.2", "1.3", "1.4"]
    assert [child.sequence for child in (first, second, tied, last)] == [1, 2, 2, 3]
    assert (node.path, other.path) == ("1", "2")
    ids = [node.id, first.id, second.id, tied.id, last.id, other.id]
    assert ids == sorted(set(ids))
    view = runtime.get_view(node.id)
    assert [(child.path, child.sequence) for child in view.children] == [
        ("1.1", 1),
        ("1.2", 2),
        ("1.3", 2),
        ("1.4", 3),
    ]


async def test_only_siblings_can_be_tied():
    @tool(uses=[double])
    async def parent(ctx: RunContext, stranger: Node) -> None:
        ctx.invoke(double, {"n": 1}, tied_with=stranger)

    async with Runtime() as runtime:
        stranger = runtime.invoke(double, {"n": 1})
        with pytest.raises(ValueError, match="only siblings can be tied"):
            await runtime.invoke(parent, {"stranger": stranger})


async def test_a_parent_knows_what_it_waits_for():
    child_started = asyncio.Event()
    go_on = asyncio.Event()

    @tool
    async def child() -> None:
        child_started.set()
        await go_on.wait()

    @tool(uses=[child])
    async def parent(ctx: RunContext) -> None:
        await ctx.invoke(child)

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(parent)
        await child_started.wait()
        waited_for = node.waiting_on
        go_on.set()
        await node

    assert waited_for is node.get_children()[0]
    assert node.waiting_on is None


async def test_a_failing_child_fails_neither_its_siblings_nor_a_parent_that_recovers():
    @tool(uses=[double, boom])
    async def careful(ctx: RunContext) -> int:
        good, bad = ctx.invoke(double, {"n": 1}), ctx.invoke(boom)
        with pytest.raises(ZeroDivisionError):
            await bad
        return await good

    async with Runtime() as runtime:
        assert await runtime.invoke(careful) == 2


async def test_a_parent_waits_for_the_children_it_left_running():
    go_on = asyncio.Event()
    done: list[str] = []

    @tool
    async def child() -> None:
        await go_on.wait()
        done.append("child")

    @tool(uses=[child])
    async def parent(ctx: RunContext) -> str:
        ctx.invoke(child)
        return "value"

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(parent)
        for _ in range(5):
            await asyncio.sleep(0)
        assert node.state is NodeState.Running
        go_on.set()
        assert await node == "value"
    assert done == ["child"]


async def test_a_parent_that_fails_takes_its_children_with_it():
    @tool(uses=[forever])
    async def parent(ctx: RunContext) -> None:
        ctx.invoke(forever)
        await asyncio.sleep(0)
        raise ZeroDivisionError("parent")

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(parent)
        with pytest.raises(ZeroDivisionError):
            await node

    (child,) = node.get_children()
    assert isinstance(child, Node)
    assert child.state is NodeState.Canceled
    assert str(child.exception) == "forever (call 1.1) was cancelled: parent ended without it"


async def test_a_parent_that_fails_at_once_ends_the_children_that_had_not_begun():
    @tool(uses=[double])
    async def parent(ctx: RunContext) -> None:
        ctx.invoke(double, {"n": 1})
        raise ZeroDivisionError("parent")

    async with Runtime() as runtime, asyncio.timeout(60):
        with pytest.raises(ZeroDivisionError):
            await runtime.invoke(parent)


async def test_cancel_goes_down_the_subtree_with_its_reason():
    started = asyncio.Event()

    @tool
    async def leaf() -> None:
        started.set()
        await asyncio.Event().wait()

    @tool(uses=[leaf])
    async def middle(ctx: RunContext) -> None:
        await ctx.invoke(leaf)

    @tool(uses=[middle])
    async def top(ctx: RunContext) -> None:
        await ctx.invoke(middle)

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(top)
        await started.wait()
        node.cancel("no longer needed")
        with pytest.raises(CancellationException) as caught:
            await node

    assert caught.value.reason == "no longer needed"
    assert [(n.state.value, str(n.exception)) for n in runtime.get_subtree(node.id)] == [
        ("canceled", "top (run 1) was cancelled: no longer needed"),
        ("canceled", "middle (call 1.1) was cancelled: top was cancelled: no longer needed"),
        ("canceled", "leaf (call 1.1.1) was cancelled: middle was cancelled: no longer needed"),
    ]


async def test_a_call_cancelled_before_it_began_never_runs():
    ran: list[str] = []

    @tool
    async def act() -> None:
        ran.append("act")

    async with Runtime() as runtime:
        node = runtime.invoke(act)
        node.cancel("changed my mind")
        with pytest.raises(CancellationException, match="changed my mind"):
            await node
    assert ran == []


async def test_work_that_finished_in_spite_of_a_cancel_is_kept():
    started = asyncio.Event()

    @tool
    async def stubborn() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return "unreachable"

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(stubborn)
        await started.wait()
        node.cancel("stop")
        assert await node == "done all the same"
    assert node.state is NodeState.Success


async def test_cancelling_twice_or_after_the_end_does_no_harm():
    async with Runtime() as runtime:
        node = runtime.invoke(forever)
        await asyncio.sleep(0)
        node.cancel("first")
        node.cancel("second")
        with pytest.raises(CancellationException, match="first"):
            await node
        node.cancel("third")
    assert node.state is NodeState.Canceled


async def test_a_call_past_its_time_is_an_error_that_says_so():
    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(forever, timeout=0.01)
        with pytest.raises(CallTimeoutError, match="forever .run 1.: it took longer than 0.01 s"):
            await node
    assert node.state is NodeState.Error
    assert isinstance(node.exception, TimeoutError)


async def test_a_timeout_takes_the_children_along():
    @tool(uses=[forever])
    async def parent(ctx: RunContext) -> None:
        await ctx.invoke(forever)

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(parent, timeout=0.01)
        with pytest.raises(CallTimeoutError):
            await node
    (child,) = node.get_children()
    assert isinstance(child, Node)
    assert child.state is NodeState.Canceled


async def test_a_timeout_also_ends_children_that_the_function_left_behind():
    @tool(uses=[forever])
    async def parent(ctx: RunContext) -> str:
        ctx.invoke(forever)
        return "value"

    async with Runtime() as runtime, asyncio.timeout(60):
        assert await runtime.invoke(parent, timeout=0.01) == "value"


async def test_a_caller_that_stops_waiting_gives_up_the_call():
    @tool(uses=[forever])
    async def parent(ctx: RunContext) -> str:
        child = ctx.invoke(forever)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await child
        return child.path

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(parent)
        assert await node == "1.1"
    (child,) = node.get_children()
    assert isinstance(child, Node)
    assert str(child.exception).endswith("its caller stopped waiting for it")


async def test_a_call_that_has_ended_can_make_no_more_calls():
    kept: list[RunContext] = []

    @tool(uses=[double])
    async def leak(ctx: RunContext) -> None:
        kept.append(ctx)

    async with Runtime() as runtime:
        await runtime.invoke(leak)
        with pytest.raises(ClosedError, match="leak .run 1. has ended"):
            kept[0].invoke(double, {"n": 1})


async def test_a_thousand_children_give_the_right_results():
    @tool(uses=[double])
    async def fan_out(ctx: RunContext) -> list[int]:
        nodes = [ctx.invoke(double, {"n": n}) for n in range(1000)]
        return [await node for node in nodes]

    async with Runtime() as runtime:
        assert await runtime.invoke(fan_out) == [2 * n for n in range(1000)]


async def test_a_thousand_children_end_within_one_loop_turn_of_a_cancel():
    started = asyncio.Barrier(1001)

    @tool
    async def wait() -> None:
        await started.wait()
        await asyncio.Event().wait()

    @tool(uses=[wait])
    async def fan_out(ctx: RunContext) -> None:
        for _ in range(1000):
            ctx.invoke(wait)
        await asyncio.Event().wait()

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(fan_out)
        await started.wait()
        await asyncio.sleep(0)
        node.cancel("enough")
        await asyncio.sleep(0)
        children = runtime.get_subtree(node.id)[1:]
        assert {child.state for child in children} == {NodeState.Canceled}
        with pytest.raises(CancellationException):
            await node


async def test_async_functions_run_on_the_loop_and_sync_ones_in_threads_with_their_variables():
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("set by the caller")
    threads: dict[str, tuple[threading.Thread, str]] = {}

    async def on_loop(ctx: RunContext) -> None:
        threads["async"] = threading.current_thread(), variable.get()

    def in_thread(ctx: RunContext) -> None:
        threads["sync"] = threading.current_thread(), variable.get()

    async with Runtime() as runtime:
        await runtime.invoke(CodeFunction(callable=on_loop))
        await runtime.invoke(CodeFunction(callable=in_thread))

    assert threads["async"] == (threading.current_thread(), "set by the caller")
    assert threads["sync"][0] is not threading.current_thread()
    assert threads["sync"][1] == "set by the caller"


async def test_sync_functions_may_call_each_other_deeper_than_any_pool_of_threads():
    def descend(ctx: RunContext, left: int) -> int:
        return 0 if left == 0 else 1 + ctx.invoke(function, {"left": left - 1}).result()

    function = CodeFunction(callable=descend, uses_recursion=True, max_depth=61)
    async with Runtime() as runtime, asyncio.timeout(60):
        assert await runtime.invoke(function, {"left": 60}) == 60


async def test_cancelling_a_sync_function_ends_the_node_and_stops_its_next_call():
    entered, release, outcome = threading.Event(), threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def work(ctx: RunContext) -> None:
        entered.set()
        release.wait(60)
        try:
            ctx.invoke(double, {"n": 1})
        except ClosedError as error:
            raised.append(error)
        outcome.set()

    async with Runtime() as runtime, asyncio.timeout(60):
        node = runtime.invoke(CodeFunction(callable=work, uses=[double]))
        assert await asyncio.to_thread(entered.wait, 5)
        node.cancel("stop")
        with pytest.raises(CancellationException):
            await node
        release.set()
        assert await asyncio.to_thread(outcome.wait, 5)
    assert len(raised) == 1


async def test_a_stream_function_gives_all_its_values_and_shows_each():
    async def count(ctx: RunContext, to: int) -> Any:
        for n in range(to):
            yield n

    async with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=count), {"to": 3})
        assert await node == [0, 1, 2]
        assert runtime.get_view(node.id).values == (0, 1, 2)


async def test_only_a_function_can_be_invoked_with_arguments_by_name_and_a_sane_timeout():
    async def plain() -> None: ...

    async with Runtime() as runtime:
        with pytest.raises(TypeError, match="a call needs a Function, .* decorate it with @tool"):
            runtime.invoke(plain)  # pyright: ignore
        with pytest.raises(TypeError, match="a call needs a Function, .* without calling it"):
            runtime.invoke(double(1))  # pyright: ignore
        with pytest.raises(ValueError, match="the arguments of double go by name"):
            runtime.invoke(double, [1])  # pyright: ignore
        for timeout in ("5", -1, float("nan")):
            with pytest.raises(ValueError, match="the timeout of a call of double is in seconds"):
                runtime.invoke(double, {"n": 1}, timeout=timeout)  # pyright: ignore
    with pytest.raises(TypeError, match="a Runtime needs a Function"):
        Runtime([plain])  # pyright: ignore
    with pytest.raises(TypeError, match="make it an async function and decorate it with @tool"):
        Runtime([lambda: None])  # pyright: ignore


async def test_a_call_cannot_wait_for_itself():
    @tool
    async def vain(ctx: RunContext) -> None:
        await ctx.node

    async with Runtime() as runtime, asyncio.timeout(60):
        with pytest.raises(UsageError, match="vain .run 1. cannot wait for itself"):
            await runtime.invoke(vain)


async def test_failures_that_nobody_asked_about_are_logged(caplog: pytest.LogCaptureFixture):
    @tool(uses=[boom])
    async def careless(ctx: RunContext) -> str:
        ctx.invoke(boom)
        seen = ctx.invoke(boom)
        with pytest.raises(ZeroDivisionError):
            await seen
        return "done"

    async with Runtime() as runtime:
        assert await runtime.invoke(careless) == "done"
        runtime.invoke(boom)

    assert caplog.messages == [
        f"<CodeNode {path} boom error> failed, and nobody asked for its result:"
        " ZeroDivisionError: oops"
        for path in ("1.1", "2")
    ]


def test_an_exit_from_inside_a_call_leaves_the_loop_and_is_recorded():
    @tool
    async def leave() -> None:
        raise SystemExit(3)

    nodes: list[Node] = []

    async def main() -> None:
        async with Runtime() as runtime:
            nodes.append(runtime.invoke(leave))
            await nodes[0]

    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert nodes[0].state is NodeState.Error


def test_a_call_that_was_not_awaited_before_its_loop_ended_is_logged(
    caplog: pytest.LogCaptureFixture,
):
    forever = CodeFunction(name="forever", callable=_wait_for_ever)

    async def forgetful() -> None:
        forever.run()
        cancelled = forever.run()
        cancelled.cancel("enough")

    asyncio.run(forgetful())
    [message] = caplog.messages
    assert message.startswith("<CodeNode 1 forever canceled> was cancelled, because its event loop")
    assert message.endswith("write 'await', as in 'await forever.run(...)'")


async def _wait_for_ever(ctx: RunContext) -> None:
    await asyncio.Event().wait()
