"""A live tree in a real terminal, beside a program that prints."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from terminal import CTRL_C, Terminal

JOB = r"""
import asyncio, sys
from pathlib import Path
from treefold import RunContext, ToolUse, agent, tool
from treefold.testing import HANGS, ScriptedModel

@tool
async def nap(n: int) -> str:
    return "well \x1b[2J\u202e[red]" + "界" * 200

@tool(repeatable=True)
async def wait(path: str) -> None:
    while not Path(path).exists():
        await asyncio.sleep(0.01)

@tool
async def talk(path: str) -> None:
    print("out \x1b[1mloud")
    print("half of a line", end="", flush=True)
    print("to all", file=sys.stderr)
    await wait(path)

@tool(uses=[nap, wait, talk])
async def job(ctx: RunContext, path: str, naps: int = 3, talks: bool = False) -> str:
    for n in range(naps):
        await ctx.invoke(nap, {"n": n})
    await ctx.invoke(talk if talks else wait, {"path": path})
    return "all done"

@tool
async def ask(ctx: RunContext) -> str:
    return await ctx.ask("Red\x1b[2J or blue?", ["red", "blue"])

@tool
async def chatter(ctx: RunContext) -> None:
    for n in range(3000):
        await ctx.send(n)
        await asyncio.sleep(0)

@agent(model=ScriptedModel("It is very quiet here, \x1b[2Jsaid the sea.", HANGS))
def listen() -> str:
    return "Listen."
"""
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")
WITHOUT_RICH = "import sys; sys.modules['rich'] = None; from treefold.cli import main; main()"


class Stage:
    """A program to run, and the file that it waits for."""

    def __init__(self, folder: Path) -> None:
        self.module = folder / "job.py"
        self.module.write_text(JOB)
        self.path = folder / "go"
        self.store = folder / "run.db"

    def run(
        self,
        name: str,
        *args: str,
        start: tuple[str, ...] = ("-m", "treefold"),
        columns: int = 80,
        lines: int = 24,
        more: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> Terminal:
        command = [*start, "run", f"{self.module}:{name}"]
        given = [part for arg in args for part in ("--arg", arg)]
        return Terminal(*command, *given, *more, env=env or {}, columns=columns, lines=lines)

    def job(self, *args: str, **options: object) -> Terminal:
        return self.run("job", f"path={self.path}", *args, **options)  # pyright: ignore[reportArgumentType]

    def go(self) -> None:
        self.path.write_text("")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_a_tree_that_is_taller_than_the_terminal_folds_and_stays_in_place(stage: Stage):
    async with stage.job("naps=50", lines=10) as terminal:
        await terminal.see_on_screen("● 1.51 wait(", "✓ 50 of 52 done  ● 1 running")
        assert len(terminal.screen) == 9
        assert terminal.screen[0].startswith("● 1 job(")
        assert terminal.screen[1] == "├─ ✓ 45 more"
        assert terminal.screen[2].startswith("├─ ✓ 1.46 nap(n=45) → 'well \\x1b[2J\\u202e[red]界")
        stage.go()
        assert await terminal.exit_code() == 0
        assert terminal.screen[-2:] == ["✓ 52 of 52 done  " + time_in(terminal), "all done"]
    assert "\x1b[2J" not in terminal.raw
    assert "\u202e" not in terminal.raw


def time_in(terminal: Terminal) -> str:
    """Return what the last line of the tree says about the time."""
    return terminal.screen[-2].rpartition("  ")[2]


async def test_it_follows_the_size_of_the_terminal(stage: Stage):
    async with stage.job(columns=80, lines=24) as terminal:
        await terminal.see_on_screen("● 1.4 wait(")
        assert len(terminal.screen) == 6
        for columns, lines in [(40, 24), (40, 5), (120, 30)]:
            terminal.resize(columns, lines)
            await terminal.see_on_screen("● 1 job(", "● 1.4 wait", "✓ 3")
            await terminal.see_on_screen("3 of 5 done" if columns > 40 else "✓ 3")
            assert len(terminal.screen) == min(6, lines - 1)
        stage.go()
        assert await terminal.exit_code() == 0


async def test_what_is_printed_meanwhile_stands_above_the_tree(stage: Stage):
    async with stage.job("naps=0", "talks=true") as terminal:
        await terminal.see_on_screen("to all", "● 1.1 talk(")
        stage.go()
        assert await terminal.exit_code() == 0
    *printed, top, talk, totals, result = terminal.screen
    assert printed == ["out loud", "half of a line", "to all"]
    assert top.startswith("✓ 1 job(")
    assert talk.startswith("└─ ✓ 1.1 talk(")
    assert totals.startswith("✓ 2 of 2 done")
    assert result == "all done"


async def test_a_question_stands_out_is_counted_and_is_asked_below_the_tree(stage: Stage):
    async with stage.run("ask") as terminal:
        await terminal.see_on_screen("? 1 ask()  Red\\x1b[2J or blue? [red / blue]")
        await terminal.see_on_screen(
            " ? 1 waits for you ", "? 1 ask()\n  Red\\x1b[2J or blue? [red / blue]\n>"
        )
        terminal.press("blue\n")
        await terminal.see_on_screen("> blue", "✓ 1 ask() → 'blue'", "✓ 1 of 1 done")
        assert await terminal.exit_code() == 0
    assert terminal.screen[-1] == "blue"


async def test_ctrl_c_ends_the_tree_where_it_is(stage: Stage):
    async with stage.job("naps=1") as terminal:
        await terminal.see_on_screen("● 1.2 wait(")
        terminal.press(CTRL_C)
        assert await terminal.exit_code() == 130
    top, nap, wait, totals = terminal.screen
    assert top.startswith("⊘ 1 job(")
    assert nap.startswith("├─ ✓ 1.1 nap(n=0)")
    assert wait.startswith("└─ ⊘ 1.2 wait(")
    assert totals.startswith("✓ 1 of 3 done  ⊘ 2 canceled")


async def test_with_a_journal_ctrl_c_says_how_to_go_on_and_the_rest_is_done_then(stage: Stage):
    store = ("--store", str(stage.store))
    async with stage.job("naps=1", more=store) as terminal:
        await terminal.see_on_screen("● 1.2 wait(")
        terminal.press(CTRL_C)
        assert await terminal.exit_code() == 130
        shown = " ".join("".join(terminal.screen[-3:]).split())
    assert "treefold run: interrupted; the same command resumes it" in shown
    stage.go()
    async with stage.job("naps=1", more=store) as terminal:
        await terminal.see_on_screen("==> resuming this run", "✓ 1.2 wait(", "✓ 3 of 3 done")
        assert await terminal.exit_code() == 0


FOLLOW = """
import sys
from treefold import attach
from treefold.views.terminal import TICK, follow
with attach(sys.argv[1]) as observer:
    print(follow(observer.watch(1, timeout=TICK), sys.stdout).outputs)
"""


async def test_a_run_of_another_process_is_followed(stage: Stage):
    async with stage.job("naps=1", more=("--store", str(stage.store))) as running:
        await running.see_on_screen("● 1.2 wait(")
        async with Terminal("-c", FOLLOW, str(stage.store), env={}) as terminal:
            await terminal.see_on_screen("● 1.2 wait(", "✓ 1 of 3 done  ● 1 running")
            stage.go()
            await terminal.see_on_screen("✓ 1.2 wait(", "✓ 3 of 3 done", "all done")
            assert await terminal.exit_code() == 0


async def test_no_color_means_no_colours(stage: Stage):
    stage.go()
    for env, coloured in [({}, True), ({"NO_COLOR": "1"}, False)]:
        async with stage.job(env=env) as terminal:
            assert await terminal.exit_code() == 0
            await terminal.see_on_screen("✓ 5 of 5 done")
        assert bool(COLOUR.search(terminal.raw)) is coloured


async def test_a_dumb_terminal_gets_the_tree_once_and_as_text(stage: Stage):
    stage.go()
    async with stage.job(env={"TERM": "dumb"}) as terminal:
        await terminal.see("all done\n")
        assert await terminal.exit_code() == 0
    assert "\x1b" not in terminal.raw
    assert terminal.shown.count("✓ 1.1 nap(") == 1


async def test_without_rich_the_tree_is_text_and_a_hint_says_how_to_get_more(stage: Stage):
    stage.go()
    async with stage.job(start=("-c", WITHOUT_RICH)) as terminal:
        await terminal.see("pip install 'treefold[terminal]' shows the tree while it grows")
        await terminal.see("all done\n")
        assert await terminal.exit_code() == 0
    assert "\x1b" not in terminal.raw
    assert terminal.shown.count("✓ 1.1 nap(") == 1
    assert terminal.shown.count("pip install") == 1


async def test_a_busy_run_is_drawn_now_and_then(stage: Stage):
    async with stage.run("chatter") as terminal:
        await terminal.see_on_screen("✓ 1 of 1 done")
        assert await terminal.exit_code() == 0
    assert terminal.raw.count("✓ 0 of 1 done") < 100  # of 3,000 events


async def test_the_last_frame_shows_what_an_agent_said_escaped(stage: Stage):
    async with stage.run("listen") as terminal:
        await terminal.see_on_screen(
            "✓ 1 listen() → 'It is very quiet here, \\x1b[2Jsaid the sea.'"
        )
        assert await terminal.exit_code() == 0
    assert "\x1b[2J" not in terminal.raw
