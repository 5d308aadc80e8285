"""The ``treefold`` command in a process of its own."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import warm_python

ROOT: Final = Path(__file__).parent.parent
PATIENCE: Final = 60  # seconds

_NOT_OURS: Final = ("_API_KEY", "_BASE_URL", "TREEFOLD_")  # what whoever runs the tests has set


def treefold(
    *args: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None, said: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; of keys and settings it finds only what *env* has.

    *said* is what it reads on its standard input.
    """
    return warm_python.run("-m", "treefold", *args, said=said, cwd=cwd, env=environment(env))


def environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what such a process finds in its environment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not any(name.endswith(one) or name.startswith(one) for one in _NOT_OURS)
    }
    return kept | {"PYTHONIOENCODING": "utf-8"} | dict(env or {})
