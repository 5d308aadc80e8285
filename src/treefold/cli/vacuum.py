"""``treefold vacuum``: make a journal as small as what is in it."""

import argparse
import os
from collections.abc import Callable

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import add_store_to, driven, existing_journal


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "vacuum",
        description="Give the room that deleted runs took in a journal back to the disk.",
        epilog=(
            "example: treefold vacuum\n\n"
            "The journal is written anew, which takes as much room again while it lasts; no\n"
            "process may drive it meanwhile.\n\n"
            "exit codes: 0 it was done, also if there was no room to give back, 2 it was not"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_store_to(parser)
    parser.set_defaults(command=vacuum)


def vacuum(options: argparse.Namespace) -> int:
    """Make the journal that *options* name smaller."""
    with driven(existing_journal(options)) as store:
        before = _size(store.name)
        store.vacuum()
        given_back = max(0, before - _size(store.name))
    print(f"{given_back:,} bytes were given back")
    return DONE


def _size(journal: str) -> int:
    """Return how many bytes the journal takes, with what is not in its place yet."""
    files = (journal, f"{journal}-wal")
    return sum(os.path.getsize(file) for file in files if os.path.exists(file))
