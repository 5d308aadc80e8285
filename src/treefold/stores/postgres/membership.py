"""What a store does as a worker: it joins, sends heartbeats, and owns drives."""

import threading
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from treefold.core.errors import FencedError, UsageError
from treefold.core.shared_store import (
    Load,
    Orders,
    Owed,
    Ownership,
    Ticket,
    WorkerInfo,
    WorkerRow,
)
from treefold.stores.postgres.faults import DEAD_WORKER
from treefold.stores.postgres.pool import Pool, Refused, statement
from treefold.stores.postgres.rows import compact, decode_text, encode_text

_JOIN: Final = """
    SELECT join_workers(%s, %s, %s::bigint, %s::json, %s::json, %s::double precision)
"""
_BEAT: Final = """
    SELECT draining, messages, owned FROM beat(%s::bigint, %s::json, %s::bigint)
"""
_ADOPT: Final = """
    SELECT its_tree, its_epoch, its_written FROM adopt(%s::bigint, %s::bigint)
"""
_OWED_COLUMNS: Final = """
    SELECT node, queue, priority, extract(epoch FROM wake_at)::double precision FROM owed
    WHERE since <= clock_timestamp() - make_interval(secs => %(older_than)s)
"""
_OWED: Final = f"{_OWED_COLUMNS} ORDER BY priority DESC, since, node LIMIT %(limit)s"
_OWED_IN_QUEUES: Final = f"""
    {_OWED_COLUMNS} AND queue = ANY (%(queues)s::text[])
    ORDER BY priority DESC, since, node LIMIT %(limit)s
"""
# There are far more drives than are owed: sums keep the server from reading them in the order of
# their ids.
_OWED_AFTER: Final = f"""
    {_OWED_COLUMNS} AND (%(queues)s::text[] = '{{}}' OR queue = ANY (%(queues)s::text[]))
    AND node + 0 > %(after)s ORDER BY node + 0 LIMIT %(limit)s
"""
_DEPTH: Final = """
    SELECT count(*),
        greatest(extract(epoch FROM clock_timestamp() - min(since)), 0)::double precision
    FROM owed WHERE %s::json IS NULL OR queue IN (SELECT json_array_elements_text(%s::json))
"""
_WORKERS: Final = """
    SELECT id, name, host, process, functions, queues, load,
        extract(epoch FROM clock_timestamp() - seen)::double precision,
        seen + lease > clock_timestamp(),
        (SELECT count(*) FROM drives WHERE drives.owner = workers.id)
    FROM workers ORDER BY id
"""


class Membership:
    """The place of one store among the workers; safe to use from any thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._name = pool.address.name
        self._lock = threading.Lock()
        self._worker: int | None = None
        self._lease = 0.0  # seconds
        self._owned: set[int] = set()  # drives that this worker has, as far as it knows

    @property
    def worker(self) -> int:
        """The id of this worker.

        Raises:
            UsageError: ``join`` was not called.
        """
        if (worker := self._worker) is None:
            raise UsageError(f"only a worker of {self._name} may write to it; call join() first")
        return worker

    def join(self, worker: WorkerInfo, lease: float) -> int:
        with self._lock:
            if self._worker is not None:
                raise UsageError(f"this store is worker {self._worker} of {self._name} already")
            about = [encode_text(worker.name), encode_text(worker.host), worker.process]
            offers = [_names(worker.functions), _names(worker.queues)]
            [(joined,)] = self._pool.fetch(_JOIN, (*about, *offers, lease))
            self._worker, self._lease, self._owned = joined, lease, set()
            return joined

    def beat(self, load: Load) -> Orders:
        known = self._owned.copy()
        values = (self.worker, compact(msgspec.structs.asdict(load)), len(known))
        # Soon enough for another try on a new connection, before others count this worker as dead.
        timeout = min(self._lease / 4, self._pool.address.timeout)
        if not (found := self._pool.fetch(_BEAT, values, timeout=timeout)):
            raise FencedError(
                self._name,
                f"worker {self.worker} was forgotten, because it sent no heartbeat for long:"
                " others have adopted its drives",
            )
        drain, messages, owned = found[0]
        # Drives that were released meanwhile are not lost.
        lost = set[int]() if owned is None else (known - set(owned)) & self._owned
        self._owned -= lost
        return Orders(lost=frozenset(lost), messages=frozenset(messages or ()), drain=drain)

    def leave(self) -> None:
        with self._lock:
            worker, self._worker = self._worker, None
            self._owned = set()
        if worker is not None:
            self._pool.fetch("SELECT leave_workers(%s::bigint)", (worker,))

    def adopt(self, node: int) -> Ownership | None:
        try:
            found = self._pool.fetch(_ADOPT, (self.worker, node))
        except Refused as error:
            if error.code != DEAD_WORKER:
                raise
            raise FencedError(
                self._name, f"worker {self.worker} counts as dead: it must join again"
            ) from None
        if not found:
            return None
        [(tree, epoch, written)] = found
        self._owned.add(node)
        return Ownership(node, tree, epoch, written)

    def note_created(self, drives: Iterable[int]) -> None:
        """Note that drives were created which this worker owns."""
        self._owned.update(drives)

    def release(
        self,
        ownership: Ownership,
        *,
        parked: bool,
        awaited: Collection[int],
        wake_in: float | None,
    ) -> bool:
        values = (self.worker, ownership.node, ownership.epoch, parked, list(awaited), wake_in)
        search = (
            "SELECT release(%s::bigint, %s::bigint, %s::integer, %s, %s::bigint[],"
            " %s::double precision)"
        )
        # Before it is: a heartbeat that comes in between must not report it as lost.
        self._owned.discard(ownership.node)
        released = False
        try:
            [(released,)] = self._pool.fetch(search, values)
        finally:
            if not released:
                self._owned.add(ownership.node)
        return released

    def attempts(self, node: int) -> int:
        found = self._pool.fetch("SELECT attempts FROM drives WHERE node = %s", (node,))
        return found[0][0] if found else 0

    def reserve(self, nodes: int, trees: int) -> tuple[int, int]:
        search = "SELECT node, number FROM reserve(%s::bigint, %s::bigint)"
        [(node, number)] = self._pool.fetch(search, (nodes, trees))
        return node, number

    # Others

    def is_anyone_alive(self) -> bool:
        search = "SELECT 1 FROM workers WHERE seen + lease > clock_timestamp() LIMIT 1"
        return bool(self._pool.fetch(search))

    def owed(
        self, limit: int, older_than: float, queues: Collection[str], after: int | None
    ) -> list[Ticket]:
        search = _OWED_AFTER if after is not None else _OWED_IN_QUEUES if queues else _OWED
        values = {
            "older_than": float(older_than),
            "limit": limit,
            "queues": [encode_text(queue) for queue in queues],
            "after": after,
        }
        return [
            Ticket(node=node, queue=decode_text(queue), priority=priority, not_before=due)
            for node, queue, priority, due in self._pool.fetch(statement(search), values)
        ]

    def depth(self, queues: Collection[str]) -> Owed:
        wanted = _names(queues) if queues else None
        [(count, oldest)] = self._pool.fetch(_DEPTH, (wanted, wanted))
        return Owed(count=count, oldest=oldest or 0.0)

    def workers(self) -> list[WorkerRow]:
        return [_worker_row(row) for row in self._pool.fetch(_WORKERS)]

    def drain(self, worker: int) -> None:
        [(found,)] = self._pool.fetch("SELECT drain_worker(%s::bigint)", (worker,))
        if not found:
            raise UsageError(f"{self._name} has no worker {worker}")


def _names(names: Collection[str]) -> str:
    return compact([encode_text(name) for name in names])


def _worker_row(row: tuple[Any, ...]) -> WorkerRow:
    id, name, host, process, functions, queues, load, seen, alive, drives = row
    info = WorkerInfo(
        name=decode_text(name),
        host=decode_text(host),
        process=process,
        functions=tuple(map(decode_text, functions)),
        queues=tuple(map(decode_text, queues)),
    )
    return WorkerRow(id=id, info=info, load=Load(**load), seen=seen, alive=alive, drives=drives)
