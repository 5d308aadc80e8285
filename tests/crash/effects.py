"""What a program did to the world, one line each, in a file that survives it.

Nothing is flushed to the disk: a process that is killed does not take the page cache with it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]


class Effects:
    """A file that lines are added to, each by one write."""

    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._path = Path(path)

    def add(self, what: str, **more: Any) -> None:
        """Add a line."""
        os.write(self._file, json.dumps({"what": what, **more}).encode() + b"\n")

    def lines(self) -> list[Line]:
        """Return all lines there are, also those of earlier processes."""
        return read(self._path)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(path: Path) -> list[Line]:
    """Return the lines of the file *path*."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def call_of(line: Line) -> tuple[str, str]:
    """Return which call a line is about: no two calls of the tree have the same arguments."""
    return line["fn"], json.dumps(line["args"], sort_keys=True)
