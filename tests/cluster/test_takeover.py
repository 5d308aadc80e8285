"""A worker dies, stops or is cut off at any moment, and another finishes its tree."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from cluster.conftest import on
from cluster.leases import end_lease
from cluster.quick import QUICK
from cluster.trial import Second, faults, worker
from crash.effects import call_of, read
from support import wait
from work_engines import EXHAUSTIVE, KINDS

KILLED = -signal.SIGKILL


def killed_and_finished(
    url: str, folder: Path, engine: str, die: str, *, remote: bool = False
) -> bool:
    """Have a worker killed, and its tree finished by another; False if it was never killed."""
    effects = folder / "effects"
    flags = ["--remote"] if remote else []
    # The tree is over, or waits, before a process that dies at the end of a drive is dead.
    dies_last = die.startswith("ending")
    second = Second(url, effects, engine, remote=remote)
    try:
        with worker(url, effects, engine, "--die", die, *flags) as first:
            second.answer_until(lambda: not first.is_running or (second.is_over and not dies_last))
            was_killed = not first.is_running
            if was_killed:
                assert first.wait() == KILLED
                end_lease(url, first.pid)
            before = second.committed()
            second.serve()
            if before.has_tree:
                outputs = second.finish()
                found = faults(before, second.committed(), read(effects), outputs)
                assert found == [], found
    finally:
        second.close()
    return was_killed


def each_on_one(fixture: str, name: str, *cases: tuple[str, Any]) -> pytest.MarkDecorator:
    """Try each case on the engine beside it; ``make cluster`` tries it on all."""
    kinds = KINDS if fixture == "engine" else (*KINDS, "none")
    tried = [(kind, case) for kind in kinds for _, case in cases] if EXHAUSTIVE else cases
    return pytest.mark.parametrize((fixture, name), tried, indirect=[fixture])


@each_on_one(
    "any_engine",
    "die",
    ("temporal", "after:1"),
    ("procrastinate", "before:4"),
    ("none", "after:6"),
    ("hostile", "before:9"),
    ("procrastinate", "after:12"),
)
def test_a_tree_whose_worker_is_killed_is_finished_by_another(
    url: str, tmp_path: Path, any_engine: str, die: str
):
    assert killed_and_finished(url, tmp_path, any_engine, die)


@each_on_one("any_engine", "die", ("temporal", "after:3"), ("procrastinate", "before:8"))
def test_a_tree_with_remote_calls_is_finished_by_another(
    url: str, tmp_path: Path, any_engine: str, die: str
):
    assert killed_and_finished(url, tmp_path, any_engine, die, remote=True)


@each_on_one("engine", "remote", ("temporal", False), ("procrastinate", True))
def test_a_worker_is_killed_when_a_drive_has_ended_and_its_engine_does_not_know(
    url: str, tmp_path: Path, engine: str, *, remote: bool
):
    assert killed_and_finished(url, tmp_path, engine, "ending:1", remote=remote)


def finish_though_it_was_stopped(
    url: str, folder: Path, engine: str, *options: str, stop: bool
) -> list[Any]:
    """Have a worker stop for longer than its lease, and its tree finished by another meanwhile.

    Unless the test is to *stop* it, it stops itself. Return what it began after that. A call that
    was stopped between its last look at the lease and its first line is left out: nothing can tell
    it apart from one that was stopped after that line.
    """
    effects = folder / "effects"
    second = Second(url, effects, engine)
    try:
        with worker(url, effects, engine, *options) as first:
            if stop:
                wait(lambda: second.committed().marks)
                os.kill(first.pid, signal.SIGSTOP)
            else:
                wait(first.is_stopped)
            before = second.committed()
            second.serve()
            outputs = second.finish()
            lines = len(read(effects))
            os.kill(first.pid, signal.SIGCONT)
            # It learns with its next heartbeat that it has lost the tree.
            time.sleep(3 * QUICK.beat)
            assert first.close() == 0
            begun = [line for line in read(effects)[lines:] if line["what"] == "begin"]
            begun = [line for line in begun if call_of(line) not in before.under_way]
        assert faults(before, second.committed(), read(effects), outputs) == []
    finally:
        second.close()
    return begun


@on("temporal")
def test_a_worker_that_was_stopped_for_longer_than_its_lease_writes_nothing_any_more(
    url: str, tmp_path: Path, engine: str
):
    assert finish_though_it_was_stopped(url, tmp_path, engine, stop=True) == []


@each_on_one("engine", "commit", ("procrastinate", 5), ("hostile", 8))
def test_a_worker_that_stops_in_the_middle_of_a_write_blocks_nobody(
    url: str, tmp_path: Path, engine: str, commit: int
):
    options = ("--freeze", str(commit))
    assert finish_though_it_was_stopped(url, tmp_path, engine, *options, stop=False) == []


@each_on_one("engine", "seconds", ("procrastinate", -3600), ("temporal", 3600))
def test_a_wrong_clock_costs_nobody_a_tree(url: str, tmp_path: Path, engine: str, seconds: int):
    effects = tmp_path / "effects"
    second = Second(url, effects, engine)
    try:
        with worker(url, effects, engine, f"--clock={seconds}") as first:
            first.ready()
            second.serve()
            before = second.committed()
            outputs = second.finish()
            assert first.is_running
        assert faults(before, second.committed(), read(effects), outputs) == []
    finally:
        second.close()
