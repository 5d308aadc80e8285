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


def set_clock(url: str, seconds: float) -> None:
    """Have the times that the database has recorded be as if its clock was set by so many seconds.

    Nobody can set it for one test. What was recorded an hour ago has been recorded in an hour, if
    the clock is set back by two.
    """
    set_heartbeats(url, seconds)
    with connect(url) as connection:
        for move in ("UPDATE drives SET wanted = wanted", "UPDATE drives SET wake_at = wake_at"):
            connection.execute(f"{move} - make_interval(secs => %s)".encode(), (seconds,))


def set_heartbeats(url: str, seconds: float) -> None:
    """Do so with the heartbeats alone: nothing that sleeps or expires changes its time."""
    with connect(url) as connection:
        connection.execute("UPDATE workers SET seen = seen - make_interval(secs => %s)", (seconds,))


def change_server(url: str) -> None:
    """Have the database be one that has taken the place of another, or was started again."""
    with connect(url) as connection:
        connection.execute("UPDATE workers SET server = server - interval '1 day'")
