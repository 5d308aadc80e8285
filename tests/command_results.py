"""The command in a process of its own, with no terminal, and what it printed."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import warm_python

T = TypeVar("T")

PATIENCE: Final = 60  # seconds
TESTS: Final = Path(__file__).parent


@dataclass(frozen=True)
class Done:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, which is one JSON value and nothing else."""
        return json.loads(self.out)

    def refused(self, *words: str, code: int = 2) -> None:
        """Check that it did nothing, and said why in words."""
        assert (self.code, self.out) == (code, ""), self
        assert "Traceback" not in self.err, self.err
        assert self.err.strip(), "it says nothing"
        assert len(self.err.strip().splitlines()) <= 6, self.err
        for word in words:
            assert word in self.err, self.err


def environment(**more: str) -> dict[str, str]:
    """Return what a program is told of the world: no keys, no store, no colours."""
    dropped = re.compile(r".*_API_KEY|TREEFOLD_.*|FORCE_COLOR|NO_COLOR|COLUMNS|PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not dropped.fullmatch(name)}
    return {**kept, "PYTHONPATH": str(TESTS), "BROWSER": "true", **more}


def treefold(
    *args: object, cwd: Path | None = None, stdin: str = "", env: Mapping[str, str] | None = None
) -> Done:
    """Run the command in a process of its own, with no terminal anywhere."""
    words = [str(arg) for arg in args]
    told = environment(**(env or {}))
    done = warm_python.run("-m", "treefold", *words, said=stdin, cwd=cwd, env=told)
    return Done(done.returncode, done.stdout, done.stderr)


def open_questions(file: Path) -> list[dict[str, Any]]:
    """Return what waits for a person, as the command tells it."""
    return treefold("questions", "--json", "--store", file).json
