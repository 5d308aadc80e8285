"""The saved sessions of chats in the tables of a database; the messages are not interpreted.

The statements are those that SQLite and PostgreSQL have in common, with SQLite's placeholders.
"""

import json
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, Final, Protocol

from msgspec.structs import asdict

from treefold.core.errors import (
    DuplicateNameError,
    InvalidValueError,
    SessionConflictError,
    StoreError,
    UnknownSessionError,
)
from treefold.core.exchange import Exchange
from treefold.core.sessions import SavedSession, SessionInfo, Sessions
from treefold.core.transcript import ToolResult

_MAX_NAME: Final = 200
_MAX_PREVIEW: Final = 200
_MAX_SUGGESTIONS: Final = 5

# An entry is newer than all before it, so ids are in the order of the conversation.
_CHAIN: Final = """
    WITH RECURSIVE chain (id, previous) AS (
        SELECT id, previous FROM entries WHERE id = ?
        UNION
        SELECT entries.id, entries.previous FROM entries JOIN chain ON entries.id = chain.previous
    )
    SELECT entries.id, entries.exchange FROM chain JOIN entries USING (id) ORDER BY entries.id
"""


class Found(Protocol):
    """What a statement found."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Rows(Protocol):
    """A connection that is in a transaction, such as ``sqlite3.Connection``."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Found: ...


class ChatDatabase(Protocol):
    """A database that has the tables ``sessions`` and ``entries``."""

    @property
    def path(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    def transaction(self) -> AbstractContextManager[Rows]:
        """Lend a connection for writing; one process at a time has one."""
        ...

    def snapshot(self) -> AbstractContextManager[Rows]:
        """Lend a connection for reading one moment."""
        ...

    def damaged(self, what: str) -> StoreError: ...

    def close(self) -> None: ...


class SavedChats(Sessions):
    """The sessions in a database.

    Args:
        database: closed by this object.
    """

    def __init__(self, database: ChatDatabase) -> None:
        self._database = database

    def find(self, name: str) -> SavedSession | None:
        _check(name)
        with self._database.snapshot() as rows:
            if rows.execute("SELECT 1 FROM sessions WHERE name = ?", (name,)).fetchone() is None:
                return None
            return self._load(rows, name)

    def open(self, name: str, *, model: str = "", preview: str = "") -> SavedSession:
        _check(name)
        now = time.time()
        with self._database.transaction() as rows:
            rows.execute(
                "INSERT INTO sessions (name, model, preview, created, updated)"
                " VALUES (?, '', '', ?, ?) ON CONFLICT DO NOTHING",
                (name, now, now),
            )
            _describe(rows, name, model, preview)
            return self._load(rows, name)

    def append(
        self,
        name: str,
        exchange: Exchange,
        *,
        after: int | None,
        model: str = "",
        preview: str = "",
    ) -> int:
        entry = _json(exchange.to_dict())
        with self._database.transaction() as rows:
            length = self._length(rows, name, after)
            head = self._insert(rows, after, entry)
            _move(rows, name, head, length + 1)
            _describe(rows, name, model, preview)
        return head

    def keep(self, name: str, results: Sequence[ToolResult], *, after: int | None) -> None:
        unsent = _json([asdict(result) for result in results])
        with self._database.transaction() as rows:
            length = self._length(rows, name, after)
            _move(rows, name, after, length, unsent)

    def replace(self, name: str, exchanges: Sequence[Exchange], *, after: int | None) -> int | None:
        wanted = [_json(exchange.to_dict()) for exchange in exchanges]
        with self._database.transaction() as rows:
            self._length(rows, name, after)
            pairs = zip(rows.execute(_CHAIN, (after,)).fetchall(), wanted, strict=False)
            kept = [entry for (entry, _), _ in takewhile(lambda pair: pair[0][1] == pair[1], pairs)]
            head = kept[-1] if kept else None
            for entry in wanted[len(kept) :]:
                head = self._insert(rows, head, entry)
            _move(rows, name, head, len(wanted))
            if head is None:
                rows.execute("UPDATE sessions SET preview = '' WHERE name = ?", (name,))
            _prune(rows, after)
        return head

    def fork(self, name: str, new_name: str) -> SavedSession:
        _check(new_name)
        now = time.time()
        with self._database.transaction() as rows:
            self._row(rows, name)
            _check_free(rows, new_name)
            rows.execute(
                """
                INSERT INTO sessions (name, created, updated, head, length, unsent, model, preview)
                SELECT ?, ?, ?, head, length, unsent, model, preview FROM sessions WHERE name = ?
                """,
                (new_name, now, now, name),
            )
            return self._load(rows, new_name)

    def check_free(self, name: str) -> None:
        with self._database.snapshot() as rows:
            _check_free(rows, name)

    def list(self) -> list[SessionInfo]:
        with self._database.snapshot() as rows:
            found = rows.execute(
                "SELECT name, model, length, preview, created, updated FROM sessions"
                " ORDER BY updated DESC, name"
            ).fetchall()
        return [
            SessionInfo(name, model, length, preview, _time(created), _time(updated))
            for name, model, length, preview, created, updated in found
        ]

    def delete(self, name: str) -> None:
        with self._database.transaction() as rows:
            head, *_ = self._row(rows, name)
            rows.execute("DELETE FROM sessions WHERE name = ?", (name,))
            _prune(rows, head)

    def close(self) -> None:
        """Close the database; closing it twice is fine."""
        self._database.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._database.closed else ""
        return f"<{type(self).__name__} {self._database.path}{closed}>"

    def _insert(self, rows: Rows, previous: int | None, entry: str) -> int:
        """Add an entry, and return its id."""
        raise NotImplementedError

    def _row(self, rows: Rows, name: str) -> tuple[int | None, int, str]:
        _check(name)
        found = rows.execute(
            "SELECT head, length, unsent FROM sessions WHERE name = ?", (name,)
        ).fetchone()
        if found is None:
            raise UnknownSessionError(f"there is no session {name!r}; {_suggestion(rows, name)}")
        return found

    def _length(self, rows: Rows, name: str, after: int | None) -> int:
        """Return the length of the session, after checking that *after* is its head."""
        head, length, _ = self._row(rows, name)
        if head != after:
            raise SessionConflictError(self._database.path, name)
        return length

    def _load(self, rows: Rows, name: str) -> SavedSession:
        head, length, unsent = self._row(rows, name)
        entries = rows.execute(_CHAIN, (head,)).fetchall()
        if len(entries) != length:
            raise self._database.damaged(
                f"the session {name!r} must have {length} exchanges, but has {len(entries)}"
            )
        try:
            return SavedSession(
                name,
                head,
                tuple(Exchange.from_dict(json.loads(entry)) for _, entry in entries),
                tuple(ToolResult(**result) for result in json.loads(unsent)),
            )
        except (TypeError, ValueError) as error:
            raise self._database.damaged(f"the session {name!r} cannot be read: {error}") from error


def _check(name: str) -> None:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise InvalidValueError(f"session must be a name of printable characters, got {name!r}")
    if len(name) > _MAX_NAME:
        raise InvalidValueError(
            f"session must be a name of at most {_MAX_NAME} characters, got {name[:20]!r}..."
        )


def _check_free(rows: Rows, name: str) -> None:
    if rows.execute("SELECT 1 FROM sessions WHERE name = ?", (name,)).fetchone():
        raise DuplicateNameError(
            f"there already is a session {name!r}; choose another name, or delete it"
        )


def _suggestion(rows: Rows, name: str) -> str:
    """Return a sentence that lists the names that are close to *name*, or some others."""
    search = "SELECT name FROM sessions ORDER BY updated DESC"
    names: list[str] = [name for (name,) in rows.execute(search).fetchall()]
    near = get_close_matches(name, names, n=_MAX_SUGGESTIONS)
    if near:
        return f"did you mean {', '.join(map(repr, near))}?"
    if not names:
        return "none is saved"
    more = ", ..." if len(names) > _MAX_SUGGESTIONS else ""
    return f"there are {', '.join(map(repr, names[:_MAX_SUGGESTIONS]))}{more}"


def _move(rows: Rows, name: str, head: int | None, length: int, unsent: str = "[]") -> None:
    rows.execute(
        "UPDATE sessions SET head = ?, length = ?, unsent = ?, updated = ? WHERE name = ?",
        (head, length, unsent, time.time(), name),
    )


def _describe(rows: Rows, name: str, model: str, preview: str) -> None:
    """Save the model that is used now, and the preview if there is none yet."""
    if model:
        rows.execute("UPDATE sessions SET model = ? WHERE name = ?", (_text(model), name))
    if preview:
        rows.execute(
            "UPDATE sessions SET preview = ? WHERE name = ? AND preview = ''",
            (_text(preview[:_MAX_PREVIEW]), name),
        )


def _prune(rows: Rows, entry: int | None) -> None:
    """Delete *entry* and those before it, back to the first that another session needs.

    An entry is needed if it is a head, or if another entry follows it, because every entry in the
    file belongs to some session.
    """
    while entry is not None:
        needed = rows.execute(
            "SELECT 1 FROM sessions WHERE head = ? UNION ALL"
            " SELECT 1 FROM entries WHERE previous = ? LIMIT 1",
            (entry, entry),
        ).fetchone()
        if needed:
            return
        (previous,) = rows.execute("SELECT previous FROM entries WHERE id = ?", (entry,)).fetchone()
        rows.execute("DELETE FROM entries WHERE id = ?", (entry,))
        entry = previous


def _json(value: Any) -> str:
    # A lone surrogate cannot be stored; it becomes a backslash escape, which JSON reads back.
    return _text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
