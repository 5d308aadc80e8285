"""The speed of commands in processor time, as multiples of what starting Python takes here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import survey_journals
from command_results import environment
from survey_journals import Journal

# What every command needs before it does anything.
IMPORTS = ("-c", "import asyncio, click, msgspec, sqlite3, typing_extensions")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    return survey_journals.large(tmp_path_factory.mktemp("large"))


def processor_time(*args: str, cwd: Path) -> tuple[float, str]:
    """Return how long Python takes, and what it printed last.

    It is the least of several runs: others that share the processor's caches make a run dearer, and
    none makes it cheaper.
    """
    least, out = float("inf"), ""
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, *args],
            cwd=cwd, env=environment(), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        out = process.stdout.read()
        process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        least = min(least, used.ru_utime + used.ru_stime)
    return least, out


def test_commands_start_quickly_and_print_ten_thousand_nodes_soon(large: Journal):
    folder = large.file.parent
    start, _ = processor_time(*IMPORTS, cwd=folder)
    listing, _ = processor_time("-m", "treefold", "ps", cwd=folder)
    printing, out = processor_time("-m", "treefold", "tree", cwd=folder)
    assert len(out.splitlines()) == 10_000
    # 2.0 and 9.5 when this was written.
    assert listing / start < 3.5
    assert printing / start < 16
