"""The loop of a worker: fetches deliveries from a source, and runs them in slots."""

import asyncio
import logging
from contextlib import suppress
from typing import Protocol, TypeVar

from treefold.core.work_engine import Stop, Take, Taken

log = logging.getLogger(__name__)

D = TypeVar("D")


class Source(Protocol[D]):
    """The deliveries of one worker: fetched, and settled afterwards."""

    async def fetch(self) -> D | None:
        """Return the next delivery, None if there is none just now."""
        ...

    def node(self, delivery: D) -> int:
        """Return the node of the drive."""
        ...

    async def settle(self, delivery: D, taken: Taken) -> None:
        """Forget a delivery, or deliver it again later."""
        ...

    async def give_back(self, delivery: D) -> None:
        """Deliver a drive again at once, to any worker: it was not run to its end."""
        ...

    def pause(self) -> float | None:
        """Return for how many seconds there is nothing to fetch, unless the loop is woken."""
        ...


class TakeLoop:
    """Runs deliveries, at most *slots* at once, and fetches nothing that it cannot run at once."""

    def __init__(self, take: Take, *, slots: int) -> None:
        self._take = take
        self._slots = slots
        self._running = 0
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Fetch now: there may be something new."""
        self._wake.set()

    async def run(self, source: Source[D], stop: Stop) -> None:
        """Run what *source* has until *stop* is set, and then finish what runs."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wake_at(stop))
            while not (stop.is_set() or is_cancelled()):
                # Cleared before the fetch, so that what arrives meanwhile is fetched next.
                self._wake.clear()
                delivery = await source.fetch() if self._running < self._slots else None
                if delivery is None:
                    await self._rest(source.pause() if self._running < self._slots else None)
                elif stop.is_set() or is_cancelled():
                    await source.give_back(delivery)
                else:
                    self._running += 1
                    group.create_task(self._deliver(source, delivery))
            if is_cancelled():
                raise asyncio.CancelledError

    async def _wake_at(self, stop: Stop) -> None:
        await stop.wait()
        self._wake.set()

    async def _rest(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _deliver(self, source: Source[D], delivery: D) -> None:
        try:
            await source.settle(delivery, await run_take(self._take, source.node(delivery)))
        except asyncio.CancelledError:
            await source.give_back(delivery)
            raise
        finally:
            # With a free slot the loop has fetched all there was, and hears of what is new.
            if self._running == self._slots:
                self._wake.set()
            self._running -= 1


async def run_take(take: Take, node: int) -> Taken:
    """Call *take*; if it fails, the drive is delivered again later."""
    try:
        return await take(node)
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        log.warning("the drive of node:%s was cancelled from within; it is delivered again", node)
    except Exception:
        log.exception("the drive of node:%s failed; it is delivered again", node)
    return Taken.Later


def is_cancelled() -> bool:
    """Whether the current task is being cancelled.

    CancelledError does not tell: code may raise it by itself, and on Python 3.11 ``wait_for`` may
    lose it, which the pool of psycopg uses.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
