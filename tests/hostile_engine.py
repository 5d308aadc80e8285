"""An engine that does all that an engine may do: deliver twice, late, never, and in any order."""

import asyncio
import random
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from treefold.engines import Depth, Stop, Take, Taken, Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Malice:
    """How likely is what.

    Attributes:
        twice: a drive that is submitted is delivered two to four times, often at the same time.
        never: it is not delivered.
        late: it is delivered with a delay of up to *delay* seconds.
        early: it is delivered before its time.
        forgets: a drive that was to be delivered again later is not.
        ignores: a drive is delivered though it was withdrawn.
    """

    twice: float = 0.3
    never: float = 0.2
    late: float = 0.3
    delay: float = 0.05
    early: float = 0.2
    forgets: float = 0.3
    ignores: float = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class _Delivery:
    ticket: Ticket
    due: float


class HostileEngine:
    """Delivers drives within this process, badly; the same seed makes the same choices.

    Whoever submits what is owed again and again has everything done in the end, if the runtime is
    right: then nothing that this engine does has an effect.

    Args:
        seed: of all choices; None for any.
        malice: how likely is what.

    Attributes:
        log: what it did, in words, for a test that fails.
    """

    def __init__(self, seed: int | None = None, malice: Malice | None = None) -> None:
        self.log: list[str] = []
        self._random = random.Random(seed)
        self._malice = malice or Malice()
        self._queued: list[_Delivery] = []
        self._running: list[Ticket] = []
        self._changed = asyncio.Event()

    async def open(self, journal: str = "") -> None:
        await self._dawdle()

    async def submit(self, ticket: Ticket) -> None:
        await self._dawdle()
        if self._chance(self._malice.never):
            self._note("never delivers", ticket)
            return
        copies = self._random.randint(2, 4) if self._chance(self._malice.twice) else 1
        for _ in range(copies):
            self._queue(ticket)
        if copies > 1:
            self._note(f"delivers {copies} times", ticket)
        # The caller may see the drive running before it knows that it was submitted.
        await self._dawdle()

    async def withdraw(self, node: int) -> None:
        await self._dawdle()
        if not self._chance(self._malice.ignores):
            self._queued = [one for one in self._queued if one.ticket.node != node]

    async def work(self, take: Take, *, queues: Collection[str], slots: int, stop: Stop) -> None:
        free = asyncio.Semaphore(slots)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wake_at(stop))
            while not stop.is_set():
                await free.acquire()
                delivery = await self._next(queues, stop)
                if delivery is not None:
                    group.create_task(self._deliver(take, delivery.ticket, free))

    async def depth(self, queues: Collection[str]) -> Depth:
        return Depth(
            queued=sum(one.ticket.queue in queues for one in self._queued),
            running=sum(ticket.queue in queues for ticket in self._running),
        )

    async def close(self) -> None:
        await self._dawdle()

    # Deliveries

    def _queue(self, ticket: Ticket) -> None:
        due = time.time()
        if ticket.not_before is not None and not self._chance(self._malice.early):
            due = max(due, ticket.not_before)
        if self._chance(self._malice.late):
            due += self._random.uniform(0, self._malice.delay)
        self._queued.append(_Delivery(ticket, due))
        self._changed.set()

    async def _next(self, queues: Collection[str], stop: Stop) -> _Delivery | None:
        """Return any of the deliveries that are due, None if *stop* is set."""
        while not stop.is_set():
            self._changed.clear()
            now = time.time()
            waiting = [one for one in self._queued if one.ticket.queue in queues]
            if due := [one for one in waiting if one.due <= now]:
                found = self._random.choice(due)
                self._queued.remove(found)
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(min((one.due - now for one in waiting), default=None)):
                    await self._changed.wait()
        return None

    async def _deliver(self, take: Take, ticket: Ticket, free: asyncio.Semaphore) -> None:
        self._running.append(ticket)
        try:
            if await take(ticket.node) is Taken.Later and not self._chance(self._malice.forgets):
                self._queue(ticket)
        except asyncio.CancelledError:
            self._queue(ticket)
            raise
        finally:
            self._running.remove(ticket)
            free.release()

    async def _wake_at(self, stop: Stop) -> None:
        await stop.wait()
        self._changed.set()

    async def _dawdle(self) -> None:
        """Let others run first, sometimes."""
        for _ in range(self._random.randint(0, 3)):
            await asyncio.sleep(0)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _note(self, what: str, ticket: Ticket) -> None:
        self.log.append(f"{what} node {ticket.node}")


ENGINE: Final = HostileEngine()  # for ``--engine hostile_engine:ENGINE``
