"""A worker leaves while something that it has asked for is still on its way."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster.leases import connect
from postgres_server import empty_journal
from shared_stores import LEASE, info, wait_until
from treefold.core.store import Batch
from treefold.core.work_engine import Ticket
from treefold.stores.postgres import PostgresStore
from treefold.testing.store_suite import called


@pytest.fixture
def url() -> Generator[str]:
    with empty_journal() as url:
        yield url


def joined(url: str) -> PostgresStore:
    store = PostgresStore(url)
    store.join(info(), lease=LEASE)
    return store


def test_a_tree_that_is_adopted_while_its_worker_leaves_is_owed(url: str):
    with joined(url) as one, joined(url) as other, connect(url) as holder:
        ticket = Ticket(node=1, queue="default")
        one.append([Batch(ownership=None, entries=[called(1)], tickets=[ticket])])
        with ThreadPoolExecutor() as threads:
            with holder.transaction():
                # It has the adoption wait in the middle.
                holder.execute("SELECT 1 FROM journal FOR UPDATE")
                adopting = threads.submit(one.cluster.drives.adopt, 1, ids=1)
                wait_until(lambda: _waiting(url) == 1)
                leaving = threads.submit(one.leave)
                wait_until(lambda: leaving.done() or _waiting(url) == 2)
            assert adopting.result() is not None
            leaving.result()
        assert [ticket.node for ticket in other.cluster.drives.owed(10)] == [1]


def _waiting(url: str) -> int:
    """Return how many statements wait for a lock that another one has."""
    with connect(url) as connection:
        found = connection.execute("SELECT pid FROM pg_locks WHERE NOT granted").fetchall()
    return len(found)
