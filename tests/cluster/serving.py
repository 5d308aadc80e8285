"""A worker in this process, which runs what its engine delivers as another process would."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from support import wait
from treefold import Runtime, WorkerPhase

PATIENCE = 60.0  # seconds


class Serving:
    """Has a runtime work in a thread of its own; it is ready when this is made.

    Args:
        drain: seconds that ``drain`` allows for what must not be repeated.
    """

    def __init__(self, runtime: Runtime, *, drain: float = 120.0) -> None:
        self.runtime = runtime
        self._drain = drain
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._work())
        self._thread = ThreadPoolExecutor(1)
        self._ended = self._thread.submit(self._run)
        wait(lambda: self._ended.done() or self._phase is not WorkerPhase.Starting)
        if self._ended.done():
            self._ended.result()

    @property
    def _phase(self) -> WorkerPhase:
        return self.runtime.worker_status().phase

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()

    async def _work(self) -> None:
        async with self.runtime:
            await self.runtime.work(stop=self._stop, drain=self._drain)

    def post(self, function: Callable[[], object]) -> None:
        """Call *function* on its loop."""
        self._loop.call_soon_threadsafe(function)

    def drain(self) -> None:
        """Begin to stop as after SIGTERM: give up each tree when nothing of it would be lost."""
        self._loop.call_soon_threadsafe(self._stop.set)
        wait(lambda: self._phase is WorkerPhase.Draining)

    def join(self) -> None:
        """Wait for the end of a worker that was told to stop."""
        self._ended.result(PATIENCE)
        self._thread.shutdown()

    def close(self) -> None:
        """End it at once; what it runs stays open for others."""
        if not self._ended.done():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self.join()
