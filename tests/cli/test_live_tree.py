"""The live tree, in a real terminal and without one."""

import re
from pathlib import Path

from command_results import environment, treefold
from survey_journals import SURVEY, driving
from terminal import CTRL_C, Terminal

ESCAPE = "\x1b"


def in_terminal(*args: object, columns: int = 120) -> Terminal:
    return Terminal("-m", "treefold", *map(str, args), env=environment(), columns=columns)


async def test_a_run_in_a_terminal_shows_its_tree_as_it_grows(tmp_path: Path):
    hold = tmp_path / "open"
    async with in_terminal(
        "run",
        f"{SURVEY}:watched",
        "--arg",
        f"hold={hold}",
        "--store",
        tmp_path / "run.db",
    ) as terminal:
        await terminal.see("watched")
        await terminal.see("gate")
        hold.touch()
        await terminal.see("4")
        assert await terminal.exit_code() == 0
        assert ESCAPE in terminal.raw  # drawn in place


async def test_the_live_tree_says_what_waits_for_a_human(tmp_path: Path):
    async with in_terminal("run", f"{SURVEY}:choosing", "--store", tmp_path / "run.db") as terminal:
        await terminal.see("Which colour?")
        terminal.press("red\r")
        await terminal.see("Why?")
        terminal.press("so\r")
        await terminal.see("red so")
        assert await terminal.exit_code() == 0


async def test_tree_in_a_terminal_shows_tokens_money_and_ties(tmp_path: Path):
    with driving(tmp_path) as driver:
        driver.survey()
        async with in_terminal("tree", "--store", driver.file) as terminal:
            await terminal.see("judge")
            await terminal.see("240")
            await terminal.exit_code()
        assert terminal.shown.count("∥1/2") == terminal.shown.count("∥2/2") == 1
        assert re.search(r"\$0\.025\b|\$0\.0250", terminal.shown), terminal.shown


async def test_ctrl_c_ends_a_run_and_gives_the_terminal_back(tmp_path: Path):
    async with in_terminal(
        "run",
        f"{SURVEY}:gating",
        "--arg",
        f"file={tmp_path / 'no'}",
        "--store",
        tmp_path / "run.db",
    ) as terminal:
        await terminal.see("gate")
        terminal.press(CTRL_C)
        assert await terminal.exit_code() == 130
        assert "Traceback" not in terminal.shown
        if "\x1b[?25l" in terminal.raw:  # a hidden cursor comes back
            assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")


def test_without_a_terminal_a_run_is_quiet(tmp_path: Path):
    done = treefold(
        "run", f"{SURVEY}:counting", "--arg", "text=moss", "--store", tmp_path / "run.db"
    )
    assert (done.code, done.out) == (0, "4\n")
    assert ESCAPE not in done.err


def test_without_a_terminal_nothing_has_colours(tmp_path: Path):
    with driving(tmp_path) as driver:
        driver.survey()
        for command in ("ps", "tree", "stack", "flame", "doctor"):
            store = [] if command == "doctor" else ["--store", driver.file]
            assert ESCAPE not in treefold(command, *store).out
