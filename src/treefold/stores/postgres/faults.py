"""PostgreSQL's errors as sentences: what is wrong, and what to do.

No message has a password: they are made of names, and of what the server says about a statement.
"""

import re
from typing import Final

import psycopg
from psycopg import errors as pg

from treefold.core.errors import (
    ClosedError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    UsageError,
)
from treefold.stores.postgres.address import Address

FENCED: Final = "TF001"
MISSING_CALL: Final = "TF002"
MISSING_SOURCE: Final = "TF003"
DEAD_WORKER: Final = "TF004"
UNKNOWN_NODE: Final = "TF005"
STILL_OPEN: Final = "TF006"
FORKED: Final = "TF007"

# The server may do the same statement again: it was not carried out.
TO_BE_RETRIED: Final = (pg.DeadlockDetected, pg.SerializationFailure)

_UNREACHABLE: Final = (
    "the server cannot be reached ({}); check that it runs, and the host and port of the URL"
)
_RIGHTS: Final = (
    "{user} lacks the rights for this ({said}); have the owner of the schema run:"
    " treefold store grant URL --role ROLE --to NAME"
)


def migrate_hint(what: str) -> str:
    """Return the sentence for a schema that is not there."""
    return f"{what}; have its owner run: treefold store migrate URL"


def connect_fault(address: Address, error: psycopg.Error | OSError) -> StoreError:
    """Return the error for a connection that cannot be opened."""
    # What follows is libpq's own advice.
    said = str(error).strip().partition("\n")[0]
    user = address.parameters.get("user", "the user")
    database = address.parameters.get("dbname", user)
    what = _UNREACHABLE.format(_last_part(said))
    if "password authentication failed" in said or "no password supplied" in said:
        what = f"the server refused the password of {user}; correct it in the URL, or in ~/.pgpass"
    elif re.search(r'database ".*" does not exist', said):
        what = f"there is no database {database}; create it: createdb {database}"
    elif re.search(r'role ".*" does not exist', said):
        what = f"the server has no role {user}; create it: createuser {user}"
    elif "permission denied for database" in said or "is not permitted to log in" in said:
        what = f"{user} may not connect to the database {database}; grant it the right to"
    elif "no pg_hba.conf entry" in said:
        what = f"the server does not let {user} connect from here; add a line to its pg_hba.conf"
    elif "too many clients" in said or "too many connections" in said:
        what = "the server has too many connections; raise max_connections, or stop some programs"
    elif "does not support SSL" in said:
        what = (
            "the server does not encrypt connections; set up TLS there, or say sslmode=disable in"
            " the URL if nobody can listen on the way"
        )
    elif "certificate" in said or "SSL" in said:
        what = (
            f"the server cannot prove who it is ({_last_part(said)}); give sslrootcert=FILE in the"
            " URL, or sslmode=require to trust it without"
        )
    elif "unsupported startup parameter" in said:
        what = f"a pooler refused the connection ({_last_part(said)}); connect to the server itself"
    return StoreError(address.name, what)


def _last_part(said: str) -> str:
    """Return the reason at the end of libpq's message, which begins with where it connected to."""
    return said.rpartition("failed: ")[2].removeprefix("FATAL: ").strip() or "no reason is given"


def fault_of(name: str, error: psycopg.Error) -> StoreError | UsageError:
    """Return the error for a statement that PostgreSQL refused, or that got no reply."""
    said = (error.diag.message_primary or str(error).partition("\n")[0]).strip()
    user = "this role"
    match error:
        case pg.InsufficientPrivilege():
            what = _RIGHTS.format(user=user, said=said)
        case pg.LockNotAvailable():
            return StoreBusyError(
                name, "another program has had a part of it locked for too long; try again"
            )
        case pg.QueryCanceled():
            return StoreBusyError(name, f"it took too long ({said}); try again")
        case pg.ReadOnlySqlTransaction():
            what = "this server is a read-only replica; give the URL of the primary server"
        case pg.DiskFull() | pg.OutOfMemory():
            what = f"the server has no room left ({said}); make room and try again"
        case pg.UndefinedTable() | pg.UndefinedFunction() | pg.UndefinedColumn():
            what = f"its tables are not as expected ({said}): another program has changed them"
        case pg.DataCorrupted() | pg.IndexCorrupted():
            return StoreDamagedError(name, f"the database is damaged ({said}); restore a copy")
        case psycopg.OperationalError() if error.sqlstate is None:
            what = f"the connection was lost ({_last_part(said)}); try again"
        case _:
            what = f"{said} ({error.sqlstate or type(error).__name__})"
    return StoreError(name, what)


def closed_fault(name: str) -> ClosedError:
    """Return the error for a store that was closed."""
    return ClosedError(f"{name} was closed; open it again")
