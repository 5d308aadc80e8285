"""What roles of the database may do with a journal besides its owner.

======== =========================================================================================
viewer   reads everything
desk     reads everything, and answers questions
worker   reads everything, runs trees, posts commands and saves chats; it can add events, and never
         change or delete one
======== =========================================================================================
"""

from typing import Final, Literal, get_args

import psycopg
from psycopg import errors as pg, sql

from treefold.core.errors import InvalidValueError, StoreError
from treefold.stores.postgres.address import parse_url
from treefold.stores.postgres.connection import connect
from treefold.stores.postgres.faults import fault_of
from treefold.stores.postgres.migration import open_journal
from treefold.stores.postgres.pool import statement

Role = Literal["worker", "desk", "viewer"]

# A function for each line. A viewer marks that broadcasts have a reader, which is all it writes.
_VIEWER: Final = ("watch()",)
_DESK: Final = (*_VIEWER, "answer(text, text, uuid)")
_WORKER: Final = (
    *_DESK,
    """append(
        bigint, bigint[], bigint[], json, json, json, json, bigint[], json, json, json, json,
        bytea, bigint[], json, json
    )""",
    "add_text(bigint, bytea, bytea, bigint)",
    "reserve(bigint, bigint)",
    "join_workers(text, text, bigint, json, json, double precision)",
    "beat(bigint, json, double precision, bigint)",
    "forget_workers()",
    "leave_workers(bigint)",
    "drain_worker(bigint)",
    "adopt(bigint, bigint, bigint)",
    "release(bigint, bigint, integer, boolean, bigint[], double precision)",
    "post(bigint, text, text, uuid)",
    "done(bigint, bigint)",
    "broadcast(json)",
    "set_slots(bigint, bigint, json)",
    "take_rates(json, double precision)",
    "charge_rates(json, double precision)",
    "set_aside(uuid, bigint, integer, json, bigint, numeric, bigint, numeric)",
    "charge(uuid, bigint, bigint, numeric)",
)
_FUNCTIONS: Final[dict[str, tuple[str, ...]]] = {
    "viewer": _VIEWER,
    "desk": _DESK,
    "worker": _WORKER,
}


def grant(url: str, role: Role, to: str) -> None:
    """Let the database role *to* use the journal at *url* as a worker, a desk or a viewer.

    It gets these rights in addition to those that it has. Connect as the owner of the tables.

    Raises:
        InvalidValueError: *role* is none of these.
        StoreError: there is no such database role, or the rights cannot be granted.
    """
    if role not in get_args(Role):
        raise InvalidValueError(f"role must be one of {', '.join(get_args(Role))}, got {role!r}")
    address = parse_url(url)
    open_journal(address, create=False)
    schema, to_whom = sql.Identifier(address.schema), sql.Identifier(to)
    with connect(address) as connection:
        try:
            with connection.transaction():
                for template in _grants(role):
                    granted = sql.SQL(statement(template)).format(schema=schema, to=to_whom)
                    connection.execute(granted)
        except pg.UndefinedObject:
            raise StoreError(
                address.name, f"the server has no role {to}; create it: createuser {to}"
            ) from None
        except psycopg.Error as error:
            raise fault_of(address.name, error) from None


def _grants(role: Role) -> list[str]:
    """Return the statements, with places for the schema and the role."""
    found = [
        "GRANT USAGE ON SCHEMA {schema} TO {to}",
        "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {to}",
    ]
    found += [
        f"GRANT EXECUTE ON FUNCTION {{schema}}.{function} TO {{to}}"
        for function in _FUNCTIONS[role]
    ]
    if role == "worker":
        found += ["GRANT INSERT, UPDATE, DELETE ON {schema}.sessions, {schema}.entries TO {to}"]
    return found
