"""A runtime on a shared store: it runs its own trees, and those that nobody runs."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cluster.conftest import Workers
from cluster.quick import QUICK
from cluster.slow_store import SlowStore
from treefold import (
    AgentFunction,
    CodeFunction,
    NodeState,
    RunContext,
    Runtime,
    StoreError,
    ToolResult,
    ToolUse,
    attach,
)
from treefold.core.cluster import Drives, Ownership, Subscription
from treefold.core.store import Batch, Entry
from treefold.core.work_engine import Ticket
from treefold.engines import InProcess
from treefold.stores.postgres import PostgresStore
from treefold.stores.postgres.cluster import PostgresCluster
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.testing.store_suite import called
from treefold.toolbox import human_in_loop
from wrapped_part import WrappedPart

PATIENCE = 60.0


def eventually(
    check: Callable[[], object], what: str = "it", *, patience: float = PATIENCE
) -> None:
    """Wait until *check* returns something true."""
    end = time.monotonic() + patience
    while not check():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.01)


async def add(ctx: RunContext, a: int, b: int) -> int:
    return a + b


ADD = CodeFunction(callable=add)


def asker() -> AgentFunction:
    return AgentFunction(
        "asker", "Ask.", user_prompt_template="Ask somebody.", uses=[human_in_loop]
    )


def asking_model() -> ScriptedModel:
    """Answers by what it is shown, so that it does not matter which worker asks it."""

    def reply(request: ScriptedRequest) -> Any:
        if isinstance(request.transcript[-1], ToolResult):
            return "Thanks."
        return [ToolUse("1", "human_in_loop", {"question": "Which colour?"})]

    return ScriptedModel(reply)


def test_calls_are_recorded_and_seen_by_observers(workers: Workers):
    runtime = workers(ADD)
    assert [runtime.invoke(ADD, {"a": 1, "b": n}).result(PATIENCE) for n in range(3)] == [1, 2, 3]
    with attach(workers.url) as observer:
        assert [(row.function, row.state) for row in observer.trees()] == [
            ("add", NodeState.Success)
        ] * 3


def test_an_agent_and_its_tools_run_on_it(workers: Workers):
    model = ScriptedModel([ToolUse("1", "add", {"a": 1, "b": 2})], "three")
    helper = AgentFunction("helper", "Help.", user_prompt_template="Add.", uses=[ADD])
    assert workers(helper, models=model).invoke(helper).result(PATIENCE) == "three"


def test_a_call_with_a_key_is_made_once_by_all_workers(workers: Workers):
    one, other = workers(ADD), workers(ADD)
    first = one.invoke(ADD, {"a": 1, "b": 2}, key="once")
    assert first.result(PATIENCE) == 3
    again = other.invoke(ADD, {"a": 1, "b": 2}, key="once")
    assert (again.id, again.result(PATIENCE)) == (first.id, 3)


def test_ids_of_calls_are_higher_than_those_of_their_callers_wherever_they_are_made(
    workers: Workers,
):
    async def fan_out(ctx: RunContext, n: int) -> int:
        for i in range(n):
            await ctx.invoke(ADD, {"a": i, "b": i})
        return n

    many = CodeFunction(callable=fan_out, uses=[ADD])
    one, other = workers(many), workers(many)
    nodes = [runtime.invoke(many, {"n": 150}) for runtime in (one, other, one)]
    assert [node.result(PATIENCE) for node in nodes] == [150, 150, 150]
    with attach(workers.url) as observer:
        seen: set[int] = set()
        for node in nodes:
            view = observer.get_view(node.id)
            ids = [child.id for child in view.children]
            assert ids == sorted(ids)
            assert min(ids) > view.id
            assert seen.isdisjoint(ids)
            seen.update(ids)


def test_what_a_closed_runtime_leaves_open_is_taken_over_by_another(workers: Workers):
    gate = threading.Event()

    def wait(ctx: RunContext) -> str:
        assert gate.wait(PATIENCE)
        return "done"

    waiting = CodeFunction(callable=wait, repeatable=True)
    first = Runtime([waiting], store=workers.url, worker=QUICK)
    node = first.invoke(waiting)
    eventually(lambda: node.state is NodeState.Running)
    first.close()
    other = workers(waiting)
    gate.set()
    with attach(workers.url) as observer:
        eventually(lambda: observer.get_view(node.id).state is NodeState.Success)
    # What is recorded is shown a moment later in the process that runs it.
    eventually(lambda: other.get_view(node.id).outputs == "done")


def test_what_a_closed_runtime_had_taken_over_is_taken_over_by_another(workers: Workers):
    begun, gate = threading.Semaphore(0), threading.Event()

    async def wait(ctx: RunContext) -> str:
        begun.release()
        while not gate.is_set():  # noqa: ASYNC110 - it is set in another thread
            await asyncio.sleep(0.01)
        return "done"

    waiting = CodeFunction(callable=wait, repeatable=True)

    async def call(ctx: RunContext) -> str:
        return await ctx.invoke(waiting)

    calling = CodeFunction(callable=call, uses=[waiting], repeatable=True)
    nodes = [workers(calling, engine=InProcess()).invoke(calling) for _ in range(3)]
    for _ in range(2):
        runtime = Runtime([calling], store=workers.url, worker=QUICK)
        runtime.recover()
        for _ in nodes:
            assert begun.acquire(timeout=PATIENCE)
        runtime.close()
    gate.set()
    workers(calling)
    assert [node.result(PATIENCE) for node in nodes] == ["done"] * 3


class Kept(WrappedPart):
    """Drives that cannot be released before the store is back."""

    def __init__(self, drives: Drives, is_back: threading.Event) -> None:
        super().__init__(drives)
        self.is_back = is_back

    def release(self, ownership: Ownership, **how: Any) -> bool:
        if not self.is_back.is_set():
            raise StoreError("a database", "it is away")
        return self.inner.release(ownership, **how)


class Leaving(PostgresStore):
    """Is away from when it reads the first tree."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.is_away, self.is_back = threading.Event(), threading.Event()
        self.cluster = replace(self.cluster, drives=Kept(self.cluster.drives, self.is_back))

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        self.is_away.set()
        assert self.is_back.wait(PATIENCE)
        return super().entries(tree, after=after)


def test_a_runtime_is_closed_though_what_it_just_adopts_cannot_be_released(workers: Workers):
    with PostgresStore(workers.url) as desk:
        node, _ = desk.cluster.drives.reserve(1, 1)
        batch = Batch(ownership=None, entries=[called(node)], tickets=[Ticket(node=node)])
        desk.append([batch])
    store = Leaving(workers.url)
    runtime = workers(ADD, store=store)
    assert store.is_away.wait(PATIENCE)
    closing = threading.Thread(target=workers.close, args=(runtime,))
    closing.start()
    closing.join(PATIENCE)
    has_ended = not closing.is_alive()
    store.is_back.set()
    closing.join(PATIENCE)
    assert has_ended


def test_a_parked_tree_has_no_owner_and_goes_on_when_it_is_answered(workers: Workers):
    function = asker()
    first = Runtime([function], models=asking_model(), store=workers.url, worker=QUICK)
    node = first.invoke(function)
    eventually(first.questions, "the question")
    first.close()
    runtime = workers(function, models=asking_model())
    with attach(workers.url) as observer:
        eventually(lambda: not observer.trees()[0].driven)
        assert observer.trees()[0].parked
        observer.answer(observer.questions()[0].id, "red")
        eventually(lambda: not observer.trees()[0].open, "the end")
        assert observer.get_view(node.id).outputs == "Thanks."
    assert runtime.questions() == []


def test_a_question_is_answered_from_any_process(workers: Workers):
    function = asker()
    one = workers(function, models=asking_model())
    other = workers(ADD)
    node = one.invoke(function)
    eventually(other.questions, "the question")
    assert other.questions() == one.questions()
    other.answer(other.questions()[0].id, "blue")
    assert node.result(PATIENCE) == "Thanks."


def test_a_runtime_answers_before_it_has_made_a_call(workers: Workers):
    function = asker()
    node = workers(function, models=asking_model()).invoke(function)
    other = workers.add(Runtime([ADD], store=workers.url, worker=QUICK))
    eventually(other.questions, "the question")
    other.answer(other.questions()[0].id, "blue")
    assert node.result(PATIENCE) == "Thanks."


class DeafCluster(PostgresCluster):
    """Cannot hear of changes."""

    def listen(self, *_: Any, **__: Any) -> Subscription:
        raise StoreError("a database", "deaf")


class Deaf(PostgresStore):
    """A store in which nothing is heard of other processes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        known = self.cluster
        self.cluster = DeafCluster(known.members, known.drives, known.limits, known.listener)


def test_a_worker_that_cannot_be_started_leaves_and_ends_its_threads(url: str):
    with Deaf(url) as store, PostgresStore(url) as other:
        with pytest.raises(StoreError, match="deaf"), Runtime([ADD], store=store, worker=QUICK):
            pass
        assert other.cluster.members.workers() == []
    running = {thread.name for thread in threading.enumerate()}
    assert running.isdisjoint({"treefold heartbeat", "treefold commands"})


def test_a_run_is_cancelled_from_any_process(workers: Workers):
    forever = CodeFunction(callable=_forever)
    one, other = workers(forever), workers(ADD)
    node = one.invoke(forever)
    with attach(workers.url) as observer:
        eventually(lambda: observer.trees() and observer.trees()[0].state is NodeState.Running)
    assert other.get_view(node.id).state is NodeState.Running
    other.cancel(node.id, "enough")
    eventually(lambda: node.state is NodeState.Canceled)
    eventually(lambda: other.get_view(node.id).state is NodeState.Canceled)


async def _forever(ctx: RunContext) -> None:
    await asyncio.sleep(3600)


def test_a_run_that_this_process_takes_while_a_program_looks_for_it_can_be_cancelled(
    workers: Workers,
):
    begun = threading.Semaphore(0)

    async def work(ctx: RunContext) -> None:
        begun.release()
        await asyncio.sleep(3600)

    working = CodeFunction(callable=work, repeatable=True)
    first = workers(working)
    id = first.invoke(working).id
    assert begun.acquire(timeout=PATIENCE)
    store = SlowStore(workers.url)
    runtime = workers(working, store=store)
    store.thread = threading.Thread(target=runtime.get_view, args=[id])
    store.thread.start()
    assert store.has_read.wait(PATIENCE)
    workers.close(first)
    assert begun.acquire(timeout=PATIENCE)  # in the second one
    store.go_on.set()
    store.thread.join(PATIENCE)
    # Were the run followed, a cancellation would be posted to this process again and again.
    runtime.cancel(id, "enough")
    with attach(workers.url) as observer:
        eventually(lambda: observer.get_view(id).state is NodeState.Canceled)


def test_a_run_is_paused_and_resumed_from_any_process(workers: Workers):
    async def steps(ctx: RunContext) -> int:
        total = 0
        for n in range(1000):
            total = await ctx.invoke(ADD, {"a": total, "b": 1})
            await asyncio.sleep(0.01)
            if n >= 5 and done.is_set():
                break
        return total

    done = threading.Event()
    counting = CodeFunction(callable=steps, uses=[ADD])
    one, other = workers(counting), workers(ADD)
    node = one.invoke(counting)
    eventually(lambda: len(one.get_view(node.id).children) > 3)
    other.pause(node.id)
    eventually(lambda: one.get_view(node.id).state is NodeState.Paused)
    eventually(lambda: other.get_view(node.id).state is NodeState.Paused)
    other.resume(node.id)
    eventually(lambda: one.get_view(node.id).state is NodeState.Running)
    done.set()
    assert node.result(PATIENCE) > 5


def test_a_run_is_forked_and_a_failed_one_resumed_from_any_process(workers: Workers):
    broken = [True]

    async def fails_once(ctx: RunContext) -> str:
        await ctx.invoke(ADD, {"a": 1, "b": 1})
        if broken[0]:
            raise ValueError("not yet")
        return "mended"

    function = CodeFunction(callable=fails_once, uses=[ADD])
    one, other = workers(function), workers(function)
    node = one.invoke(function)
    with pytest.raises(ValueError, match="not yet"):
        node.result(PATIENCE)
    broken[0] = False
    again = other.fork(node.id)
    assert again.result(PATIENCE) == "mended"
    with attach(workers.url) as observer:
        key = observer.fork(node.id)
        eventually(lambda: observer.forked(key) is not None, "the fork")
        fork = observer.forked(key)
        assert fork is not None
        eventually(lambda: observer.get_view(fork).outputs == "mended")
