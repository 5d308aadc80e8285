"""Files that an earlier version has made."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from saved_exchanges import said, save
from treefold import SessionStore, SqliteStore
from treefold.stores.database import APPLICATION_ID
from treefold.stores.schema import STEPS, VERSION
from treefold.testing.store_suite import called


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """A file of version 1, with a conversation in it."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as rows:
        rows.execute("PRAGMA journal_mode = WAL")
        for statement in STEPS[0]:
            rows.execute(statement)
        rows.execute(
            "INSERT INTO entries (previous, exchange) VALUES (NULL, ?)",
            (
                '{"dialect":"openai-chat","sent":["{\\"role\\":\\"user\\",\\"content\\":\\"a\\"}"],'
                '"received":["{}"],"finish":"answered","usage":{"input":8,"output":1}}',
            ),
        )
        rows.execute("INSERT INTO sessions VALUES ('trip', 1, 1, '[]', 'local', 'a', 1.5, 2.5)")
        rows.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        rows.execute("PRAGMA user_version = 1")
    return path


def test_the_first_version_gets_a_journal_and_keeps_its_conversations(first: Path):
    with SessionStore(first) as chats, SqliteStore(first) as store:
        assert said(chats.open("trip").exchanges) == ["a"]
        store.acquire()
        assert store.append([called(1)]) == 1
        save(chats, "trip", "b")
    with SessionStore(first) as chats, SqliteStore(first) as store:
        assert said(chats.open("trip").exchanges) == ["a", "b"]
        assert [tree.id for tree in store.trees()] == [1]
    with closing(sqlite3.connect(first)) as rows:
        assert rows.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert rows.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_migrated_file_has_the_tables_of_a_new_one(first: Path, tmp_path: Path):
    tables: list[list[tuple[str, str]]] = []
    for path in (first, tmp_path / "new.db"):
        SqliteStore(path).close()
        with closing(sqlite3.connect(path)) as rows:
            tables.append(rows.execute("SELECT name, sql FROM sqlite_master ORDER BY 1").fetchall())
    assert tables[0] == tables[1]


def test_two_journals_are_never_taken_for_one_another(first: Path, tmp_path: Path):
    with SqliteStore(first) as one, SqliteStore(tmp_path / "new.db") as other:
        assert len({one.id, other.id, ""}) == 3
        kept = one.id
    with SqliteStore(first) as one:
        assert one.id == kept
