"""Writes entries to the tables of a journal: the events, and the state that follows from them.

It caches what its owner would otherwise look up for each commit.
"""

import itertools
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

from treefold.core.errors import StoreError, UsageError
from treefold.core.question import Question
from treefold.core.store import Entry
from treefold.stores.checksums import of_question, of_start, of_state, of_text, of_timer
from treefold.stores.errors import fenced_error, missing_call_error, overtaken_error
from treefold.stores.node_status import NodeStatus
from treefold.stores.rows import (
    ADD_EVENT,
    ADD_NODE,
    QUESTIONS,
    TIMERS,
    asking_nodes,
    call_row,
    encode_text,
    event_row,
    pack_hash,
    timers_of_rows,
)

_UNIQUE_ERRORS: Final = {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY}
_CACHE_SIZE: Final = 1000  # texts

_ADD_TEXT: Final = "INSERT INTO texts (hash, crc, text) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_ADD_REF: Final = """
    INSERT INTO refs (tree, text) SELECT ?, id FROM texts WHERE hash = ? ON CONFLICT DO NOTHING
"""
_ADD_QUESTION: Final = "INSERT OR REPLACE INTO questions (node, id, seq, crc) VALUES (?, ?, ?, ?)"
_ADD_TIMER: Final = """
    INSERT OR REPLACE INTO timers (node, id, due, sleeps, crc) VALUES (?, ?, ?, ?, ?)
"""
_CHANGE_NODE: Final = """
    UPDATE nodes SET state = ?, ended = ?, state_crc = ?, started = coalesce(started, ?),
        started_crc = coalesce(started_crc, ?)
    WHERE id = ?
"""


class Appender:
    """Adds entries to the tables of one journal, after the last one there.

    Args:
        name: where the journal is, for messages.
        rows: a connection to it, in a transaction.
        last: the position of its last entry.
    """

    def __init__(self, name: str, rows: sqlite3.Connection, last: int) -> None:
        self._name = name
        self.last = last
        self._asking = asking_nodes(rows.execute(QUESTIONS).fetchall())
        self._asking |= set(timers_of_rows(rows.execute(TIMERS).fetchall()))
        # The texts that were written lately, as pairs of tree and hash.
        self._texts: dict[tuple[int, str], None] = {}

    def append(self, rows: sqlite3.Connection, entries: Sequence[Entry]) -> "Appended":
        """Add *entries* in this transaction; call ``committed`` with the result afterwards."""
        changes = _changes(entries)
        try:
            rows.executemany(ADD_EVENT, map(event_row, _count(self.last), entries))
            new = self._add_nodes(rows, entries, changes)
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode not in _UNIQUE_ERRORS:
                raise
            raise self._conflict(rows, entries) from error
        for node, change in changes.items():
            if node in new:
                continue
            if not rows.execute(_CHANGE_NODE, (*_status(node, change), node)).rowcount:
                raise missing_call_error(next(entry for entry in entries if entry.node == node))
        texts = self._add_texts(rows, entries)
        asking = self._update_questions(rows, entries)
        return Appended(self.last + len(entries), texts, asking)

    def committed(self, appended: "Appended") -> None:
        """Update the cache after the transaction was committed."""
        self.last, self._asking = appended.last, appended.asking
        if len(self._texts) + len(appended.texts) > _CACHE_SIZE:
            self._texts.clear()
        self._texts.update(appended.texts)

    def _add_nodes(
        self, rows: sqlite3.Connection, entries: Sequence[Entry], changes: dict[int, NodeStatus]
    ) -> set[int]:
        new: set[int] = set()
        for seq, entry in zip(_count(self.last), entries, strict=False):
            if (call := entry.call) is not None:
                status = _status(entry.node, changes.get(entry.node) or NodeStatus())
                rows.execute(ADD_NODE, call_row(seq, entry, call) + status)
                new.add(entry.node)
        return new

    def _add_texts(
        self, rows: sqlite3.Connection, entries: Iterable[Entry]
    ) -> dict[tuple[int, str], None]:
        new: dict[tuple[int, str], None] = {}
        for entry in entries:
            for hash, text in entry.texts.items():
                if (key := (entry.tree, hash)) not in self._texts and key not in new:
                    packed = pack_hash(hash)
                    crc = of_text(hash, text.encode("utf-8", "surrogatepass"))
                    rows.execute(_ADD_TEXT, (packed, crc, encode_text(text)))
                    rows.execute(_ADD_REF, (entry.tree, packed))
                    new[key] = None
        return new

    def _update_questions(self, rows: sqlite3.Connection, entries: Iterable[Entry]) -> set[int]:
        asking = self._asking
        for seq, entry in zip(_count(self.last), entries, strict=False):
            node, state = entry.node, entry.state
            if entry.question is not None:
                _ask(rows, entry.question, seq)
                asking = asking | {node}
            if entry.settled is not None:
                rows.execute("DELETE FROM questions WHERE id = ?", (entry.settled,))
                rows.execute("DELETE FROM timers WHERE id = ?", (entry.settled,))
            if node in asking and state is not None and state.final:
                rows.execute("DELETE FROM questions WHERE node = ?", (node,))
                rows.execute("DELETE FROM timers WHERE node = ?", (node,))
                asking = asking - {node}
        return asking

    def _conflict(
        self, rows: sqlite3.Connection, entries: Sequence[Entry]
    ) -> StoreError | UsageError:
        """Return the error for the entry whose position, number or call is taken."""
        for seq, entry in zip(_count(self.last), entries, strict=False):
            number = _one(rows, "events WHERE node = ? AND n = ?", entry.node, entry.number)
            if number not in {None, seq}:
                return fenced_error(self._name, entry)
            if (call := entry.call) is not None:
                same = _one(rows, "nodes WHERE id = ?", entry.node)
                key = _one(rows, "nodes WHERE parent = ? AND call_key = ?", call.parent, call.key)
                if same not in {None, seq} or key not in {None, seq}:
                    return fenced_error(self._name, entry, call)
        return overtaken_error(self._name)


def _ask(rows: sqlite3.Connection, question: Question, seq: int) -> None:
    """Note that *question* is pending, and when it is due; one that asks no person is a sleep."""
    node, id = question.node_id, question.id
    if question.asks_people:
        rows.execute(_ADD_QUESTION, (node, id, seq, of_question(node, id, seq)))
    if question.due is None:
        rows.execute("DELETE FROM timers WHERE id = ?", (id,))
    else:
        due, sleeps = question.due, not question.asks_people
        rows.execute(_ADD_TIMER, (node, id, due, sleeps, of_timer(node, id, due, sleeps=sleeps)))


class Appended:
    """The cached values of an Appender once its transaction is committed."""

    __slots__ = ("asking", "last", "texts")

    def __init__(self, last: int, texts: dict[tuple[int, str], None], asking: set[int]) -> None:
        self.last = last
        self.texts = texts
        self.asking = asking


def _changes(entries: Iterable[Entry]) -> dict[int, NodeStatus]:
    changes: dict[int, NodeStatus] = {}
    for entry in entries:
        if entry.state is not None:
            if (change := changes.get(entry.node)) is None:
                change = changes[entry.node] = NodeStatus()
            change.update(entry.state, entry.at)
    return changes


def _status(node: int, status: NodeStatus) -> tuple[Any, ...]:
    """Return the state and times of a node, with their checksums."""
    state, started, ended = status.state.value, status.started, status.ended
    return state, ended, of_state(node, state, ended), started, of_start(node, started)


def _count(last: int) -> "itertools.count[int]":
    return itertools.count(last + 1)


def _one(rows: sqlite3.Connection, what: str, *values: object) -> int | None:
    found = rows.execute(f"SELECT seq FROM {what}", values).fetchone()
    return None if found is None else found[0]
