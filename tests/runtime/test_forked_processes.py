"""A process that was forked after its runtime had started, as those of a preforking server."""

from pathlib import Path

import pytest

import warm_python

PREFACE = """
import asyncio, os, signal, sys, warnings
warnings.simplefilter("ignore")  # newer Pythons warn of every fork of a process that has threads
print(os.getpid(), flush=True)
from treefold import Runtime, RunContext, tool

@tool
async def double(n: int) -> int:
    return 2 * n

@tool
async def forever(ctx: RunContext) -> None:
    await asyncio.Event().wait()

def in_child(work):
    "Run work() in a forked process, and print the error that it raises."
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            print("returned", work(), flush=True)
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    print("exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

def new_runtime():
    return Runtime([double, forever], store=(sys.argv[1] or None))
"""
WORDS = (
    "UsageError this process was forked after its Runtime had started, in process {}, which alone"
    " runs its calls: make a Runtime in each process, after it was forked"
)


def run(tmp_path: Path, program: str, *args: str) -> list[str]:
    (tmp_path / "program.py").write_text(PREFACE + program)
    done = warm_python.run(str(tmp_path / "program.py"), *args, cwd=tmp_path)
    pid, *told = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    return [line.replace(f"process {pid}", "process {}") for line in told]


@pytest.mark.parametrize("store", ["", "run.db"])
@pytest.mark.parametrize(
    "work",
    [
        "runtime.invoke(double, {'n': 3}).result(30)",
        "double.run_sync(n=3)",
        "asyncio.run(waited(runtime.invoke(double, {'n': 3})))",
        "waiting.result(30)",
        "waiting.cancel()",
        "asyncio.run(waited(waiting))",
        "runtime.pause(waiting.id)",
        "runtime.recover()",
    ],
)
def test_a_forked_process_is_told_to_make_a_runtime_of_its_own(
    tmp_path: Path, work: str, store: str
):
    program = f"""
async def waited(node):
    return await node

with new_runtime() as runtime:
    assert runtime.invoke(double, {{'n': 2}}).result(30) == 4
    waiting = runtime.invoke(forever)
    in_child(lambda: {work})
    assert runtime.invoke(double, {{'n': 21}}).result(30) == 42
    runtime.cancel(waiting.id)
print("closed")
"""
    told = run(tmp_path, program, store)
    assert told == [WORDS, "exit 0", "closed"]


def test_a_stream_of_events_does_not_wait_in_a_forked_process(tmp_path: Path):
    program = """
with new_runtime() as runtime:
    waiting = runtime.invoke(forever)
    in_child(lambda: list(runtime.events(waiting)))
    runtime.cancel(waiting.id)
"""
    assert run(tmp_path, program, "") == [WORDS, "exit 0"]
    [error, code] = run(tmp_path, program, "run.db")
    assert "run.db was opened in process {}, and this process was forked from it" in error
    assert code == "exit 0"


@pytest.mark.parametrize("store", ["", "run.db"])
def test_a_forked_process_leaves_the_block_of_a_runtime_at_once(tmp_path: Path, store: str):
    program = """
with new_runtime() as runtime:
    waiting = runtime.invoke(forever)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        raise SystemExit(3)
    print("exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    assert runtime.invoke(double, {'n': 21}).result(30) == 42
    runtime.cancel(waiting.id)
print("closed")
"""
    assert run(tmp_path, program, store) == ["exit 3", "closed"]


def test_a_process_that_is_forked_on_the_loop_of_a_runtime_is_told_too(tmp_path: Path):
    program = """
async def main():
    async with new_runtime() as runtime:
        in_child(lambda: runtime.invoke(double, {'n': 3}).result(30))
        in_child(lambda: asyncio.run(again(runtime)))
        assert await runtime.invoke(double, {'n': 21}) == 42

async def again(runtime):
    return await runtime.invoke(double, {'n': 3})

asyncio.run(main())
print("closed")
"""
    assert run(tmp_path, program, "") == [WORDS, "exit 0", WORDS, "exit 0", "closed"]


@pytest.mark.parametrize("store", ["", "run.db"])
def test_a_forked_process_has_runtimes_of_its_own(tmp_path: Path, store: str):
    program = """
def own():
    with Runtime(store='other.db' if sys.argv[1] else None) as mine:
        return mine.invoke(double, {'n': 3}).result(30), double.run_sync(n=4)

with new_runtime() as runtime:
    assert runtime.invoke(double, {'n': 2}).result(30) == 4
    in_child(own)
    assert runtime.invoke(double, {'n': 21}).result(30) == 42
"""
    assert run(tmp_path, program, store) == ["returned (6, 8)", "exit 0"]


def test_a_runtime_that_had_not_started_may_be_used_in_each_process(tmp_path: Path):
    program = """
runtime = new_runtime()
in_child(lambda: runtime.invoke(double, {'n': 3}).result(30))
in_child(lambda: runtime.invoke(double, {'n': 4}).result(30))
"""
    assert run(tmp_path, program, "") == ["returned 6", "exit 0", "returned 8", "exit 0"]


def test_a_runtime_that_had_opened_its_store_is_for_one_process(tmp_path: Path):
    program = """
runtime = new_runtime()
in_child(lambda: runtime.invoke(double, {'n': 3}).result(30))
assert runtime.invoke(double, {'n': 21}).result(30) == 42
"""
    [error, code] = run(tmp_path, program, "run.db")
    assert "run.db was opened in process {}, and this process was forked from it" in error
    assert code == "exit 0"
