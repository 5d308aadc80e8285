"""The program is killed at a sample of its commits; ``make crash`` takes them all."""

from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest

from crash.exhaustive import at_random, requests_of, timed, undisturbed
from crash.nursery import Nursery
from crash.rules import faults_of
from crash.tree import REPEATABLE, UNREPEATABLE
from crash.trial import Trial, try_kills

PARTS = 2  # of the commits, killed before and after them in turn
STRIDE = 10
LIVES = 150
RANDOM_KILLS = 3


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery")) as nursery:
        yield nursery


@pytest.fixture(scope="module")
def whole(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A run that nobody disturbs."""
    return undisturbed(nursery, tmp_path_factory.mktemp("whole") / "trial")


@pytest.fixture(scope="module")
def requests(whole: Trial) -> "Counter[str]":
    return requests_of(whole)


def test_the_program_keeps_the_rules_when_nobody_kills_it(whole: Trial, requests: "Counter[str]"):
    assert faults_of(whole, requests) == []
    begun = {line["fn"] for line in whole.effects if line["what"] == "begin"}
    assert begun == REPEATABLE | UNREPEATABLE
    assert requests.total() == 17


@pytest.mark.parametrize("part", range(PARTS))
def test_a_program_that_is_killed_at_a_commit_goes_on_as_if_it_had_not_been(
    nursery: Nursery, whole: Trial, requests: "Counter[str]", tmp_path: Path, part: int
):
    commits = range(1 + part * STRIDE, whole.finished["commits"] + 1, PARTS * STRIDE)
    faults: dict[str, list[str]] = {}
    for place, number in enumerate(commits):
        kill = f"{'before' if (place + part) % 2 else 'after'}:{number}"
        trial = try_kills(nursery, tmp_path / kill, [kill])
        if found := faults_of(trial, requests):
            faults[kill] = found
    assert faults == {}


@pytest.mark.parametrize("second", ["before:1", "after:1", "before:2", "after:2", "after:3"])
def test_a_program_that_is_killed_while_it_recovers_goes_on_all_the_same(
    nursery: Nursery, whole: Trial, requests: "Counter[str]", tmp_path: Path, second: str
):
    faults: dict[str, list[str]] = {}
    for number in range(5, whole.finished["commits"], 48):
        kills = [f"after:{number}", second, second]
        trial = try_kills(nursery, tmp_path / str(number), kills)
        if found := faults_of(trial, requests):
            faults[str(trial.kills)] = found
    assert faults == {}


@pytest.mark.parametrize("seed", range(2))
def test_a_program_that_is_killed_at_any_moment_goes_on_all_the_same(
    nursery: Nursery, requests: "Counter[str]", tmp_path: Path, seed: int
):
    _, span = timed(nursery, tmp_path / "timed")
    faults: dict[str, list[str]] = {}
    for number, kills in enumerate(at_random(seed, RANDOM_KILLS, span)):
        trial = try_kills(nursery, tmp_path / str(number), kills)
        if found := faults_of(trial, requests):
            faults[str(kills)] = found
    assert faults == {}


@pytest.mark.parametrize("kill", ["after:9", "before:12"])
def test_a_program_that_is_killed_in_every_life_gets_done(
    nursery: Nursery, requests: "Counter[str]", tmp_path: Path, kill: str
):
    trial = try_kills(nursery, tmp_path / "trial", repeat(kill, LIVES))
    assert faults_of(trial, requests) == []
    assert len(trial.deaths) < LIVES
    done = [
        sum(node["ended"] + len(node["marks"]) for node in death.found["nodes"])
        for death in trial.deaths
    ]
    assert done == sorted(done)
