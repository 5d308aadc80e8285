"""Ends the leases of dead workers at once, so that tests may give leases that a busy machine keeps.

Only the database decides whether a worker lives, so this is all that waiting would do.
"""

from urllib.parse import parse_qs, urlsplit

import psycopg


def end_lease(url: str, pid: int) -> None:
    """Let the lease of a process that has ended be over now."""
    with connect(url) as connection:
        # Not its last heartbeat: all workers count as alive for a lease after the server started.
        connection.execute("UPDATE workers SET lease = interval '0' WHERE process = %s", (pid,))


def connect(url: str) -> "psycopg.Connection[tuple[object, ...]]":
    """Connect to the server of a store, with its schema first in the search path."""
    parts = urlsplit(url)
    schema = parse_qs(parts.query).get("schema", ["treefold"])[0]
    bare = parts._replace(query="").geturl()
    return psycopg.connect(bare, autocommit=True, options=f"-c search_path={schema}")
