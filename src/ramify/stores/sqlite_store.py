"""A journal in a SQLite file.

Writing has a connection of its own, so that nobody who reads waits for a commit. Does not know what
the entries mean.
"""

import json
import sqlite3
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self
from zlib import crc32

from ramify.core.errors import UnknownNodeError
from ramify.core.question import Question, QuestionKind
from ramify.core.states import NodeState
from ramify.core.store import Call, Entry, Message, TreeRow
from ramify.stores.database import MEMORY, PATIENCE, Database, Synchronous, absolute
from ramify.stores.driver_lock import DriverLock
from ramify.stores.file_system import mounts, refuse_network
from ramify.stores.parking import OpenNode, parked
from ramify.stores.refusals import (
    fenced,
    forked,
    not_driving,
    overtaken,
    owned,
    still_open,
    without_call,
)

_HIGHEST: Final = 2**63 - 1  # number that SQLite knows
_IS_OPEN: Final = "state IN ('waiting', 'running', 'paused')"  # as the index has it

_TAKEN: Final = {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY}

# Numbers are not given again when what had the highest ones is deleted: then they are put down.
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
_ADD_EVENT: Final = """
    INSERT INTO events (seq, tree, node, n, kind, body, state, question, settled, crc)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_NODE: Final = """
    INSERT INTO nodes
        (id, seq, tree, parent, call_key, place, function, idles, source, inherited, state)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_TEXT: Final = "INSERT INTO texts (hash, crc, text) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_ADD_REF: Final = """
    INSERT INTO refs (tree, text) SELECT ?, id FROM texts WHERE hash = ? ON CONFLICT DO NOTHING
"""
_ENTRIES: Final = """
    SELECT events.seq, events.tree, node, n, kind, body, events.state, question, settled, crc,
        parent, call_key, place, function, idles, source, inherited
    FROM events LEFT JOIN nodes ON nodes.id = events.node AND nodes.seq = events.seq
    WHERE events.tree = ? AND events.seq > ? ORDER BY events.seq
"""
_TEXTS: Final = """
    SELECT hash, texts.text, crc FROM refs JOIN texts ON texts.id = refs.text WHERE tree = ?
"""
_TREES: Final = """
    SELECT id, place, call_key, function, state, source FROM nodes WHERE parent = 0 ORDER BY id
"""
_FIND: Final = """
    SELECT tree FROM nodes WHERE id = ?
    UNION ALL SELECT id FROM nodes WHERE source > 0 AND ? > id AND ? <= id + inherited
"""
_OPEN_NODES: Final = f"""
    SELECT tree, id, parent, idles,
        EXISTS (SELECT 1 FROM questions WHERE questions.node = nodes.id)
    FROM nodes WHERE {_IS_OPEN}
"""
_UNANSWERED: Final = """
    SELECT question FROM questions JOIN events USING (seq)
    WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.question = questions.id)
    ORDER BY seq
"""
_FORGET: Final = (
    "DELETE FROM questions WHERE node IN (SELECT node FROM events WHERE tree = :tree)",
    "DELETE FROM nodes WHERE id IN (SELECT node FROM events WHERE tree = :tree)",
    "DELETE FROM events WHERE tree = :tree",
    """
    DELETE FROM texts WHERE id IN (SELECT text FROM refs WHERE tree = :tree)
        AND NOT EXISTS (SELECT 1 FROM refs WHERE text = texts.id AND tree <> :tree)
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
        patience: how many seconds to wait for another program that writes.

    Raises:
        StoreError: from every method, if the file cannot be read or written; the message says why.

    Example:
        >>> from ramify import SqliteStore
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
        self._reader = self._writer
        in_memory = self.name == MEMORY
        self._lock = None if in_memory else DriverLock(self.name)
        self._driving = False
        self._last: int | None = None  # the place of the last entry, once that is known
        self._changing = threading.Lock()
        try:
            if not in_memory:
                self._reader = Database(path, patience=patience)
            self.id: str = self._row("SELECT id FROM journal")[0]
        except BaseException:
            self.close()
            raise

    def drive(self) -> None:
        with self._changing:
            if self._driving:
                raise owned(self.name)
            if self._lock is not None:
                self._lock.take()
            self._driving = True
            self._last = None

    def append(self, entries: Sequence[Entry]) -> int:
        self._check_driving()
        with self._writer.transaction() as rows:
            if self._last is None:  # from then on nobody else writes
                self._last = int(rows.execute(_NUMBERS).fetchone()[0])
            last = self._last + len(entries)
            states = {entry.node: entry.state for entry in entries if entry.state is not None}
            for seq, entry in enumerate(entries, self._last + 1):
                try:
                    _add(rows, seq, entry, states)
                except sqlite3.IntegrityError as error:
                    if error.sqlite_errorcode not in _TAKEN:
                        raise
                    if "events.seq" in str(error):
                        raise overtaken(self.name) from error
                    taken = entry.call if "nodes." in str(error) else None
                    raise fenced(self.name, entry, taken) from error
        self._last = last
        return last

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        with self._reading() as rows:
            found = [self._entry(row) for row in rows.execute(_ENTRIES, (tree, after))]
        self._check_numbers(found)
        return found

    def texts(self, tree: int) -> dict[str, str]:
        with self._reading() as rows:
            found = rows.execute(_TEXTS, (tree,)).fetchall()
        return {_long(hash): self._checked(hash, text, crc) for hash, text, crc in found}

    def text(self, hash: str) -> str:
        with self._reading() as rows:
            found = rows.execute(
                "SELECT text, crc FROM texts WHERE hash = ?", (_short(hash),)
            ).fetchone()
            if found is None:
                raise self._reader.damaged(f"a text is not there (hash {hash})")
        return self._checked(hash, *found)

    def _checked(self, hash: str | bytes, kept: str | bytes, crc: int) -> str:
        text = _given(kept)
        if _sum(text) != crc:
            raise self._reader.damaged(f"a text is not what was written (hash {_long(hash)})")
        return text

    def trees(self) -> list[TreeRow]:
        with self._reading() as rows:
            waiting = parked(OpenNode(*row) for row in rows.execute(_OPEN_NODES))
            return [
                TreeRow(
                    id=id,
                    number=number,
                    key=_given(key),
                    function=_given(function),
                    state=NodeState(state),
                    open=id in waiting,
                    parked=bool(waiting.get(id)),
                    source=source,
                )
                for id, number, key, function, state, source in rows.execute(_TREES)
            ]

    def find(self, *, node: int) -> int | None:
        if not 0 < node <= _HIGHEST:
            return None
        found = self._row(_FIND, node, node, node)
        return found and found[0]

    def find_key(self, key: str) -> int | None:
        found = self._row("SELECT id FROM nodes WHERE parent = 0 AND call_key = ?", _kept(key))
        return found and found[0]

    def length(self, node: int) -> int:
        return self._row("SELECT count(*) FROM events WHERE node = ?", node)[0]

    def highest(self) -> tuple[int, int]:
        _, node, number = self._row(_NUMBERS)
        return node, number

    def last(self) -> int:
        return self._row("SELECT coalesce(max(seq), 0) FROM events")[0]

    def questions(self) -> list[Question]:
        with self._reading() as rows:
            return [_question(text) for (text,) in rows.execute(_UNANSWERED)]

    def post(self, body: str, *, question: str | None = None) -> bool:
        with self._writer.transaction() as rows:
            if question is None:
                rows.execute("INSERT INTO inbox (body) VALUES (?)", (_kept(body),))
                return True
            return rows.execute(
                "INSERT INTO inbox (body, question) SELECT ?, id FROM questions WHERE id = ?"
                " ON CONFLICT DO NOTHING",
                (_kept(body), question),
            ).rowcount == 1  # fmt: skip

    def inbox(self) -> list[Message]:
        with self._reading() as rows:
            found = rows.execute("SELECT id, body FROM inbox ORDER BY id")
            return [Message(id, _given(body)) for id, body in found]

    def done(self, message: int) -> None:
        self._check_driving()
        with self._writer.transaction() as rows:
            rows.execute("DELETE FROM inbox WHERE id = ?", (message,))

    def delete(self, tree: int) -> None:
        self._check_driving()
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
            self._reader.close()
            self._writer.close()
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
            except (AttributeError, TypeError, ValueError) as error:
                raise self._reader.damaged(f"something in it cannot be read ({error})") from error

    def _row(self, statement: str, *values: object) -> Any:
        """Return the first row that is found, or nothing if that is a search."""
        with self._reading() as rows:
            found = rows.execute(statement, values).fetchone()
            if found is None and not values:
                raise ValueError("the row about the journal itself is gone")
            return found

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        seq, tree, node, number, kind, body, state, question, settled, crc, *call = row
        entry = Entry(
            tree=tree,
            node=node,
            number=number,
            kind=kind,
            body=_given(body),
            call=None if call[0] is None else _call(call),
            state=None if state is None else NodeState(state),
            question=None if question is None else _question(question),
            settled=settled,
            seq=seq,
        )
        if _entry_sum(entry, question) != crc:
            raise self._reader.damaged(f"entry {seq} is not what was written")
        return entry


def _add(rows: sqlite3.Connection, seq: int, entry: Entry, states: dict[int, NodeState]) -> None:
    """Add an entry; its node is given the last of its *states* at once."""
    tree, node, state = entry.tree, entry.node, entry.state
    question = None if entry.question is None else _question_text(entry.question)
    rows.execute(
        _ADD_EVENT,
        (
            seq,
            tree,
            node,
            entry.number,
            entry.kind,
            _kept(entry.body),
            state,
            question,
            entry.settled,
            _entry_sum(entry, question),
        ),
    )
    if entry.call is not None:
        _add_node(rows, seq, entry, entry.call, states.pop(node, NodeState.Waiting))
    elif (last := states.pop(node, None) if state is not None else None) is not None:
        changed = rows.execute("UPDATE nodes SET state = ? WHERE id = ?", (last, node))
        if not changed.rowcount:
            raise without_call(entry)
    for hash, text in entry.texts.items():
        short = _short(hash)
        rows.execute(_ADD_TEXT, (short, _sum(text), _kept(text)))
        rows.execute(_ADD_REF, (tree, short))
    if entry.question is not None:
        rows.execute(
            "INSERT OR REPLACE INTO questions (node, id, seq) VALUES (?, ?, ?)",
            (node, entry.question.id, seq),
        )
    if entry.settled is not None:
        rows.execute("DELETE FROM questions WHERE id = ?", (entry.settled,))
    if state is not None and state.final:
        rows.execute("DELETE FROM questions WHERE node = ?", (node,))


def _add_node(
    rows: sqlite3.Connection, seq: int, entry: Entry, call: Call, state: NodeState
) -> None:
    rows.execute(
        _ADD_NODE,
        (
            entry.node,
            seq,
            entry.tree,
            call.parent,
            _kept(call.key),
            call.index,
            _kept(call.function),
            call.idles,
            call.source,
            call.inherited,
            state,
        ),
    )


def _call(row: Sequence[Any]) -> Call:
    parent, key, index, function, idles, source, inherited = row
    return Call(
        parent=parent,
        key=_given(key),
        index=index,
        function=_given(function),
        idles=bool(idles),
        source=source,
        inherited=inherited,
    )


def _question_text(question: Question) -> str:
    return json.dumps([
        question.id,
        question.node_id,
        question.kind,
        question.text,
        question.choices,
    ])


def _question(text: str) -> Question:
    id, node, kind, words, choices = json.loads(text)
    return Question(
        id=id, node_id=node, kind=QuestionKind(kind), text=words, choices=tuple(choices)
    )


def _any(rows: sqlite3.Connection, statement: str, value: int) -> bool:
    return rows.execute(statement, (value,)).fetchone() is not None


def _entry_sum(entry: Entry, question: str | None) -> int:
    """Return the sum over all that an entry says, its texts aside."""
    said = (
        f"{entry.tree} {entry.node} {entry.number} {entry.kind} {entry.state} {entry.settled}"
        f" {question} {entry.body}"
    )
    if (call := entry.call) is not None:
        said += f" {call.parent} {call.key} {call.index} {call.function}"
        said += f" {call.idles} {call.source} {call.inherited}"
    return _sum(said)


def _sum(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))


def _short(hash: str) -> str | bytes:
    """Return a hash in half the room, if it is one as they are usually written."""
    try:
        short = bytes.fromhex(hash)
    except ValueError:
        return _kept(hash)
    return short if short.hex() == hash else _kept(hash)


def _long(short: str | bytes) -> str:
    """Return the hash that was made short; one that is kept as text may have half a character."""
    return short if isinstance(short, str) else short.hex()


def _kept(text: str) -> str | bytes:
    """Return *text* as it can be stored: one with half a character in it as bytes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def _given(kept: str | bytes) -> str:
    return kept if isinstance(kept, str) else kept.decode("utf-8", "surrogatepass")
