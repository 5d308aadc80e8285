"""``--deps``: what functions have as ctx.deps when a command runs them."""

import signal
import subprocess
from pathlib import Path

import pytest

import warm_python

MODULE = """
import os, signal
from pathlib import Path
from treefold import RunContext, RunInfo, tool

print("loaded", flush=True)

class Till:
    def __init__(self, owner: str) -> None:
        self.owner = owner

def open_till(run: RunInfo) -> Till:
    return Till(run.inputs["owner"])

@tool(repeatable=True)
async def pay(ctx: RunContext[Till], owner: str) -> str:
    assert isinstance(ctx.deps, Till)
    if Path("deadly").exists():
        Path("deadly").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    Path("paid").write_text(ctx.deps.owner)
    return f"{ctx.deps.owner} paid"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "till.py").write_text(MODULE)
    return tmp_path


def treefold(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return warm_python.run("-m", "treefold", *args, cwd=folder)


RUN = ("run", "till.py:pay", "--owner", "ada", "--store", "run.db")


def test_a_run_has_them_and_the_file_is_loaded_once(folder: Path):
    done = treefold(folder, *RUN, "--deps", "till.py:open_till")
    assert (done.returncode, done.stdout) == (0, "loaded\nada paid\n")


def test_a_module_may_be_named_as_well(folder: Path):
    done = treefold(folder, "run", "till:pay", "--owner", "ada", "--deps", "till:open_till")
    assert (done.returncode, done.stdout) == (0, "loaded\nada paid\n")


def test_a_run_that_had_some_is_held_back_by_a_command_without(folder: Path):
    (folder / "deadly").touch()
    done = treefold(folder, *RUN, "--key", "job", "--deps", "till.py:open_till")
    assert done.returncode == -signal.SIGKILL
    done = treefold(folder, "run", "till.py:pay", "--owner", "bob", "--store", "run.db")
    assert done.returncode == 1
    assert "run 1 is held back: its dependencies came from till:open_till" in done.stderr
    assert "asks for ctx.deps, and its run has no dependencies" in done.stderr
    assert not (folder / "paid").exists()
    done = treefold(folder, *RUN, "--key", "job", "--deps", "till.py:open_till")
    assert (done.returncode, done.stdout) == (0, "loaded\nada paid\n")
    assert (folder / "paid").read_text() == "ada"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("till.py", "--deps till.py is not MODULE:NAME, such as app.py:connect"),
        ("till.py:close", "--deps till.py:close: till.py has no 'close'"),
        ("nothing:close", "nothing cannot be imported"),
    ],
)
def test_what_cannot_be_found_is_refused(folder: Path, target: str, why: str):
    done = treefold(folder, *RUN, "--deps", target)
    assert done.returncode == 2
    assert why in done.stderr


def test_a_fork_is_refused_without_them(folder: Path):
    deps = ("--deps", "till.py:open_till")
    treefold(folder, *RUN, *deps)
    (folder / "paid").unlink()
    fork = ("fork", "1", "--with", "till.py", "--args", '{"owner": "bob"}', "--store", "run.db")
    done = treefold(folder, *fork)
    assert (done.returncode, (folder / "paid").exists()) == (2, False)
    assert "its dependencies came from till:open_till" in done.stderr
    done = treefold(folder, *fork, *deps)
    assert (done.returncode, done.stdout) == (0, "loaded\nbob paid\n")


def test_a_runtime_of_the_program_has_its_own(folder: Path):
    (folder / "till.py").write_text(
        MODULE + "\nfrom treefold import Runtime\nruntime = Runtime([pay], deps=open_till)\n"
    )
    done = treefold(folder, "run", "till.py:runtime", "pay", "--owner", "ada")
    assert (done.returncode, done.stdout) == (0, "loaded\nada paid\n")


def test_a_replay_takes_them(folder: Path):
    (folder / "till.py").write_text(MODULE + REPORT)
    deps = ("--deps", "till.py:open_till")
    treefold(folder, "run", "till.py:report", "--owner", "ada", "--store", "run.db", *deps)
    done = treefold(folder, "replay", "--with", "till.py", "--store", "run.db", *deps)
    assert (done.returncode, done.stdout) == (0, "report runs as recorded: 2 calls\n")
    done = treefold(folder, "replay", "--with", "till.py", "--store", "run.db")
    assert done.returncode == 1


REPORT = """
@tool(uses=[pay])
async def report(ctx: RunContext[Till], owner: str) -> str:
    return await ctx.call(pay, owner=ctx.deps.owner)
"""
