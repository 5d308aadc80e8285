"""A journal in a SQLite file.

Writing has a connection of its own, so that nobody who reads waits for a commit. Does not know what
the entries mean.
"""

import json
import os
import re
import sqlite3
import struct
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from treefold.core.errors import UnknownNodeError
from treefold.core.question import Question
from treefold.core.states import NodeState
from treefold.core.store import Entry, Message, TreeRow
from treefold.stores.appending import Appender
from treefold.stores.database import MEMORY, PATIENCE, Database, Synchronous, absolute
from treefold.stores.driver_lock import DriverLock
from treefold.stores.driver_mark import DriverMark, new_mark
from treefold.stores.file_system import mounts, refuse_network
from treefold.stores.integrity import damage_in_tree, damage_of, lost_tree
from treefold.stores.live_file import LiveFile
from treefold.stores.parking import OpenNode, parked
from treefold.stores.refusals import forked, not_driving, owned, still_open
from treefold.stores.rows import (
    EVENTS,
    NODES,
    UNANSWERED,
    asking_entry,
    calls_by_seq,
    entry_of_row,
    first_nodes,
    given,
    kept,
    long_hash,
    short_hash,
    text_sum,
)

_ID: Final = re.compile("[0-9a-f]{32}")
_HIGHEST: Final = 2**63 - 1  # number that SQLite knows
_IS_OPEN: Final = "state IN ('waiting', 'running', 'paused')"  # as the index has it

# Numbers are not given again when what had the highest ones is deleted: then they are put down.
_LAST_SEQ: Final = """
    SELECT max(journal.seq, coalesce((SELECT max(seq) FROM events), 0)) FROM journal
"""
_NUMBERS: Final = """
    SELECT max(journal.seq, coalesce((SELECT max(seq) FROM events), 0)),
        max(
            journal.node,
            coalesce((SELECT max(id) FROM nodes), 0),
            coalesce((SELECT max(id + inherited) FROM nodes WHERE source > 0), 0)
        ),
        max(journal.number, coalesce((SELECT max(place) FROM nodes WHERE parent = 0), 0))
    FROM journal
"""
_TEXTS: Final = """
    SELECT hash, texts.text, crc FROM refs JOIN texts ON texts.id = refs.text WHERE tree = ?
"""
_TREES: Final = """
    SELECT id, place, call_key, function, state, source, started, ended
    FROM nodes WHERE parent = 0 ORDER BY id
"""
_LAST: Final = """
    SELECT at FROM events WHERE tree = ? AND at IS NOT NULL ORDER BY seq DESC LIMIT 1
"""
_FIND: Final = """
    SELECT tree, (SELECT tree FROM events WHERE node = nodes.id AND n = 1) FROM nodes WHERE id = ?
    UNION ALL SELECT id, id FROM nodes WHERE source > 0 AND ? > id AND ? <= id + inherited
"""
_OPEN_NODES: Final = f"""
    SELECT tree, id, parent, idles,
        EXISTS (SELECT 1 FROM questions WHERE questions.node = nodes.id)
    FROM nodes WHERE {_IS_OPEN}
"""
_FORGET: Final = (
    "DELETE FROM questions WHERE node IN (SELECT node FROM events WHERE tree = :tree)",
    "DELETE FROM nodes WHERE id IN (SELECT node FROM events WHERE tree = :tree)",
    "DELETE FROM events WHERE tree = :tree",
    """
    DELETE FROM texts WHERE id IN (
        SELECT text FROM refs WHERE tree = :tree EXCEPT SELECT text FROM refs WHERE tree <> :tree
    )
    """,
    "DELETE FROM refs WHERE tree = :tree",
)


class SqliteStore:  # noqa: PLR0904 - the contract has as many
    """The file that a journal is kept in; safe to use from any thread, and to read in any process.

    Args:
        path: the file, which is made if it is not there, and then only its owner can read it;
            ``":memory:"`` for none.
        synchronous: with ``"NORMAL"`` a commit does not wait for the disk: what was committed
            survives a killed process, and a power cut may take the last moments away.
        patience: how many seconds to wait for another program that writes, and to retry what could
            not be written before a person is asked.

    Raises:
        StoreError: from every method, if the file cannot be read or written; the message says why.

    Example:
        >>> from treefold import SqliteStore
        >>> with SqliteStore(":memory:") as store:
        ...     store.post("hello")
        ...     [message.body for message in store.inbox()]
        True
        ['hello']
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: Synchronous = "FULL",
        patience: float = PATIENCE,
    ) -> None:
        if str(path) != MEMORY:
            refuse_network(absolute(path), mounts())
        self._writer = Database(path, synchronous=synchronous, patience=patience)
        self.name: str = self._writer.path
        self.patience = patience
        self.largest = self._writer.largest
        self._reader = self._writer
        in_memory = self.name == MEMORY
        self._lock = None if in_memory else DriverLock(self.name)
        self._live = None if in_memory else LiveFile(self.name)
        self._driving = False
        self._keys_checked = False  # a key that the index does not have is in no tree
        self._survives_power_cut = synchronous == "FULL"
        self._appending = threading.Lock()
        self._appender: Appender | None = None  # while it is known what is there
        self._changing = threading.Lock()
        try:
            if not in_memory:
                self._reader = Database(path, patience=patience)
            self.id: str = self._read_id()
        except BaseException:
            self.close()
            raise

    def _read_id(self) -> str:
        with self._reading() as rows:
            (id,) = rows.execute("SELECT id FROM journal").fetchone()
            if not _ID.fullmatch(id):
                raise self._reader.damaged("the id of the journal is not what was written")
            return id

    def drive(self) -> bool:
        with self._changing:
            if self._driving:
                raise owned(self.name)
            with self._writer.snapshot():  # one that was closed would keep others from it
                pass
            former = self._take_lock()
            self._driving = True
            self._appender = None
            if self._live is not None:
                self._live.forget()
            return former is not None and bool(former.process)

    def _take_lock(self) -> DriverMark | None:
        """Take the lock and check the file; return what the last driver left beside it."""
        if self._lock is None:
            return None
        former = self._lock.take()
        try:
            last, survives = self._checked_last(), self._survives_power_cut
            self._lock.mark(new_mark(self.name, self.id, last, survives_power_cut=survives))
        except BaseException:
            self._lock.let_go()
            raise
        return former

    def _checked_last(self) -> int:
        """Check the file; return the place of its last entry, deleted ones included."""
        with self._reading() as rows:
            damage, self._keys_checked = damage_of(rows)
            if damage:
                raise self._reader.damaged(damage)
            return rows.execute(_LAST_SEQ).fetchone()[0]

    def is_driven(self) -> bool:
        return self._driving or (self._lock is not None and self._lock.is_taken())

    def append(self, entries: Sequence[Entry]) -> int:
        self._check_driving()
        with self._appending:
            known, self._appender = self._appender, None  # if Ctrl-C comes, nobody knows
            try:
                with self._writer.transaction() as rows:
                    appender = self._new_appender(rows) if known is None else known
                    appended = appender.append(rows, entries)
            except Exception:  # and all is as it was
                self._appender = known
                raise
            appender.done(appended)
            self._appender = appender
            if self._lock is not None:
                self._lock.wrote(appended.last)
            return appended.last

    def _new_appender(self, rows: sqlite3.Connection) -> Appender:
        """Return one that knows what is there; from then on nobody else writes."""
        return Appender(self.name, rows, int(rows.execute(_LAST_SEQ).fetchone()[0]))

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        with self._reading() as rows:
            events = rows.execute(EVENTS, (tree, after)).fetchall()
            begun = first_nodes(events)
            asked = begun if after or tree in begun else [tree, *begun]
            nodes = rows.execute(NODES, (json.dumps(asked),)).fetchall() if asked else []
            calls = calls_by_seq(nodes)
            found = [
                entry_of_row(row, calls.get(row[0])) or self._damaged_entry(row[0])
                for row in events
            ]
            if after:
                self._check_numbers(found)
            elif damage := damage_in_tree(tree, found, nodes):
                raise self._reader.damaged(f"tree {tree}: {damage}")
        return found

    def texts(self, tree: int) -> dict[str, str]:
        with self._reading() as rows:
            found = rows.execute(_TEXTS, (tree,)).fetchall()
        return {long_hash(hash): self._checked(hash, text, crc) for hash, text, crc in found}

    def text(self, hash: str) -> str:
        with self._reading() as rows:
            found = rows.execute(
                "SELECT text, crc FROM texts WHERE hash = ?", (short_hash(hash),)
            ).fetchone()
            if found is None:
                raise self._reader.damaged(f"a text is not there (hash {hash})")
        return self._checked(hash, *found)

    def _checked(self, hash: str | bytes, kept: str | bytes, crc: int) -> str:
        text = given(kept)
        if text_sum(text) != crc:
            raise self._reader.damaged(f"a text is not what was written (hash {long_hash(hash)})")
        return text

    def trees(self) -> list[TreeRow]:
        with self._reading() as rows:
            waiting = parked(OpenNode(*row) for row in rows.execute(_OPEN_NODES))
            last = {id: at for id in waiting for (at,) in rows.execute(_LAST, (id,))}
            found = [
                TreeRow(
                    id=id,
                    number=number,
                    key=given(key),
                    function=given(function),
                    state=NodeState(state),
                    open=id in waiting,
                    parked=bool(waiting.get(id)),
                    source=source,
                    started=started,
                    ended=ended,
                    last=last.get(id),
                )
                for id, number, key, function, state, source, started, ended in rows.execute(_TREES)
            ]
        # Either index may have lost a tree that the other has.
        if not waiting.keys() <= {tree.id for tree in found}:
            raise self._reader.damaged("a tree that is open is not found among all trees")
        if any(not tree.open and not tree.state.final for tree in found):
            raise self._reader.damaged("a tree that has not ended is not found among the open ones")
        return found

    def find(self, *, node: int) -> int | None:
        if not 0 < node <= _HIGHEST:
            return None
        if (found := self._row(_FIND, node, node, node)) is None:
            return None
        tree, in_events = found
        if tree != in_events:
            raise self._reader.damaged(f"node {node} is not in the tree that it was written to")
        return tree

    def find_key(self, key: str) -> int | None:
        found = self._row("SELECT id FROM nodes WHERE parent = 0 AND call_key = ?", kept(key))
        if found is None and self._driving and not self._keys_checked:
            self._check_keys()  # or a finished call would be made again
        return found and found[0]

    def _check_keys(self) -> None:
        """Check once that every tree is found by its key; from now on this process adds them."""
        with self._reading() as rows:
            if (lost := lost_tree(rows)) is not None:
                raise self._reader.damaged(f"tree {lost} is not found by its key")
        self._keys_checked = True

    def length(self, node: int) -> int:
        return self._row("SELECT count(*) FROM events WHERE node = ?", node)[0]

    def highest(self) -> tuple[int, int]:
        _, node, number = self._row(_NUMBERS)
        return node, number

    def last(self) -> int:
        return self._row("SELECT coalesce(max(seq), 0) FROM events")[0]

    def questions(self) -> list[Question]:
        with self._reading() as rows:
            return [self._question(id, row) for *row, id in rows.execute(UNANSWERED)]

    def _question(self, id: str, row: Sequence[Any]) -> Question:
        entry = None if row[0] is None else asking_entry(row)
        if entry is None or entry.question is None or entry.question.id != id:
            raise self._reader.damaged(f"question {id} is not what was written")
        return entry.question

    def post(self, body: str, *, question: str | None = None) -> bool:
        with self._writer.transaction() as rows:
            if question is None:
                rows.execute("INSERT INTO inbox (body) VALUES (?)", (kept(body),))
                return True
            return rows.execute(
                "INSERT INTO inbox (body, question) SELECT ?, id FROM questions WHERE id = ?"
                " ON CONFLICT DO NOTHING",
                (kept(body), question),
            ).rowcount == 1  # fmt: skip

    def inbox(self) -> list[Message]:
        with self._reading() as rows:
            found = rows.execute("SELECT id, body FROM inbox ORDER BY id")
            return [Message(id, given(body)) for id, body in found]

    def done(self, message: int) -> None:
        self._check_driving()
        with self._writer.transaction() as rows:
            rows.execute("DELETE FROM inbox WHERE id = ?", (message,))

    def tell(self, text: str) -> None:
        if self._driving and self._live is not None:
            self._live.tell(text)

    def told(self, after: int = 0) -> tuple[int, list[str]]:
        return (after, []) if self._live is None else self._live.told(after)

    def delete(self, tree: int) -> None:
        self._check_driving()
        self._appender = None  # what it remembers may go
        with self._writer.transaction() as rows:
            if not _any(rows, "SELECT 1 FROM nodes WHERE id = ? AND parent = 0", tree):
                raise UnknownNodeError(f"{self.name} has no tree {tree}")
            if _any(rows, f"SELECT 1 FROM nodes WHERE tree = ? AND {_IS_OPEN}", tree):
                raise still_open(tree)
            if _any(rows, "SELECT 1 FROM nodes WHERE source = ? AND source > 0", tree):
                raise forked(tree)
            rows.execute(
                "UPDATE journal SET seq = ?, node = ?, number = ?",
                rows.execute(_NUMBERS).fetchone(),
            )
            for statement in _FORGET:
                rows.execute(statement, {"tree": tree})

    def vacuum(self) -> None:
        self._writer.vacuum()

    def close(self) -> None:
        with self._changing:
            self._driving = False
            try:
                self._reader.close()
                self._writer.close()
                if self._live is not None:
                    self._live.close()
                if self._lock is not None:
                    self._lock.closed(complete=not _has_log(self.name))
            finally:
                if self._lock is not None:
                    self._lock.let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._writer.closed else ""
        return f"<SqliteStore {self.name}{closed}>"

    def _check_driving(self) -> None:
        if not self._driving and not self._writer.closed:  # which is told by whoever uses it
            raise not_driving(self.name)

    def _check_numbers(self, entries: Sequence[Entry]) -> None:
        """See that none is missing between others: a damaged index does not say so."""
        numbers: dict[int, int] = {}
        for entry in entries:
            if numbers.get(entry.node, entry.number - 1) != entry.number - 1:
                raise self._reader.damaged(f"node {entry.node} has lost entries")
            numbers[entry.node] = entry.number

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        """Lend the connection for reading; what nobody here has written is told as damage."""
        with self._reader.snapshot() as rows:
            try:
                yield rows
            except (AttributeError, TypeError, ValueError, struct.error) as error:
                raise self._reader.damaged(f"something in it cannot be read ({error})") from error

    def _row(self, statement: str, *values: object) -> Any:
        """Return the first row that is found, or nothing if that is a search."""
        with self._reading() as rows:
            found = rows.execute(statement, values).fetchone()
            if found is None and not values:
                raise ValueError("the row about the journal itself is gone")
            return found

    def _damaged_entry(self, seq: int) -> Entry:
        raise self._reader.damaged(f"entry {seq} is not what was written")


def _has_log(path: str) -> bool:
    """Whether others have kept the write-ahead log from being put into the main file."""
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except OSError:
        return False


def _any(rows: sqlite3.Connection, statement: str, value: int) -> bool:
    return rows.execute(statement, (value,)).fetchone() is not None
