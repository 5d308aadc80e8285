"""What people and workers do once costs the same, however much there is in the journal."""

import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import Final
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from postgres_server import new_name, new_schema, shared_url, with_query
from shared_stores import LEASE, info
from stores.postgres.large_journal import fill
from support import wait
from treefold import CodeFunction, Observer, RunContext, Runtime, WorkerSettings, attach
from treefold.cli.export import exported
from treefold.cli.journal import node_id
from treefold.core.cluster import Estimate, Load, StoredAccount
from treefold.stores.postgres import PostgresStore
from treefold.views.liveness import up_to_date
from work_engines import EXHAUSTIVE

FEW: Final = 40  # trees
MANY: Final = 200_000 if EXHAUSTIVE else 10_000
# Blocks of tables and indexes; an index of many rows has two or three levels more.
SPARE: Final = 100
APART: Final = 1_000  # the ids of the trees that the tests use are lower than all others
ASKING: Final = 12  # trees


async def ask(ctx: RunContext) -> str:
    return await ctx.ask("Well?")


async def look(ctx: RunContext) -> str:
    return "looked"


ASK = CodeFunction(callable=ask, repeatable=True)
LOOK = CodeFunction(callable=look, repeatable=True)


class Journal:
    """A journal with a few trees for the tests, and so many others."""

    def __init__(self, url: str, trees: int) -> None:
        self._name = new_name("plans")
        self.url = with_query(url, application_name=self._name)
        [self._schema] = parse_qs(urlsplit(url).query)["schema"]
        with Runtime([ASK, LOOK], store=self.url) as runtime:
            self._asking = [runtime.invoke(ASK).id for _ in range(ASKING)]
            self.looked = runtime.invoke(LOOK, key="looked")
            self.looked.result()
            self.fork = runtime.fork(self.looked.id).id
            wait(lambda: len(runtime.questions()) == ASKING)
        options = f"-c search_path={self._schema}"
        with psycopg.connect(shared_url(), autocommit=True, options=options) as connection:
            row = connection.execute("SELECT node FROM journal").fetchone()
            assert row is not None
            fill(connection, first=row[0] + APART, start=FEW + 1, end=FEW + trees)

    def asking(self) -> int:
        """Return a tree that asks, and that no other test has used."""
        return self._asking.pop()

    def blocks(self, act: Callable[[], object]) -> int:
        """Return how many blocks of tables and indexes *act* reads."""
        before = self._read()
        act()
        return self._read() - before

    def _read(self) -> int:
        with psycopg.connect(shared_url(), autocommit=True) as connection:

            def is_idle() -> bool:
                # What a session has read is counted when it ends, at the latest.
                found = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s",
                    (self._name,),
                )
                return found.fetchone() == (0,)

            wait(is_idle)
            [(read,)] = connection.execute(
                "SELECT sum(coalesce(heap_blks_hit, 0) + coalesce(heap_blks_read, 0)"
                " + coalesce(idx_blks_hit, 0) + coalesce(idx_blks_read, 0))::bigint"
                " FROM pg_statio_user_tables WHERE schemaname = %s",
                (self._schema,),
            ).fetchall()
            return read


@contextmanager
def journal_of(trees: int) -> Generator[Journal]:
    with new_schema() as url:
        yield Journal(url, trees)


@pytest.fixture(scope="module")
def journals() -> Iterator[tuple[Journal, Journal]]:
    """Two journals, with few trees and with many."""
    with journal_of(FEW) as few, journal_of(MANY) as many:
        yield few, many


def with_store(act: Callable[[PostgresStore, Journal], object], journal: Journal) -> None:
    with PostgresStore(journal.url) as store:
        act(store, journal)


def with_worker(act: Callable[[PostgresStore, Journal], object], journal: Journal) -> None:
    with PostgresStore(journal.url) as store:
        store.join(info(), lease=LEASE)
        act(store, journal)


def with_observer(act: Callable[[Observer, Journal], object], journal: Journal) -> None:
    with attach(journal.url) as observer:
        act(observer, journal)


def adopt(store: PostgresStore, journal: Journal) -> None:
    tree = journal.asking()
    ownership = store.cluster.drives.adopt(tree)
    assert ownership is not None
    assert store.pending(tree)
    assert ownership.attempts == 0
    store.cluster.members.beat(Load())
    assert store.cluster.drives.release(ownership, parked=True)


def post(store: PostgresStore, journal: Journal) -> None:
    tree = journal.asking()
    assert store.post("{}", node=tree)
    ownership = store.cluster.drives.adopt(tree)
    assert ownership is not None
    [message] = store.inbox(drives=[tree], owned=True)
    store.cluster.members.beat(Load())
    store.done(message.id)
    assert store.cluster.drives.release(ownership, parked=True)


def spend(store: PostgresStore, journal: Journal) -> None:
    ownership, id = store.cluster.drives.adopt(journal.asking()), uuid.uuid4()
    assert ownership is not None
    account = StoredAccount(name="b", tree=0, most_calls=10)
    estimate = Estimate(tokens=1, usd=Decimal(1), least_tokens=1, least_usd=Decimal(1))
    assert (
        store.cluster.limits.set_aside([account], id=id, estimate=estimate, ownership=ownership)
        is None
    )
    store.cluster.limits.charge(id, calls=1, tokens=1, usd=Decimal(1))
    assert store.cluster.limits.set_slots({"any": 1}, limits={"any": 3})
    assert store.cluster.drives.release(ownership, parked=True)


def next_page(store: PostgresStore, journal: Journal) -> None:
    last = store.cluster.drives.owed(5)[-1].node if store.cluster.drives.owed(5) else 1
    store.cluster.drives.owed(5, after=last)
    store.cluster.drives.owed(5, queues=["nobody", "default"], after=last)


def answer(observer: Observer, journal: Journal) -> None:
    [question] = observer.questions(node=journal.asking())
    observer.answer(question.id, "yes", token="one")
    observer.answer(question.id, "yes", token="one")


def pause_and_resume(observer: Observer, journal: Journal) -> None:
    tree = journal.asking()
    observer.pause(tree)
    observer.resume(tree)
    assert observer.refusal(tree) is None


def read_all_of_one(observer: Observer, journal: Journal) -> None:
    tree = journal.asking()
    view = up_to_date(observer, observer.get_view(tree))
    assert len(view.questions) == 1
    assert len(observer.events(tree).read()) > 1
    assert observer.stack(tree)
    assert observer.tree(tree).open
    assert exported(observer, tree, "journal")


def name_runs(observer: Observer, journal: Journal) -> None:
    assert node_id(observer, "1") < journal.looked.id
    assert node_id(observer, "looked") == journal.looked.id


def run(journal: Journal) -> None:
    # Without a sweep, which would take other trees on a machine that is slow enough.
    seldom = WorkerSettings(sweep=600.0)
    with Runtime([LOOK], store=journal.url, worker=seldom) as runtime:
        assert runtime.invoke(LOOK).result() == "looked"
        assert runtime.invoke(LOOK, key="looked").result() == "looked"


STORE: Final[dict[str, Callable[[PostgresStore, Journal], object]]] = {
    "a page": lambda store, _: store.trees(limit=2),
    "a page of open trees": lambda store, _: store.trees(limit=2, open=True),
    "a page of ended trees": lambda store, _: store.trees(limit=1, open=False),
    "a row": lambda store, journal: store.trees(after=journal.looked.id - 1, limit=1),
    "what is owed": lambda store, _: store.cluster.drives.owed(10),
    "what is owed in queues": lambda store, _: store.cluster.drives.owed(
        10, queues=["nobody", "default"]
    ),
    "the next page of what is owed": next_page,
    "how much is owed in a queue": lambda store, _: store.cluster.drives.depth(["nothing"]),
    "a shared id": lambda store, journal: store.find(node=journal.fork + 1),
    "an unknown id": lambda store, _: store.find(node=10**12),
    "some ids": lambda store, journal: store.find_all([journal.looked.id, 10**12]),
    "a key": lambda store, _: (store.find_key("a"), store.find_key("b")),
    "the newest": lambda store, _: store.highest(),
    "past runs": lambda store, _: store.past_runs("function", 3),
    "timers": lambda store, _: store.timers(until=5.0),
    "some questions": lambda store, _: store.questions(limit=2),
    "workers": lambda store, _: store.cluster.members.workers(),
    "forks": lambda store, journal: store.forks(journal.looked.id),
    "places": lambda store, journal: store.places([journal.looked.id]),
    "a call": lambda store, journal: store.entries_around(journal.looked.id),
    "broadcasts": lambda store, _: store.read_broadcasts(),
}
WORKER: Final[dict[str, Callable[[PostgresStore, Journal], object]]] = {
    "joining": lambda store, _: store.cluster.members.beat(Load()),
    "adopting": adopt,
    "a message": post,
    "spending": spend,
}
OBSERVER: Final[dict[str, Callable[[Observer, Journal], object]]] = {
    "an answer": answer,
    "a pause": pause_and_resume,
    "a cancellation": lambda observer, journal: observer.cancel(journal.asking()),
    "a fork": lambda observer, journal: observer.fork(journal.asking()),
    "a tree": read_all_of_one,
    "names": name_runs,
}
ACTS: Final[dict[str, Callable[[Journal], object]]] = {
    "a program": run,
    **{name: partial(with_store, act) for name, act in STORE.items()},
    **{name: partial(with_worker, act) for name, act in WORKER.items()},
    **{name: partial(with_observer, act) for name, act in OBSERVER.items()},
}


@pytest.mark.parametrize("name", ACTS)
def test_what_is_read_does_not_grow_with_the_journal(journals: tuple[Journal, Journal], name: str):
    few, many = [journal.blocks(partial(ACTS[name], journal)) for journal in journals]
    assert many < 2 * few + SPARE
