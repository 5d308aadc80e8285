"""Files that are not as they should be, and what is said about them."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from permissions import without_privileges
from saved_exchanges import exchange, said, save
from treefold import SessionStore
from treefold.core.errors import InvalidValueError, StoreError, UsageError
from treefold.stores.database import APPLICATION_ID, Database
from treefold.stores.schema import VERSION

INSERT = "INSERT INTO entries (exchange) VALUES (?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def open_folder() -> Generator[Path]:
    """A folder that others than its owner can look into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def pragma(path: Path, text: str) -> object:
    with closing(sqlite3.connect(path)) as rows:
        found = rows.execute(f"PRAGMA {text}").fetchone()
        rows.commit()
        return found and found[0]


def test_only_the_owner_may_read_the_file_and_what_is_beside_it(path: Path):
    before = os.umask(0)
    try:
        with SessionStore(path) as store:
            save(store, "trip", "a")
            beside = sorted(path.parent.iterdir())
            assert [file.name for file in beside] == ["chats.db", "chats.db-shm", "chats.db-wal"]
            assert {mode(file) for file in beside} == {0o600}
    finally:
        os.umask(before)
    assert [file.name for file in path.parent.iterdir()] == ["chats.db"]


def test_a_file_that_is_there_keeps_its_mode(path: Path):
    path.touch(mode=0o640)
    path.chmod(0o640)
    with SessionStore(path) as store:
        save(store, "trip", "a")
        assert mode(path.with_name("chats.db-wal")) == 0o640
    assert mode(path) == 0o640


def test_a_link_to_a_file_that_is_not_there_makes_that_file_for_its_owner(tmp_path: Path):
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    with SessionStore(tmp_path / "link.db"):
        assert mode(tmp_path / "real.db") == 0o600


def test_without_a_path_it_is_in_the_data_folder_which_is_the_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TREEFOLD_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with SessionStore() as store:
        assert repr(store) == f"<SessionStore {tmp_path}/data/treefold/chats.db>"
        assert mode(tmp_path / "data" / "treefold") == 0o700
    monkeypatch.setenv("TREEFOLD_HOME", str(tmp_path / "own"))
    with SessionStore() as store:
        assert repr(store) == f"<SessionStore {tmp_path}/own/chats.db>"
    (tmp_path / "taken").touch()
    monkeypatch.setenv("TREEFOLD_HOME", str(tmp_path / "taken"))
    with pytest.raises(
        StoreError, match="taken: the folder cannot be created .* set TREEFOLD_HOME to"
    ):
        SessionStore()


def test_a_path_with_odd_characters_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a?mode=ro", "file:b.db", "c#d %20.db", "é 漢.db"):
        with SessionStore(name) as store:
            save(store, "trip", "a")
        assert (tmp_path / name).is_file()


def test_the_file_says_whose_it_is_and_how_it_is_written(path: Path):
    with SessionStore(path), closing(sqlite3.connect(path)) as rows:
        assert rows.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert rows.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert rows.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with closing(Database(path)) as database, database.snapshot() as rows:
        assert rows.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert rows.execute("PRAGMA foreign_keys").fetchone() == (1,)


@pytest.mark.parametrize("content", [b"hello, this is no database at all" * 20, b"\0" * 5000])
def test_what_is_no_database_is_refused_and_left_alone(path: Path, content: bytes):
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"{path}: it is not a database; give the path of another"):
        SessionStore(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE bookmarks (a)", "PRAGMA application_id = 7", "PRAGMA user_version = 1"],
)
def test_the_database_of_another_program_is_refused_and_left_alone(path: Path, statement: str):
    with closing(sqlite3.connect(path)) as rows:
        rows.execute(statement)
        rows.commit()
    content = path.read_bytes()
    with pytest.raises(StoreError, match="the database of another program; give another path"):
        SessionStore(path)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(("version", "age"), [(VERSION - 1, "an older"), (VERSION + 1, "a newer")])
def test_a_file_of_another_version_is_refused_and_left_alone(path: Path, version: int, age: str):
    SessionStore(path).close()
    pragma(path, f"user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        SessionStore(path)
    assert str(caught.value).endswith(
        f"{age} treefold has written it (version {version}, this one reads {VERSION}): use that"
        " treefold for it, or give another path"
    )
    assert path.read_bytes() == before


def test_an_empty_file_is_a_new_one(path: Path):
    path.touch()
    with SessionStore(path) as store:
        assert store.list() == []


def test_a_truncated_file_is_reported_as_damaged(path: Path):
    with SessionStore(path) as store:
        save(store, "trip", *["x" * 1000] * 100)
    whole = path.read_bytes()
    for kept in (len(whole) - 1, len(whole) // 2, 4096, 200):
        path.write_bytes(whole[:kept])
        told = f"{path}: .*(damaged; restore a|not a database)"
        with pytest.raises(StoreError, match=told), SessionStore(path) as store:
            store.open("trip")


def test_a_file_that_was_overwritten_in_the_middle_is_reported_as_damaged(path: Path):
    with SessionStore(path) as store:
        save(store, "trip", *["x" * 1000] * 100)
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(whole[:4096] + os.urandom(half) + whole[4096 + half :])
    with pytest.raises(StoreError, match="damaged"), SessionStore(path) as store:
        store.open("trip")


def test_a_folder_is_no_file(tmp_path: Path):
    with pytest.raises(StoreError, match=f"{tmp_path}: it is a folder; give the path of a file"):
        SessionStore(tmp_path)


def test_a_missing_folder_is_not_created(tmp_path: Path):
    with pytest.raises(StoreError, match=f"No such file .*; create the folder {tmp_path}/"):
        SessionStore(tmp_path / "no" / "such" / "chats.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_cannot_be_a_path_is_refused(path: str):
    with pytest.raises(InvalidValueError, match="path must be the path of a file"):
        SessionStore(path)


def test_a_file_that_may_only_be_read_says_so_when_it_is_written(open_folder: Path):
    path = open_folder / "chats.db"
    with SessionStore(path) as store:
        save(store, "trip", "a")
    path.chmod(0o444)
    with (
        without_privileges(),
        pytest.raises(StoreError, match="it (is read-only; give it|cannot be opened)"),
        SessionStore(path) as store,
    ):
        store.append("trip", exchange("b"), after=1)
    with SessionStore(path) as store:
        assert said(store.open("trip").exchanges) == ["a"]


def test_a_folder_that_may_only_be_read_says_so(open_folder: Path):
    open_folder.chmod(0o555)
    with (
        without_privileges(),
        pytest.raises(StoreError, match="Permission denied; give the path of a file in a writable"),
    ):
        SessionStore(open_folder / "chats.db")


def test_a_file_that_another_program_keeps_locked_says_so_after_a_while(path: Path):
    with (
        closing(Database(path, patience=0.05)) as database,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        too_long = "had it locked for too long; try again, or stop that"
        with pytest.raises(StoreError, match=too_long), database.transaction():
            pass
        with database.snapshot() as rows:  # reading still works
            assert rows.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
        other.execute("ROLLBACK")
        with database.transaction():
            pass


def test_vacuum_waits_for_the_lock_of_another_program_though_a_write_came_before_it(path: Path):
    with (
        closing(Database(path, patience=30)) as database,
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other,
    ):
        with database.transaction() as rows:
            rows.execute(INSERT, ("small",))
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.05, other.execute, ["ROLLBACK"])
        release.start()
        database.vacuum()
        release.join()
        with database.snapshot() as rows:
            assert rows.execute("SELECT count(*) FROM entries").fetchone() == (1,)


def test_a_full_disk_says_so_and_keeps_what_was_there(path: Path):
    with closing(Database(path)) as database:
        with database.snapshot() as rows:
            rows.execute("PRAGMA max_page_count = 12")  # as SQLite sees it, the disk ends here
        for _ in range(2):
            full = "the disk is full; make room and try again"
            with pytest.raises(StoreError, match=full), database.transaction() as rows:
                rows.executemany(INSERT, [("small",), ("x" * 100_000,)])
        with database.transaction() as rows:
            assert rows.execute("SELECT count(*) FROM entries").fetchone() == (0,)
            rows.execute(INSERT, ("small",))


FILL_UP = """
import resource, sys
from saved_exchanges import exchange, save
from treefold import SessionStore
from treefold.core.errors import StoreError

resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
with SessionStore(sys.argv[1]) as store:
    head, saved = store.open("trip").head, 0
    try:
        while True:
            head = store.append("trip", exchange("x" * 1000), after=head)
            saved += 1
    except StoreError as error:
        print(saved, error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
    store.append("trip", exchange("and on"), after=head)  # there is room again
"""


def test_a_process_that_may_write_no_more_keeps_what_it_has_and_can_go_on_later(path: Path):
    done = subprocess.run(
        [sys.executable, "-c", FILL_UP, str(path)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    saved, _, message = done.stdout.partition(" ")
    assert message.startswith(f"{path}: reading or writing it failed; check whether the disk is")
    with SessionStore(path) as store:
        assert said(store.open("trip").exchanges) == ["x" * 1000] * int(saved) + ["and on"]


def test_what_raises_in_a_transaction_takes_all_of_it_back(path: Path):
    def interrupted() -> Generator[tuple[str]]:
        yield ("small",)
        raise KeyboardInterrupt

    with closing(Database(path)) as database:
        with pytest.raises(KeyboardInterrupt), database.transaction() as rows:
            rows.executemany(INSERT, interrupted())
        with database.snapshot() as rows:
            assert rows.execute("SELECT count(*) FROM entries").fetchone() == (0,)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_process_has_to_open_the_file_itself(path: Path):
    code = (
        "import os, sys\n"
        "from treefold import SessionStore\n"
        "store = SessionStore(sys.argv[1])\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        store.open('trip')\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "store.open('trip')\n"
        "store.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(f"{UsageError.__name__} {path} was opened in process")
    assert done.stdout.rstrip().endswith("open it here as well")
