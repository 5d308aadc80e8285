"""What the README shows is executed; the pages of the site are in test_guides.py."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import treefold
from command_line import environment
from support import wait

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
[PROGRAM] = re.findall(r"```python title=\"trip.py\"\n(.*?)```", README, re.DOTALL)
[COMMAND] = re.findall(r"\$ (treefold run trip.*) --model ollama:qwen3 (.*)\n", README)
[RESUMED] = re.findall(r"```text\n(==> resuming.*?)```", README, re.DOTALL)
MODELS = """
from treefold import ToolUse
from treefold.testing import HANGS, ScriptedModel

oslo, lisbon = ({"city": city} for city in ["Oslo", "Lisbon"])
slow = ScriptedModel(ToolUse("1", "weather", oslo), ToolUse("2", "weather", lisbon), HANGS)
quick = ScriptedModel(ToolUse("3", "return_result", {"city": "Lisbon", "reason": "24 degrees"}))
"""


def start(folder: Path, model: str) -> "subprocess.Popen[str]":
    """Start the command of the README, with another model."""
    before, after = COMMAND
    _, *words = f"{before} --model scripted:models.py:{model} {after}".split()
    return subprocess.Popen(
        [sys.executable, "-m", "treefold", *words],
        cwd=folder,
        env=environment({"COLUMNS": "120", "NO_COLOR": "1"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def weather_is_told(journal: Path) -> bool:
    if not journal.exists():
        return False
    with treefold.attach(journal) as observer:
        rows = observer.trees()
        views = [observer.get_view(row.id) for row in rows]
    return any(child.outputs == "sun, 24 degrees" for view in views for child in view.children)


def without_times(text: str) -> str:
    return re.sub(r" +[\d.]+ m?s\b", "", text)


def test_the_readme_is_short_and_begins_with_what_it_is():
    lines = README.splitlines()
    assert len(lines) <= 150
    assert lines[2].endswith("every run is a tree you can watch, stop, resume, fork and replay.")
    assert "make demo" in README
    assert "make test" in README
    assert "pip install" in README


def test_the_agent_has_at_most_fifteen_lines():
    assert len(PROGRAM.strip().splitlines()) <= 15


@pytest.mark.slow
def test_the_run_is_killed_and_prints_what_the_readme_says_when_it_is_started_again(tmp_path: Path):
    (tmp_path / "trip.py").write_text(PROGRAM)
    (tmp_path / "models.py").write_text(MODELS)
    with start(tmp_path, "slow") as first:
        wait(lambda: weather_is_told(tmp_path / "run.db"))
        first.kill()
    with start(tmp_path, "quick") as second:
        printed, _ = second.communicate(timeout=60)
    assert without_times(printed) == without_times(RESUMED)


def test_the_changelog_tells_of_this_version():
    assert f"## {treefold.__version__}" in (ROOT / "CHANGELOG.md").read_text()
