"""The jobs of procrastinate, one for each drive that is queued or runs."""

import hashlib
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from procrastinate.exceptions import AlreadyEnqueued, ConnectorException, UniqueViolation
from procrastinate.jobs import Job, Status

from treefold.core.work_engine import Depth, Ticket
from treefold.engines.job_database import JobDatabase

TASK: Final = "treefold.drive"  # the name that procrastinate's own tools show
# PostgreSQL limits the name of a channel: a prefix of procrastinate's, and the queue.
_LONGEST_QUEUE: Final = 63 - len("procrastinate_queue_v1#")


class WorkerGoneError(Exception):
    """This worker counted as dead, and was removed."""


class JobTable:
    """What is asked of procrastinate; all of it can be repeated without harm.

    The queueing lock of a job is its node, so that a drive is queued once. Jobs have no other lock:
    that would keep a drive from being queued while a dead worker has it.

    Args:
        database: opened and closed by the caller.
        journal: each journal has queues and nodes of its own.
    """

    def __init__(self, database: JobDatabase, journal: str) -> None:
        self.name = database.name
        self._database = database
        self._ask = database.ask
        self._app = database.app
        self._jobs = database.app.job_manager
        self._prefix = f"{_digest(journal)}:" if journal else ""

    # Drives

    async def submit(self, ticket: Ticket) -> None:
        """Queue a drive; if it is queued already, the earlier time counts."""
        time = None if ticket.not_before is None else datetime.fromtimestamp(ticket.not_before, UTC)
        name = self.queue_name(ticket.queue)
        for _ in range(2):
            with suppress(AlreadyEnqueued):
                return await self._defer(ticket.node, name, ticket.priority, time)
            for job in await self._queued(ticket.node):
                # A job that was tried before waits on purpose.
                if job.attempts or not job.scheduled_at or (time and job.scheduled_at <= time):
                    return None
                await self._cancel(job)
        return None

    async def withdraw(self, node: int) -> None:
        """Delete the job of a drive that is queued."""
        for job in await self._queued(node):
            await self._cancel(job)

    async def depth(self, queues: Collection[str]) -> Depth:
        """Count the jobs in some queues."""
        queued = running = 0
        for queue in queues:
            name = self.queue_name(queue)
            for row in await self._ask(lambda name=name: self._jobs.list_queues_async(queue=name)):
                queued += row["todo"]
                running += row["doing"]
        return Depth(queued=queued, running=running)

    def queue_name(self, queue: str) -> str:
        """Return what a queue is called in the table."""
        name = self._prefix + queue
        if len(name.encode()) <= _LONGEST_QUEUE:
            return name
        return f"{name.encode()[: _LONGEST_QUEUE - 9].decode(errors='ignore')}~{_digest(name)}"

    # Workers

    async def register(self) -> int:
        """Return the id of a new worker."""
        return await self._ask(self._jobs.register_worker)

    async def unregister(self, worker: int) -> None:
        """Remove a worker; jobs that it still has are taken over."""
        await self._ask(lambda: self._jobs.unregister_worker(worker))

    async def beat(self, worker: int) -> list[Job]:
        """Send a heartbeat, and return the jobs that this worker has."""
        await self._ask(lambda: self._jobs.update_heartbeat(worker))
        return list(
            await self._ask(
                lambda: self._jobs.list_jobs_async(status=Status.DOING.value, worker_id=worker)
            )
        )

    async def listen(self, names: Collection[str], wake: Callable[[], None]) -> None:
        """Call *wake* when something was queued; returns after a while."""
        await self._database.listen(names, wake)

    async def stalled(self, lease: float) -> list[Job]:
        """Return the jobs of workers that were not heard of for *lease* seconds."""
        found = await self._ask(
            lambda: self._jobs.get_stalled_jobs(task_name=TASK, seconds_since_heartbeat=lease)
        )
        # Those of other journals, which may have the same nodes, are left to their own workers:
        # repeated from here, they would get the lock of a drive of this journal.
        return [job for job in found if job.queueing_lock == self._lock(node_of(job))]

    async def remove_workers(self, silence: float) -> None:
        """Forget the workers that were not heard of for that many seconds."""
        await self._ask(lambda: self._jobs.prune_stalled_workers(silence))

    # Jobs that a worker has

    async def fetch(self, names: Iterable[str], worker: int) -> Job | None:
        """Return the next job, which this worker has from now on.

        Raises:
            WorkerGoneError: others took this worker for dead.
        """
        try:
            # Not twice: the worker may have got a job in the first attempt.
            return await self._ask(lambda: self._jobs.fetch_job(names, worker), attempts=1)
        except ConnectorException as error:
            raise WorkerGoneError from error

    async def finish(self, job: Job) -> None:
        """Delete a job."""
        # It is refused if the job is gone.
        with suppress(ConnectorException):
            await self._ask(
                lambda: self._jobs.finish_job(job, status=Status.SUCCEEDED, delete_job=True)
            )

    async def put_off(self, job: Job, seconds: float) -> None:
        """Queue a job again, after a delay."""
        row = await self._ask(
            lambda: self._app.connector.execute_query_one_async("SELECT now() AS now")
        )
        time = row["now"] + timedelta(seconds=seconds)
        try:
            await self._ask(lambda: self._jobs.retry_job(job, retry_at=time))
        except UniqueViolation:
            # The drive was submitted meanwhile, and that job is enough.
            await self.finish(job)
        except ConnectorException:
            # Another worker has taken it over.
            return

    async def repeat(self, job: Job) -> None:
        """Queue a job again at once, as a new one."""
        # Those that are retried are not announced to the workers. And if the worker of this one is
        # alive after all, it cannot delete the new one.
        with suppress(AlreadyEnqueued):
            await self._defer(node_of(job), job.queue, job.priority, None)
        await self.finish(job)

    async def _queued(self, node: int) -> list[Job]:
        lock = self._lock(node)
        return list(
            await self._ask(
                lambda: self._jobs.list_jobs_async(queueing_lock=lock, status=Status.TODO.value)
            )
        )

    async def _defer(self, node: int, queue: str, priority: int, time: datetime | None) -> None:
        job = self._app.configure_task(
            TASK, queue=queue, priority=priority, queueing_lock=self._lock(node), schedule_at=time
        )
        await self._ask(lambda: job.defer_async(node=node))

    async def _cancel(self, job: Job) -> None:
        await self._ask(lambda: self._jobs.cancel_job_by_id_async(id_of(job), delete_job=True))

    def _lock(self, node: int) -> str:
        return f"{self._prefix}{node}"


def node_of(job: Job) -> int:
    """Return the node of the drive that a job is for."""
    node: Any = job.task_kwargs["node"]
    return node


def id_of(job: Job) -> int:
    """Return the id of a job that is in the table."""
    id: Any = job.id
    return id


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
