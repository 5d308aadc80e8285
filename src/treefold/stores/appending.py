"""Entries written to a database as one: the events, and what they have come to.

Remembers, for the one who drives, what need not be looked up again.
"""

import itertools
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from treefold.core.errors import StoreError, UsageError
from treefold.core.store import Entry
from treefold.stores.refusals import fenced, overtaken, without_call
from treefold.stores.rows import (
    ADD_EVENT,
    ADD_NODE,
    event_row,
    kept,
    node_row,
    short_hash,
    text_sum,
)
from treefold.stores.standing import Standing

_TAKEN: Final = {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY}
_KNOWN: Final = 1000  # texts

_ADD_TEXT: Final = "INSERT INTO texts (hash, crc, text) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_ADD_REF: Final = """
    INSERT INTO refs (tree, text) SELECT ?, id FROM texts WHERE hash = ? ON CONFLICT DO NOTHING
"""
_CHANGE_NODE: Final = """
    UPDATE nodes SET state = ?, started = coalesce(started, ?), ended = ? WHERE id = ?
"""


class Appender:
    """Adds entries to the tables of one journal, after the last one there.

    Args:
        name: of the journal, for messages.
        rows: its connection, in a transaction.
    """

    def __init__(self, name: str, rows: sqlite3.Connection, last: int) -> None:
        self._name = name
        self.last = last
        self._asking = {node for (node,) in rows.execute("SELECT node FROM questions")}
        self._texts: dict[tuple[int, str], None] = {}  # those that each tree refers to, of late

    def append(self, rows: sqlite3.Connection, entries: Sequence[Entry]) -> "Appended":
        """Add *entries* in this transaction; ``done`` is to be told when they are safe."""
        changes = _changes(entries)
        try:
            rows.executemany(ADD_EVENT, map(event_row, _count(self.last), entries))
            new = self._add_nodes(rows, entries, changes)
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode not in _TAKEN:
                raise
            raise self._refusal(rows, entries) from error
        for node, change in changes.items():
            values = (change.state.value, change.started, change.ended, node)
            if node not in new and not rows.execute(_CHANGE_NODE, values).rowcount:
                raise without_call(next(entry for entry in entries if entry.node == node))
        texts = self._add_texts(rows, entries)
        asking = self._ask(rows, entries)
        return Appended(self.last + len(entries), texts, asking)

    def done(self, appended: "Appended") -> None:
        """Take note that something is safe."""
        self.last, self._asking = appended.last, appended.asking
        if len(self._texts) + len(appended.texts) > _KNOWN:
            self._texts.clear()
        self._texts.update(appended.texts)

    def _add_nodes(
        self, rows: sqlite3.Connection, entries: Sequence[Entry], changes: dict[int, Standing]
    ) -> set[int]:
        new: set[int] = set()
        for seq, entry in zip(_count(self.last), entries, strict=False):
            if (call := entry.call) is not None:
                change = changes.get(entry.node) or Standing()
                said = (change.state.value, change.started, change.ended)
                rows.execute(ADD_NODE, node_row(seq, entry, call) + said)
                new.add(entry.node)
        return new

    def _add_texts(
        self, rows: sqlite3.Connection, entries: Iterable[Entry]
    ) -> dict[tuple[int, str], None]:
        new: dict[tuple[int, str], None] = {}
        for entry in entries:
            for hash, text in entry.texts.items():
                if (key := (entry.tree, hash)) not in self._texts and key not in new:
                    short = short_hash(hash)
                    rows.execute(_ADD_TEXT, (short, text_sum(text), kept(text)))
                    rows.execute(_ADD_REF, (entry.tree, short))
                    new[key] = None
        return new

    def _ask(self, rows: sqlite3.Connection, entries: Iterable[Entry]) -> set[int]:
        asking = self._asking
        for seq, entry in zip(_count(self.last), entries, strict=False):
            node, state = entry.node, entry.state
            if entry.question is not None:
                rows.execute(
                    "INSERT OR REPLACE INTO questions (node, id, seq) VALUES (?, ?, ?)",
                    (node, entry.question.id, seq),
                )
                asking = asking | {node}
            if entry.settled is not None:
                rows.execute("DELETE FROM questions WHERE id = ?", (entry.settled,))
            if node in asking and state is not None and state.final:
                rows.execute("DELETE FROM questions WHERE node = ?", (node,))
                asking = asking - {node}
        return asking

    def _refusal(
        self, rows: sqlite3.Connection, entries: Sequence[Entry]
    ) -> StoreError | UsageError:
        """Return the error for the entry whose place, number or call is taken."""
        for seq, entry in zip(_count(self.last), entries, strict=False):
            number = _one(rows, "events WHERE node = ? AND n = ?", entry.node, entry.number)
            if number not in {None, seq}:
                return fenced(self._name, entry)
            if (call := entry.call) is not None:
                same = _one(rows, "nodes WHERE id = ?", entry.node)
                key = _one(rows, "nodes WHERE parent = ? AND call_key = ?", call.parent, call.key)
                if same not in {None, seq} or key not in {None, seq}:
                    return fenced(self._name, entry, call)
        return overtaken(self._name)


class Appended:
    """What is true if something that was appended is safe."""

    __slots__ = ("asking", "last", "texts")

    def __init__(self, last: int, texts: dict[tuple[int, str], None], asking: set[int]) -> None:
        self.last = last
        self.texts = texts
        self.asking = asking


def _changes(entries: Iterable[Entry]) -> dict[int, Standing]:
    changes: dict[int, Standing] = {}
    for entry in entries:
        if entry.state is not None:
            if (change := changes.get(entry.node)) is None:
                change = changes[entry.node] = Standing()
            change.take(entry.state, entry.at)
    return changes


def _count(last: int) -> "itertools.count[int]":
    return itertools.count(last + 1)


def _one(rows: sqlite3.Connection, what: str, *values: object) -> int | None:
    found = rows.execute(f"SELECT seq FROM {what}", values).fetchone()
    return None if found is None else found[0]
