"""What became of something that was asked of a journal: it is done, or it is not yet.

Whoever drives the journal does what it is asked within moments; if nobody does, the next will.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from typing import Final

from treefold.cli.exit_codes import DONE, NOT_YET
from treefold.cli.journal import journal_path
from treefold.runtime.observer import Observer
from treefold.views.text import readable

EXIT_CODES: Final = (
    "exit codes: 0 it is done, or will be when the program is started again, 2 it cannot be done,\n"
    "3 a process drives the journal, and has not done it in time, 130 it was interrupted"
)
_PATIENCE: Final = 5.0
_LOOKS_EVERY: Final = 0.05  # seconds


def add_wait_to(parser: argparse.ArgumentParser) -> None:
    """Add the option that says how long to wait."""
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        default=_PATIENCE,
        help=f"how long to wait until it is done; {_PATIENCE:g} if nothing is said",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


def tell_outcome(
    options: argparse.Namespace,
    observer: Observer,
    done: Callable[[], str | None],
    expected: str,
    otherwise: str = "",
) -> int:
    """Say that it is done, or when it will be; return the exit code.

    Args:
        options: say which journal it is, and how long to wait.
        observer: looks on at it.
        done: returns how to say that it is done, or None if it is not.
        expected: what will have happened then.
        otherwise: how else to have it done if nobody drives the journal.
    """
    end = time.monotonic() + options.wait
    while (said := done()) is None:
        if not observer.is_driven:
            print(readable(_later(journal_path(options), expected) + otherwise))
            return DONE
        if time.monotonic() >= end:
            print(readable(_not_yet(options.wait, expected)), file=sys.stderr)
            return NOT_YET
        time.sleep(_LOOKS_EVERY)
    print(readable(said))
    return DONE


def _later(journal: str, expected: str) -> str:
    return (
        f"no process drives {journal} now: {expected} when the program that made it is started"
        f" again, such as by the same 'treefold run ... --store {journal}' as before"
    )


def _not_yet(wait: float, expected: str) -> str:
    return (
        f"asked for, but not done in {wait:g} s: {expected} when the process that drives the"
        " journal comes to it; if it cannot be done, its log says why"
    )
