"""Connections to one database, each lent to one thread at a time.

psycopg's own pool connects in the background and reports a refused password as a timeout; here the
caller that needs a connection opens it, and gets the reason.
"""

import os
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, LiteralString, cast

import psycopg
from psycopg import errors as pg

from treefold.core.errors import StoreBusyError, UsageError
from treefold.core.store import may_block
from treefold.stores.postgres.address import Address
from treefold.stores.postgres.connection import (
    LOCK_TIMEOUT,
    MOMENT,
    Connection,
    connect,
)
from treefold.stores.postgres.faults import TO_BE_RETRIED, closed_fault, fault_of

_SIZE: Final = 8  # connections at once
_KEPT: Final = 4  # of those, when they are not used for long
_LINGER: Final = 10.0  # seconds until the others are closed
_TRIES: Final = 5  # of a statement that the server wants to be sent again
_PAUSE: Final = 0.01  # seconds before that


class Refused(Exception):  # noqa: N818 - it never leaves this package
    """A function or a constraint of the database refused to write; nothing was written.

    Attributes:
        code: the SQLSTATE, such as ``faults.FENCED``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Pool:
    """The connections of one store, safe to use from any thread.

    *linger* is how long more of them than usual are kept after they were used.
    """

    def __init__(self, address: Address, *, linger: float = _LINGER) -> None:
        self.address = address
        self._linger = linger
        self.closed = False
        self._process = os.getpid()
        self._slots = threading.BoundedSemaphore(_SIZE)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []  # the most recently used one last

    def fetch(
        self,
        statement: LiteralString,
        values: Sequence[Any] | Mapping[str, Any] = (),
        *,
        binary: bool = False,
        timeout: float | None = None,
    ) -> list[tuple[Any, ...]]:
        """Execute a statement, and return its rows.

        It is executed again if the connection is lost, so carrying it out twice must do no harm. A
        connection counts as lost after *timeout* seconds without a reply; without one, after those
        of the address.

        Raises:
            StoreError: it failed; a sentence says why.
            Refused: a function or a constraint of the database refused it.
        """
        tries, lost = 0, False
        while True:
            try:
                with self.lend() as connection:
                    connection.silence = timeout or self.address.timeout
                    cursor = connection.execute(statement, values, prepare=True, binary=binary)
                    # Whether there are rows; its description would be made for each column.
                    return cursor.fetchall() if cursor.rownumber is not None else []
            except TO_BE_RETRIED as error:
                tries += 1
                if tries == _TRIES or not may_block.get():
                    raise self._fault(error) from None
                time.sleep(_PAUSE * tries)
            except psycopg.Error as error:
                # It may or may not have been executed.
                if lost or not _is_lost(error):
                    raise self._fault(error) from None
                lost = True

    def maintain(self, statement: LiteralString) -> None:
        """Execute a statement that may take any time, on a connection of its own."""
        self._check()
        with connect(self.address) as connection:
            try:
                connection.set_patient()
                connection.execute(statement)
            except psycopg.Error as error:
                raise self._fault(error) from None

    @contextmanager
    def lend(self) -> Generator[Connection]:
        """Lend a connection, in autocommit mode; a broken one is not lent again.

        The block may raise psycopg's errors.

        Raises:
            StoreError: none can be opened.
            StoreBusyError: all are lent; or ``may_block`` is not set, and none is open.
        """
        blocking = may_block.get()
        self._check()
        if not self._slots.acquire(timeout=LOCK_TIMEOUT if blocking else 0):
            raise StoreBusyError(self.address.name, "too many threads use it at once; try again")
        try:
            connection = self._take(blocking=blocking)
            try:
                connection.set_lock_timeout(LOCK_TIMEOUT if blocking else MOMENT)
                yield connection
            except BaseException as error:
                self._give_up(connection, error)
                raise
            self._put_back(connection)
        finally:
            self._slots.release()

    def close(self) -> None:
        """Close the idle connections, and each other one when it is returned."""
        self.closed = True
        self._close_idle()

    def _check(self) -> None:
        if self.closed:
            raise closed_fault(self.address.name)
        if self._process != os.getpid():
            raise UsageError(
                f"{self.address.name} was opened in process {self._process}, and this process was"
                " forked from it; open it here as well"
            )

    def _take(self, *, blocking: bool) -> Connection:
        with self._lock:
            while self._idle:
                found = self._idle.pop()
                if not found.closed:
                    return found
        if not blocking:
            raise StoreBusyError(
                self.address.name, "no connection is open, and an event loop must not wait for one"
            )
        return connect(self.address)

    def _put_back(self, connection: Connection) -> None:
        connection.used = time.monotonic()
        with self._lock:
            self._idle.append(connection)
            # Those of a burst stay for the next: opening one costs more than most statements.
            until = connection.used - self._linger
            is_left = self.closed or (len(self._idle) > _KEPT and self._idle[0].used < until)
            left = self._idle.pop(0) if is_left else None
        if left is not None:
            left.close()

    def _give_up(self, connection: Connection, error: BaseException) -> None:
        if isinstance(error, psycopg.Error) and _is_lost(error):
            connection.close()
            # The server was restarted, or is gone: the others are lost as well.
            self._close_idle()
        elif isinstance(error, Exception) and not connection.closed:
            with suppress(psycopg.Error):
                connection.rollback()
            self._put_back(connection)
        else:
            # After a KeyboardInterrupt a reply may still be on its way.
            connection.close()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _fault(self, error: psycopg.Error) -> Exception:
        code = error.sqlstate or ""
        if code.startswith("TF") or isinstance(error, psycopg.IntegrityError):
            return Refused(code, error.diag.message_primary or "")
        return fault_of(self.address.name, error)


def _is_lost(error: psycopg.Error) -> bool:
    """Whether the connection cannot be used any more."""
    ended = (pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow, pg.IdleSessionTimeout)
    if isinstance(error, ended):
        return True
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def statement(text: str) -> LiteralString:
    """Return a statement that this package composed of constants as one that psycopg accepts."""
    return cast("LiteralString", text)
