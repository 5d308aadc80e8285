"""Checks that the indexes of a journal agree with its tables.

SQLite trusts its indexes: a damaged one hides rows and raises nothing. So they are checked when a
journal is acquired, for a limited time; what was not reached is checked against a second index
where a missing row would do harm.
"""

import sqlite3
import threading
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from treefold.core.states import NodeState
from treefold.core.store import Entry
from treefold.stores.rows import CALL, check_call

_TIME_LIMIT: Final = 0.25  # seconds; enough for about 50 MB
_SMALL: Final = 4_000_000  # bytes, which take less than the time limit on any disk
_TABLES: Final = ("journal", "inbox", "questions", "timers", "nodes", "events", "refs", "texts")

# One step of the recursion is one search in the index, however many events a tree has.
_TREES_WITH_EVENTS: Final = f"""
    WITH RECURSIVE trees (id) AS (
        SELECT min(tree) FROM events
        UNION ALL
        SELECT (SELECT min(tree) FROM events WHERE tree > trees.id) FROM trees WHERE id IS NOT NULL
    )
    SELECT trees.id, (
        SELECT found.id FROM nodes AS found
        WHERE found.parent = 0 AND found.call_key = nodes.call_key
    ), {CALL}
    FROM trees LEFT JOIN nodes ON nodes.id = trees.id WHERE trees.id IS NOT NULL
"""
_COUNT_TREES: Final = "SELECT count(*) FROM nodes WHERE parent = 0"


def check_indexes(rows: sqlite3.Connection) -> tuple[str, bool]:
    """Return a description of the damage, empty if none was found, and whether all was checked.

    *rows* must be in a transaction, and nothing else may use it at the same time.
    """
    (pages,) = rows.execute("PRAGMA page_count").fetchone()
    (size,) = rows.execute("PRAGMA page_size").fetchone()
    if pages * size <= _SMALL:
        return _integrity_check(rows, "1"), True
    try:
        with _time_limit(rows):
            for table in _TABLES:
                if damage := _integrity_check(rows, table):
                    return damage, True
    except RuntimeError:  # no thread could be started to limit the time of the check
        return "", False
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return "", False
    return "", True


def _integrity_check(rows: sqlite3.Connection, what: str) -> str:
    (found,) = rows.execute(f"PRAGMA integrity_check({what})").fetchone()
    # The first line is a heading.
    return "" if found == "ok" else found.rpartition("\n")[2]


@contextmanager
def _time_limit(rows: sqlite3.Connection) -> Generator[None]:
    # A progress handler would need no thread, but SQLite calls none while it checks a table.
    timer = threading.Timer(_TIME_LIMIT, rows.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # A timer that is still running might interrupt the next statement.
        timer.join()


def find_lost_tree(rows: sqlite3.Connection) -> int | None:
    """Return a tree that is not found by its key though it has events; 0 for the reverse.

    The cost grows with the number of trees, not with the number of their events.

    Raises:
        DamagedRowError: a tree has a wrong checksum, and so perhaps another key.
    """
    count = 0
    with closing(rows.execute(_TREES_WITH_EVENTS)) as listed:
        for tree, found, *about in listed:
            count += 1
            if tree != found:
                return tree
            check_call(about)
    return None if (count,) == rows.execute(_COUNT_TREES).fetchone() else 0


def damage_in_tree(tree: int, entries: Sequence[Entry], nodes: Sequence[Sequence[Any]]) -> str:
    """Return where the tables disagree with all *entries* of a tree; empty if they agree.

    Both indexes of the events, and the nodes, must agree about the calls and their states.

    Args:
        tree: its id.
        entries: all of its entries.
        nodes: the rows of the nodes whose first entry is in *entries*, and that of the tree.
    """
    states: dict[int, NodeState] = {}
    numbers: dict[int, int] = {}
    called: dict[int, int] = {}
    for entry in entries:
        node, number = entry.node, entry.number
        if numbers.get(node, 0) != number - 1:
            return f"node:{node} has missing entries"
        numbers[node] = number
        if (call := entry.call) is not None:
            called[call.parent] = called.get(call.parent, 0) + 1
            states[node] = NodeState.Waiting
        if entry.state is not None and node in states:
            states[node] = entry.state
    found = [row[1:6] for row in nodes if row[1] in states or row[2] == tree]
    if len(found) != len(states):
        return "entries or nodes are missing"
    for node, _, state, number, calls in found:
        if state != states[node]:
            return f"node:{node} is {state}, but its entries say {states[node]}"
        if number != numbers[node]:
            return f"node:{node} has missing entries"
        if calls != called.get(node, 0):
            return f"node:{node} has missing calls"
    return ""
