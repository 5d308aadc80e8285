"""A worker without a runtime: a test says what becomes of each drive that is delivered to it.

It has a store, an engine, and a thread with an event loop of its own, as a process would have. So
it can be stopped as a process is: nothing of it continues, and its connections stay open.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from shared_stores import LEASE, PATIENCE, info
from treefold.core.function import DEFAULT_QUEUE
from treefold.engines import Depth, Taken, Ticket
from treefold.stores.postgres import PostgresStore
from work_engines import make_engine

T = TypeVar("T")

QUEUES: Final = (DEFAULT_QUEUE,)
_SLOTS: Final = 12  # more than there are drives


class SimulatedWorker:
    """Has *adopt* decide about each delivery, in a thread: an outcome now, or later.

    Args:
        url: of the store.
        engine: the name of the engine.

    Attributes:
        id: of the worker, in the store.
    """

    def __init__(
        self,
        url: str,
        engine: str,
        adopt: Callable[["SimulatedWorker", int], Taken | Future[Taken]],
    ) -> None:
        self.store = PostgresStore(url)
        self.store.join(info(), lease=LEASE)
        self.id = self.store.cluster.members.worker
        self._adopt = adopt
        self._engine = make_engine(engine, url)
        self._stop = asyncio.Event()
        self._continues = threading.Event()
        self._opened: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, name=repr(self))
        self._thread.start()
        self._loop = self._opened.result(PATIENCE)

    def __repr__(self) -> str:
        return f"worker {self.id}"

    def submit(self, ticket: Ticket) -> None:
        """Have the engine deliver a drive to some worker."""
        self._ask(self._engine.submit(ticket))

    def depth(self) -> Depth:
        """Return how many deliveries the engine has, for all workers of the store."""
        return self._ask(self._engine.depth(QUEUES))

    # How it ends

    def freeze(self) -> None:
        """Stop it in the middle, as SIGSTOP does; for good, unless it is thawed."""
        self._loop.call_soon_threadsafe(self._continues.wait, 2 * PATIENCE)

    def thaw(self) -> None:
        """Have it continue where it was stopped; it ends when its deliveries have."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._continues.set()

    def cancel(self) -> None:
        """End it: its engine gives back what it has; the store is not told."""
        with suppress(RuntimeError):  # it has ended, and its loop is closed
            self._loop.call_soon_threadsafe(self._cancel)
        self._continues.set()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def close(self) -> None:
        """End it, and leave the store."""
        self.cancel()
        self._thread.join(PATIENCE)
        assert self.has_ended, f"{self} does not end"
        self.store.close()

    # In its thread

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                asyncio.run(self._work())
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._cancel = task.cancel
        await self._engine.open(self.store.id)
        try:
            self._opened.set_result(asyncio.get_running_loop())
            await self._engine.work(self._take, queues=QUEUES, slots=_SLOTS, stop=self._stop)
        finally:
            await self._engine.close()

    async def _take(self, node: int) -> Taken:
        taken = await asyncio.to_thread(self._adopt, self, node)
        return taken if isinstance(taken, Taken) else await asyncio.wrap_future(taken)

    def _ask(self, request: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(request, self._loop).result(PATIENCE)
