"""Guarded runs that are submitted to workers in PostgreSQL, each process killed on the way."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cluster.leases import connect
from crash.nursery import Nursery
from guards.guarded import violations
from guards.placed import LAST, SUBMIT
from guards.table import KILLED, Outcome, commits
from postgres_server import new_name, shared_url, with_query


@dataclass(frozen=True)
class Placement:
    """One trial in PostgreSQL: who submits runs of all guards is killed, and a worker as well."""

    engine: str
    way: str
    killed: str = ""
    then: str = ""
    queue: str = ""

    def __str__(self) -> str:
        apart = ", calls apart" if self.queue else ""
        return f"{self.engine}{apart}: submitted [{self.killed}], {self.way} [{self.then}]"


def tried(nursery: Nursery, folder: Path, cell: Placement) -> Outcome:
    """Make one trial in a new schema and a new *folder*, in a nursery of ``guards.placed``."""
    folder.mkdir()
    url, deaths = with_query(shared_url(), schema=new_name()), 0
    lives = [(SUBMIT, cell.killed), (cell.way, cell.then), (LAST, "")]
    for way, kill in lives[: 3 if cell.then else 2]:
        life = nursery.live(way, str(folder), kill, url, cell.engine, cell.queue)
        deaths += life.status == KILLED
        if life.status not in {0, KILLED}:
            return Outcome(deaths, f"{way} ended with {life.status}: {life.complaints}")
        if found := violations(folder, deaths):
            return Outcome(deaths, f"{found} after {way}")
        with connect(url) as connection:  # what was killed is dead at once
            connection.execute("UPDATE workers SET lease = interval '0'")
    return Outcome(deaths)


def all_of_one_way(
    nursery: Nursery, folder: Path, engine: str, queue: str, way: str, stride: int
) -> Iterator[tuple[Placement, Outcome]]:
    """Kill one of ``WAYS``, or who submits the runs, at every commit, or each *stride*-th time."""
    for kill in islice(commits(), None, None, stride):
        is_worker = way != SUBMIT
        cell = Placement(
            engine,
            way if is_worker else LAST,
            "" if is_worker else kill,
            kill if is_worker else "",
            queue,
        )
        outcome = tried(nursery, folder / kill, cell)
        yield cell, outcome
        if not outcome.deaths:  # it has fewer commits
            return
