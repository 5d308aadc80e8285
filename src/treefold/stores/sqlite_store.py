"""A journal and saved chats in one SQLite file.

Reading the journal, writing it and saving chats each have a connection, so that none of them waits
for a lock of this process. The store does not interpret the entries.
"""

import json
import math
import os
import sqlite3
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Self

from treefold.core.cluster import Cluster, WorkerInfo
from treefold.core.errors import FencedError, UnknownNodeError
from treefold.core.question import Question
from treefold.core.sessions import Sessions
from treefold.core.store import LEASE, Batch, Entry, Message, TreeRow
from treefold.stores.appender import Appender
from treefold.stores.around import entries_around
from treefold.stores.broadcast_file import BroadcastFile
from treefold.stores.checksums import of_journal, of_message, of_text
from treefold.stores.commit_mark import CommitMark, new_mark
from treefold.stores.database import MEMORY, PATIENCE, Database, Synchronous, absolute
from treefold.stores.errors import forked_error, not_owner_error, owned_error, still_open_error
from treefold.stores.file_owner import refuse_other_owner
from treefold.stores.file_system import read_mounts, refuse_network
from treefold.stores.integrity import check_indexes, damage_in_tree, find_lost_tree
from treefold.stores.node_status import OpenNode, parked_trees, sleeping_trees
from treefold.stores.owner_lock import OwnerLock
from treefold.stores.rows import (
    CALL,
    EVENT,
    EVENTS,
    IS_OPEN,
    NODE,
    NODES,
    PAST_RUNS,
    PENDING_QUESTIONS,
    QUESTIONS,
    QUESTIONS_OF_CALL,
    QUESTIONS_OF_TREE,
    STATES,
    TIMERS,
    asked_question,
    asking_nodes,
    calls_by_seq,
    check_call,
    check_event,
    decode_text,
    encode_text,
    entry_of_row,
    first_nodes,
    pack_hash,
    runs_of_rows,
    timers_of_rows,
    top_of_row,
    unpack_hash,
)
from treefold.stores.sessions import SqliteSessions

_MAX_INTEGER: Final = 2**63 - 1  # in SQLite

# The highest numbers are recorded when their rows are deleted, so that none is used twice.
_LAST_SEQ: Final = """
    SELECT max(journal.seq, coalesce((SELECT max(seq) FROM events), 0)) FROM journal
"""
_JOURNAL: Final = "SELECT id, seq, node, number, crc FROM journal"
_HIGHEST_SEQ: Final = "SELECT coalesce(max(seq), 0) FROM events"
_HIGHEST_PLACE: Final = """
    SELECT coalesce(max(place), 0) FROM nodes INDEXED BY nodes_numbered WHERE parent = 0
"""
# The newest node, tree and fork, which has ids for the calls that it shares after its own.
_NEWEST: Final = f"""
    SELECT {CALL} FROM nodes WHERE id IN (
        (SELECT max(id) FROM nodes),
        (SELECT max(id) FROM nodes INDEXED BY nodes_top WHERE parent = 0),
        (SELECT max(id) FROM nodes INDEXED BY nodes_forks WHERE source > 0)
    )
"""
_TEXTS: Final = """
    SELECT hash, texts.text, crc FROM refs JOIN texts ON texts.id = refs.text WHERE tree = ?
"""
_TEXT_OF_TREE: Final = """
    SELECT hash, text, crc FROM texts WHERE hash = ?
        AND EXISTS (SELECT 1 FROM refs WHERE refs.tree = ? AND refs.text = texts.id)
"""
_PLACES: Final = """
    SELECT tree, max(seq) FROM events WHERE tree IN (SELECT value FROM json_each(?)) GROUP BY tree
"""
_IN_ORDER: Final = "id > ? ORDER BY id LIMIT ?"
_TREES: Final = f"SELECT {NODE} FROM nodes INDEXED BY nodes_top WHERE parent = 0 AND {_IN_ORDER}"
_EVERY_OPEN_TREE: Final = f"SELECT DISTINCT tree FROM nodes WHERE {IS_OPEN} AND tree > ?"
# The plus keeps SQLite from reading all trees by the index of keys.
_OPEN_TREES: Final = f"""
    SELECT {NODE} FROM nodes
    WHERE +parent = 0 AND id IN (SELECT tree FROM nodes WHERE {IS_OPEN}) AND {_IN_ORDER}
"""
_FINISHED_TREES: Final = f"""
    SELECT {NODE} FROM nodes INDEXED BY nodes_top
    WHERE parent = 0 AND id NOT IN (SELECT tree FROM nodes WHERE {IS_OPEN}) AND {_IN_ORDER}
"""
# As ``parked_trees`` has it: a tree in which an open call neither asks nor sleeps, and waits for no
# call of its own; and each tree of a function that is not in the list.
_TO_RESUME: Final = f"""
    SELECT {NODE} FROM nodes WHERE +parent = 0 AND id IN (
        SELECT tree FROM nodes WHERE {IS_OPEN}
        AND NOT EXISTS (SELECT 1 FROM questions WHERE questions.node = nodes.id)
        AND NOT EXISTS (SELECT 1 FROM timers WHERE timers.node = nodes.id AND sleeps)
        AND NOT (idles AND id IN (SELECT parent FROM nodes WHERE {IS_OPEN}))
        UNION
        SELECT top.id FROM (SELECT DISTINCT tree FROM nodes WHERE {IS_OPEN}) AS opened
        JOIN nodes AS top ON top.id = opened.tree
        WHERE top.function NOT IN (SELECT value FROM json_each(?))
    )
    ORDER BY id
"""
_FORKS: Final = "SELECT id FROM nodes WHERE source > 0 AND source = ? ORDER BY id"
# The newest event with a time of each tree; one statement for each tree would take twice as long.
_LAST: Final = f"""
    SELECT {EVENT} FROM json_each(?) JOIN events ON events.seq = (
        SELECT seq FROM events WHERE tree = value AND at IS NOT NULL ORDER BY seq DESC LIMIT 1
    )
"""
_FIND: Final = f"""
    SELECT tree, (SELECT tree FROM events WHERE node = nodes.id AND n = 1), {CALL}
    FROM nodes WHERE id = ?
    UNION ALL
    SELECT id, id, {CALL} FROM (
        SELECT * FROM nodes INDEXED BY nodes_forks WHERE source > 0 AND id < ?
        ORDER BY id DESC LIMIT 1
    ) AS nodes
    WHERE ? <= id + inherited
"""
_FIND_KEY: Final = f"SELECT {CALL} FROM nodes WHERE parent = 0 AND call_key = ?"
_FIND_NUMBER: Final = f"""
    SELECT {CALL} FROM nodes INDEXED BY nodes_numbered
    WHERE parent = 0 AND place >= coalesce(:number, 0) AND place <= coalesce(:number, place)
    ORDER BY place DESC LIMIT 1
"""
_OPEN_NODES: Final = f"SELECT {CALL} FROM nodes WHERE {IS_OPEN}"
_QUESTIONS_OF: Final = f"{QUESTIONS} JOIN nodes ON nodes.id = questions.node WHERE {IS_OPEN}"
_TIMERS_OF: Final = f"{TIMERS} JOIN nodes ON nodes.id = timers.node WHERE {IS_OPEN}"
_IN_RANGE: Final = "AND nodes.tree BETWEEN :first AND :last"
_IN_LIST: Final = "AND nodes.tree IN (SELECT value FROM json_each(:trees))"
_SET_NUMBERS: Final = "UPDATE journal SET seq = ?, node = ?, number = ?, crc = ?"
_IS_ASKED: Final = "SELECT 1 FROM questions WHERE id = ?"
_POST: Final = "INSERT INTO inbox (body, question, crc) VALUES (?, ?, 0) ON CONFLICT DO NOTHING"
_SET_CRC: Final = "UPDATE inbox SET crc = ? WHERE id = ?"
_INBOX: Final = "SELECT id, body, question, crc FROM inbox ORDER BY id"
_DUE: Final = """
    SELECT due, nodes.tree FROM timers JOIN nodes ON nodes.id = timers.node
    WHERE due > ? AND due <= ? ORDER BY due LIMIT ?
"""
_DELETE_TREE: Final = (
    "DELETE FROM questions WHERE node IN (SELECT node FROM events WHERE tree = :tree)",
    "DELETE FROM timers WHERE node IN (SELECT node FROM events WHERE tree = :tree)",
    "DELETE FROM nodes WHERE id IN (SELECT node FROM events WHERE tree = :tree)",
    "DELETE FROM events WHERE tree = :tree",
    """
    DELETE FROM texts WHERE id IN (
        SELECT text FROM refs WHERE tree = :tree AND NOT EXISTS (
            SELECT 1 FROM refs AS other WHERE other.text = refs.text AND other.tree <> :tree
        )
    )
    """,
    "DELETE FROM refs WHERE tree = :tree",
)


class SqliteStore:  # noqa: PLR0904 - the contract has as many
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
        self.cluster: Cluster | None = None  # a file has one owner
        self._owned = False
        self._keys_checked = False  # whether a key that is missing in the index is in no tree
        # Reentrant: from Python 3.14 on Ctrl-C may come between taking a lock and its block.
        self._appending = threading.RLock()
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
            return self._journal(rows)[0]

    def _journal(self, rows: sqlite3.Connection) -> tuple[str, int, int, int]:
        """Return the id of the journal, and the highest numbers of deleted rows."""
        *about, crc = rows.execute(_JOURNAL).fetchone()
        id, seq, node, number = about
        if of_journal(id, seq, node, number) != crc:
            raise self._reader.damaged("the row about the journal has a wrong checksum")
        return id, seq, node, number

    def join(self, worker: WorkerInfo | None = None, *, lease: float = LEASE) -> bool:
        with self._changing:
            if self._owned:
                raise owned_error(self.name)
            self._writer.check_open()
            former = self._acquire_lock()
            self._owned = True
            self._appender = None
            return former is not None and bool(former.process)

    def _acquire_lock(self) -> CommitMark | None:
        """Acquire the lock and check the file; return the mark of the last owner."""
        if self._lock is None:
            return None
        refuse_other_owner(self.name)
        former = self._lock.acquire()
        try:
            if self._broadcasts is not None:
                self._broadcasts.remove()
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

    def leave(self) -> None:
        # What another thread is writing is written before others may own the file.
        with self._changing, self._appending:
            self._give_up()

    def _give_up(self, *connections: SqliteSessions | Database | None) -> None:
        """Close these *connections*, and give up the ownership."""
        self._owned = False
        try:
            for connection in connections:
                if connection is not None:
                    connection.close()
            if self._broadcasts is not None:
                self._broadcasts.close()
            if self._lock is not None:
                self._lock.mark_closed(complete=not _has_log(self.name))
        finally:
            if self._lock is not None:
                self._lock.release()

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        with self._appending:
            self._check_owned()
            if len(batches) > 1:
                with suppress(FencedError):
                    return self._append_together(batches)
            # Each in a transaction of its own, so that one that is refused undoes no other.
            return [self._append_alone(batch) for batch in batches]

    def _append_together(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        entries = [entry for batch in batches for entry in batch.entries]
        first = self._write(entries) - len(entries)
        return [first + count for count in accumulate(len(batch.entries) for batch in batches)]

    def _append_alone(self, batch: Batch) -> int | FencedError:
        try:
            return self._write(batch.entries)
        except FencedError as error:
            return error

    def _write(self, entries: Sequence[Entry]) -> int:
        """Write *entries* in one transaction; return the position of the last."""
        # After a KeyboardInterrupt it is unknown whether the entries were committed; then the next
        # call creates a new appender.
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
            if events and len(nodes) < len(asked):
                raise self._reader.damaged(f"tree {tree}: entries or nodes are missing")
            calls = calls_by_seq(nodes)
            found = [entry_of_row(row, calls.get(row[0])) for row in events]
            if after:
                self._check_numbers(found)
            elif damage := damage_in_tree(tree, found, nodes):
                raise self._reader.damaged(f"node:{tree}: {damage}")
        return found

    def entries_around(self, call: int, *, leaving_out: Collection[str] = ()) -> list[Entry]:
        tree = self.find(node=call)
        return [] if tree is None else entries_around(self.entries(tree), call, leaving_out)

    def places(self, trees: Collection[int]) -> dict[int, int]:
        with self._reader.snapshot() as rows:
            return dict(rows.execute(_PLACES, (json.dumps([*trees]),)).fetchall())

    def texts(self, tree: int, *, hashes: Collection[str] | None = None) -> dict[str, str]:
        with self._reader.snapshot() as rows:
            if hashes is None:
                found = rows.execute(_TEXTS, (tree,)).fetchall()
            else:
                asked = [(pack_hash(hash), tree) for hash in hashes]
                found = [row for one in asked for row in rows.execute(_TEXT_OF_TREE, one)]
        unpacked = ((unpack_hash(hash), text, crc) for hash, text, crc in found)
        return {hash: self._checked(hash, text, crc) for hash, text, crc in unpacked}

    def text(self, hash: str, *, tree: int | None = None) -> str:
        with self._reader.snapshot() as rows:
            found = rows.execute(
                "SELECT text, crc FROM texts WHERE hash = ?", (pack_hash(hash),)
            ).fetchone()
            if found is None:
                raise self._reader.damaged(f"the text with the hash {hash} is missing")
        return self._checked(hash, *found)

    def _checked(self, hash: str, stored: str | bytes, crc: int) -> str:
        text = decode_text(stored)
        if of_text(hash, text.encode("utf-8", "surrogatepass")) != crc:
            raise self._reader.damaged(f"the text with the hash {hash} has a wrong checksum")
        return text

    def trees(
        self, *, after: int = 0, limit: int | None = None, open: bool | None = None
    ) -> list[TreeRow]:
        search = _TREES if open is None else _OPEN_TREES if open else _FINISHED_TREES
        with self._reader.snapshot() as rows:
            tops = rows.execute(search, (after, -1 if limit is None else limit)).fetchall()
            range = {"first": tops[0][0], "last": tops[-1][0]} if tops else None
            opened = [] if range is None else self._open_nodes(rows, _IN_RANGE, range)
            found = self._tree_rows(rows, tops, opened)
            if limit is None and open is None:
                every = rows.execute(_EVERY_OPEN_TREE, (after,)).fetchall()
                if not {id for (id,) in every} <= {tree.id for tree in found}:
                    raise self._reader.damaged("an open tree is not in the list of all trees")
        return found

    def to_resume(self, functions: Collection[str]) -> list[TreeRow]:
        names = json.dumps([name for name in functions if not isinstance(encode_text(name), bytes)])
        with self._reader.snapshot() as rows:
            tops = rows.execute(_TO_RESUME, (names,)).fetchall()
            trees = json.dumps([top[0] for top in tops])
            found = self._tree_rows(rows, tops, self._open_nodes(rows, _IN_LIST, {"trees": trees}))
        return [row for row in found if not row.parked or row.function not in functions]

    def _tree_rows(
        self,
        rows: sqlite3.Connection,
        tops: Sequence[Sequence[Any]],
        opened: Sequence[OpenNode],
    ) -> list[TreeRow]:
        """Return the trees of these top-level calls, whose calls that have not ended are given."""
        parked, asleep = parked_trees(opened), sleeping_trees(opened)
        checked = {node.id for node in opened}
        wanted = [top_of_row(row, checked=row[0] in checked) for row in tops]
        last = _last(rows, [top.id for top in wanted if top.id in parked])
        driven = bool(parked) and self.is_owned()
        found = [
            TreeRow(
                id=id,
                number=number,
                key=key,
                function=function,
                state=STATES[state],
                open=id in parked,
                parked=bool(parked.get(id)),
                source=source,
                started=started,
                ended=ended,
                last=last.get(id),
                driven=driven and id in parked,
                asleep_until=asleep.get(id),
            )
            for id, number, key, function, source, state, started, ended in wanted
        ]
        # The two indexes must agree; either may miss a tree that the other has.
        if any(not tree.open and not tree.state.final for tree in found):
            raise self._reader.damaged("a tree that has not ended is not in the list of open ones")
        return found

    def _open_nodes(
        self, rows: sqlite3.Connection, which: str, values: Mapping[str, Any]
    ) -> list[OpenNode]:
        """Return the calls that have not ended, of the trees that *which* finds."""
        asking = asking_nodes(rows.execute(f"{_QUESTIONS_OF} {which}", values).fetchall())
        wakes = timers_of_rows(rows.execute(f"{_TIMERS_OF} {which}", values).fetchall())
        nodes: list[OpenNode] = []
        for row in rows.execute(f"{_OPEN_NODES} {which}", values).fetchall():
            check_call(row)
            id, _, tree, parent, _, idles, *_ = row
            nodes.append(OpenNode(tree, id, parent, bool(idles), id in asking, wakes.get(id)))
        return nodes

    def find(self, *, node: int) -> int | None:
        if not 0 < node <= _MAX_INTEGER:
            return None
        with self._reader.snapshot() as rows:
            found = rows.execute(_FIND, (node, node, node)).fetchone()
            if found is None:
                return None
            tree, in_events, *about = found
            check_call(about)
            if tree != in_events:
                raise self._reader.damaged(
                    f"node:{node} and its first entry are in different trees"
                )
            return tree

    def find_all(self, nodes: Collection[int]) -> dict[int, int]:
        found = {node: self.find(node=node) for node in nodes}
        return {node: tree for node, tree in found.items() if tree is not None}

    def find_key(self, key: str) -> int | None:
        with self._reader.snapshot() as rows:
            found = rows.execute(_FIND_KEY, (encode_text(key),)).fetchone()
            if found is not None:
                check_call(found)
                return found[0]
        if self._owned and not self._keys_checked:
            # If the index hid the key, a finished call would be made again.
            self._check_keys()
        return None

    def find_number(self, number: int | None = None) -> int | None:
        if number is not None and number > _MAX_INTEGER:
            return None
        with self._reader.snapshot() as rows:
            found = rows.execute(_FIND_NUMBER, {"number": number}).fetchone()
            if found is None:
                return None
            check_call(found)
            return found[0]

    def _check_keys(self) -> None:
        """Check that every tree is found by its key; once, since only this process adds keys."""
        with self._reader.snapshot() as rows:
            if (lost := find_lost_tree(rows)) is not None:
                raise self._reader.damaged(f"tree {lost} is not found by its key")
        self._keys_checked = True

    def forks(self, tree: int) -> list[int]:
        with self._reader.snapshot() as rows:
            return [id for (id,) in rows.execute(_FORKS, (tree,))]

    def length(self, node: int) -> int:
        return self._row("SELECT count(*) FROM events WHERE node = ?", node)[0]

    def highest(self) -> tuple[int, int]:
        with self._reader.snapshot() as rows:
            _, node, number = self._highest(rows)
            return node, number

    def _highest(self, rows: sqlite3.Connection) -> tuple[int, int, int]:
        """Return the highest position, node id and tree number, those of deleted rows included."""
        _, seq, node, number = self._journal(rows)
        for row in rows.execute(_NEWEST).fetchall():
            check_call(row)
            id, _, _, _, _, _, source, inherited, *_ = row
            node = max(node, id, id + inherited if source else 0)
        (last,) = rows.execute(_HIGHEST_SEQ).fetchone()
        (place,) = rows.execute(_HIGHEST_PLACE).fetchone()
        return max(seq, last), node, max(number, place)

    def past_runs(self, function: str, limit: int) -> list[list[float]]:
        with self._reader.snapshot() as rows:
            found = rows.execute(PAST_RUNS, (encode_text(function), limit)).fetchall()
        return runs_of_rows(found)

    def last(self) -> int:
        return self._row("SELECT coalesce(max(seq), 0) FROM events")[0]

    def questions(
        self, *, answered: bool = False, node: int | None = None, limit: int | None = None
    ) -> list[Question]:
        search = PENDING_QUESTIONS if node is None else QUESTIONS_OF_CALL
        most = -1 if limit is None else limit
        values = {"answered": answered, "node": node, "limit": most}
        with self._reader.snapshot() as rows:
            return list(map(asked_question, rows.execute(search, values)))

    def pending(self, tree: int) -> list[Question]:
        with self._reader.snapshot() as rows:
            return list(map(asked_question, rows.execute(QUESTIONS_OF_TREE, {"tree": tree})))

    def timers(
        self, *, after: float = 0.0, until: float = math.inf, limit: int | None = None
    ) -> list[tuple[float, int]]:
        with self._reader.snapshot() as rows:
            most = -1 if limit is None else limit
            return rows.execute(_DUE, (after, until, most)).fetchall()

    def post(self, body: str, *, node: int | None = None, question: str | None = None) -> bool:
        with self._writer.transaction() as rows:
            if question is not None and not _any(rows, _IS_ASKED, question):
                return False
            posted = rows.execute(_POST, (encode_text(body), question))
            if posted.rowcount != 1:  # it has been answered
                return False
            id = posted.lastrowid or 0
            rows.execute(_SET_CRC, (of_message(id, body, question), id))
            return True

    def inbox(self, *, drives: Collection[int] | None = None, owned: bool = False) -> list[Message]:
        with self._reader.snapshot() as rows:
            return [self._message(*row) for row in rows.execute(_INBOX).fetchall()]

    def _message(self, id: int, stored: str | bytes, question: str | None, crc: int) -> Message:
        body = decode_text(stored)
        if of_message(id, body, question) != crc:
            raise self._reader.damaged(f"message {id} has a wrong checksum")
        return Message(id, body)

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
        with self._appending, self._writer.transaction() as rows:
            self._appender = None  # it may have cached what is deleted now
            if not _any(rows, "SELECT 1 FROM nodes WHERE id = ? AND parent = 0", tree):
                raise UnknownNodeError(f"{self.name} has no node:{tree}")
            if _any(rows, f"SELECT 1 FROM nodes WHERE tree = ? AND {IS_OPEN}", tree):
                raise still_open_error(tree)
            if _any(rows, "SELECT 1 FROM nodes WHERE source = ? AND source > 0", tree):
                raise forked_error(tree)
            numbers = self._highest(rows)
            rows.execute(_SET_NUMBERS, (*numbers, of_journal(self.id, *numbers)))
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
            self._give_up(self._sessions, self._reader, self._writer)

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
                raise self._reader.damaged(f"node:{entry.node} has missing entries")
            numbers[entry.node] = entry.number

    def _row(self, statement: str, *values: object) -> Any:
        """Return the first row; a statement with *values* is a search, and may find none."""
        with self._reader.snapshot() as rows:
            found = rows.execute(statement, values).fetchone()
            if found is None and not values:
                raise ValueError("the row about the journal itself is missing")
            return found


def _has_log(path: str) -> bool:
    """Whether entries are still in the write-ahead log, because others have the file open."""
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except OSError:
        return False


def _last(rows: sqlite3.Connection, trees: Sequence[int]) -> dict[int, float]:
    """Return the time of the last event of each of *trees* that has one."""
    found: dict[int, float] = {}
    for row in rows.execute(_LAST, (json.dumps(trees),)).fetchall():
        check_event(row)
        found[row[1]] = row[6]
    return found


def _any(rows: sqlite3.Connection, statement: str, value: int | str) -> bool:
    return rows.execute(statement, (value,)).fetchone() is not None
