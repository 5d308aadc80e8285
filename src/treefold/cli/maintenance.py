"""``treefold import``, ``treefold delete`` and ``treefold vacuum``: maintain a journal.

They write to the journal themselves, so no other process may drive it meanwhile.
"""

import os
import sys
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from tempfile import TemporaryDirectory

import click

from treefold.cli.exit_codes import DONE, USAGE
from treefold.cli.journal import driven, existing_journal, journal_path, observe, run_id
from treefold.cli.options import FILE, command, node_argument, store_option
from treefold.core.errors import InvalidValueError, StoreError, UsageError
from treefold.core.store import Store, TreeRow
from treefold.runtime.observe.observer import attach
from treefold.stores.opening import open_store
from treefold.stores.urls import is_url, public_name
from treefold.views.text import printable, readable


@command("import", exit_codes="0 it was imported, 2 it was not")
@click.option(
    "--tree", type=FILE, metavar="FILE", required=True, help="the file to import; - reads stdin"
)
@store_option
def import_run(tree: str, store: str | None) -> int:
    """Import a run that 'treefold export --tree' has written.

    example: treefold import --tree run.jsonl --store archive.db

    Either all of the file is imported or nothing. A fork comes with the runs that it is based on.
    Each run gets a new number, and a key that another run has is left out. A run that has not ended
    stays as it is until 'treefold resume' lets it run. The journal is created if it does not
    exist; no process may drive a file meanwhile.
    """
    from treefold.stores import MemoryStore  # noqa: PLC0415 - --help needs none

    journal = journal_path(store)
    with _input_file(tree) as path:
        # A faulty file fails here, before a journal is created.
        rehearsal = MemoryStore()
        rehearsal.join()
        written = _import(rehearsal, path)
        with driven(journal) as target:
            rows = _import(target, path)
    for was, row in zip(written, rows, strict=True):
        key = "" if row.key == was.key else f"; its key {was.key!r} belongs to another run"
        print(readable(f"{row.function} is now run {row.number} of {public_name(journal)}{key}"))
    _warn_of_unfinished(rows, public_name(journal))
    return DONE


@contextmanager
def _input_file(path: str) -> Generator[str]:
    """Yield *path*, or the path of a temporary copy of stdin if it is ``-``."""
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


def _import(store: Store, path: str) -> list[TreeRow]:
    from treefold.stores import import_tree  # noqa: PLC0415 - --help needs none

    with attach(store) as observer:
        newest = observer.find_number()
        import_tree(store, path)
        return observer.trees(after=newest or 0)


def _warn_of_unfinished(rows: Iterable[TreeRow], journal: str) -> None:
    for row in rows:
        if row.open:
            sys.stdout.flush()  # so that the warning comes after what it is about
            said = (
                f"{row.function} (run {row.number}) has not ended, and stays as it is in {journal}"
                f" until 'treefold resume {row.number}' lets it run; the run that it is a copy of"
                " continues in its own journal"
            )
            print(readable(said), file=sys.stderr)


@command("delete", exit_codes="0 it was deleted, 2 it was not, 130 it was interrupted")
@node_argument("RUN", required=True)
@click.option("--yes", is_flag=True, help="do not ask for confirmation")
@store_option
def delete(node: str, store: str | None, *, yes: bool) -> int:
    """Delete a run and all that was said in it; its key is free again.

    example: treefold delete nightly --yes

    It cannot be restored, unless 'treefold export --tree' wrote it to a file. A run that has not
    ended cannot be deleted, nor one that has a fork; no process may drive a file meanwhile.
    'treefold vacuum' returns the space to the disk.
    """
    with observe(store) as observer:
        run = run_id(observer, node)
    with closing(open_store(journal_path(store), create=False)) as source:
        [row, *forks] = [_row(source, tree) for tree in (run, *source.forks(run))]
    # The store refuses these, too, but only after the user has been asked for confirmation.
    if row.open:
        raise UsageError(f"run {row.number} has not ended; cancel it first")
    if forks:
        shared = f"delete run {forks[0].number} first, which shares its calls"
        raise UsageError(f"run {row.number} was forked; {shared}")
    name = printable(f"{row.function} (run {row.number})")
    if not yes and not _confirmed(name):
        print("nothing was deleted", file=sys.stderr)
        return USAGE
    with driven(journal_path(store)) as target:
        target.delete(run)
    print(f"{name} was deleted; 'treefold vacuum' returns its space to the disk")
    return DONE


def _row(store: Store, tree: int) -> TreeRow:
    """Return the row of one tree; the others are not read."""
    [row] = store.trees(after=tree - 1, limit=1)
    return row


def _confirmed(name: str) -> bool:
    """Ask the user at the terminal whether the run *name* is to be deleted."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidValueError(f"cannot ask whether to delete {name}: no terminal. Give --yes")
    print(f"delete {name}? It cannot be restored. [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


@command("vacuum", exit_codes="0 it was done, also if there was no space to return, 2 it was not")
@store_option
def vacuum(store: str | None) -> int:
    """Return the space that deleted runs took in a journal to the disk.

    example: treefold vacuum

    The journal is written anew, which temporarily takes as much space again; no process may drive
    it meanwhile. A database keeps the space, and uses it again.
    """
    journal = existing_journal(store)
    with driven(journal) as target:
        before = _size(target.name)
        target.vacuum()
        freed = max(0, before - _size(target.name))
    if is_url(journal):
        print("the server uses the space again")
    else:
        print(f"{freed:,} bytes were returned")
    return DONE


def _size(journal: str) -> int:
    """Return the size of the journal in bytes, with its write-ahead log."""
    files = (journal, f"{journal}-wal")
    return sum(os.path.getsize(file) for file in files if os.path.exists(file))
