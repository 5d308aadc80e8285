"""What the README, the guides and the help say of the commands is there and works."""

import re
import shlex
from pathlib import Path

import pytest

import survey_journals
from command_results import Done, treefold

ROOT = Path(__file__).parent.parent.parent


def test_the_readme_carries_pictures_and_they_are_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)|<img[^>]+src=\"([^\"]+)\"", text)
    files = [ROOT / (one or other) for one, other in pictures]
    assert len(files) >= 2
    assert [file for file in files if not file.is_file()] == []


def test_the_exit_codes_are_documented():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert re.search(r"exit codes?", text, re.IGNORECASE)
    for code in ("0", "1", "2", "130"):
        assert re.search(rf"^\| *`?{code}`? *\|", text, re.MULTILINE), code


# The examples that read, in a folder with a journal: they work as they stand.
READING = ["ps", "tree", "stack", "transcript", "flame", "questions", "completion"]


@pytest.mark.parametrize("command", READING)
def test_the_example_in_the_help_runs_as_it_stands(tmp_path: Path, command: str):
    survey_journals.finished(tmp_path)
    [line] = re.findall(
        r"^examples?: +(treefold .*)$", treefold(command, "--help").out, re.MULTILINE
    )
    _, *words = shlex.split(line)
    done: Done = treefold(*words, cwd=tmp_path)
    assert done.code == 0, (line, done)
