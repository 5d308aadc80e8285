"""Rows of a journal in PostgreSQL that do not say any more what was written."""

from collections.abc import Callable, Generator
from typing import Any

import psycopg
import pytest

from shared_stores import LEASE, info
from treefold import NodeState, StoreError
from treefold.core.fact import replace
from treefold.core.work_engine import Ticket
from treefold.stores import Batch, Ownership
from treefold.stores.postgres import PostgresStore
from treefold.testing.store_suite import a_question, asks, called, changed, ended, noted

# Columns that nothing is read from, or that only the server works with.
UNREAD = {
    "events": {"place"},
    "nodes": {"open"},
    # Whether it asks a person is repeated from its event to find it quickly.
    "questions": {"place", "number", "asks"},
    "inbox": {"id", "token"},
    "texts": {"tree"},
}
OTHERS: dict[str, Callable[[Any], list[Any]]] = {
    "bigint": lambda value: [value ^ 1 << bit for bit in (0, 3, 20)] if value else [1, 77],
    "integer": lambda value: [value ^ 1 << bit for bit in (0, 3, 20)],
    "double precision": lambda value: [1.5] if value is None else [value + 1, None],
    "boolean": lambda value: [not value],
    "text": lambda value: ["x"] if value is None else [f"{value}x", value[1:], value.upper() + "."],
    "bytea": lambda value: [bytes([value[0] ^ 1]) + value[1:], value + b"\0"],
}


@pytest.fixture
def store(journal_url: str) -> PostgresStore:
    store = PostgresStore(journal_url)
    store.join(info(), lease=LEASE)
    store.cluster.drives.reserve(20, 5)
    at = 1767225600.5
    later = replace(a_question("11-2"), expires=at + 3600)
    first = [
        called(1, key="=nightly", index=1),
        replace(changed(1, 2, NodeState.Running), at=at),
        called(2, tree=1, parent=1, key="a"),
        noted(2, 2, "a long text", hash="01", tree=1),
        ended(2, 3, tree=1),
        replace(ended(1, 3), at=at + 60),
    ]
    second = [
        called(9, key="#9", index=2, source=1, inherited=1, idles=False),
        replace(changed(9, 2, NodeState.Running), at=at),
        called(11, tree=9, parent=9, key="b"),
        asks("11-1", 2, tree=9),
        replace(asks("11-2", 3, tree=9), question=later),
    ]
    for entries in (first, second):
        tree = entries[0].tree
        store.append([Batch(ownership=Ownership(tree, tree, 1), entries=entries)])
    store.post('{"do":"cancel","node":9}', node=9)
    store.post('{"do":"answer","id":"11-1"}', question="11-1")
    return store


def seen(store: PostgresStore) -> dict[str, Any]:
    """All that the store shows of its trees."""
    trees = store.trees()
    return {
        "trees": [replace(tree, owner=None, driven=False) for tree in trees],
        "questions": store.questions(answered=True),
        "pending": store.pending(9),
        "inbox": [store.inbox(), store.inbox(drives=[9], owned=True)],
        "found": [store.find(node=node) for node in (1, 2, 9, 10, 11)],
        "all": store.find_all([1, 2, 9, 11]),
        "keys": [store.find_key(key) for key in ("=nightly", "#9")],
        "entries": [store.entries(tree) for tree in (1, 9)],
        "texts": store.texts(1),
        "text": store.text("01"),
    }


def outcome(store: PostgresStore) -> dict[str, Any] | str:
    try:
        return seen(store)
    except StoreError as error:
        return str(error)


@pytest.mark.parametrize("table", [table for table in UNREAD if table != "inbox"])
def test_a_changed_value_is_reported(store: PostgresStore, journal_url: str, table: str):
    said: list[str] = []
    with store, connected(journal_url) as rows:
        whole = seen(store)
        for name, value, other in changes(rows, table):
            result = outcome(store)
            assert result == whole or isinstance(result, str), (name, value, other)
            said += [result] if isinstance(result, str) else []
        assert seen(store) == whole
    assert len(said) > 5
    assert all(one.endswith("it is damaged; restore a copy of the database") for one in said)


def test_a_changed_message_is_left_out_and_the_others_are_read(
    store: PostgresStore, journal_url: str, caplog: pytest.LogCaptureFixture
):
    left_out = 0
    with store, connected(journal_url) as rows:
        whole = store.inbox()
        for name, value, other in changes(rows, "inbox"):
            caplog.clear()
            with PostgresStore(journal_url, create=False) as reader:
                found = reader.inbox()
                assert reader.inbox() == found
            assert len(found) == len(whole) - len(caplog.messages), (name, value, other)
            assert all(message in whole for message in found)
            assert all("is damaged, and left out" in one for one in caplog.messages)
            left_out += len(caplog.messages)
        assert store.inbox() == whole
    assert left_out > 5


def connected(url: str) -> "psycopg.Connection[Any]":
    rows = psycopg.connect(url.partition("?")[0], autocommit=True)
    rows.execute(f"SET search_path = {url.rpartition('=')[2]}".encode())
    return rows


def changes(rows: "psycopg.Connection[Any]", table: str) -> Generator[tuple[str, Any, Any]]:
    """Change one value of a table after the other, and back; yield column, value and other value.

    The value is changed meanwhile.
    """
    about = f"""
        SELECT column_name, data_type FROM information_schema.columns
        WHERE table_schema = current_schema AND table_name = '{table}' ORDER BY ordinal_position
    """
    columns = rows.execute(about.encode()).fetchall()
    for row, *values in rows.execute(f"SELECT ctid::text, * FROM {table}".encode()).fetchall():
        for (name, kind), value in zip(columns, values, strict=True):
            for other in OTHERS[kind](value) if name not in UNREAD[table] else ():
                moved = change(rows, table, name, row, other)
                if moved is None:
                    continue
                yield name, value, other
                row = change(rows, table, name, moved, value)


def change(
    rows: "psycopg.Connection[Any]", table: str, column: str, place: str | None, value: Any
) -> str | None:
    """Set a column of the row at *place*; return its new place, None if it may not be set so."""
    set_it = f"UPDATE {table} SET {column} = %s WHERE ctid = %s::tid RETURNING ctid::text"
    try:
        found = rows.execute(set_it.encode(), (value, place)).fetchone()
    except (psycopg.errors.UniqueViolation, psycopg.errors.NotNullViolation):
        return None
    assert found is not None
    return found[0]


def damaged(read: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as raised:
        read()
    return str(raised.value)


@pytest.mark.parametrize("after", [0, 3, 4])
def test_the_last_entries_of_a_tree_are_missed_wherever_it_is_read_from(
    store: PostgresStore, journal_url: str, after: int
):
    with store, connected(journal_url) as rows:
        assert [entry.seq for entry in store.entries(9, after=after)] == [*range(after + 1, 6)]
        assert store.entries(9, after=5) == []
        rows.execute("DELETE FROM events WHERE tree = 9 AND place > 3")
        assert "entries of node:9 are missing" in damaged(lambda: store.entries(9, after=after))
        rows.execute("DELETE FROM events WHERE tree = 9")
        assert "entries of node:9 are missing" in damaged(lambda: store.entries(9, after=after))


@pytest.mark.parametrize(("node", "left"), [(5, 1), (5, 0), (6, 2), (7, 1), (8, 1), (8, 0)])
def test_the_last_entries_of_a_remote_call_and_of_those_below_it_are_missed(
    journal_url: str, node: int, left: int
):
    """The remote call 5 has made a call, 6, and that the remote call 7, which has made 8."""
    with PostgresStore(journal_url) as store, connected(journal_url) as rows:
        store.join(info(), lease=LEASE)
        store.cluster.drives.reserve(20, 5)
        below = [called(5, tree=1, parent=1, key="a"), called(4, tree=1, parent=1, key="b")]
        batch = Batch(ownership=Ownership(1, 1, 1), entries=[called(1), *below])
        store.append([replace(batch, tickets=[Ticket(node=5)])])
        own, inner = (
            store.cluster.drives.adopt(5),
            [called(6, tree=1, parent=5), called(7, tree=1, parent=6)],
        )
        noting = [noted(one, 2, tree=1) for one in (5, 6)]
        batch = Batch(ownership=own, entries=[*inner, *noting, ended(6, 3, tree=1)])
        store.append([replace(batch, tickets=[Ticket(node=7)])])
        entries = [noted(7, 2, tree=1), called(8, tree=1, parent=7), ended(8, 2, tree=1)]
        store.append([Batch(ownership=store.cluster.drives.adopt(7), entries=entries)])
        whole = store.entries_around(5)
        assert [len(store.entries_around(one)) for one in (1, 5, 6, 7, 8)] == [11, 10, 10, 10, 10]
        rows.execute("DELETE FROM events WHERE node = %s AND n > %s", (node, left))
        assert "the last entries of calls are missing" in damaged(lambda: store.entries_around(5))
    assert len(whole) == 10
