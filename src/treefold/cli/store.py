"""``treefold store``: create or share a journal in PostgreSQL."""

from typing import Any, cast

import click

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import journal_path
from treefold.cli.options import STORE_VARIABLE, command
from treefold.core.errors import InvalidValueError
from treefold.stores.opening import missing_driver
from treefold.stores.urls import is_url, public_name
from treefold.views.text import readable

_ROLES = ("worker", "desk", "viewer")


@command("store", exit_codes="0 it was done, also if there was nothing to do, 2 it was not")
@click.argument(
    "action",
    type=click.Choice(["migrate", "grant"]),
    help="create the tables; or let another role use them",
)
@click.argument(
    "url",
    metavar="[URL]",
    default="",
    help=f"postgresql://user@host:5432/database?schema=NAME; by default ${STORE_VARIABLE}",
)
@click.option("--role", type=click.Choice(_ROLES), help="with grant: what it may do")
@click.option("--to", metavar="NAME", help="with grant: the role of the database that may do it")
def store(action: str, url: str, role: str | None, to: str | None) -> int:
    """Create or share a journal in PostgreSQL, as the owner of its tables.

    example: treefold store migrate postgresql://localhost/journals

    The tables of a project are in one schema, 'treefold' unless the URL names another. A program
    creates them itself if its role may.

    A viewer reads everything. A desk answers questions, too. A worker runs trees and saves chats,
    and cannot change or delete what was written:
    treefold store grant URL --role worker --to app
    """
    url = journal_path(url or None)
    if not is_url(url):
        raise InvalidValueError(f"URL must be postgresql://..., got {url!r}")
    name = readable(public_name(url))
    try:
        from treefold.stores.postgres import grant, migrate  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError as error:
        raise missing_driver(error) from None
    if action == "migrate":
        created = migrate(url)
        print(f"the journal was created in {name}" if created else f"{name} has a journal already")
    else:
        if role is None or to is None:
            raise InvalidValueError("grant needs --role worker, desk or viewer, and --to NAME")
        grant(url, cast("Any", role), to)
        print(f"{readable(to)} may use {name} as a {role} now")
    return DONE
