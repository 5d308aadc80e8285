"""Every bit of the rows of a journal: if one has changed, the store says so or shows the same."""

import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from treefold import NodeState, SqliteStore, StoreError
from treefold.core.fact import replace
from treefold.stores import Entry
from treefold.testing.store_suite import asks, called, changed, ended, noted, write

EXHAUSTIVE = os.environ.get("TREEFOLD_CRASH") == "exhaustive"  # as make crash has it
LONG = "a long text " * 3
# The tables of the journal, and what identifies a row. A text that a tree does not refer to any
# more is found by its hash.
TABLES = {
    "journal": "one",
    "events": "seq",
    "nodes": "id",
    "texts": "id",
    "questions": "node",
    "inbox": "id",
}
Change = Callable[[sqlite3.Connection], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with a tree that has ended, a fork of it that is open and asks, and messages."""
    path = tmp_path / "run.db"
    with SqliteStore(path) as store:
        store.join()
        write(store, [called(1, key="=nightly", index=1), started(1, tree=1)])
        write(store, [called(2, tree=1, parent=1, key="a"), noted(2, 2, LONG, hash="01", tree=1)])
        write(store, [ended(2, 3, tree=1), replace(ended(1, 3), at=1767225660.25)])
        write(store, [called(9, key="#9", index=2, source=1, inherited=1, idles=False)])
        write(store, [started(9, tree=9), called(11, tree=9, parent=9, key="b")])
        write(store, [asks("11-1", 2, tree=9)])
        write(store, [called(12, key="=gone", index=5), ended(12)])
        store.delete(12)
        store.post('{"do":"answer","args":{"amount":3}}', question="11-1")
        store.post('{"do":"cancel","node":9}')
    return path


def started(node: int, *, tree: int) -> Entry:
    return replace(changed(node, 2, NodeState.Running, tree=tree), at=1767225600.5)


def seen(store: SqliteStore) -> dict[str, Any]:
    """All that a store shows, in the order in which a process that drives it looks."""
    return {
        "highest": store.highest(),
        "trees": store.trees(),
        "open": store.trees(open=True),
        "questions": store.questions(answered=True),
        "unanswered": store.questions(),
        "inbox": store.inbox(),
        "found": [store.find(node=node) for node in range(1, 14)],
        "keys": [store.find_key(key) for key in ("=nightly", "#9")],
        "entries": [store.entries(tree) for tree in (1, 9)],
        "later": store.entries(9, after=7),
        "text": store.text("01"),
        "id": store.id,
    }


def is_told(store: SqliteStore, whole: dict[str, Any]) -> bool:
    """Whether the store reports damage; otherwise it must show what it had."""
    said = ""
    try:
        found = seen(store)
    except StoreError as error:
        found, said = whole, str(error)
    assert found == whole
    assert not said or said.count("it is damaged; restore a copy, or move it away") == 1
    return bool(said)


def variants(value: Any) -> Iterator[Any]:
    """Yield *value* with bits of it changed, and other values that a row could have.

    Of each byte of a text one bit, of a number every sixth; or all, for ``make crash``.
    """
    bits = range(0, 63, 1 if EXHAUSTIVE else 6)
    if value is None:
        yield from (0, 1.5, "", "x")
        return
    yield None
    if isinstance(value, int):
        yield from (value ^ 1 << bit for bit in bits)
        return
    if isinstance(value, float):
        (number,) = struct.unpack("<q", struct.pack("<d", value))
        yield from (struct.unpack("<d", struct.pack("<q", number ^ 1 << bit))[0] for bit in bits)
        return
    content = value.encode() if isinstance(value, str) else value
    for place in range(len(content)):
        for bit in range(8) if EXHAUSTIVE else (place % 8,):
            yield content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def columns(rows: sqlite3.Connection, table: str) -> list[tuple[str, bool]]:
    """Return the columns of a table, and whether each is of text."""
    found = rows.execute(f"PRAGMA table_info({table})")
    return [(name, kind == "TEXT") for _, name, kind, *_ in found]


@pytest.mark.parametrize("table", TABLES)
def test_a_changed_bit_of_a_row_is_reported_or_changes_nothing(path: Path, table: str):
    key, told, same = TABLES[table], 0, 0
    with (
        SqliteStore(path) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as rows,
    ):
        whole = seen(store)
        names = columns(rows, table)
        for id, *values in rows.execute(f"SELECT {key}, * FROM {table}").fetchall():
            for (name, is_text), value in zip(names, values, strict=True):
                for other in variants(value):
                    # As it was written, also if it is not valid UTF-8 any more.
                    stored = "CAST(? AS TEXT)" if is_text and isinstance(other, bytes) else "?"
                    rows.execute("PRAGMA ignore_check_constraints = ON")
                    try:
                        rows.execute(
                            f"UPDATE {table} SET {name} = {stored} WHERE {key} IS ?", (other, id)
                        )
                    except sqlite3.Error:  # it is to be unique, or not NULL
                        continue
                    if is_told(store, whole):
                        told += 1
                    else:
                        same += 1
                    now = other if name == key else id
                    rows.execute(f"UPDATE {table} SET {name} = ? WHERE {key} IS ?", (value, now))
        assert seen(store) == whole
    assert told > (50 if EXHAUSTIVE else 20)
    # Nothing depends on the id of a text, for example.
    assert same < told, (told, same)


def test_a_changed_bit_of_the_file_is_reported_or_changes_nothing(path: Path):
    with SqliteStore(path) as store:
        store.join()
        whole = seen(store)
    content = path.read_bytes()
    told = 0
    for place in range(0, len(content), 1 if EXHAUSTIVE else 17):
        if not any(content[max(0, place - 8) : place + 8]):
            continue  # of a page that is not used up
        for bit in range(8) if EXHAUSTIVE else (place % 8,):
            changed = content[place] ^ 1 << bit
            path.write_bytes(content[:place] + bytes([changed]) + content[place + 1 :])
            for beside in ("-wal", "-shm"):
                Path(f"{path}{beside}").unlink(missing_ok=True)
            try:
                with SqliteStore(path) as store:
                    store.join()  # which checks the indexes
                    assert seen(store) == whole
            except StoreError:
                told += 1
    assert told > 100


def test_a_key_with_a_changed_bit_is_not_shown_as_another_key(path: Path):
    content = path.read_bytes()
    path.write_bytes(content.replace(b"=nightly", b"=nightmy"))
    with (
        SqliteStore(path) as store,
        pytest.raises(StoreError, match="node:1 has a wrong checksum; it is damaged; restore a"),
    ):
        store.trees()
