"""The source distribution has all that is needed to run its tests."""

import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ADDED = {".gitignore", "pyproject.toml"}  # by hatchling
LEFT_OUT = {".ci"}


def test_everything_at_top_level_that_git_tracks_is_in_the_source_distribution():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode or not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    tracked = {line.split("/")[0] for line in listed.stdout.splitlines()} - ADDED - LEFT_OUT
    assert {name for name in tracked if not any(fnmatch(name, one) for one in included)} == set()
