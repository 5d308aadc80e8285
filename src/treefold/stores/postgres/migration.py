"""Creates the tables and functions of a journal."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import files
from typing import Final

import psycopg
from psycopg import errors as pg, sql

from treefold.core.errors import StoreError
from treefold.stores.postgres.address import Address, parse_url
from treefold.stores.postgres.connection import Connection, connect, refuse_pooling
from treefold.stores.postgres.faults import fault_of, migrate_hint
from treefold.stores.postgres.pool import statement
from treefold.stores.versions import other_version

_TABLES: Final = "tables.sql"
_FUNCTIONS: Final = "functions.sql"
VERSION: Final = 10  # of the tables, functions and bodies


def open_journal(address: Address, *, create: bool) -> str:
    """Check that this treefold can use the journal at *address*; return its id.

    With *create* the tables are created if they are missing and the role may do so.

    Raises:
        StoreError: there is none, or it is of another version; the message says what to do.
    """
    with _connected(address) as connection:
        refuse_pooling(address, connection)
        if (id := _read(address, connection)) is None and create:
            id = _create(address, connection)
    if id is None:
        raise StoreError(
            address.name, migrate_hint(f"there is no journal in the schema {address.schema!r}")
        )
    return id


def migrate(url: str) -> bool:
    """Create the tables at *url*, as their owner; return whether they were missing.

    Raises:
        StoreError: they cannot be created, or are of another version.
    """
    address = parse_url(url)
    with _connected(address) as connection:
        missing = _read(address, connection) is None
    open_journal(address, create=True)
    return missing


@contextmanager
def _connected(address: Address) -> Generator[Connection]:
    """Connect, for statements that may take long; psycopg's errors become ours."""
    with connect(address) as connection:
        try:
            connection.set_patient()
            yield connection
        except psycopg.Error as error:
            raise fault_of(address.name, error) from None


def _read(address: Address, connection: Connection) -> str | None:
    """Return the id of the journal, if there is one."""
    table = sql.Identifier(address.schema, "journal")
    try:
        found = connection.execute(sql.SQL("SELECT id, version FROM {}").format(table)).fetchone()
    except (pg.UndefinedTable, pg.InvalidSchemaName):
        return None
    except pg.UndefinedColumn:
        raise _foreign(address) from None
    if found is None:
        raise _foreign(address)
    id, version = found
    if version != VERSION:
        remedy = "name another schema in the URL: ?schema=NAME"
        raise StoreError(address.name, other_version(version, VERSION, remedy))
    return id


def _create(address: Address, connection: Connection) -> str | None:
    try:
        with connection.transaction():
            _lock(address, connection)
            # Another process may have created them meanwhile.
            if not _is_there(address, connection):
                schema = sql.Identifier(address.schema)
                if not _has_schema(address, connection):
                    connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
                _run(connection, _TABLES)
                _finish(connection)
    except pg.InsufficientPrivilege:
        user = connection.info.user
        raise StoreError(
            address.name,
            migrate_hint(
                f"there is no journal in the schema {address.schema!r}, and {user} may not"
                " create it"
            ),
        ) from None
    except (pg.DuplicateTable, pg.DuplicateObject):
        raise _foreign(address) from None
    return _read(address, connection)


def _lock(address: Address, connection: Connection) -> None:
    """Let one process at a time create the tables of a schema."""
    connection.execute(
        "SELECT pg_advisory_xact_lock(hashtext('treefold'), hashtext(%s))", (address.schema,)
    )


def _is_there(address: Address, connection: Connection) -> bool:
    search = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'journal'"
    return connection.execute(search, (address.schema,)).fetchone() is not None


def _has_schema(address: Address, connection: Connection) -> bool:
    search = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
    return connection.execute(search, (address.schema,)).fetchone() is not None


def _run(connection: Connection, file: str) -> None:
    connection.execute(
        statement(files("treefold.stores.postgres").joinpath(file).read_text("utf-8"))
    )


def _finish(connection: Connection) -> None:
    """Write the functions, which need a grant to be called."""
    # Functions keep this search path. Temporary tables come last, so that no role can put
    # one in the place of a table of the journal.
    path = "SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true)"
    connection.execute(path)
    _run(connection, _FUNCTIONS)
    revoke = """
        DO $$ BEGIN EXECUTE format(
            'REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema()
        ); END $$
    """
    connection.execute(revoke)
    connection.execute("UPDATE journal SET version = %s", (VERSION,))


def _foreign(address: Address) -> StoreError:
    return StoreError(
        address.name,
        f"the schema {address.schema!r} has tables of another program; name another one in the"
        " URL: ?schema=NAME",
    )
