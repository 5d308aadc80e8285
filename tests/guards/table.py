"""Every way to start a guarded run and every way to go on with it, each process killed on the way.

A run is started by a process that has the guard, and is killed at a commit. Another way goes on
with it, is killed as well, and another program has the last word. Whatever happens, nothing is done
without a person's word.
"""

import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from crash.nursery import Nursery
from guards.guarded import violations
from guards.program import ways_after

KILLED = -signal.SIGKILL
LAST = "another program"


@dataclass(frozen=True)
class Cell:
    """One trial: how a run is started and continued, and at which commits both are killed."""

    guard: str
    start: str = "a program"
    killed: str = ""
    way: str = LAST
    then: str = ""

    def __str__(self) -> str:
        return f"{self.guard}: {self.start} [{self.killed}], {self.way} [{self.then}]"


@dataclass
class Outcome:
    """What came of a trial: how many processes died, and what was wrong."""

    deaths: int = 0
    fault: str = ""


@dataclass
class Table:
    """Makes trials, each in a folder of its own; the start of a run is made once for all."""

    folder: Path
    _begun: dict[tuple[str, str, str], "tuple[Path, Outcome]"] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tried(self, nursery: Nursery, cell: Cell) -> Outcome:
        """Make one trial."""
        begun, so_far = self.begun(nursery, cell)
        if so_far.fault:
            return so_far
        own = self._new_folder()
        # A journal that no process has open may be copied with the files beside it.
        shutil.copytree(begun, own, dirs_exist_ok=True)
        outcome = self._live(nursery, cell.way, own, cell.guard, cell.then, so_far.deaths)
        if outcome.deaths > so_far.deaths and not outcome.fault:
            outcome = self._live(nursery, LAST, own, cell.guard, "", outcome.deaths)
        if not outcome.fault:
            shutil.rmtree(own)
        return outcome

    def begun(self, nursery: Nursery, cell: Cell) -> "tuple[Path, Outcome]":
        """Return the folder of a run that was started so, and how that went."""
        key = (cell.start, cell.guard, cell.killed)
        if key not in self._begun:
            own = self._new_folder()
            outcome = self._live(nursery, cell.start, own, cell.guard, cell.killed, 0)
            self._begun[key] = (own, outcome)
        return self._begun[key]

    def _new_folder(self) -> Path:
        with self._lock:
            own = self.folder / str(next(self._numbers))
        own.mkdir()
        return own

    @staticmethod
    def _live(
        nursery: Nursery, way: str, folder: Path, guard: str, kill: str, deaths: int
    ) -> Outcome:
        life = nursery.live(way, str(folder), guard, kill)
        deaths += life.status == KILLED
        if life.status not in {0, KILLED}:
            return Outcome(deaths, f"{folder}: {way} ended with {life.status}: {life.complaints}")
        found = violations(folder, deaths)
        return Outcome(deaths, found and f"{folder}: {found} after {way}")


def commits() -> Iterator[str]:
    """Give a kill before and one after each commit, for ever."""
    for number in count(1):
        yield f"before:{number}"
        yield f"after:{number}"


def starts_of(table: Table, nursery: Nursery, start: str, guard: str) -> list[str]:
    """Return the kills that a start of a run meets, and none; it is tried until it meets none."""
    met = [""]
    for kill in commits():
        if not table.begun(nursery, Cell(guard, start, kill))[1].deaths:
            break
        met.append(kill)
    return met


def all_of_one_start(
    table: Table, nursery: Nursery, start: str, guard: str
) -> Iterator[tuple[Cell, Outcome]]:
    """Kill the start of a run at every commit, and after each try every way; and kill every way at
    every commit, after a start that came to its end and one that was killed when half was done.

    What is in the journal before a commit is what was in it after the one before.
    """
    met = starts_of(table, nursery, start, guard)
    for killed in met:
        for way in (LAST,) if killed.startswith("before") else ways_after(start):
            cell = Cell(guard, start, killed, way)
            yield cell, table.tried(nursery, cell)
    for way in ways_after(start):
        for killed in ("", met[len(met) // 2]):
            for then in commits():
                cell = Cell(guard, start, killed, way, then)
                outcome = table.tried(nursery, cell)
                yield cell, outcome
                if outcome.deaths == bool(killed):  # it has fewer commits
                    break


@dataclass
class Tally:
    """Counts the trials of a part of the table, and shows what is wrong as soon as it is seen."""

    name: str
    say: Callable[[str], None]
    trials: int = 0
    deaths: int = 0
    violations: int = 0

    def count(self, trials: Iterable[tuple[object, Outcome]]) -> int:
        """Make the trials; return in how many something was wrong."""
        for cell, outcome in trials:
            self.trials += 1
            self.deaths += outcome.deaths
            if outcome.fault:
                self.violations += 1
                self.say(f"{cell}: {outcome.fault[:2000]}")
        self.say(
            f"{self.name}: {self.trials} trials, {self.deaths} deaths, {self.violations} violations"
        )
        return self.violations
