"""What is read for a page of trees or a sweep does not grow with the number of other trees."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import psycopg
from psycopg import sql

from postgres_server import shared_url
from shared_stores import LEASE, info
from treefold.core.shared_store import Batch, Ownership
from treefold.stores.postgres import PostgresStore, reading
from treefold.stores.postgres.pool import statement
from treefold.testing.store_suite import asks, called

FEW: Final = 100
MANY: Final = 1000
PAGE: Final = {"after": 0, "limit": 5, "open": None}
STATEMENTS: Final[dict[str, tuple[str, Mapping[str, Any]]]] = {
    "a page of trees": (reading.TREES, PAGE),
    "a page of open trees": (reading.TREES, PAGE | {"open": True}),
    "a sweep": ("SELECT * FROM owed", {}),
    "a call": (reading.AROUND, {"call": 2, "kinds": []}),
    "the highest ids": (reading.HIGHEST, {}),
}
_READ: Final = """
    SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))
    FROM pg_stat_xact_user_tables WHERE schemaname = current_schema()
"""


def _add(store: PostgresStore, trees: range) -> None:
    """Add trees of two calls, the lower of which asks a person; they are parked, and sleep."""
    made = [Ownership(tree, tree, 1) for tree in trees]
    batches = [
        Batch(
            ownership=one,
            entries=[
                called(one.node),
                called(one.node + 1, tree=one.node, parent=one.node),
                asks(f"{one.node + 1}-1", 2, tree=one.node),
            ],
        )
        for one in made
    ]
    store.append_batches(batches)
    for one in made:
        assert store.release(one, parked=True, wake_in=3600.0)


def _rows_read(url: str) -> dict[str, int]:
    """Return how many rows of tables each statement reads."""
    [schema] = parse_qs(urlsplit(url).query)["schema"]
    found: dict[str, int] = {}
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        # As the server itself does from time to time.
        for table in ("drives", "nodes", "events", "questions"):
            name = sql.Identifier(schema, table)
            connection.execute(sql.SQL("VACUUM ANALYZE {}").format(name))
    for name, (search, values) in STATEMENTS.items():
        with psycopg.connect(shared_url()) as connection:
            connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
            # For so few rows the server may as well read them all; for more it does not.
            connection.execute("SET enable_seqscan = off")
            connection.execute(statement(search), values).fetchall()
            row = connection.execute(_READ).fetchone()
            assert row is not None
            found[name] = int(row[0] or 0)
    return found


def test_what_is_read_does_not_grow_with_trees_that_sleep_and_wait(postgres_url: str):
    with PostgresStore(postgres_url) as store:
        store.join(info(), lease=LEASE)
        _add(store, range(1, 2 * FEW, 2))
        few = _rows_read(postgres_url)
        _add(store, range(2 * FEW + 1, 2 * MANY, 2))
        many = _rows_read(postgres_url)
    grown = {name: (few[name], many[name]) for name in few if many[name] > 2 * few[name] + FEW}
    assert not grown
