"""Whether the indexes of a journal agree with its tables.

SQLite believes its indexes: a damaged one hides rows and raises nothing. So they are checked when a
journal is opened for driving, as far as that gets in a short time, and what was not reached is
checked against a second index where a row that is missing would do harm.
"""

import sqlite3
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from treefold.core.states import NodeState
from treefold.core.store import Entry

_BUDGET: Final = 0.25  # seconds; enough for about 50 MB
_SMALL: Final = 4_000_000  # bytes, which take less than the budget on any disk
_TABLES: Final = ("journal", "inbox", "questions", "nodes", "events", "refs", "texts")

# One step of the recursion is one search in the index, however many events a tree has.
_TREES_WITH_EVENTS: Final = """
    WITH RECURSIVE trees (id) AS (
        SELECT min(tree) FROM events
        UNION ALL
        SELECT (SELECT min(tree) FROM events WHERE tree > trees.id) FROM trees WHERE id IS NOT NULL
    )
    SELECT trees.id, (
        SELECT found.id FROM nodes AS found
        WHERE found.parent = 0 AND found.call_key = nodes.call_key
    )
    FROM trees LEFT JOIN nodes ON nodes.id = trees.id WHERE trees.id IS NOT NULL
"""
_COUNT_TREES: Final = "SELECT count(*) FROM nodes WHERE parent = 0"


def damage_of(rows: sqlite3.Connection) -> tuple[str, bool]:
    """Return what is damaged, or an empty text, and whether everything was looked at.

    *rows* has to be in a transaction, and nothing else may use it meanwhile.
    """
    (pages,) = rows.execute("PRAGMA page_count").fetchone()
    (size,) = rows.execute("PRAGMA page_size").fetchone()
    if pages * size <= _SMALL:
        return _checked(rows, "1"), True
    try:
        with _time_limit(rows):
            for table in _TABLES:
                if damage := _checked(rows, table):
                    return damage, True
    except RuntimeError:  # there is no thread to be had that could end the check in time
        return "", False
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return "", False
    return "", True


def _checked(rows: sqlite3.Connection, what: str) -> str:
    (found,) = rows.execute(f"PRAGMA integrity_check({what})").fetchone()
    return "" if found == "ok" else found.rpartition("\n")[2]  # the first line names no damage


@contextmanager
def _time_limit(rows: sqlite3.Connection) -> Generator[None]:
    # A progress handler would do without a thread, but SQLite calls none while it checks a table.
    timer = threading.Timer(_BUDGET, rows.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # or it might interrupt what comes next


def lost_tree(rows: sqlite3.Connection) -> int | None:
    """Return a tree that is not found by its key though it has events, or the reverse.

    The cost grows with the number of trees, not with what happened in them.
    """
    count = 0
    for tree, found in rows.execute(_TREES_WITH_EVENTS):
        count += 1
        if tree != found:
            return tree
    return None if (count,) == rows.execute(_COUNT_TREES).fetchone() else 0


def damage_in_tree(tree: int, entries: Sequence[Entry], nodes: Sequence[Sequence[Any]]) -> str:
    """Return what the tables say otherwise than all *entries* of a tree, or an empty text.

    Both indexes of the events, and the nodes, must agree about the calls and their ends.

    Args:
        nodes: the rows of those that the entries begin, and that of the tree.
    """
    states: dict[int, NodeState] = {}
    numbers: dict[int, int] = {}
    called: dict[int, int] = {}
    for entry in entries:
        node, number = entry.node, entry.number
        if numbers.get(node, 0) != number - 1:
            return f"node {node} has lost entries"
        numbers[node] = number
        if (call := entry.call) is not None:
            called[call.parent] = called.get(call.parent, 0) + 1
            states[node] = NodeState.Waiting
        if entry.state is not None and node in states:
            states[node] = entry.state
    found = [row[1:6] for row in nodes if row[1] in states or row[2] == tree]
    if len(found) != len(states):
        return "it has lost entries, or nodes"
    for node, _, state, number, calls in found:
        if state != states[node]:
            return f"node {node} is {state}, and its entries say {states[node]}"
        if number != numbers[node]:
            return f"node {node} has lost entries"
        if calls != called.get(node, 0):
            return f"node {node} has lost calls"
    return ""
