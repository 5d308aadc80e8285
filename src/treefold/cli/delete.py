"""``treefold delete``: forget a run."""

import argparse
import sys
from collections.abc import Callable

from treefold.cli.exit_codes import DONE, USAGE
from treefold.cli.journal import add_node_to, add_store_to, driven, journal_path, opened, run_id
from treefold.core.errors import InvalidValueError
from treefold.stores.errors import forked_error, still_open_error
from treefold.views.text import printable


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "delete",
        description="Forget a run and all that was said in it; its key is free again.",
        epilog=(
            "example: treefold delete nightly --yes\n\n"
            "It cannot be restored, unless 'treefold export --tree' wrote it to a file. A run\n"
            "that has not ended stays, and so does one that a fork goes on from; no process may\n"
            "drive the journal meanwhile. 'treefold vacuum' gives the room back to the disk.\n\n"
            "exit codes: 0 it is gone, 2 it is not, 130 it was interrupted"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_to(parser, "RUN", required=True)
    parser.add_argument("--yes", action="store_true", help="do not ask whether it may go")
    add_store_to(parser)
    parser.set_defaults(command=delete)


def delete(options: argparse.Namespace) -> int:
    """Delete the run that *options* name."""
    with opened(options) as observer:
        run = run_id(observer, options.node)
        rows = {row.id: row for row in observer.trees()}
    if rows[run].open:  # before anybody is asked
        raise still_open_error(run)
    if any(row.source == run for row in rows.values()):
        raise forked_error(run)
    name = printable(f"{rows[run].function} (node {run})")
    if not options.yes and not _may_go(name):
        print("nothing was deleted", file=sys.stderr)
        return USAGE
    with driven(journal_path(options)) as store:
        store.delete(run)
    print(f"{name} was deleted; 'treefold vacuum' gives its room back to the disk")
    return DONE


def _may_go(name: str) -> bool:
    """Ask whoever sits at the terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidValueError(f"nobody can be asked whether {name} may go: say so with --yes")
    print(f"delete {name}, which cannot be had back? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
