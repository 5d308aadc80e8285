"""The example in the help of every command is run, in a folder where it makes sense.

There is the small journal as ``run.db``, what wrote it as ``report.py``, a run of it as
``run.jsonl``, and the folders of the project that examples name. There is no network.
"""

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

import warm_python
from small_journal import write_small_journal
from support import heed_interrupts
from treefold import SqliteStore
from treefold.cli.commands import COMMANDS, load_command
from treefold.stores import export_tree

ROOT = Path(__file__).parent.parent.parent
NOWHERE = "http://127.0.0.1:9"  # no server listens there
DIFFERENT = {"diff": 1}  # exit codes of examples that do not end with 0
SERVING = {"mcp", "view"}  # which end when they are interrupted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_small_journal(tmp_path / "run.db")
    with SqliteStore(tmp_path / "run.db") as store:
        export_tree(store, 1, tmp_path / "run.jsonl")
    (tmp_path / "report.py").write_bytes((ROOT / "tests" / "small_journal.py").read_bytes())
    for name in ("examples", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def example_of(name: str) -> list[str]:
    lines = [line.strip() for line in (load_command(name).help or "").splitlines()]
    (example,) = [line for line in lines if line.startswith("example: treefold ")]
    return shlex.split(example.removeprefix("example: treefold "))


def environment() -> dict[str, str]:
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), NOWHERE)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith(("_API_KEY", "_BASE_URL", "_proxy", "_PROXY"))
        and (name == "TREEFOLD_CACHE" or not name.startswith("TREEFOLD_"))
    }
    return kept | proxies | {"PIP_NO_INDEX": "1", "no_proxy": "127.0.0.1", "BROWSER": "true"}


@pytest.mark.usefixtures("smollm2")  # which some need, and may not fetch
@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_every_command_does_what_it_says(name: str, folder: Path):
    process = subprocess.Popen(
        warm_python.command("-m", "treefold", *example_of(name)),
        cwd=folder,
        env=environment(),
        preexec_fn=heed_interrupts,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if name in SERVING:
            assert process.stderr is not None
            assert process.stderr.readline().startswith(f"treefold {name}: ")
            process.send_signal(signal.SIGINT)
        shown, told = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    expected = 130 if name in SERVING else DIFFERENT.get(name, 0)
    assert process.returncode == expected, told
    assert "Traceback (most recent call last)" not in told
    assert name in SERVING or shown or name in {"chat", "export"}
