"""The drives of a journal: who owns them, and which of them wait for a worker."""

from collections.abc import Collection
from functools import cache
from typing import Final

from treefold.core.cluster import Owed, Ownership
from treefold.core.errors import FencedError
from treefold.core.work_engine import Ticket
from treefold.stores.postgres.faults import DEAD_WORKER
from treefold.stores.postgres.membership import Membership
from treefold.stores.postgres.pool import Pool, Refused, statement
from treefold.stores.postgres.rows import decode_text, encode_text

_ADOPT: Final = """
    SELECT its_tree, its_epoch, its_written, its_attempts, messages, first_id
    FROM adopt(%s::bigint, %s::bigint, %s::bigint)
"""
# The oldest of one part, in the order of an index, so that no more is read than the page. What is
# wanted since a time to come was wanted before the clock was set back.
_PART: Final = """
    SELECT node, queue, priority, due, wanted FROM {part}
    WHERE since NOT BETWEEN clock_timestamp() - make_interval(secs => %(older_than)s)
        AND clock_timestamp() {which}
    ORDER BY due, wanted, node LIMIT %(limit)s
"""
_AFTER: Final = """
    AND (due, wanted, node) > (
        (SELECT last.due FROM owed AS last WHERE last.node = %(after)s),
        (SELECT last.wanted FROM owed AS last WHERE last.node = %(after)s),
        %(after)s::bigint
    )
"""
_IN_QUEUES: Final = """
    SELECT oldest.* FROM unnest(%(queues)s::text[]) AS asked (name)
    CROSS JOIN LATERAL ({oldest}) AS oldest
"""
_OWED: Final = """
    SELECT node, queue, priority FROM ({page}) AS page
    ORDER BY due, wanted, node LIMIT %(limit)s
"""
_DEPTH: Final = """
    SELECT count(*),
        greatest(extract(epoch FROM clock_timestamp() - min(since)), 0)::double precision
    FROM owed
"""
_DEPTH_OF: Final = f"{_DEPTH} WHERE queue = ANY (%s::text[])"
_RELEASE: Final = """
    SELECT release(
        %s::bigint, %s::bigint, %s::integer, %s, %s::bigint[], %s::double precision
    )
"""


class DriveTable:
    """The drives, as the worker of one store sees them; safe to use from any thread."""

    def __init__(self, pool: Pool, membership: Membership) -> None:
        self._pool = pool
        self._name = pool.address.name
        self._membership = membership

    def adopt(self, node: int, *, ids: int = 0) -> Ownership | None:
        membership = self._membership
        losses = membership.losses
        try:
            found = self._pool.fetch(_ADOPT, (membership.worker, node, ids))
        except Refused as error:
            if error.code != DEAD_WORKER:
                raise
            raise FencedError(
                self._name, f"worker {membership.worker} counts as dead: it must join again"
            ) from None
        if not found:
            return None
        *known, first_id = found[0]
        owned = Ownership(node, *known, first_id=first_id or 0)
        membership.note_owned([owned], losses)
        return owned

    def release(
        self,
        ownership: Ownership,
        *,
        parked: bool,
        awaited: Collection[int] = (),
        wake_in: float | None = None,
    ) -> bool:
        membership = self._membership
        about = (membership.worker, ownership.node, ownership.epoch)
        # Before it is: a heartbeat that comes in between must not report it as lost.
        is_last = membership.note_released(ownership)
        released = False
        try:
            [(released,)] = self._pool.fetch(_RELEASE, (*about, parked, list(awaited), wake_in))
        finally:
            if is_last and not released:
                membership.note_kept(ownership)
        return released

    def reserve(self, nodes: int, trees: int = 0) -> tuple[int, int]:
        search = "SELECT node, number FROM reserve(%s::bigint, %s::bigint)"
        [(node, number)] = self._pool.fetch(search, (nodes, trees))
        return node, number

    def ticket(self, node: int) -> Ticket | None:
        found = self._pool.fetch("SELECT queue, priority FROM drives WHERE node = %s", (node,))
        if not found:
            return None
        [(queue, priority)] = found
        return Ticket(node=node, queue=decode_text(queue), priority=priority)

    def owed(
        self,
        limit: int,
        *,
        older_than: float = 0.0,
        queues: Collection[str] = (),
        after: int = 0,
    ) -> list[Ticket]:
        search = _owed(is_after=bool(after), in_queues=bool(queues))
        values = {
            "older_than": float(older_than),
            "limit": limit,
            "queues": [encode_text(queue) for queue in queues],
            "after": after,
        }
        return [
            Ticket(node=node, queue=decode_text(queue), priority=priority)
            for node, queue, priority in self._pool.fetch(statement(search), values)
        ]

    def depth(self, queues: Collection[str] = ()) -> Owed:
        names = [encode_text(queue) for queue in queues]
        found = self._pool.fetch(_DEPTH_OF, (names,)) if names else self._pool.fetch(_DEPTH)
        [(count, oldest)] = found
        return Owed(count=count, oldest=oldest or 0.0)

    def doubts(self) -> int:
        return self._pool.fetch("SELECT count(*) FROM questions WHERE in_doubt")[0][0]


@cache
def _owed(*, is_after: bool, in_queues: bool) -> str:
    which = (_AFTER if is_after else "") + ("AND queue = asked.name" if in_queues else "")
    parts = [_PART.format(part=part, which=which) for part in ("unowned", "orphaned")]
    oldest = " UNION ALL ".join(f"({part})" for part in parts)
    return _OWED.format(page=_IN_QUEUES.format(oldest=oldest) if in_queues else oldest)
