"""One connection to PostgreSQL: opened, checked, and given up when nothing is heard from it."""

import time
from collections.abc import Generator
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

from treefold.core.errors import StoreError
from treefold.stores.postgres.address import Address
from treefold.stores.postgres.faults import connect_fault

LOCK_TIMEOUT: Final = 5.0  # seconds
MOMENT: Final = 0.01  # seconds to wait for a lock on an event loop
_OLDEST: Final = 14_00_00  # version of the server

_PARAMETERS: Final = {
    "application_name": "treefold",
    "connect_timeout": "5",
    # A machine that is gone is noticed after half a minute, also by a session that only listens.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}
_SETTINGS: Final = {
    # Every function relies on seeing what was committed before it got its lock.
    "default_transaction_isolation": "read committed",
    "lock_timeout": f"{LOCK_TIMEOUT:g}s",
    "idle_in_transaction_session_timeout": "15s",
}


class SilentServerError(psycopg.OperationalError):
    """Nothing came from the server for too long; the connection cannot be used any more."""


class Connection(psycopg.Connection[TupleRow]):
    """A connection that waits for a reply for a limited time only.

    Attributes:
        silence: how many seconds may pass without a byte from the server; None for any time.
        used: when it was last returned to a pool, in the time of ``time.monotonic``.
    """

    silence: float | None = None
    used: float = 0.0
    _lock_timeout: float = LOCK_TIMEOUT

    # psycopg calls this for whatever it waits for.
    def wait(self, gen: PQGen[Any], *args: Any, **options: Any) -> Any:
        """Consume *gen* as psycopg does, and raise SilentServerError after ``silence``."""
        bounded = gen if self.silence is None else _bounded(gen, self.silence)
        return super().wait(bounded, *args, **options)

    def set_lock_timeout(self, seconds: float) -> None:
        """Set how long statements wait for a lock, if that has changed."""
        if seconds != self._lock_timeout:
            self.execute("SELECT set_config('lock_timeout', %s, false)", (f"{seconds:g}s",))
            self._lock_timeout = seconds

    def set_patient(self) -> None:
        """Let the next statements take any time: creating tables, cleaning up."""
        self.silence = None
        self.execute("SELECT set_config('statement_timeout', '0', false)")


def _bounded(gen: PQGen[Any], silence: float) -> Generator[Any, Any, Any]:
    # A half-open connection is not noticed by the kernel if a proxy on the way is alive.
    try:
        wanted = next(gen)
        end = time.monotonic() + silence
        while True:
            ready = yield wanted
            now = time.monotonic()
            if ready:
                end = now + silence
            elif now > end:
                raise SilentServerError(f"no reply for {silence:g} s")
            wanted = gen.send(ready)
    except StopIteration as stop:
        return stop.value


def connect(address: Address) -> Connection:
    """Open a connection whose search path is the schema of *address*.

    Raises:
        StoreError: it cannot be opened, or the server cannot keep a journal.
    """
    given: dict[str, Any] = {**_PARAMETERS, **address.parameters}
    try:
        # Without client_encoding texts would be sent in the encoding of the environment.
        opened = Connection.connect(**given, client_encoding="utf8", autocommit=True)
    except (psycopg.Error, OSError, UnicodeError) as error:
        failure = error if isinstance(error, psycopg.Error) else OSError(str(error))
        raise connect_fault(address, failure) from None
    opened.silence = address.timeout
    try:
        _check(address, opened)
        path = sql.Identifier(address.schema).as_string(opened)
        # A statement without a waiting client ends on the server, too.
        longest = f"{2 * address.timeout:g}s"
        settings = {**_SETTINGS, "search_path": path, "statement_timeout": longest}
        # As startup parameters a pooler would refuse them.
        calls = ", ".join("set_config(%s, %s, false)" for _ in settings)
        values = [word for setting in settings.items() for word in setting]
        opened.execute(f"SELECT {calls}".encode(), values)
    except psycopg.Error as error:
        opened.close()
        raise connect_fault(address, error) from None
    except BaseException:
        opened.close()
        raise
    return opened


def _check(address: Address, opened: Connection) -> None:
    version, encoding = opened.info.server_version, opened.info.parameter_status("server_encoding")
    if version < _OLDEST:
        raise StoreError(
            address.name,
            f"PostgreSQL {version // 10000} is too old; use version {_OLDEST // 10000} or newer",
        )
    if encoding not in {None, "UTF8"}:
        database = opened.info.dbname
        raise StoreError(
            address.name,
            f"the database {database} is encoded in {encoding}; create one in UTF8: createdb"
            f" --encoding=UTF8 --template=template0 {database}_utf8",
        )


def refuse_pooling(address: Address, opened: Connection) -> None:
    """Refuse a pooler that gives each transaction another session.

    Through such a pooler prepared statements, settings and notifications get lost.

    Raises:
        StoreError: there is one between this process and the server.
    """
    # A pooler makes up the number that a client gets in order to cancel a statement; the server's
    # is the number of its process.
    own = _backend(opened)
    if own == opened.info.backend_pid:
        return
    # It may give every client a session of its own. Otherwise a second client gets the session
    # that the first has just used, or the first gets another one while the second uses that.
    with connect(address) as second:
        try:
            with second.transaction():
                shared = _backend(second) == own or _backend(opened) != own
        except psycopg.Error:
            # It allows single statements only.
            shared = True
    if shared:
        raise StoreError(
            address.name,
            "a pooler in transaction mode stands before the server; connect to the server itself,"
            " or have the pooler use session mode",
        )


def _backend(opened: Connection) -> int:
    found = opened.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    assert found is not None  # it always returns one row
    return found[0]
