"""The tables of the database.

Columns whose names end in ``crc`` have the checksums of the others (``checksums.py``).
"""

from functools import cache
from typing import Final

_SESSIONS: Final = (
    # Saved chats are linked lists, as in git: an entry leads to all entries before it. An id is
    # never used twice, so that an outdated head cannot refer to a newer entry.
    """
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        previous INTEGER REFERENCES entries (id) CHECK (previous < id),
        exchange TEXT NOT NULL
    )
    """,
    "CREATE INDEX entries_by_previous ON entries (previous)",
    """
    CREATE TABLE sessions (
        name TEXT PRIMARY KEY,
        head INTEGER REFERENCES entries (id),
        length INTEGER NOT NULL DEFAULT 0,
        unsent TEXT NOT NULL DEFAULT '[]',
        model TEXT NOT NULL,
        preview TEXT NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX sessions_by_head ON sessions (head)",
)

_JOURNAL: Final = (
    # One row: the id of the journal, and the highest numbers of deleted rows, which are not used
    # again.
    """
    CREATE TABLE journal (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        node INTEGER NOT NULL,
        number INTEGER NOT NULL,
        crc INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        tree INTEGER NOT NULL,
        node INTEGER NOT NULL,
        n INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL,
        at REAL,
        state TEXT,
        question TEXT,
        settled TEXT,
        crc INTEGER NOT NULL,
        UNIQUE (node, n)
    )
    """,
    "CREATE INDEX events_by_tree ON events (tree, seq)",
    # The current state, derived from the events. A top-level call has the parent 0, the number of
    # its tree as its place, and as its source the tree that was forked, if it is a fork.
    """
    CREATE TABLE nodes (
        id INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        tree INTEGER NOT NULL,
        parent INTEGER NOT NULL,
        call_key TEXT NOT NULL,
        place INTEGER NOT NULL,
        function TEXT NOT NULL,
        idles INTEGER NOT NULL,
        source INTEGER NOT NULL,
        inherited INTEGER NOT NULL,
        state TEXT NOT NULL,
        started REAL,
        ended REAL,
        crc INTEGER NOT NULL,
        state_crc INTEGER NOT NULL,
        started_crc INTEGER,
        UNIQUE (parent, call_key)
    )
    """,
    "CREATE INDEX nodes_open ON nodes (tree) WHERE state IN ('waiting', 'running', 'paused')",
    "CREATE INDEX nodes_top ON nodes (id) WHERE parent = 0",
    "CREATE INDEX nodes_numbered ON nodes (place) WHERE parent = 0",
    "CREATE INDEX nodes_forked ON nodes (source) WHERE source > 0",
    "CREATE INDEX nodes_forks ON nodes (id) WHERE source > 0",
    # A text is kept once, however many events reference it, as long as some tree does.
    """
    CREATE TABLE texts (
        id INTEGER PRIMARY KEY,
        hash BLOB NOT NULL UNIQUE,
        crc INTEGER NOT NULL,
        text TEXT NOT NULL
    )
    """,
    "CREATE TABLE refs (tree INTEGER, text INTEGER, PRIMARY KEY (tree, text)) WITHOUT ROWID",
    "CREATE INDEX refs_by_text ON refs (text)",
    # The pending questions; their text is in the event.
    """
    CREATE TABLE questions (
        node INTEGER NOT NULL,
        id TEXT NOT NULL UNIQUE,
        seq INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        PRIMARY KEY (node, id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX questions_by_seq ON questions (seq)",
    """
    CREATE TABLE inbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        body TEXT NOT NULL,
        question TEXT,
        crc INTEGER NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX inbox_by_question ON inbox (question) WHERE question IS NOT NULL",
)

_TIMERS: Final = (
    # When pending questions expire or are escalated, and when calls that sleep wake; a sleep asks
    # no person, and is not among the questions.
    """
    CREATE TABLE timers (
        node INTEGER NOT NULL,
        id TEXT NOT NULL UNIQUE,
        due REAL NOT NULL,
        sleeps INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        PRIMARY KEY (node, id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX timers_due ON timers (due)",
)

_PAST_RUNS: Final = (
    # Of agents only: other calls should not pay for it.
    """
    CREATE INDEX nodes_past ON nodes (function, ended) WHERE idles = 1 AND state = 'success'
    """,
)

VERSION: Final = 6  # of the tables and of the bodies in them
STATEMENTS: Final = (*_SESSIONS, *_JOURNAL, *_TIMERS, *_PAST_RUNS)


@cache
def written_statements() -> frozenset[str]:
    """Return the statements that create the tables, as SQLite keeps them."""
    return frozenset(statement.strip() for statement in STATEMENTS)
