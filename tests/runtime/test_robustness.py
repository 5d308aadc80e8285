"""What breaks runtimes: odd exceptions, cancels from everywhere, loops that wait for each other."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from support import double, forever, heed_interrupts, settle
from treefold import (
    Budget,
    BudgetExceeded,
    CodeFunction,
    MemoryStore,
    Node,
    NodeState,
    RunContext,
    Runtime,
    SessionBag,
    SessionScope,
    Turn,
    tool,
)
from treefold.core.errors import (
    BlockingCallError,
    CallTimeoutError,
    CancellationException,
    ClosedError,
    UsageError,
)

# Odd exceptions


async def test_an_exception_that_cannot_describe_itself_still_arrives():
    class MuteError(Exception):
        def __str__(self) -> str:
            return None  # pyright: ignore

    @tool
    async def act() -> None:
        raise MuteError

    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(act)
        with pytest.raises(MuteError):
            await node
        assert (
            str(runtime.get_view(node.id).exception) == "MuteError: (its __str__ raised TypeError)"
        )


@pytest.mark.parametrize(
    "kind", [SystemExit, GeneratorExit, StopIteration, type("B", (BaseException,), {})]
)
async def test_any_exception_is_the_outcome_of_the_call_that_raised_it(kind: type[BaseException]):
    @tool(uses=[forever])
    async def act(ctx: RunContext) -> None:
        ctx.invoke(forever)
        await asyncio.sleep(0)
        raise kind("odd")

    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(act)
        with pytest.raises(RuntimeError if kind is StopIteration else kind):
            await node
        assert await runtime.invoke(double, {"n": 1}) == 2  # the runtime goes on
    (child,) = node.get_children()
    assert isinstance(child, Node)
    assert child.state is NodeState.Canceled


def test_an_exit_in_a_worker_thread_ends_that_call_only():
    def leave(ctx: RunContext) -> None:
        sys.exit(3)

    with Runtime() as runtime:
        other = runtime.invoke(forever)
        with pytest.raises(SystemExit):
            runtime.invoke(CodeFunction(callable=leave)).result(60)
        assert runtime.invoke(double, {"n": 1}).result(60) == 2
        assert other.state is NodeState.Running
        other.cancel()


# Cancels


async def test_a_task_cancelled_from_outside_before_it_began_ends_its_node():
    async with asyncio.timeout(60), Runtime() as runtime:
        before = asyncio.all_tasks()
        node = runtime.invoke(double, {"n": 1})
        for task in asyncio.all_tasks() - before:
            task.cancel()
        with pytest.raises(CancellationException, match="its task was cancelled"):
            await node


@pytest.mark.parametrize("then", ["close", "parent fails"])
async def test_cleaning_up_after_a_cancel_is_not_disturbed_by_another(then: str):
    cleaned: list[str] = []
    started = asyncio.Event()

    @tool
    async def child() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            cleaned.append("child")

    @tool(uses=[child])
    async def parent(ctx: RunContext) -> None:
        node = ctx.invoke(child)
        await started.wait()
        node.cancel("by its parent")
        await asyncio.sleep(0)
        if then == "parent fails":
            raise ZeroDivisionError
        await node

    runtime = Runtime()

    async def main() -> None:
        async with asyncio.timeout(60), runtime:
            node = runtime.invoke(parent)
            if then == "close":
                await started.wait()
                for _ in range(3):
                    await asyncio.sleep(0)
                raise ZeroDivisionError
            await node

    with pytest.raises(ZeroDivisionError):
        await main()
    assert cleaned == ["child"]


async def test_whoever_asks_twice_insists():
    cancels = 0
    started = asyncio.Event()

    @tool
    async def stubborn() -> str:
        nonlocal cancels
        while True:
            try:
                started.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancels += 1
                if cancels == 2:
                    raise

    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(stubborn)
        await started.wait()
        node.cancel("please")
        await asyncio.sleep(0)
        assert node.state is NodeState.Running
        node.cancel("now")
        with pytest.raises(CancellationException, match="please"):
            await node


async def test_a_deep_chain_ends_in_a_few_loop_turns():
    started = asyncio.Event()

    @tool
    async def descend(ctx: RunContext, left: int) -> None:
        if left:
            await ctx.invoke(descend, {"left": left - 1})
        else:
            started.set()
            await asyncio.Event().wait()

    descend.uses_recursion, descend.max_depth = True, 501
    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(descend, {"left": 500})
        await started.wait()
        node.cancel("stop")
        turns = 0
        while not runtime.get_subtree(node.id)[-1].state.final:
            await asyncio.sleep(0)
            turns += 1
        assert turns <= 2
        with pytest.raises(CancellationException):
            await node


async def test_a_call_made_while_its_caller_goes_down_is_refused():
    refused: list[BaseException] = []

    async def meddle(ctx: RunContext, go: asyncio.Event) -> None:
        await go.wait()
        try:
            ctx.invoke(forever)
        except ClosedError as error:
            refused.append(error)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        go = asyncio.Event()

        @tool
        async def slow_to_end() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                go.set()
                for _ in range(5):
                    await asyncio.sleep(0)

        @tool(uses=[forever, slow_to_end])
        async def parent(ctx: RunContext) -> None:
            group.create_task(meddle(ctx, go))
            ctx.invoke(slow_to_end)
            await asyncio.sleep(0)
            raise ZeroDivisionError

        async with Runtime() as runtime:
            with pytest.raises(ZeroDivisionError):
                await runtime.invoke(parent)
    assert len(refused) == 1


async def test_one_impatient_waiter_of_a_caller_does_not_end_the_call_for_the_other():
    release = asyncio.Event()

    @tool
    async def child() -> str:
        await release.wait()
        return "value"

    @tool(uses=[child])
    async def parent(ctx: RunContext) -> str:
        node = ctx.invoke(child)

        async def impatient() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await node
            release.set()

        async def patient() -> str:
            return await node

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(patient())
            group.create_task(impatient())
        return waiting.result()

    async with asyncio.timeout(60), Runtime() as runtime:
        assert await runtime.invoke(parent) == "value"


async def test_an_error_stays_an_error_if_the_time_runs_out_while_children_end():
    @tool
    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)

    @tool(uses=[child])
    async def parent(ctx: RunContext) -> None:
        ctx.invoke(child)
        await asyncio.sleep(0)
        raise ValueError("the real reason")

    with pytest.raises(ValueError, match="the real reason"):
        await Turn(parent, timeout=0.01).returning()


# Arguments, views, memory


async def test_arguments_are_taken_as_they_are_when_the_call_is_made():
    async with Runtime() as runtime:
        args = {"n": 0}
        nodes: list[Node] = []
        for n in range(3):
            args["n"] = n
            nodes.append(runtime.invoke(double, args))
        assert [await node for node in nodes] == [0, 2, 4]
        assert [runtime.get_view(node.id).inputs for node in nodes] == [
            {"n": 0},
            {"n": 1},
            {"n": 2},
        ]


async def test_a_timer_that_was_not_needed_keeps_nothing_alive():
    class Big:
        pass

    seen: list[weakref.ref[Any]] = []

    @tool
    async def make() -> Big:
        big = Big()
        seen.append(weakref.ref(big))
        return big

    loop = asyncio.get_running_loop()
    earlier = loop.call_later(30, lambda: None)  # behind it cancelled timers stay in the heap
    gc.disable()
    try:
        for _ in range(5):
            await Turn(make).returning()
        await asyncio.sleep(0)
        assert [ref() for ref in seen] == [None] * 5  # gone without the garbage collector
    finally:
        gc.enable()
        earlier.cancel()


# Threads and loops


def test_two_runtimes_may_call_each_other():
    first, second = Runtime(), Runtime()

    async def ask(ctx: RunContext, other: Any, n: int) -> int:
        return 0 if n == 0 else 1 + await other.invoke(function, {"other": ctx.runtime, "n": n - 1})

    function = CodeFunction(callable=ask)
    nodes = [first.invoke(function, {"other": second, "n": 20}) for _ in range(5)]
    nodes += [second.invoke(function, {"other": first, "n": 20}) for _ in range(5)]
    assert [node.result(60) for node in nodes] == [20] * 10
    first.close()
    second.close()


def test_many_loops_in_many_threads_each_have_their_ambient_runtime():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for n in range(30):
                assert asyncio.run(Turn(double, kwargs={"n": n}).returning()) == 2 * n
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            failures.append(error)

    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert failures == []


def test_closing_from_inside_is_refused_and_closing_from_outside_still_works():
    async def close(ctx: RunContext) -> None:
        ctx.runtime.close()

    runtime = Runtime()
    with pytest.raises(BlockingCallError, match="leave the 'async with' block"):
        runtime.invoke(CodeFunction(callable=close)).result(60)
    running = runtime.invoke(forever)
    runtime.close()
    assert running.state is NodeState.Canceled


# Session bags


async def test_a_factory_that_waits_for_the_loop_does_not_stop_it():
    entered = threading.Event()

    def slow(ctx: RunContext) -> Any:
        def factory() -> Any:
            entered.set()
            return ctx.invoke(double, {"n": 21}).result(60)

        return ctx.get_or_put(SessionScope.TopLevel, "test", "slow", factory)

    child = CodeFunction(callable=slow, uses=[double])

    @tool(uses=[child])
    async def parent(ctx: RunContext) -> Any:
        node = ctx.invoke(child)
        await asyncio.to_thread(entered.wait, 5)
        ctx.get_or_put(SessionScope.TopLevel, "test", "other", object)
        return await node

    async with asyncio.timeout(60), Runtime() as runtime:
        assert await runtime.invoke(parent) == 42


async def test_waiting_on_the_loop_for_what_a_thread_makes_is_refused():
    entered, release = threading.Event(), threading.Event()

    def slow(ctx: RunContext) -> Any:
        def factory() -> str:
            entered.set()
            release.wait(60)
            return "made"

        return ctx.get_or_put(SessionScope.TopLevel, "test", "thing", factory)

    child = CodeFunction(callable=slow)

    @tool(uses=[child])
    async def parent(ctx: RunContext) -> Any:
        node = ctx.invoke(child)
        await asyncio.to_thread(entered.wait, 5)
        with pytest.raises(BlockingCallError, match="test/thing is being made in another thread"):
            ctx.get_or_put(SessionScope.TopLevel, "test", "thing", object)
        release.set()
        await node
        return ctx.get_or_put(SessionScope.TopLevel, "test", "thing", object)

    async with asyncio.timeout(60), Runtime() as runtime:
        assert await runtime.invoke(parent) == "made"


async def test_a_factory_that_asks_for_itself_is_told_so():
    @tool
    async def act(ctx: RunContext) -> None:
        def factory() -> Any:
            return ctx.get_or_put(SessionScope.Self, "a", "b", factory)

        factory()

    async with Runtime() as runtime:
        with pytest.raises(UsageError, match="the factory of a/b asks for a/b itself"):
            await runtime.invoke(act)


async def test_a_bag_that_takes_forever_to_close_can_be_given_up():
    class Stuck:
        async def aclose(self) -> None:
            await asyncio.Event().wait()

    @tool
    async def keep(ctx: RunContext) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "stuck", Stuck)

    async def main() -> None:
        async with Runtime() as runtime:
            await runtime.invoke(keep)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await main()


async def test_nothing_is_put_into_the_bag_of_a_tree_that_is_gone():
    contexts: list[RunContext] = []

    @tool
    async def keep(ctx: RunContext) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "a", object)
        contexts.append(ctx)

    async with Runtime() as runtime:
        node = runtime.invoke(keep)
        await node
        runtime.delete(node.id)
        await asyncio.sleep(0)
        with pytest.raises(ClosedError, match="is gone"):
            contexts[0].get_or_put(SessionScope.Self, "test", "b", object)


def test_the_bags_of_a_turn_are_closed_before_it_returns():
    closed: list[str] = []

    class Resource:
        async def aclose(self) -> None:
            await asyncio.sleep(0)
            closed.append("closed")

    @tool
    async def keep(ctx: RunContext) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "a", Resource)

    asyncio.run(Turn(keep).returning())
    assert closed == ["closed"]


async def test_a_watcher_on_the_runs_own_loop_skips_what_it_has_no_time_for():
    @tool(uses=[double])
    async def wide(ctx: RunContext) -> int:
        for n in range(3000):
            await ctx.invoke(double, {"n": n})
        return 3000

    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(wide)
        views = [view.update_seqnum async for view in runtime.watch(node)]
        assert await node == 3000
    assert views[-1] == 9003  # it saw the end,
    assert len(views) < 3000  # but far from every event


def test_an_interrupt_while_the_block_waits_still_closes_everything():
    script = """
import asyncio
from treefold import RunContext, Runtime, SessionScope, tool

class Resource:
    def close(self):
        print("closed", flush=True)

@tool
async def forever(ctx: RunContext) -> None:
    ctx.get_or_put(SessionScope.Self, "test", "thing", Resource)
    print("running", flush=True)
    await asyncio.Event().wait()

with Runtime() as runtime:
    runtime.invoke(forever)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        preexec_fn=heed_interrupts,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    printed, complaints = process.communicate(timeout=60)
    assert printed == "closed\n"
    assert complaints.rstrip().endswith("KeyboardInterrupt")


# Several who wait, close or look on


async def test_a_runtime_may_be_closed_while_its_block_waits():
    async def main() -> Runtime:
        async with Runtime() as runtime:
            runtime.invoke(forever)
            threading.Timer(0.01, runtime.close).start()
        return runtime

    async with asyncio.timeout(60):
        runtime = await main()
    assert [node.state for node in runtime.list_toplevel()] == [NodeState.Canceled]
    with pytest.raises(ClosedError):
        runtime.invoke(forever)


async def test_an_onlooker_neither_ends_a_child_nor_keeps_it():
    started = asyncio.Event()

    @tool(uses=[forever])
    async def parent(ctx: RunContext) -> str:
        node = ctx.invoke(forever)
        nodes.append(node)
        started.set()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await node
        return "went on"

    async def look(patience: float) -> None:
        async with asyncio.timeout(patience):
            await nodes[0]

    nodes: list[Node] = []
    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(parent)
        await started.wait()
        with pytest.raises(TimeoutError):
            await look(0.01)
        assert nodes[0].state is NodeState.Running  # an onlooker's patience does not matter
        with pytest.raises(CancellationException, match="its caller stopped waiting for it"):
            await look(5)  # nor does his presence
        assert await node == "went on"


async def test_a_timeout_around_a_top_level_call_cancels_it():
    async with asyncio.timeout(20), Runtime() as runtime:
        node = runtime.invoke(forever)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await node
        with pytest.raises(CancellationException, match="its caller stopped waiting for it"):
            await node


async def test_a_timeout_in_another_loop_cancels_a_top_level_call():
    with Runtime() as runtime, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await runtime.invoke(forever)
    [node] = runtime.list_toplevel()
    assert node.state is NodeState.Canceled


async def test_a_top_level_call_goes_on_while_somebody_else_waits_for_it():
    release = asyncio.Event()

    @tool
    async def work() -> str:
        await release.wait()
        return "done"

    @tool
    async def look(ctx: RunContext) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await node
        return node.state.value

    async def wait() -> str:
        return await node

    async with asyncio.timeout(20), Runtime() as runtime, asyncio.TaskGroup() as group:
        node = runtime.invoke(work)
        assert await runtime.invoke(look) == "running"  # another call only looks on
        waiting = group.create_task(wait())
        await settle()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await node
        release.set()
        assert await waiting == "done"


async def test_a_call_goes_on_while_a_thread_of_its_caller_waits_for_its_result():
    release = asyncio.Event()

    @tool
    async def work() -> str:
        await release.wait()
        return "done"

    @tool(uses=[work])
    async def parent(ctx: RunContext) -> str:
        node = ctx.invoke(work)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(ctx.in_thread(node.result))
            while ctx.node.waiting_on is not node:  # noqa: ASYNC110 - a thread changes it
                await asyncio.sleep(0.001)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await node
            release.set()
        return waiting.result()

    async with asyncio.timeout(20), Runtime() as runtime:
        assert await runtime.invoke(parent) == "done"


async def test_a_top_level_call_in_a_journal_outlives_those_who_wait_for_it():
    release = asyncio.Event()

    @tool
    async def work() -> str:
        await release.wait()
        return "done"

    async with asyncio.timeout(20), Runtime([work], store=MemoryStore()) as runtime:
        node = runtime.invoke(work)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await node
        release.set()
        assert await node == "done"


async def test_a_call_that_was_given_up_can_be_cancelled_again_by_name():
    cancels: list[str] = []

    @tool
    async def stubborn() -> None:
        for time in ("given up", "cancelled again"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancels.append(time)

    @tool(uses=[stubborn])
    async def parent(ctx: RunContext) -> None:
        child = ctx.invoke(stubborn)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await child
        child.cancel("no time")  # one cancel together with the timeout
        await settle()
        assert cancels == ["given up"]
        child.cancel("no time at all")

    class Patient(Runtime):
        patience = 1000.0  # seconds, so that nothing else cancels it again

    async with asyncio.timeout(20), Patient() as runtime:
        await runtime.invoke(parent)
    assert cancels == ["given up", "cancelled again"]


async def test_code_that_stops_waiting_and_cancels_lets_the_call_clean_up():
    cleaned: list[str] = []
    begun = asyncio.Event()

    @tool
    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await settle()
            cleaned.append("work")

    async def wait_and_cancel() -> None:
        try:
            await node
        finally:
            node.cancel("no time")

    async with asyncio.timeout(20), Runtime() as runtime:
        node = runtime.invoke(work)
        await begun.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await wait_and_cancel()
    assert cleaned == ["work"]
    assert str(node.exception) == "work (run 1) was cancelled: no time"


async def test_waiting_for_a_call_of_a_loop_that_was_closed_can_be_cancelled():
    other = asyncio.new_event_loop()
    other.set_exception_handler(lambda *_: None)  # the call is never finished

    async def begin() -> Node:
        runtime = await AsyncExitStack().enter_async_context(Runtime())
        return runtime.invoke(forever)

    async def wait() -> None:
        await node

    node = await asyncio.to_thread(other.run_until_complete, begin())
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        waiting = group.create_task(wait())
        await settle()
        other.close()
        waiting.cancel()
    assert waiting.cancelled()


async def test_a_caller_that_waits_in_another_loop_can_lose_patience_too():
    def parent(ctx: RunContext) -> str:
        child = ctx.invoke(forever)

        async def wait() -> None:
            async with asyncio.timeout(0.01):
                await child

        with pytest.raises(TimeoutError):
            asyncio.run(wait())
        return "went on"

    async with asyncio.timeout(60), Runtime() as runtime:
        function = CodeFunction(callable=parent, uses=[forever])
        assert await runtime.invoke(function) == "went on"


async def test_a_cancel_while_a_parent_waits_for_its_children_reaches_them():
    @tool(uses=[forever])
    async def parent(ctx: RunContext) -> str:
        ctx.invoke(forever)
        return "value"

    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(parent)
        for _ in range(3):
            await asyncio.sleep(0)
        node.cancel("enough")
        assert await node == "value"
    (child,) = node.get_children()
    assert isinstance(child, Node)
    assert str(child.exception) == "forever (call 1.1) was cancelled: parent was cancelled: enough"


async def test_the_first_cancel_of_a_parent_that_failed_does_not_disturb_its_children():
    cleaned: list[str] = []
    failed = asyncio.Event()

    @tool
    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            failed.set()
            for _ in range(10):
                await asyncio.sleep(0)
            cleaned.append("child")

    @tool(uses=[child])
    async def parent(ctx: RunContext) -> None:
        ctx.invoke(child)
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(parent)
        await failed.wait()
        node.cancel("for the first time")
        with pytest.raises(ZeroDivisionError):
            await node
    assert cleaned == ["child"]


async def test_a_call_that_is_being_cancelled_does_not_time_out():
    started = asyncio.Event()

    @tool
    async def slow_to_end() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.03)

    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(slow_to_end, timeout=0.02)
        await started.wait()
        node.cancel("first")
        with pytest.raises(CancellationException, match="first"):
            await node


async def test_nothing_can_be_sent_after_the_end():
    contexts: list[RunContext] = []

    @tool
    async def leak(ctx: RunContext) -> None:
        contexts.append(ctx)

    async with Runtime() as runtime:
        node = runtime.invoke(leak)
        await node
        with pytest.raises(ClosedError, match="leak .run 1. has ended; it sends no more"):
            await contexts[0].send("late")
        assert runtime.get_view(node.id).values == ()


async def test_a_task_that_outlives_its_call_makes_calls_of_its_own():
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        ended = asyncio.Event()

        async def later() -> int:
            await ended.wait()
            return await Turn(double, kwargs={"n": 4}).returning()

        @tool
        async def parent() -> None:
            tasks.append(group.create_task(later()))

        tasks: list[asyncio.Task[int]] = []
        async with Runtime() as runtime:
            await runtime.invoke(parent)
            ended.set()
            assert await tasks[0] == 8
            assert [node.path for node in runtime.list_toplevel()] == ["1", "2"]
        await Turn(double, kwargs={"n": 1}).returning()  # after the block: the ambient runtime's
        assert len(runtime.list_toplevel()) == 2


def test_a_loop_may_be_run_by_one_thread_after_another():
    loop = asyncio.new_event_loop()

    def run() -> None:
        results.append(loop.run_until_complete(Turn(double, kwargs={"n": 2}).returning()))

    results: list[int] = []
    for _ in range(2):
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(60)
    run()
    loop.close()
    assert results == [4, 4, 4]


def test_eager_tasks_are_cancelled_and_counted_like_others():
    if sys.version_info < (3, 12):
        return

    @tool
    async def cancel_self(ctx: RunContext) -> None:
        ctx.node.cancel("by itself")
        await asyncio.sleep(0)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with asyncio.timeout(60), Runtime() as runtime:
            assert await runtime.invoke(double, {"n": 1}) == 2
            with pytest.raises(CancellationException, match="by itself"):
                await runtime.invoke(cancel_self)

    asyncio.run(main())


# More of session bags


async def test_closing_a_bag_can_be_cancelled_and_closes_the_others():
    closed: list[str] = []

    class Stuck:
        async def aclose(self) -> None:
            await asyncio.Event().wait()

    class Good:
        def close(self) -> None:
            closed.append("good")

    bag = SessionBag()
    bag.get_or_put("test", "good", Good)
    bag.get_or_put("test", "stuck", Stuck)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await bag.aclose()
    assert closed == ["good"]


async def test_the_bags_of_a_tree_are_closed_newest_first_and_in_their_own_time():
    closed: list[str] = []

    class Resource:
        def __init__(self, name: str) -> None:
            self.name = name

        async def aclose(self) -> None:
            await asyncio.sleep(0.15)
            closed.append(self.name)

    @tool
    async def child(ctx: RunContext) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "it", lambda: Resource("child"))

    @tool(uses=[child])
    async def parent(ctx: RunContext) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "it", lambda: Resource("parent"))
        await ctx.invoke(child)

    await Turn(parent, timeout=0.1).returning()  # it was in time; closing does not count
    assert closed == ["child", "parent"]


class SlowToClose:
    closed: list[str]

    def __init__(self, closed: list[str], name: str, *, cancels_itself: bool = False) -> None:
        self.closed = closed
        self.name = name
        self.cancels_itself = cancels_itself

    async def aclose(self) -> None:
        if self.cancels_itself:
            raise asyncio.CancelledError
        await asyncio.sleep(0.02)
        self.closed.append(self.name)


@pytest.mark.parametrize("cancels_itself", [False, True])
async def test_a_turn_that_is_cancelled_while_its_bags_close_ends(cancels_itself: bool):  # noqa: FBT001
    closed: list[str] = []
    returned = asyncio.Event()

    @tool
    async def child(ctx: RunContext) -> None:
        make = lambda: SlowToClose(closed, "child", cancels_itself=cancels_itself)  # noqa: E731
        ctx.get_or_put(SessionScope.Self, "test", "it", make)

    @tool(uses=[child])
    async def parent(ctx: RunContext) -> str:
        ctx.get_or_put(SessionScope.Self, "test", "it", lambda: SlowToClose(closed, "parent"))
        await ctx.invoke(child)
        asyncio.get_running_loop().call_soon(returned.set)
        return "value"

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(Turn(parent).returning())
        await returned.wait()
        if not cancels_itself:
            task.cancel()
    assert "parent" in closed  # the others are closed all the same


async def test_no_failure_that_somebody_waited_for_is_logged(caplog: pytest.LogCaptureFixture):
    release = asyncio.Event()

    @tool
    async def fail() -> None:
        await release.wait()
        raise ZeroDivisionError

    async def ask(node: Node) -> None:
        with pytest.raises(ZeroDivisionError):
            await node

    def ask_in_thread(node: Node) -> None:
        with pytest.raises(ZeroDivisionError):
            node.result(60)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group, Runtime() as runtime:
        node = runtime.invoke(fail)
        group.create_task(ask(node))
        group.create_task(asyncio.to_thread(ask_in_thread, node))
        await settle()
        release.set()
    assert caplog.messages == []


async def test_whoever_is_cancelled_twice_at_the_end_of_a_block_insists():
    cancels = 0
    started = asyncio.Event()

    @tool
    async def stubborn() -> None:
        nonlocal cancels
        while cancels < 2:
            try:
                started.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancels += 1

    async def main() -> None:
        async with Runtime() as runtime:
            runtime.invoke(stubborn)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(main())
        await started.wait()
        for _ in range(2):
            task.cancel()
            await settle()
    assert (cancels, task.cancelled()) == (2, True)


class Hasty(Runtime):
    patience = 0.05


class Forgetful:
    """A function that swallows its first cancellations."""

    def __init__(self, times: int = 3) -> None:
        self.started = asyncio.Event()
        self.cancels = 0

        @tool
        async def forgetful() -> None:
            while self.cancels < times:
                try:
                    self.started.set()
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancels += 1

        self.function = forgetful


@pytest.mark.parametrize("who", ["parent", "runtime"])
async def test_a_call_that_lost_its_cancel_is_cancelled_again_after_a_while(who: str):
    lost = Forgetful()

    @tool(uses=[lost.function])
    async def parent(ctx: RunContext) -> None:
        ctx.invoke(lost.function)
        await lost.started.wait()
        raise ZeroDivisionError

    async def main() -> None:
        async with Hasty() as runtime:
            if who == "parent":
                await runtime.invoke(parent)
            runtime.invoke(lost.function)
            await lost.started.wait()
            raise ZeroDivisionError

    async with asyncio.timeout(60):
        with pytest.raises(ZeroDivisionError):
            await main()
    assert lost.cancels == 3


@pytest.mark.parametrize("stores", [[], [MemoryStore]], ids=["in memory", "in a journal"])
@pytest.mark.parametrize("way", ["name", "timeout", "budget", "caller"])
async def test_however_a_call_is_cancelled_it_is_cancelled_until_it_ends(
    way: str, stores: list[type[MemoryStore]]
):
    lost = Forgetful()

    @tool(uses=[lost.function])
    async def caller(ctx: RunContext) -> str:
        node = ctx.invoke(lost.function)
        await lost.started.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await node
        return "went on"

    store = next((make() for make in stores), None)
    async with asyncio.timeout(40), Hasty(store=store) as runtime:
        if way == "caller":
            assert await runtime.invoke(caller) == "went on"
        elif way == "name":
            node = runtime.invoke(lost.function)
            await lost.started.wait()
            runtime.cancel(node.id)
        else:
            await run_out_of_time(runtime, lost, way)
    assert lost.cancels == 3


async def run_out_of_time(runtime: Runtime, lost: Forgetful, way: str) -> None:
    """Have a call take too long, and not before its function has begun."""
    for seconds in (0.02, 0.2, 2, 10):
        if way == "timeout":
            node = runtime.invoke(lost.function, timeout=seconds)
        else:
            node = runtime.invoke(lost.function, budget=Budget(seconds=seconds))
        with suppress(CallTimeoutError, BudgetExceeded):
            await node
        if lost.started.is_set():
            break


async def test_a_call_below_the_cancelled_one_is_cancelled_until_it_ends():
    lost = Forgetful()

    @tool(uses=[lost.function])
    async def caller(ctx: RunContext) -> None:
        await ctx.invoke(lost.function)

    async with asyncio.timeout(60), Hasty() as runtime:
        node = runtime.invoke(caller)
        await lost.started.wait()
        runtime.cancel(node.id)
    assert (lost.cancels, node.state) == (3, NodeState.Canceled)


def test_timeouts_that_end_at_once_in_two_threads_both_count():
    first_expires, second_over = threading.Event(), threading.Event()

    class Slow(asyncio.Future[None]):
        def cancel(self, msg: object = None) -> bool:
            first_expires.set()
            assert second_over.wait(60)
            return super().cancel(msg)

    @tool
    async def slow() -> None:
        await Slow()

    with Runtime() as one, Runtime() as other:
        first = one.invoke(slow, timeout=0.001)
        assert first_expires.wait(60)
        try:
            with pytest.raises(CallTimeoutError):
                other.invoke(forever, timeout=0.001).result(60)
        finally:
            other.close()
            second_over.set()
        with pytest.raises(CallTimeoutError):
            first.result(60)


async def test_what_a_thread_makes_for_a_tree_that_is_gone_is_closed():
    closed: list[str] = []
    entered, release, over = threading.Event(), threading.Event(), threading.Event()
    raised: list[BaseException] = []

    class Resource:
        def close(self) -> None:
            closed.append("closed")

    def work(ctx: RunContext) -> None:
        def factory() -> Resource:
            entered.set()
            release.wait(60)
            return Resource()

        try:
            ctx.get_or_put(SessionScope.Self, "test", "it", factory)
        except ClosedError as error:
            raised.append(error)
        over.set()

    runtime = Runtime()
    runtime.invoke(CodeFunction(callable=work))
    assert await asyncio.to_thread(entered.wait, 5)
    await asyncio.to_thread(runtime.close)
    release.set()
    assert await asyncio.to_thread(over.wait, 5)
    assert (closed, len(raised)) == (["closed"], 1)


def test_a_tree_may_be_deleted_between_two_runs_of_its_loop():
    closed: list[str] = []

    @tool
    async def keep(ctx: RunContext) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "it", lambda: SlowToClose(closed, "it"))

    runtime = Runtime()

    async def first() -> int:
        await runtime.__aenter__()
        node = runtime.invoke(keep)
        await node
        return node.id

    loop = asyncio.new_event_loop()
    runtime.delete(loop.run_until_complete(first()))
    loop.run_until_complete(runtime.__aexit__(None, None, None))
    loop.close()
    assert closed == ["it"]


@pytest.mark.parametrize("stores", [[], [MemoryStore]], ids=["in memory", "in a journal"])
def test_what_a_tree_kept_is_closed_when_delete_returns(stores: list[type[MemoryStore]]):
    closed: list[str] = []

    @tool
    async def keep(ctx: RunContext) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "it", lambda: SlowToClose(closed, "it"))

    with Runtime([keep], store=next((make() for make in stores), None)) as runtime:
        node = runtime.invoke(keep, key="once")
        node.result(60)
        runtime.delete(node.id)
        assert closed == ["it"]
        assert runtime.invoke(keep, key="once").id != node.id


async def test_async_code_deletes_a_tree_at_once_or_waits_in_a_thread():
    closed: list[str] = []

    @tool
    async def keep(ctx: RunContext, name: str) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "it", lambda: SlowToClose(closed, name))

    async with asyncio.timeout(60), Runtime([keep]) as runtime:
        first, second = (runtime.invoke(keep, {"name": name}) for name in ("first", "second"))
        await first
        await second
        await asyncio.to_thread(runtime.delete, first.id)
        assert closed == ["first"]
        runtime.delete(second.id)
        assert runtime.list_toplevel() == []
    assert closed == ["first", "second"]
