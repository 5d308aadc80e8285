"""Journals on disks that fail, in files that are damaged, and with processes that are killed."""

import fcntl
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from permissions import without_privileges
from treefold import (
    FencedError,
    RunContext,
    Runtime,
    SessionStore,
    SqliteStore,
    StoreError,
    StoreOwnedError,
    attach,
    tool,
)
from treefold.core.errors import UsageError
from treefold.stores import Entry
from treefold.stores.database import APPLICATION_ID
from treefold.stores.integrity import find_lost_tree
from treefold.stores.schema import VERSION, written_statements
from treefold.testing.store_suite import called, ended, noted, write
from treefold.turns.registry import registries

WRITE = """
import os, resource, signal, sys
from treefold import SqliteStore
from treefold.core.errors import StoreError, UsageError
from treefold.testing.store_suite import noted, called, write

path = sys.argv[1]
store = SqliteStore(path)
store.join()
first = 2
if not store.trees():
    write(store, [called(1)])
else:
    first = store.length(1) + 1

def go_on(often):
    for n in range(first, first + 2 * often, 2):
        text = f"{n} " * 300
        write(store, [noted(1, n, text, hash=f"{n:08x}"), noted(1, n + 1)])
        print(n, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


@contextmanager
def process(code: str, path: Path) -> Generator["subprocess.Popen[str]"]:
    """Another process that begins with WRITE; whatever becomes of it, it is gone in the end."""
    running = subprocess.Popen(
        [sys.executable, "-c", WRITE + code, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield running
    finally:
        running.kill()
        running.communicate(timeout=60)


def line(running: "subprocess.Popen[str]") -> str:
    assert running.stdout
    found = running.stdout.readline()
    assert running.stderr
    return found or running.stderr.read()


def check_whole(path: Path, reported: int) -> None:
    """See that the journal has every batch up to *reported*, perhaps one more, and none by half."""
    with SqliteStore(path) as store:
        entries = store.entries(1)
        assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
        assert len(entries) in {reported + 1, reported + 3}
        for n in range(2, len(entries), 2):
            assert store.text(f"{n:08x}") == f"{n} " * 300
    with closing(sqlite3.connect(path)) as rows:
        assert rows.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# Processes


def test_a_second_owner_is_refused_until_the_first_is_killed(path: Path):
    with process("print('drives', flush=True); sys.stdin.read()", path) as first:
        assert line(first) == "drives\n"
        with SqliteStore(path) as store:
            for _ in range(2):
                with pytest.raises(StoreOwnedError) as refused:
                    store.join()
                assert str(refused.value) == (
                    f"{path}: it is owned by process {first.pid}; stop that process, or read and "
                    "answer with treefold.attach()"
                )
            with pytest.raises(UsageError, match="call join"):
                write(store, [called(2)])
            assert [tree.id for tree in store.trees()] == [1]
            assert store.post("hello")
            first.send_signal(signal.SIGKILL)
            first.wait(60)
            store.join()
            write(store, [called(2)])


def test_join_waits_for_a_slow_process_that_only_checks_for_an_owner(path: Path):
    with SqliteStore(path) as store, path.with_name("run.db-driver").open("wb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)  # as Observer.is_driven does, for a moment
        release = threading.Timer(0.1, fcntl.flock, (asking, fcntl.LOCK_UN))
        release.start()
        try:
            store.join()
        finally:
            release.join()
        assert store.is_owned()


def test_what_a_killed_owner_reported_is_there_and_the_next_owner_continues(path: Path):
    reported = 0
    for life in range(4):
        with process("go_on(100_000)", path) as writer:
            for _ in range(10 + 7 * life):
                reported = int(line(writer))
            writer.send_signal(signal.SIGKILL)
            assert writer.stdout
            whole = writer.stdout.read().rpartition("\n")[0].split()  # what was read ahead, too
            reported = int(whole[-1]) if whole else reported
        check_whole(path, reported)


FORK = """
child = os.fork()
if child == 0:
    for use in (lambda: write(store, [called(2)]), store.join, store.trees):
        try:
            print(use())
        except (StoreError, UsageError) as error:
            print(type(error).__name__, flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""


def test_a_forked_child_neither_owns_nor_keeps_the_lock_of_a_dead_parent(path: Path):
    with process(FORK, path) as parent:
        assert [line(parent) for _ in range(3)] == [
            "UsageError\n",  # it does not drive
            "StoreOwnedError\n",  # its parent does
            "UsageError\n",  # and it has to open the file itself
        ]
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(60)
        with SqliteStore(path) as store:  # the child lives: its input is still open
            store.join()
            assert [tree.id for tree in store.trees()] == [1]


def test_two_owners_without_a_lock_are_fenced_by_their_entries(path: Path):
    with SqliteStore(path) as one:
        one.join()
        write(one, [called(1), noted(1, 2)])
        (path.parent / "run.db-driver").unlink()  # as if it was cleaned up
        with SqliteStore(path) as other:
            other.join()
            write(other, [noted(1, 3)])
            for entry in noted(1, 3), called(9):
                with pytest.raises(FencedError, match=f"{path}: another runtime has written to it"):
                    write(one, [entry])
            assert one.last() == 3


# Ctrl-C


INTERRUPTED = """
armed, hits, n = False, 0, 2

def interrupt(*_):
    if armed:
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
for tenth in range(300):
    n = store.length(1) + 1
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, 20e-6 + tenth * 1e-6)
        while True:
            write(store, [noted(1, n, "x" * 300, hash=f"{n:08x}"), noted(1, n + 1)])
            n += 2
            store.inbox()
    except KeyboardInterrupt:
        armed = False
print(write(store, [noted(1, store.length(1) + 1)]))
"""


def test_a_store_can_be_written_after_a_keyboard_interrupt_at_any_moment(path: Path):
    with process(INTERRUPTED, path) as writer:
        last = line(writer)
    assert last.strip().isdecimal(), last
    with SqliteStore(path) as store:
        assert [entry.number for entry in store.entries(1)] == list(range(1, int(last) + 1))


THREADS = """
import threading
sys.setswitchinterval(1e-6)
write(store, [called(node, tree=1, parent=1) for node in range(2, 6)])

def go_on_with(node):
    for n in range(2, 300):
        write(store, [noted(node, n, tree=1)])

threads = [threading.Thread(target=go_on_with, args=[node]) for node in range(2, 6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(store.last())
"""


def test_concurrent_writers_in_one_process_do_not_fence_each_other(path: Path):
    with process(THREADS, path) as writer:
        assert line(writer) == f"{5 + 4 * 298}\n"


# Disks


LIMITED = """
limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, limit))
try:
    go_on(100_000)
except StoreError as error:
    print("refused", error, flush=True)
trees, n = store.trees(), store.length(1) + 1  # reading still works
try:
    write(store, [noted(1, n, "x" * 1_000_000, hash="ff")])
except StoreError:
    print("again", flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
write(store, [noted(1, n, f"{n} " * 300, hash=f"{n:08x}"), noted(1, n + 1)])
print(n, flush=True)
store.close()
"""


def test_a_disk_that_takes_no_more_loses_nothing_and_is_written_again_later(path: Path):
    with process(LIMITED, path) as writer:
        out, err = writer.communicate(timeout=60)
    *_, refused, again, last = out.splitlines()
    assert refused.startswith(f"refused {path}: reading or writing it failed"), err
    assert again == "again"
    check_whole(path, int(last))


@pytest.fixture
def open_folder() -> Generator[Path]:
    """A folder that others than its owner can look into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def append_to(path: Path) -> None:
    with SqliteStore(path) as store:
        store.join()
        write(store, [called(2)])


def test_a_file_or_folder_that_may_only_be_read_says_so(open_folder: Path):
    path = open_folder / "run.db"
    with SqliteStore(path) as store:
        store.join()
        write(store, [called(1)])
    path.chmod(0o444)
    (open_folder / "run.db-driver").chmod(0o444)
    open_folder.chmod(0o555)
    with without_privileges():
        for file in (path, open_folder / "new.db"):
            told = "is read-only; give it|cannot be opened; check|Permission denied"
            with pytest.raises(StoreError, match=told):
                append_to(file)
    with SqliteStore(path) as store:
        assert [tree.id for tree in store.trees()] == [1]


def test_a_file_that_another_program_keeps_locked_says_so_after_a_while(path: Path):
    with (
        SqliteStore(path, patience=0.05) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        store.join()
        write(store, [called(1)])
        other.execute("BEGIN IMMEDIATE")
        uses: list[Callable[[], object]] = [
            lambda: write(store, [noted(1, 2)]),
            lambda: store.post("hello"),
            lambda: store.done(1),
            store.vacuum,
        ]
        for use in uses:
            with pytest.raises(StoreError, match="had it locked for too long; try again, or stop"):
                use()
        assert store.last() == 1
        other.execute("ROLLBACK")
        assert write(store, [noted(1, 2)]) == 2


@pytest.mark.parametrize("meanwhile", ["nothing", "a copy"])
def test_nothing_is_written_to_a_file_that_was_moved_away(path: Path, meanwhile: str):
    away = path.with_name("away.db")
    with SqliteStore(path) as store, SqliteStore(path) as other:
        store.join()
        write(store, [called(1)])
        path.rename(away)
        if meanwhile == "a copy":
            shutil.copy(away, path)
        uses: list[Callable[[], object]] = [
            lambda: write(store, [noted(1, 2)]),
            lambda: store.done(1),
            lambda: other.post("hello"),
        ]
        for use in uses:
            with pytest.raises(StoreError, match="moved, replaced or deleted .* put it back"):
                use()
        away.rename(path)
        assert write(store, [noted(1, 2)]) == 2
        assert other.post("hello")
    with SqliteStore(path) as store:
        assert [entry.number for entry in store.entries(1)] == [1, 2]


def test_nothing_is_written_into_a_log_that_was_deleted_and_what_was_is_kept(path: Path):
    with SqliteStore(path) as store:
        store.join()
        write(store, [called(1)])
        path.with_name("run.db-wal").unlink()
        with pytest.raises(StoreError, match="run.db-wal was moved or deleted .* open it again"):
            write(store, [noted(1, 2)])
    with SqliteStore(path) as store:
        store.join()
        assert write(store, [noted(1, 2)]) == 2
        assert [entry.number for entry in store.entries(1)] == [1, 2]


LOST = " entries, and 7 were committed: run.db-wal, which has the rest, is missing or damaged; put"


@pytest.mark.parametrize("in_file", [0, 1])
def test_a_log_that_is_lost_after_a_kill_is_an_error_until_it_is_put_back(path: Path, in_file: int):
    if in_file:  # otherwise even the tables are only in the log
        with SqliteStore(path) as store:
            store.join()
            write(store, [called(1)])
    with process("go_on(3); sys.stdin.read()", path) as writer:
        assert [line(writer) for _ in range(3)] == ["2\n", "4\n", "6\n"]
        writer.send_signal(signal.SIGKILL)
        writer.wait(60)
    log, away = path.with_name("run.db-wal"), path.with_name("away")
    log.rename(away)
    for opened in (SqliteStore, SessionStore, attach, lambda path: Runtime(store=path)):
        with pytest.raises(StoreError, match=f"{in_file}{LOST}"):
            opened(path)
    away.rename(log)
    with SqliteStore(path) as store:
        assert len(store.entries(1)) == 7
        assert store.join()  # the last driver was killed
        write(store, [noted(1, 8)])
    with SqliteStore(path) as store:
        assert not store.join()


def killed(path: Path, folder: str) -> Path:
    """Return what a kill at this moment would leave of an open journal, as a copy."""
    left = path.parent / folder / path.name
    left.parent.mkdir()
    for file in (path, path.with_name("run.db-wal"), path.with_name("run.db-driver")):
        shutil.copy(file, left.parent)
    return left


def test_a_log_that_is_lost_after_a_part_of_it_was_put_into_the_file_is_an_error(path: Path):
    with SqliteStore(path) as store, closing(sqlite3.connect(path)) as other:
        store.join()
        write(store, [called(1)])
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        write(store, [noted(1, n) for n in range(2, 8)])
        left = killed(path, "left")
    with SqliteStore(path) as store:
        assert store.last() == 7
    log = left.with_name("run.db-wal")
    content = log.read_bytes()
    for damage in (b"", content[:100], content[:200] + bytes(len(content) - 200)):
        log.write_bytes(damage)
        with pytest.raises(StoreError, match=LOST):
            SqliteStore(left)
    left.with_name("run.db-driver").unlink()  # as the message says
    with SqliteStore(left) as store:
        assert store.last() == 1


def test_a_log_that_another_program_has_put_into_the_file_after_a_kill_is_not_missed(path: Path):
    with SqliteStore(path) as store:
        store.join()
        write(store, [called(1), noted(1, 2)])
        left = killed(path, "left")
    with closing(sqlite3.connect(left)) as other:
        assert other.execute("SELECT count(*) FROM events").fetchone() == (2,)
    assert not left.with_name("run.db-wal").exists()
    with SqliteStore(left) as store:
        assert store.join()
        assert store.last() == 2


def test_a_log_that_others_keep_when_a_journal_is_closed_is_missed_if_it_is_lost(path: Path):
    with SqliteStore(path) as store, SqliteStore(path) as observer:
        store.join()
        write(store, [called(1)])
        store.close()
        left = killed(path, "left")
        assert observer.last() == 1
    with SqliteStore(left) as store:
        assert not store.join()  # it was closed
    with SqliteStore(path) as store:  # the observer has put the log into the file
        assert store.last() == 1


def test_a_journal_that_was_closed_or_deleted_may_be_replaced(path: Path):
    older, driver = path.with_name("older"), path.with_name("run.db-driver")
    append_to(path)
    shutil.copy(path, older)
    with SqliteStore(path) as store:
        store.join()
        write(store, [noted(2, 2)])
        left = killed(path, "left")
    assert driver.read_bytes() == b""
    shutil.copy(older, path)  # a copy that was put back
    with SqliteStore(path) as store:
        assert store.last() == 1
    for file in (left, left.with_name("run.db-wal")):  # a fresh start on purpose
        file.unlink()
    with SqliteStore(left) as store:
        store.join()
        assert write(store, [called(1)]) == 1
    driver.write_text("4711")  # as versions before wrote it, and never cleared it
    with SqliteStore(path) as store:
        assert not store.join()


# Damage


Seen = tuple[list[Entry], list[str]]


def written(path: Path) -> None:
    """A journal of 60 entries, of which the last are in the write-ahead log."""
    with SqliteStore(path) as store:
        store.join()
        write(store, [called(1)])
        for n in range(2, 60, 2):
            write(store, [noted(1, n, f"{n} " * (n * 20), hash=f"{n:08x}"), noted(1, n + 1)])


def seen(path: Path) -> Seen:
    with SqliteStore(path) as store:
        assert len(store.trees()) <= 1
        entries = store.entries(1)
        hashes = [f"{entry.number:08x}" for entry in entries if entry.number % 2 == 0]
        return entries, [store.text(hash) for hash in hashes]


def check_damaged(path: Path, whole: Seen, *, prefix: bool) -> bool:
    """Check that a journal is reported as damaged, or is whole; return whether it is whole."""
    try:
        entries, texts = seen(path)
    except StoreError:
        return False
    if prefix:  # what was committed last may be lost, and nothing by half
        assert entries == whole[0][: len(entries)]
        assert len(entries) % 2 == 1 or not entries
        assert texts == whole[1][: len(texts)]
    else:
        assert (entries, texts) == whole
    return True


def test_a_damaged_log_gives_what_was_committed_before_the_damage(path: Path, tmp_path: Path):
    copy, chance = tmp_path / "copy" / "run.db", random.Random(1)
    copy.parent.mkdir()
    keep = SqliteStore(path)  # so that the log is not put in its place
    with closing(keep):
        written(path)
        whole = seen(path)
        base, log = path.read_bytes(), path.with_name("run.db-wal").read_bytes()
    lengths = set[int]()

    def look(log: bytes) -> None:
        for file in copy.parent.iterdir():
            file.unlink()
        copy.write_bytes(base)
        copy.with_name("run.db-wal").write_bytes(log)
        if check_damaged(copy, whole, prefix=True):
            lengths.add(len(seen(copy)[0]))

    for _ in range(40):
        cut = chance.randrange(len(log))
        look(log[:cut])
        look(log[:cut] + chance.randbytes(64) + log[cut + 64 :])
        look(log[:cut] + bytes(len(log) - cut))
    assert len(lengths) > 10


def test_a_damaged_file_is_reported_as_damaged_and_never_misread(path: Path):
    written(path)
    whole, content = seen(path), path.read_bytes()
    chance, told = random.Random(1), 0
    for at in range(0, len(content), 512):
        damage = chance.randbytes(512) if at % 1024 else bytes(512)
        path.write_bytes(content[:at] + damage + content[at + 512 :])
        told += not check_damaged(path, whole, prefix=False)
    for cut in range(1000, len(content), 5000):
        path.write_bytes(content[:cut])
        told += not check_damaged(path, whole, prefix=False)
    assert told > 50


def test_one_changed_byte_in_a_text_or_an_entry_is_reported(path: Path):
    with SqliteStore(path) as store:
        store.join()
        write(store, [called(1), noted(1, 2, "a long text " * 100, hash="01"), ended(1, 3)])
    content = path.read_bytes()
    path.write_bytes(content.replace(b"a long text a", b"a long test a", 1))
    with SqliteStore(path) as store:
        assert len(store.entries(1)) == 3
        with pytest.raises(StoreError, match="the text with the hash 01 has a wrong checksum; it"):
            store.text("01")
    path.write_bytes(content.replace(b"{}success", b"{}running", 1))
    with (
        SqliteStore(path) as store,
        pytest.raises(StoreError, match="entry 3 has a wrong"),
    ):
        store.entries(1)


paid: list[int] = []

with registries():

    @tool
    async def pay(amount: int) -> str:
        """Pay, which is not to be done twice."""
        paid.append(amount)
        return f"paid {amount} " * 30

    @tool(uses=[pay])
    async def settle(ctx: RunContext, amount: int) -> str:
        """Pay once."""
        return await ctx.invoke(pay, {"amount": amount})


def settled(path: Path) -> list[str]:
    """Have three bills settled, each once, and return the receipts."""
    with Runtime([settle], store=path) as runtime:
        calls = [runtime.invoke(settle, {"amount": n}, key=f"bill {n}") for n in range(3)]
        return [call.result() for call in calls]


def flipped(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def places(content: bytes, text: bytes) -> list[int]:
    found = [match.start() for match in re.finditer(re.escape(text), content)]
    assert found
    return found


def test_a_flipped_bit_in_a_key_does_not_repeat_a_finished_call(path: Path):
    settled(path)
    paid.clear()
    content = path.read_bytes()
    for at in places(content, b"=bill 1"):  # in the table, and in the index
        path.write_bytes(flipped(content, at + 6, 3))
        with pytest.raises(StoreError, match="it is damaged; restore a copy, or move it away"):
            settled(path)
        with SqliteStore(path) as store, closing(sqlite3.connect(path)) as rows:
            lost = find_lost_tree(rows)  # also if the journal is too long to be checked when opened
            assert lost is not None or store.find_key("=bill 1") is not None
    assert not paid
    path.write_bytes(content)
    settled(path)
    with closing(sqlite3.connect(path)) as rows:
        assert find_lost_tree(rows) is None


@pytest.mark.parametrize("index", ["events_by_tree", "sqlite_autoindex_events_1"])
def test_a_last_event_that_is_missing_in_an_index_is_reported(path: Path, index: str):
    settled(path)
    with closing(sqlite3.connect(path)) as rows:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = rows.execute(query, (index,)).fetchone()
        (size,) = rows.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    cells = (page - 1) * size + 3  # how many there are, in the header of the page
    content[cells : cells + 2] = (int.from_bytes(content[cells : cells + 2]) - 1).to_bytes(2)
    path.write_bytes(content)
    with attach(path) as observer:  # which checks no more than what it reads
        tree = observer.trees()[-1].id
        with pytest.raises(StoreError, match=f"node:{tree}: .* it is damaged; restore a copy"):
            observer.get_view(tree)
    with pytest.raises(StoreError, match="it is damaged; restore a copy"):
        settled(path)


def test_damage_in_the_schema_is_reported_as_damage(path: Path):
    settled(path)
    content, chance = path.read_bytes(), random.Random(1)
    for number, statement in enumerate(sorted(written_statements())):
        [at] = places(content, statement.encode())
        bit = 7 if number % 2 else chance.randrange(7)  # with the highest one it is no text
        path.write_bytes(flipped(content, at + chance.randrange(len(statement)), bit))
        for opened in (settled, SessionStore, attach):
            with pytest.raises(StoreError, match="it is damaged; restore a copy"):
                opened(path)


def test_no_flipped_bit_repeats_a_call_or_changes_a_result(path: Path):
    receipts = settled(path)
    content, chance, refused = path.read_bytes(), random.Random(1), 0
    paid.clear()
    for trial in range(60):
        start, length = trial * 4096 % len(content), 4096 if trial % 2 else 100
        path.write_bytes(flipped(content, start + chance.randrange(length), trial % 8))
        try:
            assert settled(path) == receipts
        except StoreError:
            refused += 1
    assert not paid
    assert refused > 5


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (["CREATE TABLE bookmarks (a)"], "the database of another program; give another path"),
        (
            [
                f"PRAGMA application_id = {APPLICATION_ID}",
                f"PRAGMA user_version = {VERSION + 1}",
            ],
            f"a newer treefold has written it .version {VERSION + 1}, this one reads {VERSION}.:",
        ),
    ],
)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(
    path: Path, statements: list[str], told: str
):
    with closing(sqlite3.connect(path)) as rows:
        for statement in statements:
            rows.execute(statement)
        rows.commit()
    content = path.read_bytes()
    with pytest.raises(StoreError, match=told):
        SqliteStore(path)
    assert (path.read_bytes(), list(path.parent.iterdir())) == (content, [path])
