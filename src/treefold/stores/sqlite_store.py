"""A journal and saved chats in one SQLite file.

Reading the journal, writing it and saving chats each have a connection, so that none of them waits
for a lock of this process. The store does not interpret the entries.
"""

import json
import math
import os
import re
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

from treefold.core.errors import UnknownNodeError
from treefold.core.question import Question
from treefold.core.sessions import Sessions
from treefold.core.states import NodeState
from treefold.core.store import Entry, Message, TreeRow
from treefold.stores.appender import Appender
from treefold.stores.broadcast_file import BroadcastFile
from treefold.stores.commit_mark import CommitMark, new_mark
from treefold.stores.database import MEMORY, PATIENCE, Database, Synchronous, absolute
from treefold.stores.deprecated import FormerNames
from treefold.stores.errors import forked_error, not_owner_error, owned_error, still_open_error
from treefold.stores.file_system import read_mounts, refuse_network
from treefold.stores.integrity import check_indexes, damage_in_tree, find_lost_tree
from treefold.stores.node_status import OpenNode, parked_trees, sleeping_trees
from treefold.stores.owner_lock import OwnerLock
from treefold.stores.rows import (
    EVENTS,
    NODES,
    PENDING_QUESTIONS,
    UNANSWERED_QUESTIONS,
    calls_by_seq,
    checksum,
    decode_text,
    encode_text,
    entry_of_row,
    first_nodes,
    pack_hash,
    question_entry,
    unpack_hash,
)
from treefold.stores.sessions import SqliteSessions

_ID: Final = re.compile("[0-9a-f]{32}")
_MAX_INTEGER: Final = 2**63 - 1  # in SQLite
_IS_OPEN: Final = "state IN ('waiting', 'running', 'paused')"  # exactly as in the index

# The highest numbers are recorded when their rows are deleted, so that none is used twice.
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
    FROM nodes WHERE parent = 0 AND id > ? ORDER BY id
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
        EXISTS (SELECT 1 FROM questions WHERE questions.node = nodes.id),
        (SELECT min(due) FROM timers WHERE timers.node = nodes.id AND sleeps)
    FROM nodes WHERE {_IS_OPEN}
"""
_TIMERS: Final = """
    SELECT due, tree FROM timers JOIN nodes ON nodes.id = timers.node
    WHERE due > ? AND due <= ? ORDER BY due LIMIT ?
"""
_DELETE_TREE: Final = (
    "DELETE FROM questions WHERE node IN (SELECT node FROM events WHERE tree = :tree)",
    "DELETE FROM timers WHERE node IN (SELECT node FROM events WHERE tree = :tree)",
    "DELETE FROM nodes WHERE id IN (SELECT node FROM events WHERE tree = :tree)",
    "DELETE FROM events WHERE tree = :tree",
    """
    DELETE FROM texts WHERE id IN (
        SELECT text FROM refs WHERE tree = :tree EXCEPT SELECT text FROM refs WHERE tree <> :tree
    )
    """,
    "DELETE FROM refs WHERE tree = :tree",
)


class SqliteStore(FormerNames):  # noqa: PLR0904 - the contract has as many
    """A journal, and saved chats, in one SQLite file; safe to use from any thread.

    Any process may read the journal, answer its questions, and save chats; one at a time owns it.

    Args:
        path: the file, which is created, readable by its owner only, if it does not exist;
            ``":memory:"`` for no file.
        synchronous: with ``"NORMAL"`` a commit does not wait for the disk: committed entries
            survive a killed process, but a power cut may undo the last commits.
        patience: how many seconds to wait for another program that writes, and to retry a failed
            write before a question is asked.

    Raises:
        StoreError: from every method, if the file cannot be read or written.

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
            refuse_network(absolute(path), read_mounts())
        self._writer = Database(path, synchronous=synchronous, patience=patience)
        self._synchronous: Synchronous = synchronous
        self.name: str = self._writer.path
        self.patience = patience
        self.largest = self._writer.largest
        self._reader = self._writer
        in_memory = self.name == MEMORY
        self._lock = None if in_memory else OwnerLock(self.name)
        self._broadcasts = None if in_memory else BroadcastFile(self.name)
        self._owned = False
        self._keys_checked = False  # whether a key that is missing in the index is in no tree
        self._appending = threading.Lock()
        self._appender: Appender | None = None  # None while its cache may be outdated
        self._changing = threading.Lock()
        self._sessions: SqliteSessions | None = None
        try:
            if not in_memory:
                self._reader = Database(path, patience=patience)
            self.id: str = self._read_id()
        except BaseException:
            self.close()
            raise

    def _read_id(self) -> str:
        with self._reader.snapshot() as rows:
            (id,) = rows.execute("SELECT id FROM journal").fetchone()
            if not _ID.fullmatch(id):
                raise self._reader.damaged("the id of the journal is wrong")
            return id

    def acquire(self) -> bool:
        with self._changing:
            if self._owned:
                raise owned_error(self.name)
            self._writer.check_open()
            former = self._acquire_lock()
            self._owned = True
            self._appender = None
            if self._broadcasts is not None:
                self._broadcasts.remove()
            return former is not None and bool(former.process)

    def _acquire_lock(self) -> CommitMark | None:
        """Acquire the lock and check the file; return the mark of the last owner."""
        if self._lock is None:
            return None
        former = self._lock.acquire()
        try:
            last, survives = self._checked_last(), self._synchronous == "FULL"
            self._lock.write_mark(new_mark(self.name, self.id, last, survives_power_cut=survives))
        except BaseException:
            self._lock.release()
            raise
        return former

    def _checked_last(self) -> int:
        """Check the file; return the position of its last entry, deleted ones included."""
        with self._reader.snapshot() as rows:
            damage, self._keys_checked = check_indexes(rows)
            if damage:
                raise self._reader.damaged(damage)
            return rows.execute(_LAST_SEQ).fetchone()[0]

    def is_owned(self) -> bool:
        return self._owned or (self._lock is not None and self._lock.is_held())

    def append(self, entries: Sequence[Entry]) -> int:
        self._check_owned()
        with self._appending:
            # After a KeyboardInterrupt it is unknown whether the entries were committed; then the
            # next call creates a new appender.
            known, self._appender = self._appender, None
            try:
                with self._writer.transaction() as rows:
                    appender = self._new_appender(rows) if known is None else known
                    appended = appender.append(rows, entries)
            except Exception:
                # The transaction was rolled back.
                self._appender = known
                raise
            appender.committed(appended)
            self._appender = appender
            if self._lock is not None:
                self._lock.advance_mark(appended.last)
            return appended.last

    def _new_appender(self, rows: sqlite3.Connection) -> Appender:
        """Return an appender for what is in the file now; only its owner writes from here on."""
        return Appender(self.name, rows, int(rows.execute(_LAST_SEQ).fetchone()[0]))

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        with self._reader.snapshot() as rows:
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
        with self._reader.snapshot() as rows:
            found = rows.execute(_TEXTS, (tree,)).fetchall()
        return {unpack_hash(hash): self._checked(hash, text, crc) for hash, text, crc in found}

    def text(self, hash: str) -> str:
        with self._reader.snapshot() as rows:
            found = rows.execute(
                "SELECT text, crc FROM texts WHERE hash = ?", (pack_hash(hash),)
            ).fetchone()
            if found is None:
                raise self._reader.damaged(f"the text with the hash {hash} is missing")
        return self._checked(hash, *found)

    def _checked(self, hash: str | bytes, stored: str | bytes, crc: int) -> str:
        text = decode_text(stored)
        if checksum(text) != crc:
            found = unpack_hash(hash)
            raise self._reader.damaged(f"the text with the hash {found} has a wrong checksum")
        return text

    def trees(
        self, *, after: int = 0, limit: int | None = None, open: bool | None = None
    ) -> list[TreeRow]:
        with self._reader.snapshot() as rows:
            opened = [OpenNode(*row) for row in rows.execute(_OPEN_NODES)]
            parked, asleep = parked_trees(opened), sleeping_trees(opened)
            listed = rows.execute(_TREES, (after,))
            if open is not None:
                listed = (row for row in listed if (row[0] in parked) == open)
            wanted = list(islice(listed, limit))
            last = {
                id: at for id, *_ in wanted if id in parked for (at,) in rows.execute(_LAST, (id,))
            }
            driven = bool(parked) and self.is_owned()
            found = [
                TreeRow(
                    id=id,
                    number=number,
                    key=decode_text(key),
                    function=decode_text(function),
                    state=NodeState(state),
                    open=id in parked,
                    parked=bool(parked.get(id)),
                    source=source,
                    started=started,
                    ended=ended,
                    last=last.get(id),
                    driven=driven and id in parked,
                    asleep_until=asleep.get(id),
                )
                for id, number, key, function, state, source, started, ended in wanted
            ]
        self._check_trees(found, parked, after=after, is_all=limit is None and open is None)
        return found

    def _check_trees(
        self, found: Sequence[TreeRow], parked: Mapping[int, bool], *, after: int, is_all: bool
    ) -> None:
        """Check that the two indexes agree; either may miss a tree that the other has."""
        known = {tree.id for tree in found}
        if is_all and any(id > after and id not in known for id in parked):
            raise self._reader.damaged("an open tree is not in the list of all trees")
        if any(not tree.open and not tree.state.final for tree in found):
            raise self._reader.damaged("a tree that has not ended is not in the list of open ones")

    def find(self, *, node: int) -> int | None:
        if not 0 < node <= _MAX_INTEGER:
            return None
        if (found := self._row(_FIND, node, node, node)) is None:
            return None
        tree, in_events = found
        if tree != in_events:
            raise self._reader.damaged(f"node {node} and its first entry are in different trees")
        return tree

    def find_key(self, key: str) -> int | None:
        search = "SELECT id FROM nodes WHERE parent = 0 AND call_key = ?"
        found = self._row(search, encode_text(key))
        if found is None and self._owned and not self._keys_checked:
            # If the index hid the key, a finished call would be made again.
            self._check_keys()
        return found and found[0]

    def _check_keys(self) -> None:
        """Check that every tree is found by its key; once, since only this process adds keys."""
        with self._reader.snapshot() as rows:
            if (lost := find_lost_tree(rows)) is not None:
                raise self._reader.damaged(f"tree {lost} is not found by its key")
        self._keys_checked = True

    def length(self, node: int) -> int:
        return self._row("SELECT count(*) FROM events WHERE node = ?", node)[0]

    def highest(self) -> tuple[int, int]:
        _, node, number = self._row(_NUMBERS)
        return node, number

    def last(self) -> int:
        return self._row("SELECT coalesce(max(seq), 0) FROM events")[0]

    def questions(self, *, answered: bool = False) -> list[Question]:
        search = PENDING_QUESTIONS if answered else UNANSWERED_QUESTIONS
        with self._reader.snapshot() as rows:
            return [self._question(id, row) for *row, id in rows.execute(search)]

    def _question(self, id: str, row: Sequence[Any]) -> Question:
        entry = None if row[0] is None else question_entry(row)
        if entry is None or entry.question is None or entry.question.id != id:
            raise self._reader.damaged(f"question {id} is missing, or has a wrong checksum")
        return entry.question

    def timers(
        self, *, after: float = 0.0, until: float = math.inf, limit: int | None = None
    ) -> list[tuple[float, int]]:
        with self._reader.snapshot() as rows:
            most = -1 if limit is None else limit
            return rows.execute(_TIMERS, (after, until, most)).fetchall()

    def post(self, body: str, *, question: str | None = None) -> bool:
        with self._writer.transaction() as rows:
            if question is None:
                rows.execute("INSERT INTO inbox (body) VALUES (?)", (encode_text(body),))
                return True
            return rows.execute(
                "INSERT INTO inbox (body, question) SELECT ?, id FROM questions WHERE id = ?"
                " ON CONFLICT DO NOTHING",
                (encode_text(body), question),
            ).rowcount == 1  # fmt: skip

    def inbox(self) -> list[Message]:
        with self._reader.snapshot() as rows:
            found = rows.execute("SELECT id, body FROM inbox ORDER BY id")
            return [Message(id, decode_text(body)) for id, body in found]

    def done(self, message: int) -> None:
        self._check_owned()
        with self._writer.transaction() as rows:
            rows.execute("DELETE FROM inbox WHERE id = ?", (message,))

    def broadcast(self, text: str) -> None:
        if self._owned and self._broadcasts is not None:
            self._broadcasts.write(text)

    def read_broadcasts(self, after: int = 0) -> tuple[int, list[str]]:
        return (after, []) if self._broadcasts is None else self._broadcasts.read(after)

    def delete(self, tree: int) -> None:
        self._check_owned()
        self._appender = None  # it may have cached what is deleted now
        with self._writer.transaction() as rows:
            if not _any(rows, "SELECT 1 FROM nodes WHERE id = ? AND parent = 0", tree):
                raise UnknownNodeError(f"{self.name} has no tree {tree}")
            if _any(rows, f"SELECT 1 FROM nodes WHERE tree = ? AND {_IS_OPEN}", tree):
                raise still_open_error(tree)
            if _any(rows, "SELECT 1 FROM nodes WHERE source = ? AND source > 0", tree):
                raise forked_error(tree)
            rows.execute(
                "UPDATE journal SET seq = ?, node = ?, number = ?",
                rows.execute(_NUMBERS).fetchone(),
            )
            for statement in _DELETE_TREE:
                rows.execute(statement, {"tree": tree})

    @property
    def sessions(self) -> Sessions:
        """The chats saved in the file; saving one needs no ownership of the journal."""
        with self._changing:
            self._writer.check_open()
            if self._sessions is None:
                # A connection of its own: a commit of the journal on the event loop must not wait
                # for a thread that saves a chat.
                self._sessions = SqliteSessions(
                    Database(self.name, synchronous=self._synchronous, patience=self.patience)
                )
            return self._sessions

    def vacuum(self) -> None:
        self._writer.vacuum()

    def close(self) -> None:
        with self._changing:
            self._owned = False
            try:
                if self._sessions is not None:
                    self._sessions.close()
                self._reader.close()
                self._writer.close()
                if self._broadcasts is not None:
                    self._broadcasts.close()
                if self._lock is not None:
                    self._lock.mark_closed(complete=not _has_log(self.name))
            finally:
                if self._lock is not None:
                    self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._writer.closed else ""
        return f"<SqliteStore {self.name}{closed}>"

    def _check_owned(self) -> None:
        # A closed store raises ClosedError when its connection is used.
        if not self._owned and not self._writer.closed:
            raise not_owner_error(self.name)

    def _check_numbers(self, entries: Sequence[Entry]) -> None:
        """Check that no entry is missing between others; a damaged index would hide it."""
        numbers: dict[int, int] = {}
        for entry in entries:
            if numbers.get(entry.node, entry.number - 1) != entry.number - 1:
                raise self._reader.damaged(f"node {entry.node} has missing entries")
            numbers[entry.node] = entry.number

    def _row(self, statement: str, *values: object) -> Any:
        """Return the first row; a statement with *values* is a search, and may find none."""
        with self._reader.snapshot() as rows:
            found = rows.execute(statement, values).fetchone()
            if found is None and not values:
                raise ValueError("the row about the journal itself is missing")
            return found

    def _damaged_entry(self, seq: int) -> Entry:
        raise self._reader.damaged(f"entry {seq} has a wrong checksum")


def _has_log(path: str) -> bool:
    """Whether entries are still in the write-ahead log, because others have the file open."""
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except OSError:
        return False


def _any(rows: sqlite3.Connection, statement: str, value: int) -> bool:
    return rows.execute(statement, (value,)).fetchone() is not None
