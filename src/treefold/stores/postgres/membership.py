"""The workers of a journal, this process among them: it joins, sends heartbeats, and leaves."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from treefold.core.cluster import Load, Orders, Ownership, WorkerInfo, WorkerRow
from treefold.core.errors import FencedError, StoreError, UsageError
from treefold.core.moments import steady
from treefold.stores.postgres.pool import Pool
from treefold.stores.postgres.rows import compact, decode_text, encode_text, encode_texts

_JOIN: Final = """
    SELECT join_workers(%s, %s, %s::bigint, %s::json, %s::json, %s::double precision)
"""
_BEAT: Final = """
    SELECT draining, at, losses, messages, nodes, epochs
    FROM beat(%s::bigint, %s::json, %s::double precision, %s::bigint)
"""
_WORKERS: Final = """
    SELECT id, name, host, process, functions, queues, load,
        extract(epoch FROM clock_timestamp() - seen)::double precision,
        seen + lease > clock_timestamp(),
        (SELECT count(*) FROM drives WHERE drives.owner = workers.id)
    FROM workers ORDER BY id
"""
_UNKNOWN: Final = -1


class Membership:
    """The place of one store among the workers; safe to use from any thread.

    Attributes:
        losses: how often this worker may have lost drives, as far as it knows.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._name = pool.address.name
        self._lock = threading.Lock()
        self.losses: int = 0
        self._worker: int | None = None
        self._lease = 0.0  # seconds
        # The drives that this worker has, as far as it knows, and their epochs.
        self._owned: dict[int, int] = {}
        # Made anew when a drive was noted that may be lost, and what it was at the last listing.
        self._doubt = self._listed = object()
        self._joined = self._beaten = 0.0  # when it joined, and sent its last heartbeat (steady)
        self._has_tidied = False

    @property
    def worker(self) -> int:
        """The id of this worker.

        Raises:
            UsageError: ``join`` was not called.
        """
        if (worker := self._worker) is None:
            raise UsageError(f"only a worker of {self._name} may write to it; call join() first")
        return worker

    def join(self, worker: WorkerInfo, lease: float) -> None:
        with self._lock:
            if self._worker is not None:
                raise UsageError(f"this store is worker {self._worker} of {self._name} already")
            about = [encode_text(worker.name), encode_text(worker.host), worker.process]
            offers = [encode_texts(worker.functions), encode_texts(worker.queues)]
            [(joined,)] = self._pool.fetch(_JOIN, (*about, *offers, lease))
            self._worker, self._lease, self._owned = joined, lease, {}
            self.losses, self._has_tidied = 0, False
            self._joined = self._beaten = steady()

    def beat(self, load: Load) -> Orders:
        known, doubt, sent = self._owned.copy(), self._doubt, steady()
        about = compact(msgspec.structs.asdict(load))
        heard = self.losses if doubt is self._listed else _UNKNOWN
        values = (self.worker, about, sent - self._beaten, heard)
        # Soon enough for another try on a new connection, before others count this worker as dead.
        timeout = min(self._lease / 4, self._pool.address.timeout)
        if not (found := self._pool.fetch(_BEAT, values, timeout=timeout)):
            raise FencedError(
                self._name,
                f"worker {self.worker} was forgotten, because it sent no heartbeat for long:"
                " others have adopted its drives",
            )
        drain, now, losses, messages, nodes, epochs = found[0]
        lost = frozenset[int]()
        if nodes is not None:
            owned = dict(zip(nodes, epochs, strict=True))
            # Drives that were released or adopted meanwhile are not lost.
            lost = frozenset(
                node
                for node, epoch in known.items()
                if owned.get(node) != epoch and self._owned.get(node) == epoch
            )
        for node in lost:
            self._owned.pop(node, None)
        self._beaten, self.losses = sent, losses
        if nodes is not None:
            self._listed = doubt
            if self._owned.copy().items() - known.items():
                # What was noted meanwhile was not looked for in the list.
                self._doubt = object()
        self._tidy()
        return Orders(lost=lost, messages=frozenset(messages or ()), drain=drain, now=now)

    def _tidy(self) -> None:
        """Have workers forgotten that died long ago, once this one has lived for a lease."""
        if not self._has_tidied and self._beaten - self._joined > self._lease:
            self._has_tidied = True
            with suppress(StoreError):
                self._pool.fetch("SELECT forget_workers()")

    def leave(self) -> None:
        with self._lock:
            worker, self._worker = self._worker, None
            self._owned = {}
        if worker is not None:
            self._pool.fetch("SELECT leave_workers(%s::bigint)", (worker,))

    def note_owned(self, drives: Sequence[Ownership], losses: int) -> None:
        """Note that this worker became the owner of drives, after it had lost some so often."""
        self._owned.update({one.node: one.epoch for one in drives})
        if drives and losses != self.losses:
            # The reply was late, and they may be lost: have those listed that it owns.
            self._doubt = object()

    def note_kept(self, drive: Ownership) -> None:
        """Note that a drive was not given up after all."""
        self._owned[drive.node] = drive.epoch

    def note_released(self, drive: Ownership) -> bool:
        """Note that a drive is being given up; False if this worker has adopted it again since."""
        is_last = self._owned.get(drive.node) == drive.epoch
        if is_last:
            del self._owned[drive.node]
        return is_last

    # Others

    def is_anyone_alive(self) -> bool:
        search = "SELECT 1 FROM workers WHERE seen + lease > clock_timestamp() LIMIT 1"
        return bool(self._pool.fetch(search))

    def workers(self) -> list[WorkerRow]:
        return [_worker_row(row) for row in self._pool.fetch(_WORKERS)]

    def drain(self, worker: int) -> None:
        [(found,)] = self._pool.fetch("SELECT drain_worker(%s::bigint)", (worker,))
        if not found:
            raise UsageError(f"{self._name} has no worker {worker}")


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
