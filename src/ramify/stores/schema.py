"""The tables of our database, as the steps that lead from each version to the next.

A step that was released is never changed: another one is added.
"""

from typing import Final

_SESSIONS: Final = (
    # Conversations are linked lists, as in git: whoever has an entry has all before it. An id is
    # never given twice, so that an outdated head cannot mean a newer entry.
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

STEPS: Final = (_SESSIONS,)
VERSION: Final = len(STEPS)
