"""How commands print what they found: for people as wide as the terminal, for programs as JSON."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, cast

_UNSEEN: Final = 160  # columns where there is no terminal
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400


def add_json_to(parser: argparse.ArgumentParser) -> None:
    """Add the option for programs that read what is printed."""
    parser.add_argument("--json", action="store_true", help="print one JSON value")


def print_json(value: Any) -> None:
    """Print one JSON value: of a list, each item on a line; only ASCII, so that any screen can."""
    if isinstance(value, list) and value:
        print("[" + ",\n ".join(map(json.dumps, cast("list[Any]", value))) + "]")
    else:
        print(json.dumps(value, indent=2))


def columns() -> int:
    """Return how wide a line may be."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return _UNSEEN


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return *rows* as lines in which the cells of a column begin below each other."""
    listed = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in listed
    ]


def clock(at: float | None) -> str:
    """Return a time, as seconds since the epoch, as a clock on the wall would show it."""
    return "" if at is None else f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"


def duration(seconds: float) -> str:
    """Return how long something took, as exactly as anybody wants to know.

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
