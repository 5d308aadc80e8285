"""What the pages show is executed, and prints what they say.

A block of Python runs by itself, in an empty folder. On a page that names files (a block with
``title="agent.py"``), all blocks happen in one folder, in their order: the files are written, and
the commands of the ``console`` blocks print what stands below them. Three dots stand for anything.
"""

import io
import logging
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest

import warm_python

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^ *```(\w+)([^\n]*)\n(.*?)^ *```\n(?:```text\n(.*?)^```\n)?", re.DOTALL | re.M)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
VARYING = re.compile(r"[\d.]+ ?m?s\b|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
CUT_OFF = re.compile(r"… +[\d.]+ m?s$")
VARIABLE = re.compile(r"\b_?TREEFOLD_[A-Z]+(?:_[A-Z]+)*\b(?!\*)")
TITLE = re.compile(r'title="([^"]+)"')
INCLUDED = re.compile(r'^ *--8<-- "([^":]+)', re.MULTILINE)
FENCED = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
GUIDES = sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "decisions")
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])


class Block(NamedTuple):
    language: str
    title: str | None
    code: str
    printed: str | None


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")


def blocks_of(page: Path) -> list[Block]:
    found: list[Block] = []
    for language, options, code, printed in BLOCK.findall(page.read_text("utf-8")):
        title = TITLE.search(options)
        found.append(Block(language, title and title[1], dedent(code), printed or None))
    return found


BLOCKS_OF = {guide: blocks_of(guide) for guide in GUIDES}
SESSIONS = [guide for guide in GUIDES if any(block.title for block in BLOCKS_OF[guide])]
BLOCKS = [
    pytest.param(block, id=f"{name_of(guide)}-{number}")
    for guide in GUIDES
    if guide not in SESSIONS
    for number, block in enumerate(BLOCKS_OF[guide], 1)
    if block.language == "python" and not INCLUDED.search(block.code)
]


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    log = logging.getLogger("treefold")
    level = log.level
    yield
    log.setLevel(level)


def run_block(block: Block) -> str:
    """Return what *block* prints."""
    # compiled like a file, so that annotations and inspect find what they need
    namespace: dict[str, Any] = {"__name__": "guide"}
    with redirect_stdout(io.StringIO()) as said:
        exec(compile(block.code, "guide", "exec"), namespace)
    return said.getvalue()


def assert_printed(got: str, told: str | None) -> None:
    assert told is None or is_printed(got, told), f"printed:\n{got}\ntold:\n{told}"


def is_printed(got: str, told: str) -> bool:
    shape = ".*?".join(map(re.escape, trimmed(told).split("...")))
    return bool(re.fullmatch(shape, trimmed(got), re.DOTALL))


def trimmed(text: str) -> str:
    """Return *text* without what differs from run to run: how long it took, and when."""
    # How much of a long line is shown depends on the width of the time behind it.
    cut = (line[:50] if CUT_OFF.search(line) else line for line in text.strip().splitlines())
    lines = (re.sub(r" +", " ", line.rstrip()) for line in cut)
    return VARYING.sub("*", "\n".join(lines))


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_runs_and_prints_what_stands_below_it(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    printed = run_block(block)
    assert block.printed is None or is_printed(printed, block.printed), printed


@pytest.fixture(scope="module")
def quick_command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ``treefold`` that need not import anything to start."""
    folder = tmp_path_factory.mktemp("quick")
    command = shlex.join(warm_python.command("-m", "treefold"))
    (folder / "treefold").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    (folder / "treefold").chmod(0o755)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("guide", SESSIONS, ids=name_of)
def test_a_page_that_names_files_can_be_followed_step_by_step(
    guide: Path, tmp_path: Path, quick_command: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", with_programs(quick_command))
    text = follow(guide)
    if "RENEW_PAGES" in os.environ:  # by "make pages"
        guide.write_text(text, "utf-8")
    assert guide.read_text("utf-8") == text


@pytest.mark.slow
def test_all_steps_of_the_tutorial_can_be_followed_in_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", with_programs())
    steps = [guide for guide in SESSIONS if guide.parent.name == "tutorial"]
    assert [step.name[0] for step in steps] == ["1", "2", "3", "4", "5", "6"]
    for step in steps:
        follow(step)


def with_programs(*folders: Path) -> str:
    """Return a path that has *folders* first, and then what is installed with treefold."""
    return os.pathsep.join(map(str, (*folders, Path(sys.executable).parent, os.environ["PATH"])))


def follow(guide: Path) -> str:
    """Do what *guide* says, in the current folder, and return the page with what was printed."""
    text = guide.read_text("utf-8")
    for block in BLOCKS_OF[guide]:
        if block.title:
            Path(block.title).write_text(block.code, "utf-8")
        elif block.language == "console":
            for command, told in COMMAND.findall(block.code):
                got = in_shell(command)
                if "RENEW_PAGES" in os.environ and not is_printed(got, told):
                    text = text.replace(f"$ {command}\n{told}", f"$ {command}\n{got}", 1)
                    told = got
                assert_printed(got, told)
        elif block.language == "python":
            assert_printed(run_block(block), block.printed)
    return text


def in_shell(command: str) -> str:
    """Return what *command* prints, on a terminal of no colours; errors are among it."""
    environ = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", command.partition("  #")[0]],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path):
    text = page.read_text("utf-8")
    for path, heading in LINK.findall(FENCED.sub("", text)):
        target = page if not path else page.parent / path
        assert target.exists(), path
        # Those of the API are checked when the site is built.
        if heading and not heading.startswith("treefold."):
            titles = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
            assert heading in slugs


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_a_page_includes_is_there(page: Path):
    for path in INCLUDED.findall(page.read_text("utf-8")):
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_shown_as_python_is_python(page: Path):
    for block in blocks_of(page):
        if block.language == "python" and not INCLUDED.search(block.code):
            with warnings.catch_warnings(action="error"):
                assert compile(block.code, page.name, "exec")


def test_every_environment_variable_of_treefold_is_documented():
    sources = (ROOT / "src" / "treefold").rglob("*.py")
    named = {name for file in sources for name in VARIABLE.findall(file.read_text("utf-8"))}
    told = (DOCS / "reference" / "settings.md").read_text("utf-8")
    assert {name for name in named if f"`{name}`" not in told} == set()
