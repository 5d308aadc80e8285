"""What the README shows is executed."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import treefold

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def run_block(code: str) -> str:
    # compiled like a file, so that annotations and inspect find what they need
    namespace: dict[str, Any] = {"__name__": "readme"}
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "README.md", "exec"), namespace)
    return printed.getvalue()


def test_the_first_program_is_at_most_fifteen_lines_and_prints_what_it_says():
    assert len(BLOCKS[0].strip().splitlines()) <= 15
    assert run_block(BLOCKS[0]) == "Hello, World!\n"


@pytest.mark.parametrize("code", [block for block in BLOCKS[1:] if "trips.db" not in block])
def test_every_other_block_of_the_readme_runs(code: str):
    # One block only defines tools and hooks.
    assert run_block(code) or code == BLOCKS[1]


def test_the_call_tree_of_the_tour_prints_its_tree():
    [tree] = [block for block in BLOCKS if "async def compare" in block]
    assert run_block(tree) == "a\n1 compare success [3, 1]\n"


def test_the_journal_of_the_tour_goes_on_and_is_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    [journal] = [block for block in BLOCKS if "trips.db" in block]
    assert run_block(journal) == "Lisbon, booked\nstay at home\n"


def test_the_changelog_tells_of_this_version():
    assert f"## {treefold.__version__}" in (ROOT / "CHANGELOG.md").read_text()
