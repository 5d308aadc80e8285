"""Thousands of parked trees: listed quickly, and not owed."""

import os
import time

from shared_stores import LEASE, info
from treefold.core.cluster import Owed, Ownership
from treefold.core.store import Batch
from treefold.core.work_engine import Ticket
from treefold.stores.postgres import PostgresStore
from treefold.testing.store_suite import asks, called

EXHAUSTIVE = os.environ.get("TREEFOLD_CLUSTER") == "exhaustive"
TREES = 10_000 if EXHAUSTIVE else 2_000


def test_thousands_of_parked_trees_are_listed_and_none_is_owed(postgres_url: str):
    with PostgresStore(postgres_url) as store:
        store.join(info(), lease=LEASE)
        for first in range(1, TREES + 1, 500):
            batches = [
                Batch(
                    ownership=Ownership(tree, tree, 1),
                    entries=[
                        called(tree),
                        called(tree + TREES, tree=tree, parent=tree),
                        asks(f"{tree + TREES}-1", 2, tree=tree),
                    ],
                )
                for tree in range(first, first + 500)
            ]
            assert store.append(batches) == [3] * 500
        # They are parked one by one, as a worker does it; here the worker leaves with all.
        store.vacuum()
        begun = time.monotonic()
        rows = store.trees(open=True)
        assert len(rows) == TREES
        assert all(row.parked and row.driven for row in rows)
        assert len(store.questions()) == TREES
        assert store.trees(after=TREES - 3, limit=2, open=True) == rows[-3:-1]
        listed = time.monotonic() - begun
        for tree in (1, 2, 3):
            assert store.cluster.drives.release(Ownership(tree, tree, 1), parked=True)
        begun = time.monotonic()
        assert (store.cluster.drives.owed(100), store.cluster.drives.depth()) == ([], Owed())
        assert store.post("yes", question=f"{TREES + 2}-1")
        assert store.cluster.drives.owed(100) == [Ticket(node=2)]
        # On a machine that does nothing else.
        assert not EXHAUSTIVE or listed + time.monotonic() - begun < 2
