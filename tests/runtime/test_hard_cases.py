"""What breaks runtimes: odd exceptions, cancels from everywhere, loops that wait for each other."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import pytest

from ramify import CodeFunction, Node, NodeState, RunContext, Runtime, SessionScope, Turn, tool
from ramify.core.errors import BlockingCallError, CancellationException, ClosedError, UsageError
from support import double, forever

# Odd exceptions


async def test_an_exception_that_cannot_describe_itself_still_arrives():
    class MuteError(Exception):
        def __str__(self) -> str:
            return None  # pyright: ignore

    @tool
    async def act() -> None:
        raise MuteError

    async with asyncio.timeout(5), Runtime() as runtime:
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
    @tool
    async def act(ctx: RunContext) -> None:
        ctx.invoke(forever)
        await asyncio.sleep(0)
        raise kind("odd")

    async with asyncio.timeout(5), Runtime() as runtime:
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
            runtime.invoke(CodeFunction(callable=leave)).result(5)
        assert runtime.invoke(double, {"n": 1}).result(5) == 2
        assert other.state is NodeState.Running
        other.cancel()


# Cancels


async def test_a_task_cancelled_from_outside_before_it_began_ends_its_node():
    async with asyncio.timeout(5), Runtime() as runtime:
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

    @tool
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
        async with asyncio.timeout(5), runtime:
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

    async with asyncio.timeout(5), Runtime() as runtime:
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

    async with asyncio.timeout(20), Runtime() as runtime:
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

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        go = asyncio.Event()

        @tool
        async def slow_to_end() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                go.set()
                for _ in range(5):
                    await asyncio.sleep(0)

        @tool
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

    @tool
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

    async with asyncio.timeout(5), Runtime() as runtime:
        assert await runtime.invoke(parent) == "value"


async def test_an_error_stays_an_error_if_the_time_runs_out_while_children_end():
    @tool
    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)

    @tool
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
    assert [node.result(10) for node in nodes] == [20] * 10
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
        runtime.invoke(CodeFunction(callable=close)).result(5)
    running = runtime.invoke(forever)
    runtime.close()
    assert running.state is NodeState.Canceled


# Session bags


async def test_a_factory_that_waits_for_the_loop_does_not_stop_it():
    entered = threading.Event()

    def slow(ctx: RunContext) -> Any:
        def factory() -> Any:
            entered.set()
            return ctx.invoke(double, {"n": 21}).result(5)

        return ctx.get_or_put(SessionScope.TopLevel, "test", "slow", factory)

    @tool
    async def parent(ctx: RunContext) -> Any:
        node = ctx.invoke(CodeFunction(callable=slow))
        await asyncio.to_thread(entered.wait, 5)
        ctx.get_or_put(SessionScope.TopLevel, "test", "other", object)
        return await node

    async with asyncio.timeout(5), Runtime() as runtime:
        assert await runtime.invoke(parent) == 42


async def test_waiting_on_the_loop_for_what_a_thread_makes_is_refused():
    entered, release = threading.Event(), threading.Event()

    def slow(ctx: RunContext) -> Any:
        def factory() -> str:
            entered.set()
            release.wait(5)
            return "made"

        return ctx.get_or_put(SessionScope.TopLevel, "test", "thing", factory)

    @tool
    async def parent(ctx: RunContext) -> Any:
        node = ctx.invoke(CodeFunction(callable=slow))
        await asyncio.to_thread(entered.wait, 5)
        with pytest.raises(BlockingCallError, match="test/thing is being made in another thread"):
            ctx.get_or_put(SessionScope.TopLevel, "test", "thing", object)
        release.set()
        await node
        return ctx.get_or_put(SessionScope.TopLevel, "test", "thing", object)

    async with asyncio.timeout(5), Runtime() as runtime:
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


async def test_a_watcher_on_the_runs_own_loop_rests_more_than_it_works():
    @tool
    async def wide(ctx: RunContext) -> int:
        for n in range(3000):
            await ctx.invoke(double, {"n": n})
        return 3000

    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(wide)
        views = [time.perf_counter() async for _ in runtime.watch(node)]
        assert await node == 3000
    assert len(views) < 300  # far fewer than the 9,000 events


def test_an_interrupt_while_the_block_waits_still_closes_everything():
    script = """
import asyncio
from ramify import RunContext, Runtime, SessionScope, tool

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
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    printed, complaints = process.communicate(timeout=30)
    assert printed == "closed\n"
    assert complaints.rstrip().endswith("KeyboardInterrupt")
