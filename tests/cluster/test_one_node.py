"""A program holds one node of a call, whichever process runs the call just now."""

import asyncio
import gc
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from cluster.conftest import Workers
from cluster.counting_store import DeafStore
from cluster.serving import Serving
from cluster.test_remote_calls import Gate, Withholding, calling, drives, remote, serving
from cluster.test_shared_runtime import ADD, PATIENCE, eventually
from treefold import (
    CodeFunction,
    Node,
    NodeState,
    NodeView,
    RunContext,
    Runtime,
    WorkerSettings,
    attach,
)
from treefold.engines import InProcess, WorkEngine
from treefold.errors import CancellationException
from treefold.stores.postgres import PostgresStore


async def steps(ctx: RunContext, n: int) -> int:
    done = 0
    for number in range(n):
        done = await ctx.invoke(ADD, {"a": done, "b": 1})
        await ctx.ask(f"Step {number}?", ["yes"])
    return done


STEPS = CodeFunction(callable=steps, uses=[ADD], repeatable=True)


BOTH = serving("near", "far")
# Nothing is read now and then.
UNHURRIED = replace(BOTH, poll=3600.0)


class Program(Serving):
    """Works until it is told to stop, and then only waits for what it has submitted."""

    async def _work(self) -> None:
        async with self.runtime:
            await self.runtime.work(stop=self._stop, drain=PATIENCE)
            await asyncio.Event().wait()

    def stop_working(self) -> None:
        self.drain()
        eventually(lambda: drives(self.runtime)[0] == 0, "the end of its work")


@contextmanager
def program(
    workers: Workers,
    *functions: CodeFunction,
    engine: WorkEngine | None = None,
    store: PostgresStore | None = None,
    worker: WorkerSettings = BOTH,
) -> Generator[Program]:
    """Run a program that submits what its own worker part may take."""
    running = Program(
        Runtime(functions, store=store or workers.url, engine=engine or InProcess(), worker=worker)
    )
    try:
        yield running
    finally:
        running.close()


@contextmanager
def waiting(node: Node) -> Generator[Callable[[], list[Any]]]:
    """Wait for the end of a call in two ways; what is given returns their results."""

    async def awaited() -> Any:
        async with asyncio.timeout(PATIENCE):
            return await node

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(node.result, PATIENCE), pool.submit(lambda: asyncio.run(awaited()))]
        yield lambda: [one.result(PATIENCE) for one in found]


def answer(runtime: Runtime, number: int) -> None:
    """Answer the question of a step once its tree was given up."""

    def asked() -> list[str]:
        return [one.id for one in runtime.questions() if one.text == f"Step {number}?"]

    eventually(asked, "the question")
    eventually(lambda: drives(runtime)[0] == 0, "the release")
    runtime.answer(asked()[0], "yes")


def assert_cancelled(node: Node, runtime: Runtime, url: str) -> None:
    """Check that a call and those below it end as cancelled, here and in the journal."""
    with pytest.raises(CancellationException):
        node.result(PATIENCE)
    assert node.state is NodeState.Canceled
    with attach(url) as observer:
        view = observer.get_view(node.id)
        assert view.state is NodeState.Canceled
        assert all(one.state.final for one in view.children)
    # The process that runs a call may hear of its own write a moment later than who follows it.
    eventually(lambda: runtime.get_view(node.id).state is NodeState.Canceled)


def test_a_program_hears_of_a_call_that_its_worker_part_has_parked_and_another_worker_ends(
    workers: Workers,
):
    with program(workers, STEPS) as near, attach(workers.url) as observer:
        node = near.runtime.invoke(STEPS, {"n": 3}, queue="near")
        with waiting(node) as results:
            answer(near.runtime, 0)
            answer(near.runtime, 1)
            eventually(lambda: len(observer.get_view(node.id).children) == 3, "the last step")
            near.stop_working()
            workers(STEPS, worker=serving("near"))
            answer(near.runtime, 2)
            assert results() == [3, 3]
        assert near.runtime.get_view(node.id).state is node.state is NodeState.Success
        assert [child.outputs for child in node.get_children() if isinstance(child, Node)] == [
            1,
            2,
            3,
        ]


@pytest.mark.parametrize("moment", ["it runs here", "it is parked", "it runs elsewhere"])
def test_a_call_is_cancelled_through_its_node_wherever_it_runs(workers: Workers, moment: str):
    gate = Gate()
    function = CodeFunction(name="wait", callable=gate, repeatable=True)
    if moment == "it is parked":
        function = STEPS
    with program(workers, function) as near, attach(workers.url) as observer:
        node = near.runtime.invoke(function, {"n": 1}, queue="near")
        if moment == "it is parked":
            eventually(near.runtime.questions, "the question")
            eventually(lambda: not observer.trees()[0].driven, "the release")
        else:
            assert gate.begun.wait(PATIENCE)
        if moment == "it runs elsewhere":
            near.stop_working()
            gate.begun.clear()
            workers(function, worker=serving("near"))
            assert gate.begun.wait(PATIENCE)
        node.cancel("enough")
        assert_cancelled(node, near.runtime, workers.url)


@contextmanager
def adopted(
    workers: Workers, gate: Gate, *, is_call_first: bool, **options: Any
) -> Generator[tuple[Program, Node, Node]]:
    """Have a program take a tree that it has submitted, and apart from it a remote call in it.

    Yields:
        The program, the tree and the call, which is under way.
    """
    work = calling("work", remote("wait", gate, repeatable=True))
    withheld, of_other = ("near", "near") if is_call_first else ("far", "far")
    engine = Withholding(withheld)
    with program(workers, work, engine=engine, **options) as near:
        node = near.runtime.invoke(work, {"n": 7}, queue="near")
        other = workers(work, worker=serving(of_other))
        assert gate.begun.wait(PATIENCE)
        with attach(workers.url) as observer:
            call = observer.get_view(node.id).children[0].id
        gate.begun.clear()
        workers.close(other)
        engine.is_open.set()
        if not is_call_first:
            assert gate.begun.wait(PATIENCE)
        eventually(lambda: drives(near.runtime) == [2], "the adoption")
        yield near, node, near.runtime.get_subtree(call)[0]


def test_a_call_that_needs_a_moment_to_stop_is_handed_over_by_a_program_that_works_no_more(
    workers: Workers,
):
    begun = threading.Event()

    async def wait(ctx: RunContext, n: int) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.5)

    function = CodeFunction(name="wait", callable=wait, repeatable=True)
    with program(workers, function) as near:
        near.runtime.invoke(function, {"n": 1}, queue="near")
        assert begun.wait(PATIENCE)
        near.stop_working()
        begun.clear()
        workers(function, worker=serving("near"))
        assert begun.wait(PATIENCE)


either_first = pytest.mark.parametrize("is_call_first", [True, False])


@either_first
def test_a_remote_call_is_one_call_though_it_was_adopted_apart_from_its_caller(
    workers: Workers, *, is_call_first: bool
):
    gate = Gate()
    with adopted(workers, gate, is_call_first=is_call_first) as (near, node, call):
        with waiting(node) as results, waiting(call) as results_of_call:
            gate.opened.set()
            assert (results(), results_of_call()) == ([[7]] * 2, [7] * 2)
        assert near.runtime.get_view(call.id).outputs == 7
        eventually(lambda: drives(near.runtime) == [0], "the release")
        assert near.runtime.get_view(call.id).outputs == 7


@either_first
@pytest.mark.parametrize("by", ["its caller", "itself", "its id"])
def test_a_remote_call_that_was_adopted_apart_from_its_caller_is_cancelled(
    workers: Workers, by: str, *, is_call_first: bool
):
    with adopted(workers, Gate(), is_call_first=is_call_first) as (near, node, call):
        if by == "its id":
            near.runtime.cancel(call.id, "enough")
        else:
            (node if by == "its caller" else call).cancel("enough")
        assert_cancelled(call, near.runtime, workers.url)
        eventually(lambda: near.runtime.get_view(node.id).state.final)
        eventually(lambda: drives(near.runtime) == [0], "the release")


def test_a_program_that_was_told_of_a_failure_is_not_warned_though_its_worker_part_ran_it(
    workers: Workers, caplog: pytest.LogCaptureFixture
):
    async def fail(ctx: RunContext) -> None:
        raise ValueError("it failed")

    failing = CodeFunction(callable=fail)
    with program(workers, failing) as near:
        node = near.runtime.invoke(failing, queue="near")
        with pytest.raises(ValueError, match="it failed"):
            node.result(PATIENCE)
        eventually(lambda: drives(near.runtime) == [0], "the release")
    gc.collect()
    assert "nobody asked" not in caplog.text


def test_a_finished_tree_that_a_program_looks_at_does_not_stay_in_memory(workers: Workers):
    id = workers(ADD).invoke(ADD, {"a": 1, "b": 2}).id
    looking = workers(ADD)
    eventually(lambda: looking.get_view(id).outputs == 3)
    looking.get_view(id)
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Node) and one.id == id]


class Looking:
    """Looks at a call again and again, in a thread, until it is closed."""

    def __init__(self, runtime: Runtime, id: int) -> None:
        self.views: list[NodeView] = []
        self._runtime, self._id = runtime, id
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._is_over.is_set():
            self.views.append(self._runtime.get_view(self._id))

    def __enter__(self) -> list[NodeView]:
        self._thread.start()
        return self.views

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def known(view: NodeView) -> tuple[bool, int, int]:
    """Return how much of a call is known."""
    ended = sum(one.state.final for one in view.children)
    return view.state.final, len(view.children), ended


def never_goes_back(views: list[NodeView]) -> bool:
    return [known(view) for view in views] == sorted(known(view) for view in views)


def test_the_views_of_a_call_never_go_back_though_it_is_given_up_and_taken_again(
    workers: Workers,
):
    store = DeafStore(workers.url)
    with program(workers, STEPS, store=store, worker=UNHURRIED) as near:
        node = near.runtime.invoke(STEPS, {"n": 3}, queue="near")
        with Looking(near.runtime, node.id) as views:
            for number in range(3):
                answer(near.runtime, number)
            assert node.result(PATIENCE) == 3
            eventually(lambda: drives(near.runtime)[0] == 0, "the end")
        assert never_goes_back(views)
        assert known(views[-1]) == known(near.runtime.get_view(node.id)) == (True, 3, 3)
    store.close()


@either_first
def test_the_views_of_a_remote_call_never_go_back_though_it_was_adopted_apart(
    workers: Workers, *, is_call_first: bool
):
    gate, store = Gate(), DeafStore(workers.url)
    with adopted(workers, gate, is_call_first=is_call_first, store=store, worker=UNHURRIED) as (
        near,
        node,
        call,
    ):
        with Looking(near.runtime, call.id) as views:
            gate.opened.set()
            assert node.result(PATIENCE) == [7]
            eventually(lambda: drives(near.runtime) == [0], "the end")
        assert never_goes_back(views)
        assert views[-1].outputs == 7
    store.close()
