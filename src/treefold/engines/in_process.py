"""``InProcess``: an engine without a server, for the drives of one process."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from treefold.core.fact import replace
from treefold.core.work_engine import Depth, Stop, Take, Taken, Ticket
from treefold.engines.take_loop import TakeLoop
from treefold.engines.timing import FIRST_DELAY, LONGEST_DELAY, Delays


class InProcess:
    """Delivers drives within this process, from a queue in memory.

    A runtime without another engine uses it.

    Args:
        first_delay: seconds until a drive is delivered again that could not be run; twice as many
            each time.
        longest_delay: how many at most.
        clock: returns the seconds since the epoch.

    Example:
        >>> import asyncio
        >>> from treefold.engines import InProcess, Taken, Ticket
        >>> async def main() -> None:
        ...     engine, stop = InProcess(), asyncio.Event()
        ...     async def take(node: int) -> Taken:
        ...         print("runs the drive of node", node)
        ...         stop.set()
        ...         return Taken.Done
        ...     await engine.open()
        ...     await engine.submit(Ticket(node=7))
        ...     await engine.work(take, queues=["default"], slots=1, stop=stop)
        >>> asyncio.run(main())
        runs the drive of node 7
    """

    def __init__(
        self,
        *,
        first_delay: float = FIRST_DELAY,
        longest_delay: float = LONGEST_DELAY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._delays = Delays(first_delay, longest_delay)
        self._queues = Queues(clock)
        self._loops: set[TakeLoop] = set()

    async def open(self, journal: str = "") -> None:
        pass

    async def submit(self, ticket: Ticket) -> None:
        self._queues.add(ticket)
        self._wake()

    async def withdraw(self, node: int) -> None:
        self._queues.remove(node)

    async def work(self, take: Take, *, queues: Collection[str], slots: int, stop: Stop) -> None:
        loop = TakeLoop(take, slots=slots)
        self._loops.add(loop)
        try:
            await loop.run(_Source(self._queues, queues, self._delays, self._wake), stop)
        finally:
            self._loops.discard(loop)

    async def depth(self, queues: Collection[str]) -> Depth:
        return self._queues.depth(queues)

    async def close(self) -> None:
        pass

    def _wake(self) -> None:
        for loop in self._loops:
            loop.wake()


@dataclass(order=True, slots=True)
class Delivery:
    """A drive in a queue, or one that a worker has; those that sort first are run first."""

    rank: int
    number: int
    ticket: Ticket = field(compare=False)
    attempts: int = field(default=0, compare=False)


class Queues:
    """The deliveries of each queue, at most one for each node, and those that wait for their time.

    A delivery that was removed stays in its heap until it comes to the top.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._numbers = count()
        self._queued: dict[int, Delivery] = {}
        self._ready: dict[str, list[Delivery]] = defaultdict(list)
        self._delayed: list[tuple[float, Delivery]] = []
        self._running: dict[str, int] = defaultdict(int)

    def add(self, ticket: Ticket, *, attempts: int = 0) -> None:
        """Queue a drive; if it is queued already, the earlier time counts."""
        now = self._clock()
        there = self._queued.get(ticket.node)
        if there and (there.attempts or _time(there.ticket) <= max(_time(ticket), now)):
            return
        delivery = Delivery(-ticket.priority, next(self._numbers), ticket, attempts)
        self._queued[ticket.node] = delivery
        if _time(ticket) > now:
            heappush(self._delayed, (_time(ticket), delivery))
        else:
            heappush(self._ready[ticket.queue], delivery)

    def add_delayed(self, delivery: Delivery, seconds: float) -> None:
        """Queue a drive again, after a delay that no ``add`` shortens."""
        later = replace(delivery.ticket, not_before=self._clock() + seconds)
        self.add(later, attempts=delivery.attempts + 1)

    def remove(self, node: int) -> None:
        """Forget a drive that is queued."""
        self._queued.pop(node, None)

    def take(self, queues: Collection[str]) -> Delivery | None:
        """Return what is to be run next in one of these queues, and count it as running."""
        self._move_due()
        tops = [top for name in queues if (top := self._top(self._ready[name]))]
        if not tops:
            return None
        best = min(tops)
        heappop(self._ready[best.ticket.queue])
        del self._queued[best.ticket.node]
        self._running[best.ticket.queue] += 1
        return best

    def finish(self, delivery: Delivery) -> None:
        """Count a delivery as running no longer."""
        self._running[delivery.ticket.queue] -= 1

    def until_due(self) -> float | None:
        """Return the seconds until the next delayed drive is due, None if there is none."""
        while self._delayed and not self._is_queued(self._delayed[0][1]):
            heappop(self._delayed)
        return max(0.0, self._delayed[0][0] - self._clock()) if self._delayed else None

    def depth(self, queues: Collection[str]) -> Depth:
        """Return how much is in these queues."""
        queued = sum(one.ticket.queue in queues for one in self._queued.values())
        return Depth(queued=queued, running=sum(self._running[name] for name in queues))

    def _move_due(self) -> None:
        while self._delayed and self._delayed[0][0] <= self._clock():
            _, delivery = heappop(self._delayed)
            if self._is_queued(delivery):
                heappush(self._ready[delivery.ticket.queue], delivery)

    def _top(self, heap: list[Delivery]) -> Delivery | None:
        while heap and not self._is_queued(heap[0]):
            heappop(heap)
        return heap[0] if heap else None

    def _is_queued(self, delivery: Delivery) -> bool:
        return self._queued.get(delivery.ticket.node) is delivery


def _time(ticket: Ticket) -> float:
    return 0.0 if ticket.not_before is None else ticket.not_before


class _Source:
    """The deliveries of some queues, for one worker."""

    def __init__(
        self, queues: Queues, names: Collection[str], delays: Delays, wake: Callable[[], None]
    ) -> None:
        self._queues = queues
        self._names = list(names)
        self._delays = delays
        self._wake = wake

    async def fetch(self) -> Delivery | None:
        return self._queues.take(self._names)

    def node(self, delivery: Delivery) -> int:
        return delivery.ticket.node

    async def settle(self, delivery: Delivery, taken: Taken) -> None:
        self._queues.finish(delivery)
        if taken is Taken.Later:
            self._queues.add_delayed(delivery, self._delays.after(delivery.attempts + 1))
            self._wake()

    async def give_back(self, delivery: Delivery) -> None:
        self._queues.finish(delivery)
        self._queues.add(delivery.ticket)
        self._wake()

    def pause(self) -> float | None:
        return self._queues.until_due()
