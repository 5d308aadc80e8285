"""The saved sessions of chats in a SQLite file."""

from pathlib import Path
from typing import Self

from treefold.core.user_folder import data_folder
from treefold.stores.data_folder import make_data_folder
from treefold.stores.database import Database
from treefold.stores.saved_chats import Rows, SavedChats


class SqliteSessions(SavedChats):
    """The sessions in a SQLite file.

    Args:
        database: the file; this object closes it.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)

    def _insert(self, rows: Rows, previous: int | None, entry: str) -> int:
        rows.execute("INSERT INTO entries (previous, exchange) VALUES (?, ?)", (previous, entry))
        (head,) = rows.execute("SELECT last_insert_rowid()").fetchone()
        return head


class SessionStore(SqliteSessions):
    """Chat: the saved chats in a SQLite file; ``SqliteStore(path).sessions`` has the same ones.

    It keeps no journal: that is a SqliteStore.

    Args:
        path: the file, which is created, readable by its owner only, if it does not exist;
            ``":memory:"`` for no file; None for ``chats.db`` in ``$TREEFOLD_HOME`` or the user's
            data folder.

    Raises:
        StoreError: from every method, if the file cannot be read or written.

    Example:
        >>> from treefold import SessionStore
        >>> with SessionStore(":memory:") as store:
        ...     _ = store.open("trip")
        ...     [info.name for info in store.list()]
        ['trip']
    """

    def __init__(self, path: str | Path | None = None) -> None:
        if path is None:
            make_data_folder()
            path = default_path()
        super().__init__(Database(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def default_path() -> Path:
    """Return the file that chats are saved in unless another is given."""
    return data_folder() / "chats.db"
