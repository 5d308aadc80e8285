"""What a journal in a file costs, and what else it is that the suite does not ask for."""

import os
import random
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

import pytest

from saved_exchanges import said, save
from treefold import NodeState, SessionStore, SqliteStore
from treefold.core.errors import ClosedError, InvalidValueError, StoreError
from treefold.core.fact import replace
from treefold.stores import Entry
from treefold.testing.store_suite import a_question, called, changed, ended, noted, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


def size(path: Path) -> int:
    return path.stat().st_size


def step(number: int, chance: random.Random) -> list[list[Entry]]:
    """What an agent's step with one call commits: texts of 4 kB said, and returned."""

    def text() -> tuple[str, str]:
        words = chance.randbytes(2048).hex()
        return blake2b(words.encode(), digest_size=20).hexdigest(), words

    (said, saying), (got, getting) = text(), text()
    node = number + 1
    response = f'{{"at":1763300000.25,"parts":[{{"$":"text","v":"{said}"}}]}}'
    request = f'{{"sequence":{number},"inputs":{{"path":"src/a.py"}},"tool_use_id":"c"}}'
    result = f'{{"at":1763300001.5,"outputs":{{"$":"text","v":"{got}"}}}}'
    return [
        [
            replace(noted(1, number + 1, saying, hash=said), body=response),
            replace(called(node, tree=1, parent=1, key=f"view:{said}:1"), body=request),
            replace(changed(node, 2, NodeState.Running, tree=1), body='{"at":1763300000.5}'),
        ],
        [replace(ended(node, 3, tree=1), body=result, texts={got: getting})],
    ]


def test_a_step_takes_little_more_than_what_is_said_in_it(path: Path):
    chance, payload = random.Random(1), 0
    with SqliteStore(path, synchronous="NORMAL") as store:
        store.join()
        write(store, [called(1)])
        for number in range(1, 201):
            for batch in step(number, chance):
                write(store, batch)
                payload += sum(
                    len(entry.body) + sum(map(len, entry.texts.values())) for entry in batch
                )
    fixed = 28 * 4096  # a page of each table and index
    assert size(path) <= 1.1 * payload + 200 * 1200 + fixed


def test_vacuum_gives_back_what_deleted_trees_took(path: Path):
    SqliteStore(path).close()
    empty = size(path)
    with SqliteStore(path) as store:
        store.join()
        for tree in (1, 2):
            write(store, [called(tree), noted(tree, 2, f"{tree}" * 500_000, hash=f"0{tree}")])
            write(store, [ended(tree, 3)])
        store.delete(1)
        store.vacuum()
        assert 500_000 < size(path) < empty + 600_000
        assert store.text("02") == "2" * 500_000


def test_chats_and_a_journal_can_be_in_one_file(path: Path):
    with SqliteStore(path) as store, SessionStore(path) as chats:
        store.join()
        write(store, [called(1)])
        save(chats, "trip", "a")
        assert said(chats.open("trip").exchanges) == ["a"]
        assert [tree.id for tree in store.trees()] == [1]


def test_only_the_owner_may_read_any_of_the_files(path: Path):
    before = os.umask(0)
    try:
        with SqliteStore(path) as store:
            store.join()
            write(store, [called(1)])
            files = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    names = ("run.db", "run.db-driver", "run.db-shm", "run.db-wal")
    assert files == dict.fromkeys(names, 0o600)


def test_synchronous_is_as_it_was_chosen_and_nothing_else(path: Path):
    with pytest.raises(InvalidValueError, match="must be 'FULL' or 'NORMAL', got 'OFF'"):
        SqliteStore(path, synchronous="OFF")  # pyright: ignore[reportArgumentType]
    assert not path.exists()


def test_reading_does_not_wait_for_a_writer(path: Path):
    with (
        SqliteStore(path, patience=60) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        store.join()
        write(store, [called(1), noted(1, 2, "text", hash="01")])
        other.execute("BEGIN IMMEDIATE")
        begun = threading.Event()

        def append() -> int:
            begun.set()
            return write(store, [noted(1, 3)])

        appending = pool.submit(append)
        assert begun.wait(60)
        for _ in range(100):  # at some time the append has begun to wait
            assert [entry.number for entry in store.entries(1)] == [1, 2]
            assert (store.text("01"), store.last(), len(store.trees())) == ("text", 2, 1)
        assert not appending.done()
        other.execute("ROLLBACK")
        assert appending.result(60) == 3
        assert store.last() == 3


def test_half_characters_are_kept_as_they_are(path: Path):
    half = "é \ud800 漢"
    with SqliteStore(path) as store:
        store.join()
        write(store, [called(1, key=half), noted(1, 2, half, hash="01")])
        question = replace(a_question("1-1"), text=half)
        write(store, [replace(noted(1, 3), body=half, question=question)])
        store.post(half)
        assert (store.find_key(half), store.text("01")) == (1, half)
        assert (store.trees()[0].key, store.entries(1)[2].body) == (half, half)
        assert (store.questions(), store.inbox()[0].body) == ([question], half)


def test_a_closed_store_says_so(path: Path):
    store = SqliteStore(path)
    store.join()
    assert repr(store) == f"<SqliteStore {path}>"
    store.close()
    assert repr(store) == f"<SqliteStore {path}, closed>"
    uses = (
        store.trees,
        lambda: write(store, [called(1)]),
        lambda: store.post("hello"),
        store.join,
    )
    for use in uses:
        with pytest.raises(ClosedError, match="was closed; open it again"):
            use()
    with SqliteStore(path) as other:
        other.join()


def test_a_lock_file_that_cannot_be_created_is_an_error(path: Path):
    with SqliteStore(path) as store:
        (path.parent / "run.db-driver").mkdir()
        with pytest.raises(StoreError, match="run.db-driver: it is no regular file"):
            store.join()
