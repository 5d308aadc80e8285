"""What is written to a tree reads no rows of others, whatever the server knows of its tables."""

from typing import Final
from urllib.parse import parse_qs, urlsplit

import psycopg

from postgres_server import shared_url
from shared_stores import LEASE, info
from treefold.core.cluster import Ownership
from treefold.core.store import Batch
from treefold.core.work_engine import Ticket
from treefold.stores.postgres import PostgresStore
from treefold.testing.store_suite import called, ended

MANY: Final = 1000


def _rows_read(url: str) -> int:
    """Return how many rows were read of tables; by sessions that have ended."""
    [schema] = parse_qs(urlsplit(url).query)["schema"]
    search = "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        row = connection.execute(f"{search} WHERE schemaname = %s", (schema,)).fetchone()
        assert row is not None
        return int(row[0])


def test_running_a_tree_reads_no_other_tree_though_no_table_was_ever_analyzed(postgres_url: str):
    with PostgresStore(postgres_url) as store:
        store.join(info(), lease=LEASE)
        made = [Ownership(tree, tree, 1) for tree in range(1, MANY + 1)]
        store.append([Batch(ownership=one, entries=[called(one.node)]) for one in made])
        for one in made:
            assert store.cluster.drives.release(one, parked=True, wake_in=3600.0)
    before = _rows_read(postgres_url)
    with PostgresStore(postgres_url) as store:
        store.join(info(), lease=LEASE)
        # After a few times the server keeps its plans.
        for tree in range(2 * MANY, 2 * MANY + 10):
            new = Batch(ownership=None, entries=[called(tree)], tickets=[Ticket(node=tree)])
            store.append([new])
            owned = store.cluster.drives.adopt(tree)
            assert owned is not None
            end = Batch(ownership=owned, entries=[ended(tree, 2)], written=1)
            assert store.append([end]) == [2]
            assert store.cluster.drives.release(owned, parked=True)
    assert _rows_read(postgres_url) - before < MANY
