"""Reads a journal: entries, texts, trees and questions.

Every method is one statement, and so sees one moment.
"""

from collections.abc import Collection
from typing import Any, Final

from treefold.core.errors import StoreError
from treefold.core.question import Question
from treefold.core.states import NodeState
from treefold.core.store import Entry, TreeRow
from treefold.core.work_engine import Ticket
from treefold.stores.postgres.pool import Pool, statement
from treefold.stores.postgres.rows import (
    EVENTS,
    decode_text,
    encode_text,
    entry_of_row,
    pack_hash,
    unpack_hash,
)
from treefold.stores.rows import load_question

_MAX_INTEGER: Final = 2**63 - 1  # in PostgreSQL

_TEXT: Final = "SELECT text FROM texts WHERE tree = %s AND hash = %s"
# There is no index of hashes alone, which every text would pay for; a search in each tree is quick.
_ANY_TEXT: Final = """
    SELECT found.text FROM drives CROSS JOIN LATERAL (
        SELECT text FROM texts WHERE texts.tree = drives.node AND hash = %s
    ) AS found
    WHERE drives.node = drives.tree LIMIT 1
"""
_TREES: Final = """
    WITH open_nodes AS MATERIALIZED (
        SELECT id, tree, parent, idles FROM nodes WHERE open AND tree > %(after)s
    ),
    parked AS (
        SELECT tree, bool_and(
            id IN (SELECT node FROM questions)
            OR (idles AND id IN (SELECT parent FROM open_nodes))
        ) AS parked
        FROM open_nodes GROUP BY tree
    ),
    asleep AS (SELECT tree, min(due) AS until FROM questions WHERE NOT asks GROUP BY tree)
    SELECT nodes.id, nodes.number, call_key, function, state, source, started, ended,
        parked.tree IS NOT NULL, coalesce(parked.parked, false), workers.name, newest.at,
        asleep.until
    FROM nodes
    LEFT JOIN parked ON parked.tree = nodes.id
    LEFT JOIN asleep ON asleep.tree = parked.tree
    LEFT JOIN drives ON drives.node = nodes.id AND parked.tree IS NOT NULL
    LEFT JOIN workers ON workers.id = drives.owner
        AND workers.seen + workers.lease > clock_timestamp()
    LEFT JOIN LATERAL (
        SELECT at FROM events WHERE events.tree = parked.tree AND at IS NOT NULL
        ORDER BY place DESC LIMIT 1
    ) AS newest ON true
    WHERE nodes.parent = 0 AND nodes.id > %(after)s
        AND (%(open)s::boolean IS NULL OR (parked.tree IS NOT NULL) = %(open)s)
    ORDER BY nodes.id LIMIT %(limit)s
"""
_FIND: Final = """
    SELECT tree FROM nodes WHERE id = %s UNION ALL
    SELECT id FROM nodes WHERE source > 0 AND %s > id AND %s <= id + inherited LIMIT 1
"""
_HIGHEST: Final = """
    SELECT greatest(
            journal.node,
            (SELECT max(id) FROM nodes),
            (SELECT max(id + inherited) FROM nodes WHERE source > 0)
        ),
        greatest(journal.number, (SELECT max(nodes.number) FROM nodes WHERE parent = 0))
    FROM journal
"""
_QUESTIONS: Final = """
    SELECT events.question FROM questions JOIN events USING (tree, place)
    WHERE asks
        AND (%s OR NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.question = questions.id))
    ORDER BY questions.number
"""
_PENDING: Final = """
    SELECT events.question FROM questions JOIN events USING (tree, place)
    WHERE tree = %s AND asks ORDER BY questions.number
"""
_TIMERS: Final = (
    "SELECT due, tree FROM questions WHERE due > %s AND due <= %s ORDER BY due LIMIT %s"
)
# How many transactions have ended in the whole server: it grows at the moment at which what they
# wrote can be seen. The position in the write-ahead log grows before that moment.
_LAST: Final = """
    SELECT pg_snapshot_xmax(now)::text::bigint - (SELECT count(*) FROM pg_snapshot_xip(now))
    FROM pg_current_snapshot() AS now
"""


class JournalReader:
    """Reads one journal; safe to use from any thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def entries(self, tree: int, after: int) -> list[Entry]:
        rows = self._pool.fetch(statement(EVENTS), (tree, after))
        return [entry_of_row(tree, row) for row in rows]

    def texts(self, tree: int) -> dict[str, str]:
        search = "SELECT hash, text FROM texts WHERE tree = %s"
        rows = self._pool.fetch(search, (tree,), binary=True)
        return {unpack_hash(hash): _decoded(text) for hash, text in rows}

    def text(self, hash: str, tree: int | None) -> str:
        packed = pack_hash(hash)
        found: list[tuple[Any, ...]] = []
        if tree is not None:
            found = self._pool.fetch(_TEXT, (tree, packed), binary=True)
        if not found:
            found = self._pool.fetch(_ANY_TEXT, (packed,), binary=True)
        if not found:
            raise StoreError(
                self._pool.address.name,
                f"the text with the hash {hash} is missing; restore a copy of the database",
            )
        return _decoded(found[0][0])

    def trees(self, *, after: int, limit: int | None, is_open: bool | None) -> list[TreeRow]:
        values = {"after": after, "limit": limit, "open": is_open}
        return [_tree_row(row) for row in self._pool.fetch(_TREES, values)]

    def find(self, node: int) -> int | None:
        if not 0 < node <= _MAX_INTEGER:
            return None
        found = self._pool.fetch(_FIND, (node, node, node))
        return found[0][0] if found else None

    def find_all(self, nodes: Collection[int]) -> dict[int, int]:
        wanted = [node for node in nodes if 0 < node <= _MAX_INTEGER]
        search = "SELECT id, tree FROM nodes WHERE id = ANY (%s::bigint[])"
        found: dict[int, int] = dict(self._pool.fetch(search, (wanted,)))
        for node in wanted:
            # Ids that a fork shares have no row.
            if node not in found and (tree := self.find(node)) is not None:
                found[node] = tree
        return found

    def find_key(self, key: str) -> int | None:
        found = self._pool.fetch(
            "SELECT id FROM nodes WHERE parent = 0 AND call_key = %s", (encode_text(key),)
        )
        return found[0][0] if found else None

    def ticket(self, node: int) -> Ticket | None:
        found = self._pool.fetch("SELECT queue, priority FROM drives WHERE node = %s", (node,))
        if not found:
            return None
        [(queue, priority)] = found
        return Ticket(node=node, queue=decode_text(queue), priority=priority)

    def length(self, node: int) -> int:
        # The numbers of the entries of a node have no gap.
        search = "SELECT coalesce(max(n), 0) FROM events WHERE node = %s"
        return self._pool.fetch(search, (node,))[0][0]

    def highest(self) -> tuple[int, int]:
        [(node, number)] = self._pool.fetch(_HIGHEST)
        return node, number

    def last(self) -> int:
        return self._pool.fetch(_LAST)[0][0]

    def questions(self, *, answered: bool) -> list[Question]:
        return [load_question(text) for (text,) in self._pool.fetch(_QUESTIONS, (answered,))]

    def timers(self, after: float, until: float, limit: int | None) -> list[tuple[float, int]]:
        return self._pool.fetch(_TIMERS, (after, until, limit))

    def pending(self, tree: int) -> list[Question]:
        return [load_question(text) for (text,) in self._pool.fetch(_PENDING, (tree,))]


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogatepass")


def _tree_row(row: tuple[Any, ...]) -> TreeRow:
    (
        id,
        number,
        key,
        function,
        state,
        source,
        started,
        ended,
        is_open,
        parked,
        owner,
        last,
        wakes,
    ) = row
    return TreeRow(
        id=id,
        number=number,
        key=decode_text(key),
        function=decode_text(function),
        state=NodeState(state),
        open=is_open,
        parked=parked,
        source=source,
        started=started,
        ended=ended,
        last=last,
        driven=owner is not None,
        owner=None if owner is None else decode_text(owner),
        asleep_until=wakes,
    )
