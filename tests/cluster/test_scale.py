"""What a cluster reads does not grow faster than what it does."""

import asyncio
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from cluster.conftest import Workers
from cluster.counting_store import CountingStore, DeafStore
from cluster.test_remote_calls import calling, remote, serving
from cluster.test_shared_runtime import PATIENCE, eventually
from treefold import (
    AgentFunction,
    CodeFunction,
    Function,
    FunctionArg,
    NodeState,
    RunContext,
    Runtime,
    ToolResult,
    ToolUse,
    UserText,
    WorkerSettings,
    attach,
)
from treefold.cli.journal import node_id
from treefold.core.store import Batch
from treefold.core.work_engine import Ticket
from treefold.stores.postgres import PostgresStore
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.testing.store_suite import called

FEW, MANY = 6, 18


async def double(ctx: RunContext, n: int) -> int:
    return n * 2


def one_by_one() -> Function:
    called = remote("double", double, desc="Double it.")

    async def work(ctx: RunContext, n: int) -> int:
        return sum([await ctx.invoke(called, {"n": 1}) for _ in range(n)])

    return CodeFunction(name="work", callable=work, uses=[called])


def at_once() -> Function:
    called = remote("double", double, desc="Double it.")

    async def work(ctx: RunContext, n: int) -> int:
        nodes = [ctx.invoke(called, {"n": 1}) for _ in range(n)]
        return sum([await node for node in nodes])

    return CodeFunction(name="work", callable=work, uses=[called])


def by_agent() -> Function:
    called = remote("double", double, desc="Double it.")
    return AgentFunction(
        "work", "Work.", args=[FunctionArg("n", int)], user_prompt_template="{n}", uses=[called]
    )


def agents_model() -> ScriptedModel:
    """Makes as many calls as the prompt says, one after another."""

    def reply(request: ScriptedRequest) -> Any:
        results = [part for part in request.transcript if isinstance(part, ToolResult)]
        asked = request.transcript[0]
        assert isinstance(asked, UserText)
        wanted = int(asked.text)
        return [ToolUse(str(len(results)), "double", {"n": 1})] if len(results) < wanted else "ok"

    return ScriptedModel(reply)


@pytest.mark.parametrize("make", [one_by_one, at_once, by_agent])
def test_what_is_read_for_a_remote_call_does_not_grow_with_the_number_of_its_siblings(
    workers: Workers, make: Callable[[], Function]
):
    stores = [CountingStore(workers.url) for _ in range(2)]
    work = make()
    near, _ = [
        workers(work, store=store, models=agents_model(), worker=serving(queue))
        for store, queue in zip(stores, ("near", "far"), strict=True)
    ]
    read = {}
    for count in (FEW, MANY):
        before = sum(store.read for store in stores)
        near.invoke(work, {"n": count}).result(PATIENCE)
        read[count] = sum(store.read for store in stores) - before
    assert read[MANY] < read[FEW] * MANY / FEW * 1.5


async def ask(ctx: RunContext, n: int) -> str:
    return await ctx.ask(str, "Which one?")


ASK = CodeFunction(callable=ask, repeatable=True)


def asking(runtime: Runtime, count: int) -> list[Any]:
    """Start so many trees that ask a person, and wait until all have asked."""
    nodes = [runtime.invoke(ASK, {"n": n}) for n in range(count)]
    eventually(lambda: len(runtime.questions()) == count, "all questions")
    return nodes


def test_trees_that_are_waited_for_are_not_read_as_long_as_nothing_happens(placed: Workers):
    store = CountingStore(placed.url)
    near = placed.submitter(ASK, store=store)
    placed(ASK)
    nodes = asking(near, FEW)
    with attach(placed.url) as observer:
        eventually(lambda: all(row.parked for row in observer.trees()), "parking")
    eventually(lambda: all(node.state is NodeState.Paused for node in nodes), "the news")
    vain, useful, beats = store.vain, store.useful, store.beats
    eventually(lambda: store.beats >= beats + 5, "five heartbeats")
    # What is announced twice is read twice; an engine may deliver a parked tree once more.
    assert store.vain - vain <= 2 * (store.useful - useful) + FEW
    for question in near.questions():
        near.answer(question.id, "this")
    assert [node.result(PATIENCE) for node in nodes] == ["this"] * FEW


def test_the_end_of_a_tree_is_noticed_without_notification_while_others_are_announced(
    placed: Workers,
):
    store = DeafStore(placed.url)
    near = placed.submitter(ASK, store=store)
    placed(ASK)
    node, other = asking(near, 2)
    over = threading.Event()

    def chatter() -> None:
        while not over.wait(0.01):
            store.tell(other.id)

    talking = threading.Thread(target=chatter)
    talking.start()
    try:
        [question] = [one for one in near.questions() if one.node_id == node.id]
        near.answer(question.id, "this")
        assert node.result(PATIENCE) == "this"
    finally:
        over.set()
        talking.join()


class Stumbling(DeafStore):
    """Fails once, as nobody expects, to say how far trees are."""

    has_failed = False

    def places(self, trees: Collection[int]) -> dict[int, int]:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("can't start new thread")
        return super().places(trees)


def test_a_program_hears_of_its_trees_though_looking_at_them_has_failed(placed: Workers):
    store = Stumbling(placed.url)
    placed(ASK)
    [node] = asking(placed.submitter(ASK, store=store), 1)
    eventually(lambda: store.has_failed, "the failure")
    with attach(placed.url) as observer:
        eventually(observer.questions, "the question")
        observer.answer(observer.questions()[0].id, "this")
    assert node.result(PATIENCE) == "this"


def test_a_worker_does_not_read_messages_because_of_what_it_writes_itself(workers: Workers):
    told = threading.Semaphore(0)

    async def step(ctx: RunContext, n: int) -> None:
        """Wait until all have been told once more; each step is written once at least."""
        assert await asyncio.to_thread(told.acquire, timeout=PATIENCE)

    called = CodeFunction(callable=step, repeatable=True)

    async def work(ctx: RunContext) -> None:
        for n in range(MANY):
            await ctx.invoke(called, {"n": n})

    function = CodeFunction(callable=work, uses=[called])
    store = CountingStore(workers.url)
    runtime = workers(function, store=store, worker=WorkerSettings(poll=60.0))
    with PostgresStore(workers.url) as other:
        other.cluster.listen(lambda _trees: told.release())
        runtime.invoke(function).result(PATIENCE)
    assert store.inboxes_read < MANY / 2


def test_a_command_for_a_remote_call_is_heard_of_without_polling(workers: Workers):
    begun, cancelled = threading.Event(), threading.Event()

    async def run(ctx: RunContext, n: int) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    work = calling("work", remote("run", run))
    workers(work, worker=replace(serving("far"), lease=1800.0, beat=600.0, poll=600.0))
    near = workers(work, worker=serving("near"))
    node = near.invoke(work, {"n": 1})
    assert begun.wait(PATIENCE)
    node.cancel("enough")
    assert cancelled.wait(PATIENCE)


def test_an_answer_reads_the_questions_of_its_call_alone(workers: Workers):
    asker, store = workers(ASK), CountingStore(workers.url)
    other = workers(ASK, store=store)
    nodes = asking(asker, FEW)
    with attach(store) as observer:
        eventually(lambda: len(observer.questions()) == FEW, "all questions")
        asked = {question.node_id: question.id for question in observer.questions()}
        store.questions_read = 0
        other.answer(asked[nodes[0].id], "one")
        observer.answer(asked[nodes[1].id], "two")
        assert store.questions_read == 2
    assert [node.result(PATIENCE) for node in nodes[:2]] == ["one", "two"]


def test_a_run_is_found_by_its_number_or_its_key_without_reading_the_others(workers: Workers):
    near = workers(ASK)
    nodes = [near.invoke(ASK, {"n": n}, key=f"key {n}") for n in range(FEW)]
    near.flush()
    with CountingStore(workers.url) as store, attach(store) as observer:
        found = [node_id(observer, text) for text in ("3", "=key 2", "key 2", "last")]
        assert found == [nodes[place].id for place in (2, 2, 2, -1)]
        assert store.trees_read == 0


@pytest.mark.parametrize("any_engine", ["none", "procrastinate"], indirect=True)
def test_a_queue_that_nobody_serves_does_not_keep_answered_trees_from_continuing(
    any_workers: Workers,
):
    with PostgresStore(any_workers.url) as store:
        first, _ = store.cluster.drives.reserve(250, 250)
        for node in range(first, first + 250):
            ticket = Ticket(node=node, queue="nobody")
            batch = Batch(ownership=None, entries=[called(node)], tickets=[ticket])
            store.append([batch])
    before = any_workers(ASK)
    node = before.invoke(ASK, {"n": 1})
    with attach(any_workers.url) as observer:
        eventually(observer.questions, "the question")
        any_workers.close(before)
        any_workers(ASK)

        def is_given_up() -> bool:
            [row] = [row for row in observer.trees() if row.id == node.id]
            return row.parked and not row.driven

        eventually(is_given_up, "parking")
        [question] = observer.questions()
        observer.answer(question.id, "this")
        eventually(lambda: observer.get_view(node.id).state is NodeState.Success, "the end")
        assert observer.get_view(node.id).outputs == "this"
