"""How commands print their results: for people as wide as the terminal, for programs as JSON."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, cast

_WIDTH_WITHOUT_TERMINAL: Final = 160
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400


def print_json(value: Any) -> None:
    """Print one JSON value in ASCII, which every terminal can show; each list item on its line."""
    if isinstance(value, list) and value:
        print("[" + ",\n ".join(map(json.dumps, cast("list[Any]", value))) + "]")
    else:
        print(json.dumps(value, indent=2))


def columns() -> int:
    """Return the width of a line."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return _WIDTH_WITHOUT_TERMINAL


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return *rows* as the lines of a table with left-aligned columns."""
    listed = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in listed
    ]


def clock(at: float | None) -> str:
    """Return seconds since the epoch as local date and time."""
    return "" if at is None else f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units.

    Example:
        >>> [duration(seconds) for seconds in (0.04, 59.94, 61, 3601, 90061)]
        ['40 ms', '59.9 s', '1 min 01 s', '1 h 00 min', '1 d 01 h']
    """
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < _MINUTE - 0.05:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR:02} h"
