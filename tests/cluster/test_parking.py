"""Trees that wait for a person: given up, and woken by the answer, on any worker."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Self

import pytest

from cluster.conftest import Workers, on
from cluster.leases import connect
from cluster.quick import QUICK
from cluster.serving import Serving
from cluster.test_shared_runtime import ADD, PATIENCE, eventually
from postgres_server import new_name, shared_url, with_query
from shared_stores import LEASE, info
from treefold import CodeFunction, RunContext, Runtime, attach
from treefold.engines import Ticket
from treefold.errors import UnknownQuestionError
from treefold.stores import Batch, Ownership
from treefold.stores.postgres import PostgresStore
from treefold.testing.cluster_suite import cluster_of
from treefold.testing.store_suite import asks, called
from work_engines import EXHAUSTIVE, make_engine
from wrapped_engine import WrappedEngine

FAR = "far"
TREES, QUESTIONS = (250, 20) if EXHAUSTIVE else (4, 3)
PARKED = 10_000 if EXHAUSTIVE else 2_000


async def quiz(ctx: RunContext, n: int) -> int:
    for number in range(n):
        await ctx.ask(f"Question {number}?", ["yes"])
    return n


QUIZ = CodeFunction(callable=quiz, repeatable=True)
FAR_QUIZ = CodeFunction(name="far_quiz", callable=quiz, repeatable=True, remote=FAR)


async def errand(ctx: RunContext, n: int) -> int:
    return await ctx.invoke(FAR_QUIZ, {"n": n})


ERRAND = CodeFunction(callable=errand, uses=[FAR_QUIZ], repeatable=True)


class Person:
    """Answers each question as soon as it can be seen, when its tree is about to be parked.

    Attributes:
        answered: how often an answer to a question was accepted.
    """

    def __init__(self, url: str) -> None:
        self.answered: Counter[str] = Counter()
        self._url = url
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._answer)

    def _answer(self) -> None:
        with attach(self._url) as observer:
            while not self._is_over.wait(0.001):
                for question in observer.questions():
                    with suppress(UnknownQuestionError):
                        observer.answer(question.id, "yes")
                        self.answered[question.id] += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


ALL_ONCE = [1] * (2 * TREES * QUESTIONS)


def ask_everything(placed: Workers, act: Callable[[], None] = lambda: None) -> list[int]:
    """Have trees ask their questions, here and in remote calls, and *act* until all have ended.

    No wake-up is lost. Return how often each question was answered: if an answer is lost, its
    question is asked again.
    """
    submitter = placed.submitter(QUIZ, ERRAND)
    end = time.monotonic() + PATIENCE + 0.5 * TREES * QUESTIONS
    with attach(placed.url) as observer, Person(placed.url) as person:
        trees = [
            submitter.invoke(function, {"n": QUESTIONS}, queue="near").id
            for function in (QUIZ, ERRAND)
            for _ in range(TREES)
        ]
        submitter.flush()
        while unfinished := [row.id for row in observer.trees() if row.open]:
            assert time.monotonic() < end, f"these trees have not ended: {unfinished}"
            act()
            time.sleep(0.01)
        assert {observer.get_view(tree).outputs for tree in trees} == {QUESTIONS}
    store = submitter.store
    assert store is not None
    assert store.inbox() == []
    eventually(lambda: cluster_of(store).drives.owed(10) == [], "that nothing is owed")
    return list(person.answered.values())


@on("hostile")
def test_no_wake_up_is_lost_however_quickly_questions_are_answered(placed: Workers):
    for queue in ("near", "near", FAR, FAR):
        placed(QUIZ, ERRAND, worker=replace(QUICK, queues=[queue]))
    assert ask_everything(placed) == ALL_ONCE


@on("procrastinate")
def test_no_answer_is_lost_while_workers_are_drained(placed: Workers):
    settings = replace(QUICK, queues=["near", FAR])

    def start() -> Serving:
        engine = make_engine(placed.engine, placed.url)
        return Serving(Runtime([QUIZ, ERRAND], store=placed.url, engine=engine, worker=settings))

    working = deque([start(), start()])

    def replace_one() -> None:
        working.append(start())
        draining = working.popleft()
        draining.drain()
        draining.join()

    try:
        assert ask_everything(placed, replace_one) == ALL_ONCE
    finally:
        for one in working:
            one.close()


@pytest.fixture(scope="module")
def crowded() -> str:
    """The URL of a store with thousands of trees that wait for a person."""
    url = with_query(shared_url(), schema=new_name())
    with PostgresStore(url) as store:
        store.join(info(), lease=LEASE)
        first, number = store.cluster.drives.reserve(2 * PARKED, PARKED)
        for tree in range(first, first + PARKED, 500):
            store.append([_asking(tree + k, number) for k in range(500)])
        with connect(url) as connection:
            # As if each had been released by its worker.
            connection.execute("UPDATE drives SET owner = NULL, wanted = NULL")
    return url


def _asking(tree: int, number: int) -> Batch:
    call = tree + PARKED
    asking = asks(f"{call}-1", 2, tree=tree)
    return Batch(
        ownership=Ownership(tree, tree, 1),
        entries=[called(tree, index=number), called(call, tree=tree, parent=tree), asking],
    )


def _runs(runtime: Runtime) -> int:
    status = runtime.worker_status()
    return status.running + status.waiting


class Counting(WrappedEngine):
    """Notes what is submitted."""

    def __init__(self, url: str, engine: str) -> None:
        super().__init__(make_engine(engine, url))
        self.submitted: list[int] = []

    async def submit(self, ticket: Ticket) -> None:
        self.submitted.append(ticket.node)
        await super().submit(ticket)


def test_a_worker_starts_beside_thousands_of_parked_trees_and_loads_none(
    crowded: str, engine: str, caplog: pytest.LogCaptureFixture
):
    workers, counting = Workers(crowded, engine), Counting(crowded, engine)
    try:
        runtime = workers.serve(Runtime([ADD], store=crowded, engine=counting, worker=QUICK))
        node = runtime.invoke(ADD, {"a": 1, "b": 2})
        assert node.result(PATIENCE) == 3
        eventually(lambda: _runs(runtime) == 0, "that it runs nothing")
    finally:
        workers.close()
    assert set(counting.submitted) == {node.id}
    # Their entries cannot be read as events: to load one is to complain.
    assert caplog.messages == []
