"""A worker of drives that Temporal delivers as activities; imports the SDK."""

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from typing import Final

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker, WorkerTuner

from treefold.core.work_engine import Stop, Take, Taken
from treefold.engines.activity_slots import tuner
from treefold.engines.take_loop import run_take
from treefold.engines.timing import Delays
from treefold.version import __version__

log = logging.getLogger(__name__)

ACTIVITY: Final = "treefold-drive"
# Temporal wants limits on times that have none.
FOREVER: Final = timedelta(days=3650)
# Each poll of a worker that was stopped or cut off may get the same drive in turn, and lose it.
_POLLERS: Final = 2
_WAIT: Final = 1.0  # seconds for a slot; then another worker gets the drive
_RESTART: Final = 1.0  # seconds after a failure of the SDK
# Which drives a worker can run is decided by the code of each call, not by the server.
_BUILD: Final = f"treefold-{__version__}"
_AT_ONCE: Final = 0.001  # seconds; the server takes up to one more


class ActivityWorker:
    """Runs the activities of some task queues, at most *slots* at once, until *stop* is set.

    Drives are tasks of this worker and not of the SDK, which cancels an activity that the server
    has given up. That is for the store to decide: unless it is fenced, the drive continues, and
    the same delivery elsewhere has nothing to do.
    """

    def __init__(
        self, client: Client, take: Take, *, slots: int, stop: Stop, beat: float, delays: Delays
    ) -> None:
        self._client = client
        self._take = take
        self._slots = slots
        self._free = asyncio.Semaphore(slots)
        self._stop = stop
        self._beat = beat
        self._delays = delays
        self._group = asyncio.TaskGroup()
        self._workers: set[Worker] = set()

    async def run(self, names: Collection[str]) -> None:
        """Serve the task queues with these names."""
        slots = tuner(self._slots, shared=len(names) > 1)
        async with self._group:
            for name in names:
                self._group.create_task(self._serve(name, slots))
            self._group.create_task(self._shut_down())

    async def _serve(self, name: str, slots: WorkerTuner) -> None:
        while not self._stop.is_set():
            worker = Worker(
                self._client,
                task_queue=name,
                activities=[self.drive],
                tuner=slots,
                activity_task_poller_behavior=PollerBehaviorSimpleMaximum(_POLLERS),
                max_heartbeat_throttle_interval=timedelta(seconds=self._beat),
                # By default the SDK hashes the bytecode of all modules, and blocks the event loop.
                build_id=_BUILD,
                # A drive is cancelled with its task only.
                graceful_shutdown_timeout=FOREVER,
            )
            self._workers.add(worker)
            try:
                await worker.run()
            except Exception as error:  # noqa: BLE001 - whatever it was, the SDK has to poll again
                log.warning("Temporal's worker of %s failed, and is restarted: %s", name, error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_RESTART):
                        await self._stop.wait()
            finally:
                self._workers.discard(worker)

    async def _shut_down(self) -> None:
        await self._stop.wait()
        for worker in self._workers:
            self._group.create_task(worker.shutdown())

    @activity.defn(name=ACTIVITY)
    async def drive(self, node: int) -> None:
        """Run a drive, and send heartbeats meanwhile."""
        run = self._run(node)
        try:
            task = self._group.create_task(run)
        except RuntimeError:
            # This worker is being cancelled.
            run.close()
            raise _again(_AT_ONCE) from None
        try:
            while not task.done():
                activity.heartbeat()
                await asyncio.wait([task], timeout=self._beat)
        except asyncio.CancelledError:
            log.info("Temporal has given up a delivery of node:%s; the drive continues", node)
            raise _again(_AT_ONCE) from None
        taken = None if task.cancelled() else task.result()
        if taken is None:
            raise _again(_AT_ONCE)
        if taken is Taken.Later:
            raise _again(self._delays.after(activity.info().attempt))

    async def _run(self, node: int) -> Taken | None:
        """Return what became of a drive, None if there was no slot for it."""
        try:
            async with asyncio.timeout(_WAIT):
                await self._free.acquire()
        except TimeoutError:
            return None
        try:
            return None if self._stop.is_set() else await run_take(self._take, node)
        finally:
            self._free.release()


def _again(seconds: float) -> ApplicationError:
    """Return the failure that has the server deliver a drive again."""
    return ApplicationError(
        "deliver it again",
        next_retry_delay=timedelta(seconds=seconds),
        category=ApplicationErrorCategory.BENIGN,
    )
