"""Submits what is owed to the work engine, and takes what the engine delivers."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

from treefold.core.errors import EngineError, StoreError
from treefold.core.store import Store
from treefold.core.work_engine import Stop, Take, Ticket, WorkEngine
from treefold.engines.in_process import InProcess
from treefold.runtime.durable.shared_trees import SharedTrees
from treefold.runtime.durable.worker_settings import WorkerSettings
from treefold.runtime.loops.threads import in_thread

log = logging.getLogger(__name__)

_MOST_OWED: Final = 200  # trees that one sweep submits
_MOST_FAILURES: Final = 3  # of tickets in one sweep
_RETRY: Final = 1.0  # seconds


class Dispatcher:
    """The work engine of one process, from its opening to its end.

    It is used on the event loop.

    Args:
        engine: None for one of this process alone, which begins to take at once.
        take: runs a drive.
        on_change: is called when it begins to take, and when it stops.

    Attributes:
        is_placed: whether an engine places trees, on any worker.
        slots: how many drives it runs at once; 0 as long as it takes none.
        stopping: set when nothing more is to be taken.
    """

    def __init__(
        self,
        store: Store,
        source: SharedTrees,
        engine: WorkEngine | None,
        settings: WorkerSettings,
        take: Take,
        on_change: Callable[[], None],
    ) -> None:
        self.is_placed = engine is not None
        self.slots = 0
        self.stopping = asyncio.Event()
        self._journal = store.id
        self._owed = source.cluster.drives.owed
        self._engine = engine or InProcess()
        self._settings = settings
        self._pulse = source.pulse
        self._take = take
        self._on_change = on_change
        self._tried = asyncio.Event()  # to open the engine
        self._failure: EngineError | None = None  # why it is not open
        self._sweep_soon = asyncio.Event()
        # The queues that are served here; empty if an engine serves them elsewhere.
        self._served: Collection[str] = () if self.is_placed else settings.queues
        self._failed = set[int]()  # drives that could not be submitted by the last sweeps
        self._swept = 0  # the last drive of those that are swept in turn

    def stop(self) -> None:
        """Take nothing more, and sweep no more."""
        if not self.stopping.is_set():
            self.stopping.set()
            self._sweep_soon.set()
            self._on_change()

    def sweep_soon(self) -> None:
        """Sweep at once."""
        self._sweep_soon.set()

    async def run(self) -> None:
        """Open the engine, and submit orphaned drives until this is stopped."""
        while not await self._open():
            await self._rest(_RETRY)
        while not self.stopping.is_set():
            try:
                await self._sweep()
            except (StoreError, EngineError) as error:
                log.debug("what is owed cannot be submitted: %s", error)
            except Exception:
                # A program may have given an engine of its own. Without sweeps, what is lost would
                # stay so.
                log.exception("what is owed cannot be submitted")
            # At different times on different workers.
            await self._rest(self._settings.sweep * random.uniform(0.7, 1.3))

    async def _open(self) -> bool:
        """Open the engine; return whether there is no need to try again."""
        try:
            await self._engine.open(self._journal)
        except EngineError as error:
            if self._failure is None:
                log.warning("what is submitted waits for its engine: %s", error)
            self._failure = error
        else:
            self._failure = None
        self._tried.set()
        return self._failure is None or self.stopping.is_set()

    async def _rest(self, seconds: float) -> None:
        self._sweep_soon.clear()
        # It may have been stopped before that.
        if not self.stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._sweep_soon.wait()

    async def _sweep(self) -> None:
        """Submit what is owed: the engine may have lost it, or never had it."""
        if not self._pulse.is_steady:
            return
        # An engine has a little time to deliver what was just submitted.
        older_than = self._settings.sweep if self.is_placed else 0.0
        owed = partial(self._owed, _MOST_OWED, older_than=older_than)
        found = await in_thread(owed, queues=self._served)
        # Those of other queues, which only an engine has to be told about, and those that come
        # after many which no worker can run just now, have their turn as well.
        is_more = len(found) == _MOST_OWED or (self.is_placed and len(self._served) > 0)
        if is_more:
            others = () if self.is_placed else self._served
            after = self._swept or (0 if self.is_placed else found[-1].node)
            page = await in_thread(owed, queues=others, after=after)
            self._swept = page[-1].node if len(page) == _MOST_OWED else 0
            found += [ticket for ticket in page if ticket not in found]
        await self._submit_all(found)

    async def _submit_all(self, found: Collection[Ticket]) -> None:
        """Submit tickets; those that have failed before come last, and keep no others waiting.

        Raises:
            EngineError: some cannot be submitted; if too many, the rest was not tried.
        """
        self._failed &= {ticket.node for ticket in found}
        failures: list[Exception] = []
        for ticket in sorted(found, key=lambda one: (one.node in self._failed, -one.priority)):
            try:
                await self._engine.submit(ticket)
            except Exception as error:  # noqa: BLE001 - an engine of a program may raise anything
                self._failed.add(ticket.node)
                failures.append(error)
                if len(failures) == _MOST_FAILURES:
                    break  # most likely the engine cannot be reached
            else:
                self._failed.discard(ticket.node)
        if failures:
            raise failures[0]

    async def submit(self, ticket: Ticket) -> None:
        """Ask for a drive to be run.

        Raises:
            EngineError: the engine cannot be reached.
        """
        await self._opened()
        await self._engine.submit(ticket)

    async def work(self, queues: Collection[str], slots: int, stop: Stop) -> None:
        """Take what the engine delivers, until *stop* is set or this is stopped.

        Raises:
            EngineError: the engine cannot be opened.
        """
        await self._opened()
        stopper = asyncio.get_running_loop().create_task(self._stop_at(stop))
        try:
            if not self.slots:
                self.slots = slots
                self._served = queues
                self._on_change()
                await self._engine.work(self._take, queues=queues, slots=slots, stop=self.stopping)
            else:
                # Without an engine it takes already, as the settings say.
                await self.stopping.wait()
        finally:
            stopper.cancel()
            self.stop()

    async def _opened(self) -> None:
        await self._tried.wait()
        if self._failure is not None:
            raise self._failure

    async def _stop_at(self, stop: Stop) -> None:
        await stop.wait()
        self.stop()

    async def close(self) -> None:
        """Disconnect from the engine."""
        await self._engine.close()
