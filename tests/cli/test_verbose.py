"""``-v`` and ``-vv``: the log of a command on stderr, with a live tree and without."""

import re
from pathlib import Path

import pytest

from command_results import environment, treefold
from terminal import Terminal

JOB = """
import asyncio
from treefold import CodeFunction, RunContext

async def count(ctx: RunContext) -> None: ...

counting = CodeFunction(callable=count)

async def ask(ctx: RunContext) -> str:
    return await ctx.ask("Ready?")

asking = CodeFunction(callable=ask)

async def both(ctx: RunContext) -> str:
    answer = ctx.invoke(asking)
    for _ in range(3):
        await ctx.invoke(counting)
    return await answer

job = CodeFunction(callable=both, uses=[counting, asking])
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    file = tmp_path / "job.py"
    file.write_text(JOB)
    return f"{file}:counting"


def logged(stderr: str) -> list[str]:
    """Return the lines of the log, without their times."""
    lines = [line[9:] for line in stderr.splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]
    return [re.sub(r"\d+\.\d s", "T s", line) for line in lines]


def test_runs_are_logged_with_v_before_or_after_the_command_and_not_without(job: str):
    ended = "count (run 1) ended: success, T s"
    for args, lines in (
        (["run", job], []),
        (["run", "-v", job], ["count (run 1) started", ended]),
        (["-v", "run", job], ["count (run 1) started", ended]),
    ):
        done = treefold(*args)
        assert logged(done.err) == lines


async def test_the_log_is_printed_above_the_live_tree_and_never_into_a_prompt(job: str):
    module = job.removesuffix("counting") + "job"
    args = ("-m", "treefold", "run", "-vv", module)
    async with Terminal(*args, env=environment(), columns=120) as terminal:
        await terminal.see_on_screen("✓ 3 of 5 done", "Ready?\n>")
        assert terminal.screen[-1] == ">"
        terminal.press("yes\n")
        assert await terminal.exit_code() == 0
        shown = terminal.screen
    log = logged("\n".join(shown))
    assert log[0] == "both (run 1) started"
    assert log.count("count (call 1.2) started") == 1
    assert log[-1].startswith("both (run 1) ended: success")
