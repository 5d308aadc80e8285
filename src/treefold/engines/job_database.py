"""The connection to procrastinate's tables, with a limit on the time of every answer.

Imports the package. Knows how to execute statements and what failures mean, but no statement.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ConnectorException, UniqueViolation
from procrastinate.manager import get_channel_for_queues
from procrastinate.schema import SchemaManager
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool

from treefold.core.errors import EngineError

T = TypeVar("T")

_CONNECTIONS: Final = 4  # of one process, beside the one that listens
_GRACE: Final = 0.5  # seconds
_LISTEN: Final = 60.0  # seconds
# The system notices a dead connection, too, unless a proxy keeps it open.
_KEEPALIVE: Final = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "treefold",
}
# What the database answers if a job or a worker is gone: no faults of it.
_REFUSALS: Final = (psycopg.errors.RaiseException, psycopg.errors.ForeignKeyViolation)


class JobDatabase:
    """Asks procrastinate, on connections that are replaced when one does not answer.

    Args:
        url: of the database; messages do not contain it, for it may contain a password.
        schema: the PostgreSQL schema of the tables.
        patience: seconds that an answer may take.

    Attributes:
        name: of the engine, for messages.
        app: of procrastinate.
    """

    def __init__(self, url: str, *, schema: str, patience: float) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            text = "the URL cannot be read; it begins with postgresql://, or is a list of key=value"
            # Not the cause, which quotes the URL.
            raise EngineError("procrastinate", text) from None
        host, port, name = (given.get(key) for key in ("host", "port", "dbname"))
        self.name = f"procrastinate at {host or 'localhost'}:{port or 5432}/{name or ''}"
        self.app = App(connector=PsycopgConnector())
        self._schema = schema
        self._patience = patience
        self._options: dict[str, Any] = {
            "connect_timeout": max(2, round(patience)),
            **_KEEPALIVE,
            **given,
            "options": f"{given.get('options', '')} -c search_path={schema}".strip(),
        }
        self._pool = AsyncConnectionPool(
            kwargs=self._options,
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=patience,
            reconnect_timeout=patience,
            configure=_commit_each_statement,
            open=False,
        )
        self._listening: set[tuple[asyncio.Timeout, asyncio.Timeout]] = set()

    async def open(self) -> None:
        """Create the tables if there are none, and connect."""
        try:
            await self._limited(self._create())
        except (TimeoutError, psycopg.Error) as error:
            raise self._error(error) from error
        await self._pool.open()
        await self.app.open_async(self._pool)

    async def close(self) -> None:
        """Disconnect; closing twice is fine."""
        await self._pool.close(timeout=_GRACE)

    async def ask(self, act: Callable[[], Awaitable[T]], *, attempts: int = 2) -> T:
        """Return what *act* returns.

        It is called again on a new connection, as the first may have been lost without notice.

        Raises:
            ConnectorException: the database has refused: a job, or this worker, is gone.
            EngineError: the database cannot be reached, or used.
        """
        fault: BaseException | None = None
        for _ in range(attempts):
            try:
                return await self._limited(act())
            except TimeoutError as error:
                fault = error
            except ConnectorException as error:
                fault = error.__cause__
                if isinstance(error, UniqueViolation) or isinstance(fault, _REFUSALS):
                    raise
                if not isinstance(fault, psycopg.OperationalError | psycopg.InterfaceError):
                    raise self._error(fault) from error
            await self._reconnect()
        raise self._error(fault) from fault

    async def listen(self, names: Collection[str], wake: Callable[[], None]) -> None:
        """Call *wake* when something was queued; returns after a while, or if connections fail.

        Raises:
            EngineError: the database cannot be reached.
        """
        try:
            # Two timeouts, as in _limited.
            async with (
                asyncio.timeout(_LISTEN + _GRACE) as second,
                asyncio.timeout(_LISTEN) as first,
            ):
                self._listening.add((first, second))
                try:
                    await self._listen(names, wake)
                finally:
                    self._listening.remove((first, second))
        except TimeoutError:
            return
        except psycopg.Error as error:
            raise self._error(error) from error

    # Not procrastinate's: on Python 3.11 its wait_for may lose a cancellation.
    async def _listen(self, names: Collection[str], wake: Callable[[], None]) -> None:
        async with await self._connect() as connection:
            for channel in get_channel_for_queues(names):
                name = sql.Identifier(channel)
                await connection.execute(sql.SQL("LISTEN {}").format(name))
            # What was queued before is not announced.
            wake()
            async for _ in connection.notifies():
                wake()

    async def _limited(self, answer: Awaitable[T]) -> T:
        # When psycopg is cancelled, it has the server cancel the query, and waits for that up to
        # 10 s. When it is cancelled once more, it closes the connection at once.
        async with asyncio.timeout(self._patience + _GRACE), asyncio.timeout(self._patience):
            return await answer

    async def _reconnect(self) -> None:
        """Use new connections from now on: if one was lost, so may be the others."""
        await self._pool.drain()
        now = asyncio.get_running_loop().time()
        for first, second in self._listening:
            # They may have expired already.
            with suppress(RuntimeError):
                first.reschedule(now)
                second.reschedule(now + _GRACE)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(**self._options, autocommit=True)

    async def _create(self) -> None:
        async with await self._connect() as connection:
            if await _has_tables(connection):
                return
            async with connection.transaction():
                # Several workers may start at once.
                key = int.from_bytes(hashlib.sha256(self._schema.encode()).digest()[:7])
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", [key])
                name = sql.Identifier(self._schema)
                await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
                if not await _has_tables(connection):
                    await connection.execute(SchemaManager.get_schema())

    def _error(self, fault: BaseException | None) -> EngineError:
        reason = str(fault).strip().partition("\n")[0] or f"no answer in {self._patience:g} s"
        match fault:
            case psycopg.errors.InsufficientPrivilege():
                text = (
                    f"its role may not use the schema {self._schema} ({reason}): have a role open "
                    "the engine once that may create it, and grant its use to the other"
                )
            case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedFunction():
                text = (
                    f"the schema {self._schema} was made by another version of procrastinate "
                    f"({reason}): drop it, and open the engine again; what is owed is in the store"
                )
            case TimeoutError() | psycopg.OperationalError():
                text = f"it cannot be reached ({reason}): check the URL, and whether it runs"
            case _:
                text = f"it failed ({type(fault).__name__}: {reason})"
        return EngineError(self.name, text)


async def _commit_each_statement(connection: psycopg.AsyncConnection[Any]) -> None:
    # All that is asked is one statement, and this saves two round trips.
    await connection.set_autocommit(True)


async def _has_tables(connection: psycopg.AsyncConnection[Any]) -> bool:
    cursor = await connection.execute("SELECT to_regclass('procrastinate_jobs') IS NOT NULL")
    row = await cursor.fetchone()
    return bool(row and row[0])
