"""A worker dies, stops or is cut off at any moment, and another finishes its tree."""

import os
import signal
import time
from pathlib import Path

import pytest

from cluster.conftest import QUICK
from cluster.leases import end_lease
from cluster.trial import Second, faults, worker
from crash.effects import read

KILLED = -signal.SIGKILL


def killed_and_finished(url: str, folder: Path, kill: str, *, remote: bool = False) -> bool:
    """Have a worker killed, and its tree finished by another; False if it was never killed."""
    effects = folder / "effects"
    flags = ["--remote"] if remote else []
    second = Second(url, effects, remote=remote)
    try:
        with worker(url, effects, "--start", "--kill", kill, *flags) as first:
            second.answer_until(lambda: not first.is_running or second.is_over)
            was_killed = not first.is_running
            if was_killed:
                assert first.wait() == KILLED
                end_lease(url, first.pid)
            before = second.committed()
            second.runtime.recover()
            outputs = second.finish() if before.lines else {}
            assert not before.lines or faults(before, read(effects), outputs) == []
    finally:
        second.close()
    return was_killed


@pytest.mark.parametrize("kill", ["after:1", "before:4", "after:6", "before:9", "after:12"])
def test_a_tree_whose_worker_is_killed_is_finished_by_another(url: str, tmp_path: Path, kill: str):
    assert killed_and_finished(url, tmp_path, kill)


@pytest.mark.parametrize("kill", ["after:3", "before:8"])
def test_a_tree_with_remote_calls_is_finished_by_another(url: str, tmp_path: Path, kill: str):
    assert killed_and_finished(url, tmp_path, kill, remote=True)


def test_a_worker_that_was_stopped_for_longer_than_its_lease_writes_nothing_any_more(
    url: str, tmp_path: Path
):
    effects = tmp_path / "effects"
    second = Second(url, effects)
    try:
        with worker(url, effects, "--start") as first:
            first.ready()
            deadline = time.monotonic() + 20
            while not second.committed().marks and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(first.pid, signal.SIGSTOP)
            before = second.committed()
            second.runtime.recover()
            outputs = second.finish()
            lines = len(read(effects))
            os.kill(first.pid, signal.SIGCONT)
            # It learns with its next heartbeat that it has lost the tree.
            time.sleep(3 * QUICK.beat)
            assert first.close() == 0
            found = [line for line in read(effects)[lines:] if line["what"] == "begin"]
            assert found == []
        assert faults(before, read(effects), outputs) == []
    finally:
        second.close()


def test_a_wrong_clock_costs_nobody_a_tree(url: str, tmp_path: Path):
    effects = tmp_path / "effects"
    second = Second(url, effects)
    try:
        with worker(url, effects, "--start", "--clock", "-3600") as first:
            first.ready()
            second.runtime.recover()
            before = second.committed()
            outputs = second.finish()
            assert first.is_running
        assert faults(before, read(effects), outputs) == []
    finally:
        second.close()
