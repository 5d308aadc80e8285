"""Reading a tree while six workers write it: no gap, no duplicate, though sessions are killed."""

import threading
from contextlib import ExitStack

import psycopg

from postgres_server import shared_url
from shared_stores import LEASE, info, kill_listeners
from treefold.core.cluster import Ownership
from treefold.core.store import Batch, Entry
from treefold.core.work_engine import Ticket
from treefold.stores.postgres import PostgresStore
from treefold.testing.store_suite import at_once, called, noted

WRITERS = 6
ROUNDS = 40


def write(store: PostgresStore, drive: Ownership, number: int) -> list[int]:
    """Write batches of one to three entries to a drive of tree 1; return their places."""
    places: list[int] = []
    written = drive.written
    for turn in range(ROUNDS):
        entries = [noted(drive.node, number + k, tree=1) for k in range(1 + turn % 3)]
        [place] = store.append([Batch(ownership=drive, entries=entries, written=written)])
        assert isinstance(place, int)
        places += range(place - len(entries) + 1, place + 1)
        number += len(entries)
        written += len(entries)
    return places


def test_a_tail_misses_nothing_and_reads_nothing_twice(journal_url: str):
    with ExitStack() as opened:
        stores = [opened.enter_context(PostgresStore(journal_url)) for _ in range(WRITERS)]
        reader = opened.enter_context(PostgresStore(journal_url))
        for store in stores:
            store.join(info(), lease=LEASE)
        calls = [called(node, tree=1, parent=1) for node in range(2, WRITERS + 1)]
        first = Batch(
            ownership=Ownership(1, 1, 1),
            entries=[called(1), *calls],
            tickets=[Ticket(node=call.node) for call in calls],
        )
        assert stores[0].append([first]) == [WRITERS]
        drives = [Ownership(1, 1, 1, WRITERS)]
        for node, store in enumerate(stores[1:], 2):
            adopted = store.cluster.drives.adopt(node)
            assert adopted is not None
            drives.append(adopted)

        changed = threading.Event()
        opened.callback(reader.cluster.listen(lambda _trees: changed.set()).close)
        total = WRITERS + WRITERS * sum(1 + turn % 3 for turn in range(ROUNDS))
        found: list[Entry] = []
        killed = 0

        def tail() -> list[int]:
            nonlocal killed
            reads = 0
            while len(found) < total:
                # A second at most: the notification may be lost.
                changed.wait(1.0)
                changed.clear()
                found.extend(reader.entries(1, after=found[-1].seq if found else 0))
                reads += 1
                if reads % 5 == 1:
                    killed += kill_listeners(reader.id)
            return [entry.seq for entry in found]

        jobs = [lambda s=s, d=d: write(s, d, 2) for s, d in zip(stores, drives, strict=True)]
        *written, seen = at_once([*jobs, tail])
        assert killed > 0
        assert seen == list(range(1, total + 1))
        assert sorted(place for places in written for place in places) == seen[WRITERS:]
        assert found == reader.entries(1)
        for places in written:
            assert places == sorted(places)


def test_trees_of_several_workers_are_written_without_a_deadlock(journal_url: str):
    # Each worker owns a tree, and a call in the tree of the other.
    with PostgresStore(journal_url) as one, PostgresStore(journal_url) as two:
        for store in (one, two):
            store.join(info(), lease=LEASE)
        for store, tree in ((one, 1), (two, 2)):
            entries = [called(tree), called(tree + 10, tree=tree, parent=tree)]
            ticket = Ticket(node=tree + 10)
            store.append([
                Batch(ownership=Ownership(tree, tree, 1), entries=entries, tickets=[ticket])
            ])
        assert one.cluster.drives.adopt(12) == Ownership(12, 2, 1, 0)
        assert two.cluster.drives.adopt(11) == Ownership(11, 1, 1, 0)

        def write_both(store: PostgresStore, own: int, other: int) -> list[object]:
            outcomes: list[object] = []
            for turn in range(150):
                batches = [
                    Batch(
                        ownership=Ownership(own, own, 1),
                        entries=[noted(own, turn + 2)],
                        written=turn + 2,
                    ),
                    Batch(
                        ownership=Ownership(other + 10, other, 1),
                        entries=[noted(other + 10, turn + 2, tree=other)],
                        written=turn,
                    ),
                ]
                outcomes += store.append(batches[:: 1 if turn % 2 else -1])
            return outcomes

        outcomes = at_once([lambda: write_both(one, 1, 2), lambda: write_both(two, 2, 1)])
        assert all(isinstance(outcome, int) for found in outcomes for outcome in found)
        for tree in (1, 2):
            assert [entry.seq for entry in one.entries(tree)] == list(range(1, 303))
        with psycopg.connect(shared_url()) as connection:
            search = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            assert connection.execute(search).fetchone() == (0,)
