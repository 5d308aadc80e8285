"""Reads a journal: entries, texts, trees and questions.

Every method is one statement, and so sees one moment.
"""

import math
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final

from treefold.core.errors import StoreDamagedError
from treefold.core.question import Question
from treefold.core.states import NodeState
from treefold.core.store import Entry, TreeRow
from treefold.stores.checksums import DamagedRowError, of_pending, of_start, of_state, of_text
from treefold.stores.postgres.pool import Pool, statement
from treefold.stores.postgres.rows import (
    CALL,
    EVENT,
    EVENTS,
    call_of_row,
    decode_text,
    encode_text,
    entries_around_call,
    entries_of_rows,
    entry_of_row,
    pack_hash,
    unpack_hash,
)
from treefold.stores.rows import runs_of_rows

_MAX_INTEGER: Final = 2**63 - 1  # in PostgreSQL

# The call and those below it, and those above it, with how many entries there are at least: those
# that were written for the drives among these calls, and the request of the call, which its caller
# wrote, if it has a drive of its own. A call above that a fork only shares has no row.
# The server cannot know how few these are: with OFFSET 0 it looks up each by its index.
AROUND: Final = f"""
    WITH RECURSIVE below AS (
        SELECT id FROM nodes WHERE id = %(call)s
        UNION ALL
        SELECT called.id FROM below CROSS JOIN LATERAL (
            SELECT id FROM nodes WHERE nodes.parent = below.id OFFSET 0
        ) AS called
    ), above AS (
        SELECT parent AS id FROM nodes WHERE id = %(call)s
        UNION SELECT tree FROM nodes WHERE id = %(call)s AND tree <> id
        UNION
        SELECT caller.parent FROM above CROSS JOIN LATERAL (
            SELECT parent FROM nodes WHERE nodes.id = above.id OFFSET 0
        ) AS caller
    ), wanted AS (
        SELECT id, true AS is_below FROM below UNION ALL SELECT id, false FROM above
    )
    SELECT (
            SELECT sum(drive.written + (drive.node = %(call)s AND drive.node <> drive.tree)::int)
            FROM below CROSS JOIN LATERAL (
                SELECT * FROM drives WHERE drives.node = below.id OFFSET 0
            ) AS drive
        ), is_below, {EVENT}, {CALL}
    FROM wanted CROSS JOIN LATERAL (
        SELECT * FROM events WHERE events.node = wanted.id OFFSET 0
    ) AS events
    LEFT JOIN LATERAL (
        SELECT * FROM nodes WHERE n = 1 AND nodes.id = events.node OFFSET 0
    ) AS nodes ON true
    WHERE is_below OR kind <> ALL (%(kinds)s::text[])
    ORDER BY place
"""
_TEXTS: Final = "SELECT hash, text, crc FROM texts WHERE tree = %s"
_SOME_TEXTS: Final = f"{_TEXTS} AND hash = ANY (%s::bytea[])"
_TEXT: Final = "SELECT text, crc FROM texts WHERE tree = %s AND hash = %s"
# There is no index of hashes alone, which every text would pay for; a search in each tree is quick.
_ANY_TEXT: Final = """
    SELECT found.text, found.crc FROM drives CROSS JOIN LATERAL (
        SELECT text, crc FROM texts WHERE texts.tree = drives.node AND hash = %s
    ) AS found
    WHERE drives.node = drives.tree LIMIT 1
"""
# Each open tree is found from the last by the index of open calls: there may be many others.
_PAGES: Final = {
    None: """
        SELECT id AS tree FROM nodes WHERE parent = 0 AND id > %(after)s ORDER BY id LIMIT %(limit)s
    """,
    False: """
        SELECT id AS tree FROM nodes
        WHERE parent = 0 AND id > %(after)s
            AND NOT EXISTS (SELECT 1 FROM nodes AS one WHERE one.open AND one.tree = nodes.id)
        ORDER BY id LIMIT %(limit)s
    """,
    True: """
        WITH RECURSIVE opened AS (
            SELECT (SELECT min(tree) FROM nodes WHERE open AND tree > %(after)s) AS tree
            UNION ALL
            SELECT (SELECT min(nodes.tree) FROM nodes WHERE open AND nodes.tree > opened.tree)
            FROM opened WHERE tree IS NOT NULL
        )
        SELECT tree FROM opened WHERE tree IS NOT NULL LIMIT %(limit)s
    """,
}
# What is open is looked for in the trees of the page only.
_TREES: Final = f"""
    WITH page AS MATERIALIZED (%s),
    open_nodes AS MATERIALIZED (
        SELECT id, tree, parent, idles FROM page JOIN nodes USING (tree) WHERE nodes.open
    ),
    parked AS (
        SELECT tree, bool_and(
            EXISTS (SELECT 1 FROM questions WHERE questions.node = open_nodes.id)
            OR (idles AND id IN (SELECT parent FROM open_nodes))
        ) AS parked
        FROM open_nodes GROUP BY tree
    ),
    asleep AS (
        SELECT tree, min(due) AS until FROM page JOIN questions USING (tree)
        WHERE NOT asks GROUP BY tree
    )
    SELECT {CALL}, state, ended, state_crc, started, started_crc,
        parked.tree IS NOT NULL, coalesce(parked.parked, false), workers.name, newest.at,
        asleep.until
    FROM page JOIN nodes ON nodes.id = page.tree
    LEFT JOIN parked ON parked.tree = nodes.id
    LEFT JOIN asleep ON asleep.tree = parked.tree
    LEFT JOIN drives ON drives.node = nodes.id AND parked.tree IS NOT NULL
    LEFT JOIN workers ON workers.id = drives.owner
        AND workers.seen + workers.lease > clock_timestamp()
    LEFT JOIN LATERAL (
        SELECT at FROM events WHERE events.tree = parked.tree AND at IS NOT NULL
        ORDER BY place DESC LIMIT 1
    ) AS newest ON true
    ORDER BY nodes.id
"""
_FIND: Final = f"""
    SELECT tree, {CALL} FROM nodes WHERE id = %(node)s
    UNION ALL
    SELECT id, {CALL} FROM (
        SELECT * FROM nodes WHERE source > 0 AND id < %(node)s ORDER BY id DESC LIMIT 1
    ) AS nodes
    WHERE %(node)s <= id + inherited
    LIMIT 1
"""
_FIND_ALL: Final = f"SELECT {CALL} FROM nodes WHERE id = ANY (%s::bigint[])"
_FIND_KEY: Final = f"SELECT {CALL} FROM nodes WHERE parent = 0 AND call_key = %s"
_FIND_NUMBER: Final = f"SELECT {CALL} FROM nodes WHERE parent = 0 AND number = %s"
_FIND_NEWEST: Final = f"SELECT {CALL} FROM nodes WHERE parent = 0 ORDER BY number DESC LIMIT 1"
HIGHEST: Final = """
    SELECT greatest(
            journal.node,
            (SELECT max(id) FROM nodes),
            (SELECT id + inherited FROM nodes WHERE source > 0 ORDER BY id DESC LIMIT 1)
        ),
        greatest(journal.number, (SELECT max(nodes.number) FROM nodes WHERE parent = 0))
    FROM journal
"""
_PENDING_ROW: Final = """
    questions.id, questions.node, questions.tree, questions.due, questions.asks, questions.crc
"""
_PENDING_COLUMNS: Final = 6
# A question whose event is lost yields a row of NULLs, so that the damage does not hide it.
_ASKED: Final = f"""
    SELECT {_PENDING_ROW}, {EVENT}
    FROM questions LEFT JOIN events USING (tree, place)
"""
_IN_ORDER: Final = """
    AND (%(answered)s OR NOT EXISTS (
        SELECT 1 FROM whole_messages AS message WHERE message.question = questions.id OFFSET 0
    ))
    ORDER BY questions.number LIMIT %(limit)s
"""
_QUESTIONS: Final = f"{_ASKED} WHERE asks {_IN_ORDER}"
_QUESTIONS_OF_CALL: Final = f"{_ASKED} WHERE asks AND questions.node = %(node)s {_IN_ORDER}"
_PENDING: Final = f"{_ASKED} WHERE tree = %s AND asks ORDER BY questions.number"
_TIMERS: Final = f"""
    SELECT {_PENDING_ROW} FROM questions WHERE due > %s AND due <= %s ORDER BY due LIMIT %s
"""
_PAST_RUNS: Final = """
    SELECT runs.id, called.started
    FROM (
        SELECT id, ended FROM nodes
        WHERE function = %s AND idles AND NOT open AND state = 'success' AND ended IS NOT NULL
        ORDER BY ended DESC, id DESC LIMIT %s
    ) AS runs
    LEFT JOIN nodes AS called ON called.parent = runs.id
    ORDER BY runs.ended, runs.id, called.started
"""
# How many transactions have ended in the whole server: it grows at the moment at which what they
# wrote can be seen. The position in the write-ahead log grows before that moment.
_LAST: Final = """
    SELECT pg_snapshot_xmax(now)::text::bigint - (SELECT count(*) FROM pg_snapshot_xip(now))
    FROM pg_current_snapshot() AS now
"""


class JournalReader:  # noqa: PLR0904 - each is one query
    """The reading half of ``PostgresStore``; safe to use from any thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        rows = self._pool.fetch(statement(EVENTS), {"tree": tree, "after": after})
        with self._reporting_damage():
            return entries_of_rows(rows, tree, after)

    def entries_around(self, call: int, *, leaving_out: Collection[str] = ()) -> list[Entry]:
        values = {"call": call, "kinds": [encode_text(kind) for kind in leaving_out]}
        rows = self._pool.fetch(statement(AROUND), values)
        with self._reporting_damage():
            return entries_around_call(rows)

    def places(self, trees: Collection[int]) -> dict[int, int]:
        search = "SELECT node, last FROM drives WHERE node = tree AND node = ANY (%s::bigint[])"
        rows: list[Any] = self._pool.fetch(search, (list(trees),))
        return dict(rows)

    def texts(self, tree: int, *, hashes: Collection[str] | None = None) -> dict[str, str]:
        if hashes is None:
            rows = self._pool.fetch(_TEXTS, (tree,), binary=True)
        else:
            packed = [pack_hash(hash) for hash in hashes]
            rows = self._pool.fetch(_SOME_TEXTS, (tree, packed), binary=True)
        unpacked = [(unpack_hash(hash), text, crc) for hash, text, crc in rows]
        with self._reporting_damage():
            return {hash: _decoded(hash, text, crc) for hash, text, crc in unpacked}

    def text(self, hash: str, *, tree: int | None = None) -> str:
        packed = pack_hash(hash)
        found: list[tuple[Any, ...]] = []
        if tree is not None:
            found = self._pool.fetch(_TEXT, (tree, packed), binary=True)
        if not found:
            found = self._pool.fetch(_ANY_TEXT, (packed,), binary=True)
        if not found:
            raise StoreDamagedError(
                self._pool.address.name,
                f"the text with the hash {hash} is missing; restore a copy of the database",
            )
        with self._reporting_damage():
            return _decoded(hash, *found[0])

    def trees(
        self, *, after: int = 0, limit: int | None = None, open: bool | None = None
    ) -> list[TreeRow]:
        values = {"after": after, "limit": limit}
        rows = self._pool.fetch(statement(_TREES % _PAGES[open]), values)
        with self._reporting_damage():
            return list(map(_tree_row, rows))

    def to_resume(self, functions: Collection[str]) -> list[TreeRow]:
        opened = self.trees(open=True)
        return [row for row in opened if not row.parked or row.function not in functions]

    def find(self, *, node: int) -> int | None:
        if not 0 < node <= _MAX_INTEGER:
            return None
        found = self._pool.fetch(statement(_FIND), {"node": node})
        if not found:
            return None
        tree, *about = found[0]
        with self._reporting_damage():
            call_of_row(about)
        return tree

    def find_all(self, nodes: Collection[int]) -> dict[int, int]:
        wanted = [node for node in nodes if 0 < node <= _MAX_INTEGER]
        rows = self._pool.fetch(statement(_FIND_ALL), (wanted,))
        with self._reporting_damage():
            for row in rows:
                call_of_row(row)
        found: dict[int, int] = {row[0]: row[2] for row in rows}
        for node in wanted:
            # Ids that a fork shares have no row.
            if node not in found and (tree := self.find(node=node)) is not None:
                found[node] = tree
        return found

    def find_key(self, key: str) -> int | None:
        found = self._pool.fetch(statement(_FIND_KEY), (encode_text(key),))
        if not found:
            return None
        with self._reporting_damage():
            call_of_row(found[0])
        return found[0][0]

    def find_number(self, number: int | None = None) -> int | None:
        if number is None:
            found = self._pool.fetch(statement(_FIND_NEWEST))
        elif number <= _MAX_INTEGER:
            found = self._pool.fetch(statement(_FIND_NUMBER), (number,))
        else:
            return None
        if not found:
            return None
        with self._reporting_damage():
            call_of_row(found[0])
        return found[0][0]

    def forks(self, tree: int) -> list[int]:
        search = "SELECT id FROM nodes WHERE source > 0 AND source = %s ORDER BY id"
        return [id for (id,) in self._pool.fetch(search, (tree,))]

    def length(self, node: int) -> int:
        # The numbers of the entries of a node have no gap.
        search = "SELECT coalesce(max(n), 0) FROM events WHERE node = %s"
        return self._pool.fetch(search, (node,))[0][0]

    def highest(self) -> tuple[int, int]:
        [(node, number)] = self._pool.fetch(HIGHEST)
        return node, number

    def past_runs(self, function: str, limit: int) -> list[list[float]]:
        return runs_of_rows(self._pool.fetch(_PAST_RUNS, (encode_text(function), limit)))

    def last(self) -> int:
        return self._pool.fetch(_LAST)[0][0]

    def questions(
        self, *, answered: bool = False, node: int | None = None, limit: int | None = None
    ) -> list[Question]:
        search = _QUESTIONS if node is None else _QUESTIONS_OF_CALL
        values = {"answered": answered, "node": node, "limit": limit}
        return self._asked(self._pool.fetch(statement(search), values))

    def timers(
        self, *, after: float = 0.0, until: float = math.inf, limit: int | None = None
    ) -> list[tuple[float, int]]:
        rows = self._pool.fetch(statement(_TIMERS), (after, until, limit))
        with self._reporting_damage():
            for row in rows:
                _check_pending(row)
        return [(due, tree) for _, _, tree, due, _, _ in rows]

    def pending(self, tree: int) -> list[Question]:
        return self._asked(self._pool.fetch(statement(_PENDING), (tree,)))

    def _asked(self, rows: Iterable[tuple[Any, ...]]) -> list[Question]:
        with self._reporting_damage():
            return list(map(_question, rows))

    @contextmanager
    def _reporting_damage(self) -> Generator[None]:
        try:
            yield
        except (DamagedRowError, ValueError) as error:
            raise StoreDamagedError(
                self._pool.address.name, f"{error}; it is damaged; restore a copy of the database"
            ) from None


def _check_pending(row: Sequence[Any]) -> None:
    id, node, tree, due, asks, crc = row
    if of_pending(decode_text(id), node, tree, due, asks=asks) != crc:
        raise DamagedRowError(f"question {id} has a wrong checksum")


def _question(row: tuple[Any, ...]) -> Question:
    pending, event = row[:_PENDING_COLUMNS], row[_PENDING_COLUMNS:]
    _check_pending(pending)
    id, node, *_ = pending
    if event[0] is None:
        raise DamagedRowError(f"the entry of question {id} is missing")
    question = entry_of_row(event).question
    if question is None or (question.id, question.node_id) != (decode_text(id), node):
        raise DamagedRowError(f"the entry of question {id} is another one")
    return question


def _decoded(hash: str, text: bytes, crc: int) -> str:
    if of_text(hash, text) != crc:
        raise DamagedRowError(f"the text with the hash {hash} has a wrong checksum")
    return text.decode("utf-8", "surrogatepass")


def _tree_row(row: tuple[Any, ...]) -> TreeRow:
    *about, state, ended, state_crc, started, started_crc = row[:-5]
    is_open, parked, owner, last, wakes = row[-5:]
    call, id = call_of_row(about), row[0]
    if of_state(id, state, ended) != state_crc or of_start(id, started) != started_crc:
        raise DamagedRowError(f"the state of node:{id} has a wrong checksum")
    return TreeRow(
        id=id,
        number=call.index,
        key=call.key,
        function=call.function,
        state=NodeState(state),
        open=is_open,
        parked=parked,
        source=call.source,
        started=started,
        ended=ended,
        last=last,
        driven=owner is not None,
        owner=None if owner is None else decode_text(owner),
        asleep_until=wakes,
    )
