"""``treefold import``: take a run from a file into a journal."""

import argparse
import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import add_store_to, driven, journal_path
from treefold.core.errors import StoreError
from treefold.core.store import Store, TreeRow
from treefold.runtime.observer import attach
from treefold.views.text import readable


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "import",
        description="Take a run that 'treefold export --tree' has written into a journal.",
        epilog=(
            "example: treefold import --tree run.jsonl --store archive.db\n\n"
            "All of it is taken in, or nothing; a fork comes with the runs that it goes on from.\n"
            "Everything gets ids of its own, and a key that another run has is left out. The\n"
            "journal is made if it is not there; no process may drive it meanwhile.\n\n"
            "exit codes: 0 it is in the journal, 2 it is not"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--tree", metavar="FILE", required=True, help="what to take in; - reads stdin"
    )
    add_store_to(parser)
    parser.set_defaults(command=take_in)


def take_in(options: argparse.Namespace) -> int:
    """Take in the file that *options* name."""
    from treefold.stores import MemoryStore  # noqa: PLC0415 - who asks for help needs none

    journal = journal_path(options)
    with _file(options.tree) as path:
        rehearsal = MemoryStore()
        rehearsal.acquire()
        written = _taken_in(rehearsal, path)  # or it raises, and nobody has made a journal
        with driven(journal) as store:
            rows = _taken_in(store, path)
    for was, row in zip(written, rows, strict=True):
        key = "" if row.key == was.key else f"; its key {was.key!r} is that of another run"
        print(readable(f"{row.function} is node {row.id} of {journal} now{key}"))
    _warn_of_open(rows, journal)
    return DONE


@contextmanager
def _file(path: str) -> Generator[str]:
    """Lend the path of a file that has what is at *path*."""
    if path != "-":
        yield path
        return
    with TemporaryDirectory() as folder:
        copy = os.path.join(os.path.realpath(folder), "tree")
        with open(copy, "wb") as file:
            file.writelines(sys.stdin.buffer)
        try:
            yield copy
        except StoreError as error:
            if error.path != copy:
                raise
            raise StoreError("stdin", error.args[1]) from error


def _taken_in(store: Store, path: str) -> list[TreeRow]:
    from treefold.stores import import_tree  # noqa: PLC0415 - who asks for help needs none

    with attach(store) as observer:
        known = {row.id for row in observer.trees()}
        import_tree(store, path)
        return [row for row in observer.trees() if row.id not in known]


def _warn_of_open(rows: Iterable[TreeRow], journal: str) -> None:
    for row in rows:
        if row.open:
            sys.stdout.flush()  # this comes below it
            said = (
                f"{row.function} (node {row.id}) has not ended: it goes on when {journal} is"
                " driven, and so does the run that it is a copy of, in its own journal"
            )
            print(readable(said), file=sys.stderr)
