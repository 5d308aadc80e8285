"""The saved sessions of chats in PostgreSQL."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg

from treefold.core.errors import StoreDamagedError, StoreError
from treefold.stores.postgres.connection import Connection
from treefold.stores.postgres.faults import fault_of
from treefold.stores.postgres.pool import Pool, statement
from treefold.stores.postgres.rows import decode_text, encode_text
from treefold.stores.saved_chats import Rows, SavedChats

# One writer at a time, as in a SQLite file; readers do not wait.
_BEGIN: Final = (
    "BEGIN",
    "LOCK TABLE sessions, entries IN SHARE ROW EXCLUSIVE MODE",
)
_READ: Final = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",)
_TRIES: Final = 50  # of asking what became of a transaction
_PAUSE: Final = 0.1  # seconds between them


class PostgresSessions(SavedChats):
    """The sessions in a database of PostgreSQL.

    Args:
        pool: the connections; the store closes it.
    """

    def __init__(self, pool: Pool) -> None:
        super().__init__(_Chats(pool))

    def _insert(self, rows: Rows, previous: int | None, entry: str) -> int:
        (head,) = rows.execute(
            "INSERT INTO entries (previous, exchange) VALUES (?, ?) RETURNING id",
            (previous, entry),
        ).fetchone()
        return head


class _Chats:
    """Lends connections as ``SavedChats`` expects them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.path = pool.address.name

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def close(self) -> None:
        """Leave the connections to the store."""

    def damaged(self, what: str) -> StoreDamagedError:
        return StoreDamagedError(self.path, f"{what}; restore a copy of the database")

    @contextmanager
    def transaction(self) -> Generator[Rows]:
        try:
            with self._begun(_BEGIN) as connection:
                yield _Rows(connection)
                self._commit(connection)
        except psycopg.Error as error:
            raise fault_of(self.path, error) from None

    @contextmanager
    def snapshot(self) -> Generator[Rows]:
        try:
            with self._begun(_READ) as connection:
                yield _Rows(connection)
                connection.execute("ROLLBACK")
        except psycopg.Error as error:
            raise fault_of(self.path, error) from None

    @contextmanager
    def _begun(self, statements: Sequence[str]) -> Generator[Connection]:
        begun = False
        for is_last in (False, True):
            try:
                with self._pool.lend() as connection:
                    for one in statements:
                        connection.execute(statement(one))
                    begun = True
                    yield connection
                    return
            except psycopg.OperationalError:
                # The connection may be from before the server was restarted.
                if begun or is_last:
                    raise

    def _commit(self, connection: Connection) -> None:
        """Commit; if the reply is lost, find out whether it was done."""
        found = connection.execute("SELECT pg_current_xact_id_if_assigned()::text").fetchone()
        transaction = None if found is None else found[0]
        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError:
            if transaction is None or not self._was_committed(transaction):
                raise

    def _was_committed(self, transaction: str) -> bool:
        for _ in range(_TRIES):
            with suppress(StoreError):
                search = "SELECT pg_xact_status(%s::text::xid8)"
                [(status,)] = self._pool.fetch(search, (transaction,))
                if status != "in progress":
                    return status == "committed"
            time.sleep(_PAUSE)
        return False


class _Rows:
    """A connection in a transaction, with SQLite's placeholders."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, command: str, values: Sequence[Any] = (), /) -> "_Found":
        encoded = [encode_text(value) if isinstance(value, str) else value for value in values]
        found = self._connection.execute(statement(command.replace("?", "%s")), encoded)
        return _Found(found.fetchall() if found.description is not None else [])


class _Found:
    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = [
            tuple(decode_text(value) if isinstance(value, str) else value for value in row)
            for row in rows
        ]

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[Any]:
        return self._rows
