"""The jobs of one worker: fetched, kept alive by heartbeats, taken over from dead workers."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from procrastinate.jobs import Job

from treefold.core.errors import EngineError
from treefold.core.work_engine import Taken
from treefold.engines.job_table import JobTable, WorkerGoneError, id_of, node_of
from treefold.engines.take_loop import is_cancelled
from treefold.engines.timing import Delays, DeliveryTiming

T = TypeVar("T")

log = logging.getLogger(__name__)

_STRAY: Final = 2.0  # times the patience: then no fetch can be about to return the job
_FORGET: Final = 10.0  # times the lease: then a dead worker is removed


class JobSource:
    """Deliveries from the queues of procrastinate, for one worker.

    This does what procrastinate's own worker does, on the same tables, but for drives, which may
    run for hours. That worker ends when a query fails, and then fetches nothing until its last job
    has ended; it sends no heartbeats meanwhile; and a fetch without an answer stops it for good.
    """

    def __init__(
        self, table: JobTable, *, queues: Collection[str], timing: DeliveryTiming, delays: Delays
    ) -> None:
        self._table = table
        self._names = [table.queue_name(queue) for queue in queues]
        self._timing = timing
        self._delays = delays
        self._worker: int | None = None
        self._held: set[int] = set()
        self._strays: dict[int, float] = {}
        self._failing: set[str] = set()

    # What the loop asks for

    async def fetch(self) -> Job | None:
        job = await self._attempt(self._fetch(), "fetching")
        if job is not None:
            self._held.add(id_of(job))
        return job

    def node(self, delivery: Job) -> int:
        return node_of(delivery)

    async def settle(self, delivery: Job, taken: Taken) -> None:
        # If this fails, the job is one that this worker does not know, and is queued again.
        self._held.discard(id_of(delivery))
        if taken is Taken.Done:
            settled = self._table.finish(delivery)
        else:
            settled = self._table.put_off(delivery, self._delays.after(delivery.attempts + 1))
        await self._attempt(settled, "settling a job")

    async def give_back(self, delivery: Job) -> None:
        self._held.discard(id_of(delivery))
        await self._attempt(self._table.repeat(delivery), "giving a job back")

    def pause(self) -> float:
        return self._timing.poll * random.uniform(0.8, 1.2)

    # Background loops, until they are cancelled

    async def beat(self) -> None:
        """Send heartbeats, and look for jobs that this worker has, and does not run."""
        while not is_cancelled():
            await asyncio.sleep(self._timing.beat)
            if self._worker is not None:
                await self._attempt(self._beat(self._worker), "sending a heartbeat")

    async def sweep(self) -> None:
        """Queue the jobs of dead workers again."""
        while not is_cancelled():
            # Not all workers at the same time.
            await asyncio.sleep(self._timing.beat * random.uniform(0.5, 1.0))
            await self._attempt(self._sweep(), "looking for jobs of dead workers")

    async def listen(self, wake: Callable[[], None]) -> None:
        """Call *wake* when a job is queued."""
        while not is_cancelled():
            await self._attempt(self._table.listen(self._names, wake), "listening")

    async def leave(self) -> None:
        """Stop being a worker."""
        if self._worker is not None:
            await self._attempt(self._table.unregister(self._worker), "leaving")
            self._worker = None

    async def _fetch(self) -> Job | None:
        if self._worker is None:
            self._worker = await self._table.register()
        try:
            return await self._table.fetch(self._names, self._worker)
        except WorkerGoneError:
            log.warning("others took this worker for dead; its drives go on, as far as they may")
            self._worker = None
            return None

    async def _beat(self, worker: int) -> None:
        jobs = {id_of(job): job for job in await self._table.beat(worker)}
        # A fetch whose answer was lost leaves such a job.
        now = time.monotonic()
        strays = {id: self._strays.get(id, now) for id in jobs.keys() - self._held}
        for id, since in list(strays.items()):
            if now - since > _STRAY * self._timing.patience:
                await self._table.repeat(jobs[id])
                del strays[id]
        self._strays = strays

    async def _sweep(self) -> None:
        for job in await self._table.stalled(self._timing.lease):
            # Its own heartbeats may be late.
            if job.worker_id is None or job.worker_id != self._worker:
                await self._table.repeat(job)
                log.info("the worker of node:%s is dead; it is delivered again", node_of(job))
        await self._table.remove_workers(_FORGET * self._timing.lease)

    async def _attempt(self, act: Awaitable[T], what: str) -> T | None:
        """Return what *act* returns, None if the engine cannot be reached just now."""
        try:
            found = await act
        except EngineError as error:
            if what not in self._failing:
                log.warning("%s (%s)", error, what)
            self._failing.add(what)
            await asyncio.sleep(min(self._timing.poll, 1.0))
            return None
        if what in self._failing:
            log.warning("%s: it can be reached again (%s)", self._table.name, what)
        self._failing.discard(what)
        return found
