"""What one PostgreSQL sustains with many workers, computed from costs that were measured.

    python bench/capacity.py

The costs of a tree come from ``bench/cluster.py --growth``. Here trees of three steps arrive at
random times at a site of so many workers, and wait for what they share: the cores of the database,
the one row from which ids are reserved, slots, and the core of their worker. The same numbers come
out each time. It prints the table of docs/operate/capacity.md.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from statistics import quantiles
from typing import Final

# Measured in November 2026, in milliseconds unless it is said otherwise.
SUBMIT: Final = 1.0  # of the server's CPU time: a tree is written and given to the engine
ADOPT: Final = 1.6  # it is fetched, adopted and read
STEP: Final = 0.6  # a response and a call are written
END: Final = 1.0  # the result is written, and the tree released
HERD: Final = 1.1  # another worker of its queue with a free slot hears of a tree, and asks for it
HEARD: Final = 0.2  # a worker of another queue, or without a free slot, hears of it
IDLE: Final = 1.8  # what a worker costs in a second, whatever it does
WORK: Final = 4.0  # of the worker's CPU time, for each step
RESERVE: Final = 5.0  # the row of ids is locked, until a commit (bench/cluster.py)
RESERVES: Final = 1.5  # of a tree

STEPS: Final = 3
MODEL: Final = 5.0  # seconds that a response takes
SECONDS: Final = 30.0  # that are simulated, after as many to warm up
CORES: Final = 16  # of the database
SESSIONS: Final = 11  # that a worker keeps while it works
MEGABYTES: Final = 2.3  # of memory that a session does not share
BUSY: Final = 0.7  # how far anything may be used


@dataclass(frozen=True, kw_only=True)
class Site:
    """Workers on one database.

    Attributes:
        queues: how many there are, each with as many workers as the others.
        databases: how many there are, each with as many workers as the others.
    """

    workers: int
    slots: int
    queues: int = 1
    databases: int = 1

    @property
    def part(self) -> "Site":
        """What is on one of the databases."""
        return replace(self, workers=self.workers // self.databases, databases=1)


class Servers:
    """Servers with one line before them, such as the cores of a database."""

    def __init__(self, size: int) -> None:
        self.free = [0.0] * size  # when each is free again
        self.used = 0.0  # seconds

    def serve(self, now: float, seconds: float) -> float:
        """Return when something is done that comes now and takes so long."""
        start = max(now, heapq.heappop(self.free))
        heapq.heappush(self.free, start + seconds)
        self.used += seconds
        return start + seconds

    def load(self, now: float, seconds: float) -> None:
        """Add work that is spread over all of them, and that nobody waits for."""
        share = seconds / len(self.free)
        self.free = [max(now, free) + share for free in self.free]
        self.used += seconds


@dataclass(frozen=True)
class Outcome:
    """How far each of the things is used that trees share, and how long trees wait for them all."""

    used: Mapping[str, float]
    late: float  # milliseconds; 99 of 100 trees wait no longer

    @property
    def first(self) -> str:
        """What ends first."""
        return max(self.used, key=self.used.__getitem__)


class Simulation:
    """Trees that arrive at a site, *rate* in each second."""

    def __init__(self, site: Site, rate: float, *, cores: int = CORES) -> None:
        self._site = site
        self._rate = rate
        self._random = random.Random(1)
        self._database = Servers(cores)
        self._row = Servers(1)
        self._workers = [Servers(1) for _ in range(site.workers)]
        self._slots = [site.slots] * site.workers  # that are free
        self._free = site.workers  # workers with a free slot
        self._waiting: deque[Callable[[float], None]] = deque()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = count()
        self._late: list[float] = []  # seconds of each tree that no model needed

    def run(self) -> "Outcome":
        """Return how far everything is used, and the ms that 99 of 100 trees wait at most."""
        now, end = 0.0, 2 * SECONDS
        while (now := now + self._random.expovariate(self._rate)) < end:
            self._at(now, self._submit)
        for second in range(round(end)):
            self._at(second, self._rest)
        cores = row = 0.0
        while self._events and self._events[0][0] < end:
            now, _, act = heapq.heappop(self._events)
            if now < SECONDS:
                cores, row, self._late = self._database.used, self._row.used, []
            act(now)
        ms = quantiles(self._late, n=100)[-1] * 1e3 if len(self._late) > 1 else float("inf")
        slots = self._rate * STEPS * MODEL / (self._site.workers * self._site.slots)
        used = {
            "cores": (self._database.used - cores) / len(self._database.free) / SECONDS,
            "ids": (self._row.used - row) / SECONDS,
            "slots": slots,
        }
        return Outcome(used, ms)

    def _at(self, time: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._number), act))

    def _rest(self, now: float) -> None:
        """Let all workers do for a second what they do anyway."""
        self._database.load(now, self._site.workers * IDLE / 1e3)

    def _submit(self, now: float) -> None:
        for _ in range(2 if self._random.random() < RESERVES - 1 else 1):
            self._row.serve(now, RESERVE / 1e3)
        done = self._database.serve(max(now, min(self._row.free)), SUBMIT / 1e3)
        self._at(done, lambda then: self._place(then, now))

    def _place(self, now: float, begun: float) -> None:
        site = self._site
        asking = self._free / site.queues
        self._database.load(now, (asking * HERD + (site.workers - asking) * HEARD) / 1e3)
        self._waiting.append(lambda then: self._adopt(then, begun))
        self._take(now)

    def _take(self, now: float) -> None:
        if self._free and self._waiting:
            self._waiting.popleft()(now)

    def _adopt(self, now: float, begun: float) -> None:
        # Any of those with a free slot may be the first.
        while not self._slots[worker := self._random.randrange(len(self._slots))]:
            pass
        self._slots[worker] -= 1
        self._free -= not self._slots[worker]
        done = self._database.serve(now, ADOPT / 1e3)
        self._at(done, lambda then: self._request(then, begun, worker, 0, 0.0))

    def _request(self, now: float, begun: float, worker: int, step: int, model: float) -> None:
        seconds = self._random.expovariate(1 / MODEL)
        waited = model + seconds
        self._at(now + seconds, lambda then: self._respond(then, begun, worker, step, waited))

    def _respond(self, now: float, begun: float, worker: int, step: int, model: float) -> None:
        done = self._workers[worker].serve(now, WORK / 1e3)
        done = self._database.serve(done, STEP / 1e3)
        if step + 1 < STEPS:
            self._at(done, lambda then: self._request(then, begun, worker, step + 1, model))
        else:
            done = self._database.serve(done, END / 1e3)
            self._at(done, lambda then: self._end(then, begun, worker, model))

    def _end(self, now: float, begun: float, worker: int, model: float) -> None:
        self._late.append(now - begun - model)
        self._free += not self._slots[worker]
        self._slots[worker] += 1
        self._take(now)


def most(site: Site) -> tuple[float, str]:
    """Return the most trees in a second, of 1, 2, 5, 10 ..., and what is not enough for more."""
    found = 0.0
    for rate in (base * 10**power for power in range(4) for base in (1, 2, 5)):
        outcome = Simulation(site.part, rate / site.databases).run()
        if outcome.used[outcome.first] > BUSY:
            return found, outcome.first
        found = rate
    return found, ""


SITES: Final = (
    Site(workers=10, slots=50),
    Site(workers=100, slots=50),
    Site(workers=1000, slots=50),
    Site(workers=1000, slots=50, queues=10),
    Site(workers=1000, slots=50, databases=10),
    Site(workers=1000, slots=50, databases=10, queues=10),
)
RATE: Final = 5.0  # trees in a second


def main() -> None:
    """Print the table."""
    head = ("workers", "slots of each", "queues", "databases", "sessions of a database", "their GB")
    head += (f"cores in use at {RATE:g} trees/s", "99 of 100 wait", "most trees/s", "for more lack")
    print(f"| {' | '.join(head)} |")
    print(f"|{'--:|' * len(head)}")
    for site in SITES:
        outcome, (rate, lacking) = Simulation(site.part, RATE / site.databases).run(), most(site)
        sessions = site.part.workers * SESSIONS
        cells = (site.workers, site.slots, site.queues, site.databases, sessions)
        told = [f"{cell:,}" for cell in cells]
        used = outcome.used["cores"] * CORES
        told += [f"{sessions * MEGABYTES / 1000:.1f}", f"{used:.1f}", f"{outcome.late:,.0f} ms"]
        print(f"| {' | '.join([*told, f'{rate:,.0f}', lacking])} |")


if __name__ == "__main__":
    main()
