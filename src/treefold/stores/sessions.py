"""Saved conversations: each a name for the end of a linked list of exchanges.

Going on costs one entry, whatever came before; a fork is a second name for the same end. Does not
know what a client is, nor what the messages mean.
"""

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Self

from treefold.core.errors import (
    DuplicateNameError,
    InvalidValueError,
    SessionConflictError,
    UnknownSessionError,
)
from treefold.core.exchange import Exchange
from treefold.core.transcript import ToolResult
from treefold.core.user_folder import data_folder
from treefold.stores.data_folder import make_data_folder
from treefold.stores.database import Database

_LONGEST_NAME: Final = 200
_PREVIEW: Final = 200
_LISTED: Final = 5

_CHAIN: Final = """
    WITH RECURSIVE chain (id, previous) AS (
        SELECT id, previous FROM entries WHERE id = ?
        UNION
        SELECT entries.id, entries.previous FROM entries JOIN chain ON entries.id = chain.previous
    )
    SELECT entries.id, entries.exchange FROM chain JOIN entries USING (id) ORDER BY entries.id
"""  # an entry is newer than all before it, so that ids are in the order of the conversation


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A saved conversation in a list of them.

    Attributes:
        name: what it is opened by.
        model: the model that was last used.
        exchanges: how many requests were answered.
        preview: the beginning of the first thing that the user said.
        created_at: when it was made.
        updated_at: when it was last gone on with.

    Example:
        >>> from treefold import SessionStore
        >>> with SessionStore(":memory:") as store:
        ...     _ = store.open("trip", model="local", preview="Where to?")
        ...     [info] = store.list()
        >>> (info.name, info.model, info.exchanges, info.preview)
        ('trip', 'local', 0, 'Where to?')
    """

    name: str
    model: str
    exchanges: int
    preview: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A conversation as it was saved.

    Attributes:
        name: what it is opened by.
        head: its newest entry; whoever goes on says that this is where from.
        exchanges: all of it.
        unsent: results of calls that wait to be sent with the next request.
    """

    name: str
    head: int | None
    exchanges: tuple[Exchange, ...]
    unsent: tuple[ToolResult, ...]


class SessionStore:
    """The file that conversations are saved in; safe to use from any thread and any process.

    Args:
        path: the file, ``":memory:"`` for none, or None for ``chats.db`` in ``$TREEFOLD_HOME`` or
            the user's data folder. It is made if it is not there, and only its owner can read it.

    Raises:
        StoreError: from every method, if the file cannot be read or written; the message says why.

    Example:
        >>> from treefold import SessionStore
        >>> with SessionStore(":memory:") as store:
        ...     session = store.open("trip")
        ...     _ = store.fork("trip", "trip by train")
        ...     store.delete("trip")
        ...     [info.name for info in store.list()]
        ['trip by train']
    """

    def __init__(self, path: str | Path | None = None) -> None:
        if path is None:
            make_data_folder()
            path = default_path()
        self._database = Database(path)

    def find(self, name: str) -> SavedSession | None:
        """Return the session of that name, if there is one."""
        _check(name)
        with self._database.snapshot() as rows:
            if rows.execute("SELECT 1 FROM sessions WHERE name = ?", (name,)).fetchone() is None:
                return None
            return self._load(rows, name)

    def open(self, name: str, *, model: str = "", preview: str = "") -> SavedSession:
        """Return the session of that name, which is made if it is not there."""
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
        """Add *exchange* after the head that the caller knows; return the new head.

        Results that waited to be sent are taken to be in it.

        Raises:
            SessionConflictError: somebody else has moved the head.
            UnknownSessionError: the session is not there any more.
        """
        entry = _json(exchange.to_dict())
        with self._database.transaction() as rows:
            length = self._length(rows, name, after)
            head = _insert(rows, after, entry)
            _move(rows, name, head, length + 1)
            _describe(rows, name, model, preview)
        return head

    def keep(self, name: str, results: Sequence[ToolResult], *, after: int | None) -> None:
        """Keep *results*, instead of those kept before, for the next request.

        Raises:
            SessionConflictError: somebody else has moved the head.
            UnknownSessionError: the session is not there any more.
        """
        unsent = _json([asdict(result) for result in results])
        with self._database.transaction() as rows:
            length = self._length(rows, name, after)
            _move(rows, name, after, length, unsent)

    def replace(self, name: str, exchanges: Sequence[Exchange], *, after: int | None) -> int | None:
        """Let the session consist of *exchanges*; return its head.

        What is as before, from the first one on, is not written again. Of a session that was
        emptied the preview is forgotten, too.

        Raises:
            SessionConflictError: somebody else has moved the head.
            UnknownSessionError: the session is not there any more.
        """
        wanted = [_json(exchange.to_dict()) for exchange in exchanges]
        with self._database.transaction() as rows:
            self._length(rows, name, after)
            pairs = zip(rows.execute(_CHAIN, (after,)).fetchall(), wanted, strict=False)
            kept = [entry for (entry, _), _ in takewhile(lambda pair: pair[0][1] == pair[1], pairs)]
            head = kept[-1] if kept else None
            for entry in wanted[len(kept) :]:
                head = _insert(rows, head, entry)
            _move(rows, name, head, len(wanted))
            if head is None:
                rows.execute("UPDATE sessions SET preview = '' WHERE name = ?", (name,))
            _prune(rows, after)
        return head

    def fork(self, name: str, new_name: str) -> SavedSession:
        """Return a session of *new_name* that goes on from where *name* is; nothing is copied.

        Raises:
            DuplicateNameError: *new_name* is taken (a ValueError).
            UnknownSessionError: there is no *name* (a KeyError).
        """
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
        """Raise DuplicateNameError if there is a session of that name."""
        with self._database.snapshot() as rows:
            _check_free(rows, name)

    def list(self) -> list[SessionInfo]:
        """Return what there is, the newest first."""
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
        """Forget the session, and of its exchanges those that no fork has.

        Raises:
            UnknownSessionError: there is none of that name (a KeyError).
        """
        with self._database.transaction() as rows:
            head, *_ = self._row(rows, name)
            rows.execute("DELETE FROM sessions WHERE name = ?", (name,))
            _prune(rows, head)

    def close(self) -> None:
        """Close the file; closing it twice is fine."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._database.closed else ""
        return f"<SessionStore {self._database.path}{closed}>"

    def _row(self, rows: sqlite3.Connection, name: str) -> tuple[int | None, int, str]:
        _check(name)
        found = rows.execute(
            "SELECT head, length, unsent FROM sessions WHERE name = ?", (name,)
        ).fetchone()
        if found is None:
            raise UnknownSessionError(f"no session is called {name!r}; {_names(rows, name)}")
        return found

    def _length(self, rows: sqlite3.Connection, name: str, after: int | None) -> int:
        """Return how long the session is, provided that it ends where the caller thinks."""
        head, length, _ = self._row(rows, name)
        if head != after:
            raise SessionConflictError(self._database.path, name)
        return length

    def _load(self, rows: sqlite3.Connection, name: str) -> SavedSession:
        head, length, unsent = self._row(rows, name)
        entries = rows.execute(_CHAIN, (head,)).fetchall()
        if len(entries) != length:
            raise self._database.damaged(
                f"the session {name!r} should have {length} exchanges and has {len(entries)}"
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


def default_path() -> Path:
    """Return the file that is used if none is given."""
    return data_folder() / "chats.db"


def _check(name: str) -> None:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise InvalidValueError(f"{name!r} cannot be the name of a session: give some text")
    if len(name) > _LONGEST_NAME:
        raise InvalidValueError(
            f"the name of a session has at most {_LONGEST_NAME} characters: {name[:20]!r}..."
        )


def _check_free(rows: sqlite3.Connection, name: str) -> None:
    if rows.execute("SELECT 1 FROM sessions WHERE name = ?", (name,)).fetchone():
        raise DuplicateNameError(
            f"there is a session {name!r} already; take another name, or delete it"
        )


def _names(rows: sqlite3.Connection, name: str) -> str:
    """Say which names there are, and those near *name* rather than others."""
    names = [found for (found,) in rows.execute("SELECT name FROM sessions ORDER BY updated DESC")]
    near = get_close_matches(name, names, n=_LISTED)
    if near:
        return f"did you mean {', '.join(map(repr, near))}?"
    more = ", ..." if len(names) > _LISTED else ""
    return f"there are {', '.join(map(repr, names[:_LISTED]))}{more}" if names else "there are none"


def _insert(rows: sqlite3.Connection, previous: int | None, entry: str) -> int:
    rows.execute("INSERT INTO entries (previous, exchange) VALUES (?, ?)", (previous, entry))
    (head,) = rows.execute("SELECT last_insert_rowid()").fetchone()
    return head


def _move(
    rows: sqlite3.Connection, name: str, head: int | None, length: int, unsent: str = "[]"
) -> None:
    rows.execute(
        "UPDATE sessions SET head = ?, length = ?, unsent = ?, updated = ? WHERE name = ?",
        (head, length, unsent, time.time(), name),
    )


def _describe(rows: sqlite3.Connection, name: str, model: str, preview: str) -> None:
    """Note the model that is used now, and the first thing that was said."""
    if model:
        rows.execute("UPDATE sessions SET model = ? WHERE name = ?", (_text(model), name))
    if preview:
        rows.execute(
            "UPDATE sessions SET preview = ? WHERE name = ? AND preview = ''",
            (_text(preview[:_PREVIEW]), name),
        )


def _prune(rows: sqlite3.Connection, entry: int | None) -> None:
    """Remove *entry* and those before it, back to the first that is still needed.

    Every other entry is needed by some session, so one that others come after is needed, too.
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
    # half a character cannot be stored, and JSON writes one as Python does
    return _text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
