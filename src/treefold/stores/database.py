"""One SQLite file: created, recognised, and its errors translated to StoreError.

It does not interpret the tables. Commits survive a killed process, and a power cut unless
``synchronous`` is ``"NORMAL"``.
"""

import os
import sqlite3
import struct
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, get_args

from treefold.core.errors import (
    ClosedError,
    InvalidValueError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    TreefoldError,
    UsageError,
)
from treefold.core.store import may_block
from treefold.stores.checksums import DamagedRowError, of_journal
from treefold.stores.commit_mark import check_complete, clear_mark, lock_file, read_mark
from treefold.stores.schema import STATEMENTS, VERSION, written_statements
from treefold.stores.urls import is_url, public_name
from treefold.stores.versions import other_version

SQLITE: Final = sqlite3.sqlite_version
APPLICATION_ID: Final = 0x72616D66  # of files of this program; older than its name

Synchronous = Literal["NORMAL", "FULL"]

MEMORY: Final = ":memory:"
_FIRST_DELAY: Final = 0.001  # seconds until a lock is tried again
_RETRY_AFTER: Final = 0.01
PATIENCE: Final = 5.0
_OTHER_COLUMNS: Final = 1000  # bytes; more than the columns beside a text need

_FULL: Final = "the disk is full; make room and try again"
_LOCKED: Final = "another program has had it locked for too long; try again, or stop that program"
_READ_ONLY: Final = "it is read-only; give it and its folder write permission"
_FAULTS: Final = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: (
        "reading or writing it failed; check whether the disk is full, at a limit, or failing"
    ),
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened; check that its folder exists and is writable"),
    sqlite3.SQLITE_CORRUPT: (
        "it is damaged; restore a copy, or move it away and save what can be read with "
        "'sqlite3 FILE .recover'"
    ),
    sqlite3.SQLITE_NOTADB: "it is not a database; give the path of another file",
}
_SYSTEM_ERRORS: Final = (sqlite3.Error, OSError, UnicodeDecodeError)

# Closing a file releases every lock that this process has on it, so only SQLite opens existing
# files. A new file is created under this lock, so that no other thread has it open meanwhile.
_creating = threading.Lock()


class Database:
    """A connection to a file, safe to use from any thread; one thread at a time has it.

    The file is created, readable by its owner only, if it does not exist.

    Args:
        path: the file, or ``":memory:"`` for a database that is gone with this object.
        patience: how many seconds to wait for another program that writes.
        synchronous: ``"FULL"``, or ``"NORMAL"`` if a power cut may undo the last commits.

    Raises:
        StoreError: it cannot be opened, or belongs to another program.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        patience: float = PATIENCE,
        synchronous: Synchronous = "FULL",
    ) -> None:
        if synchronous not in get_args(Synchronous):
            raise InvalidValueError(f"synchronous must be 'FULL' or 'NORMAL', got {synchronous!r}")
        self.path = absolute(path)
        self._patience = patience
        self._busy_timeout: float | None = patience  # of the connection; None if unknown
        self._synchronous = synchronous
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._identity: tuple[int, int] | None = None
        self._log_identity: tuple[int, int] | None = None
        with self._translated_errors():
            _create(self.path)
            self._connection: sqlite3.Connection | None = sqlite3.connect(
                self.path, timeout=patience, isolation_level=None, check_same_thread=False
            )
        try:
            with self._translated_errors():
                self._prepare(self._connection)
                if self.path != MEMORY:
                    self._identity = _identity(self.path)
                    self._log_identity = _identity(f"{self.path}-wal")
        except BaseException:
            self.close()
            raise

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Lend the connection for one transaction, which is rolled back if the block raises.

        Raises:
            StoreBusyError: another program has had it locked for too long, or at all if
                ``may_block`` is not set.
        """
        end = time.monotonic() + (self._patience if may_block.get() else 0.0)
        delay = _FIRST_DELAY
        while True:
            with self._lock, self._translated_errors():
                # The timeout is left at 0 for the next transaction, too: with a write-ahead log, a
                # writer that has begun needs no further lock.
                connection = self._usable(busy_timeout=0.0)
                self._check_not_moved()
                try:
                    if _begin_writing(connection, end):
                        yield connection
                        connection.execute("COMMIT")
                        return
                except BaseException:
                    if connection.in_transaction:  # SQLite may have rolled it back already
                        connection.execute("ROLLBACK")
                    raise
            # Sleep without our own lock, so that other threads need not wait for that program.
            time.sleep(delay)
            delay = min(2 * delay, _RETRY_AFTER)

    @contextmanager
    def snapshot(self) -> Generator[sqlite3.Connection]:
        """Lend the connection for reading; the block does not see what others write meanwhile.

        A cursor that still has rows keeps SQLite at this moment, also after the block. So what may
        raise while it reads fetches all rows first, or closes the cursor.

        Raises:
            StoreError: SQLite cannot read it, or the block raised because a value is damaged.
        """
        with self._lock:
            try:
                connection = self._usable(busy_timeout=self._patience)
                try:
                    connection.execute("BEGIN")
                    yield connection
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            except TreefoldError:
                raise
            # As in _translated_errors, but without a second generator for every read.
            except _SYSTEM_ERRORS as error:
                raise _translate(self.path, error) from error
            except DamagedRowError as error:
                raise self.damaged(str(error)) from None
            # Something in the file has another type or form than it was written with.
            except (AttributeError, TypeError, ValueError, struct.error) as error:
                raise self.damaged(f"something in it cannot be read ({error})") from error

    def vacuum(self) -> None:
        """Shrink the file to the size of its content."""
        with self._lock, self._translated_errors():
            connection = self._usable(busy_timeout=self._patience)
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @property
    def largest(self) -> int:
        """How many bytes the texts in one row may have."""
        return self._usable().getlimit(sqlite3.SQLITE_LIMIT_LENGTH) - _OTHER_COLUMNS

    def damaged(self, what: str) -> StoreDamagedError:
        """Return the error for damage in the file."""
        return _damaged(self.path, what)

    def close(self) -> None:
        """Close the connection; closing it twice is fine."""
        with self._lock, self._translated_errors():
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    @property
    def closed(self) -> bool:
        return self._connection is None

    def check_open(self) -> None:
        """Raise an error if it was closed, belongs to another process, or its file was moved."""
        with self._translated_errors():
            self._usable()
            self._check_not_moved()

    @contextmanager
    def _translated_errors(self) -> Generator[None]:
        """Translate errors of SQLite and the system to a StoreError."""
        try:
            yield
        except _SYSTEM_ERRORS as error:
            raise _translate(self.path, error) from error
        except DamagedRowError as error:
            raise self.damaged(str(error)) from None

    def _usable(self, busy_timeout: float | None = None) -> sqlite3.Connection:
        """Return the connection; a *busy_timeout* sets how long SQLite waits for a lock."""
        if self._connection is None:
            raise ClosedError(f"{self.path} was closed; open it again")
        if self._process != os.getpid():
            raise UsageError(
                f"{self.path} was opened in process {self._process}, and this process was forked"
                " from it; open it here as well"
            )
        # Only if it has changed: a PRAGMA takes longer than the comparison.
        if busy_timeout is not None and self._busy_timeout != busy_timeout:
            self._busy_timeout = None  # in case a KeyboardInterrupt comes before it is set
            self._connection.execute(f"PRAGMA busy_timeout = {round(busy_timeout * 1000)}")
            self._busy_timeout = busy_timeout
        return self._connection

    def _check_not_moved(self) -> None:
        """Check that the open file is the one at its path; SQLite would write to it anyway."""
        if self._identity is not None and _identity(self.path) != self._identity:
            raise self._error(
                "it was moved, replaced or deleted while it was open, so that new entries would be"
                " lost; put it back where it was"
            )
        log = f"{self.path}-wal"
        if self._log_identity is not None and _identity(log) != self._log_identity:
            raise self._error(
                f"{os.path.basename(log)} was moved or deleted while it was open; close the store,"
                " which copies what was written so far into the file, and open it again"
            )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Check that the file belongs to this program; create its tables if it has none."""
        mark = None if self.path == MEMORY else read_mark(self.path)
        with self.snapshot():
            version = self._version(connection)
            check_complete(self.path, mark, connection)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA fullfsync = ON")  # has an effect on macOS only
        self._write_ahead(connection)
        if version == VERSION:
            return
        with self.transaction():
            if self._version(connection) == VERSION:  # another process has created them meanwhile
                return
            for statement in STATEMENTS:
                connection.execute(statement)
            id = os.urandom(16).hex()
            new = (1, id, 0, 0, 0, of_journal(id, 0, 0, 0))
            connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)", new)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")

    def _version(self, connection: sqlite3.Connection) -> int:
        """Return the version of the tables, which is 0 in an empty file."""
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        created = connection.execute("SELECT sql FROM sqlite_master").fetchall()
        if owner != APPLICATION_ID and (owner or version or created):
            raise self._error("it is the database of another program; give another path")
        if version not in {0, VERSION}:
            raise self._error(other_version(version, VERSION, "give another path"))
        known = written_statements() if version else set[str]()
        if not known <= {sql.strip() for (sql,) in created if sql is not None}:
            raise self.damaged("its tables are not those that treefold created")
        return version

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Enable the write-ahead log; SQLite does not wait for a lock here, so this does."""
        end = time.monotonic() + self._patience
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(_RETRY_AFTER)
            else:
                return

    def _error(self, message: str) -> StoreError:
        return StoreError(self.path, message)


def _begin_writing(connection: sqlite3.Connection, end: float) -> bool:
    """Begin a transaction; False if another program has the lock and it is not *end* yet."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
            raise
        return False
    return True


def _translate(path: str, error: sqlite3.Error | OSError | UnicodeDecodeError) -> StoreError:
    if isinstance(error, OSError):
        return StoreError(path, f"{error.strerror or error}; {_advice(path)}")
    if isinstance(error, UnicodeDecodeError):  # from an error message with a damaged name
        return _damaged(path, f"something in it cannot be read ({error})")
    # The last byte of an extended code is the general one, for which there is a remedy.
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and isinstance(error, sqlite3.OperationalError):
        return _damaged(path, "a text in it cannot be decoded")
    fault = _FAULTS.get(code & 0xFF) if code is not None else None
    kind = StoreBusyError if fault == _LOCKED else StoreError
    if fault == _FAULTS[sqlite3.SQLITE_CORRUPT]:
        kind = StoreDamagedError
    return kind(path, f"{fault} ({error})" if fault else str(error))


def _damaged(path: str, what: str) -> StoreDamagedError:
    return StoreDamagedError(path, f"{what}; {_FAULTS[sqlite3.SQLITE_CORRUPT]}")


def absolute(path: str | Path) -> str:
    """Return the absolute *path*, which stays valid if the process changes its directory."""
    if str(path) == MEMORY:
        return MEMORY
    if is_url(path):
        raise InvalidValueError(
            f"path must be the path of a file, got {public_name(path)}; give that as store=, or to"
            " treefold.stores.postgres.PostgresStore"
        )
    if not str(path) or "\0" in str(path):
        raise InvalidValueError(f"path must be the path of a file, got {str(path)!r}")
    return str(Path(path).expanduser().resolve())


def _identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode of the file at *path*; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _create(path: str) -> None:
    """Create the file if it does not exist; the files that SQLite adds get the same mode."""
    if path == MEMORY:
        return
    if os.path.isdir(path):
        raise IsADirectoryError(None, "it is a folder")
    lock_file(path).check()
    with _creating, suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        clear_mark(path)


def _advice(path: str) -> str:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return f"create the folder {folder} first"
    return "give the path of a file in a writable folder"
