"""Whoever starts, resumes, forks, replays, serves or places a run is bound by what bound it.

A sample of the kills: ``make crash`` and ``make cluster`` kill each process at every commit.
"""

from collections.abc import Iterable, Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Final

import pytest

from crash.nursery import Nursery
from guards import placed, program
from guards.guarded import GUARDS, UNGUARDED
from guards.placements import Placement, tried
from guards.table import Cell, Table
from treefold.core.function import DEFAULT_QUEUE
from work_engines import KINDS, engine_name

# At which commits a start is killed, and a way that goes on with the run.
KILLED: Final = ("", "after:3", "before:5")
THEN: Final = ("after:1", "", "before:2", "")
# What does nothing of the run again, or names a call that there is not yet.
WITHOUT_EFFECT: Final = {"replay", "treefold replay", "treefold fork of the call"}


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery"), "guards.program") as nursery:
        yield nursery


@pytest.fixture(scope="module")
def worker_nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("workers"), "guards.placed") as nursery:
        yield nursery


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return Table(tmp_path_factory.mktemp("table"))


def faults(table: Table, nursery: Nursery, cells: Iterable[Cell]) -> dict[str, str]:
    found = {str(cell): table.tried(nursery, cell).fault for cell in cells}
    return {cell: fault for cell, fault in found.items() if fault}


@pytest.mark.slow
@pytest.mark.parametrize("way", program.WAYS)
def test_nothing_guarded_is_done_without_a_persons_word(table: Table, nursery: Nursery, way: str):
    first = list(program.WAYS).index(way)
    # Two guards for each way; make crash tries all.
    cells = [
        Cell(
            GUARDS[place % len(GUARDS)],
            "a program",
            KILLED[place % len(KILLED)],
            way,
            THEN[place % len(THEN)],
        )
        for place in (2 * first, 2 * first + 1)
    ]
    assert faults(table, nursery, cells) == {}


@pytest.mark.slow
def test_a_run_is_guarded_wherever_it_was_started(table: Table, nursery: Nursery):
    kills = cycle(["after:2", "before:3", ""])
    starts = product(program.STARTS, GUARDS)
    cells = [Cell(guard, start, next(kills)) for start, guard in starts]
    assert faults(table, nursery, cells) == {}


@pytest.mark.slow
def test_every_way_goes_on_with_a_run_that_nothing_guards(table: Table, nursery: Nursery):
    cells = [
        Cell(UNGUARDED, killed="after:3", way=way)
        for way in program.WAYS
        if way not in WITHOUT_EFFECT
    ]
    assert set(faults(table, nursery, cells)) == set(map(str, cells))


@pytest.mark.slow
@pytest.mark.parametrize("way", placed.WAYS)
def test_workers_do_nothing_guarded_without_a_persons_word(
    worker_nursery: Nursery, tmp_path: Path, way: str
):
    place = list(placed.WAYS).index(way)
    engines = ("in-process", *map(engine_name, KINDS))
    cell = Placement(
        engines[place % len(engines)],
        way,
        then=("after:4", "before:9", "after:12")[place % 3],
        queue=("", DEFAULT_QUEUE)[place % 2],
    )
    outcome = tried(worker_nursery, tmp_path / "trial", cell)
    assert (outcome.fault, outcome.deaths) == ("", 1)
