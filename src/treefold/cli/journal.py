"""Find the journal that a command line means, and the run or the call in it."""

import argparse
import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from treefold.core.errors import InvalidValueError, StoreError, UnknownNodeError
from treefold.core.store import Store
from treefold.runtime.observer import Observer, attach

DEFAULT: Final = "run.db"
VARIABLE: Final = "TREEFOLD_STORE"
LAST: Final = "last"

HOW: Final = "a node's id, its path (1.3.2), the key of a run, or 'last' for the newest"
_UNDRIVEN: Final = (
    "no process drives this journal now: what is open in it goes on when the program is started"
    " again"
)
_ID: Final = re.compile(r"[0-9]{1,18}")  # what a store has room for
_PATH: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})+")


def add_store_to(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where the journal is."""
    parser.add_argument(
        "--store",
        metavar="FILE",
        help=f"the journal; otherwise ${VARIABLE}, or {DEFAULT} in this folder",
    )


def add_node_to(
    parser: argparse.ArgumentParser, metavar: str = "NODE", *, required: bool = False
) -> None:
    """Add the argument that says which call is meant, as *node*; without it, the newest run."""
    number = None if required else "?"
    parser.add_argument("node", metavar=metavar, nargs=number, default=LAST, help=HOW)


def journal_path(options: argparse.Namespace) -> str:
    """Return the path of the journal that *options* name, as it was written."""
    return options.store or os.environ.get(VARIABLE) or DEFAULT


def existing_journal(options: argparse.Namespace) -> str:
    """Return the path of the journal that *options* name, as it was written.

    Raises:
        StoreError: there is none.
    """
    path = journal_path(options)
    found = os.path.expanduser(path)
    if not os.path.exists(found):
        raise StoreError(path, f"there is no such journal; give --store FILE or set {VARIABLE}")
    if os.path.isfile(found) and not os.path.getsize(found):  # a store would make a journal of it
        raise StoreError(path, f"it is empty; give --store FILE or set {VARIABLE}")
    return path


def opened(options: argparse.Namespace) -> Observer:
    """Return who looks on at the journal that *options* name.

    Raises:
        StoreError: there is none, or it cannot be read.
    """
    return attach(existing_journal(options))


@contextmanager
def driven(path: str) -> Generator[Store]:
    """Lend the journal at *path*, which is made if it is not there, to who alone may write to it.

    Raises:
        StoreOwnedError: a process drives it.
        StoreError: it cannot be written.
    """
    from treefold.stores import SqliteStore  # noqa: PLC0415 - who only looks on needs none

    with SqliteStore(path) as store:
        store.acquire()
        yield store


def tell_if_undriven(observer: Observer) -> None:
    """Say, beside something that is open, that nobody goes on with it now."""
    if not observer.is_driven:
        sys.stdout.flush()  # this comes below it
        print(_UNDRIVEN, file=sys.stderr)


def run_id(observer: Observer, text: str) -> int:
    """Return the id of the top-level call that *text* means.

    Raises:
        UnknownNodeError: there is none.
        InvalidValueError: it means a call further down.
    """
    node = node_id(observer, text)
    run = observer.tree_of(node)
    if node != run:
        path = observer.get_view(node).path
        raise InvalidValueError(
            f"call {path} (node {node}) is not a whole run: give {run}, the run that it is in"
        )
    return run


def node_id(observer: Observer, text: str) -> int:
    """Return the id of the call that *text* means.

    Digits are an id, digits and dots a path, ``last`` is the newest run, and everything else the
    key of a run; ``=`` before a key that looks like one of these says that it is one.

    Raises:
        UnknownNodeError: there is none.
    """
    if _ID.fullmatch(text):
        observer.tree_of(int(text))  # raises unless it is there
        return int(text)
    if _PATH.fullmatch(text):
        return _at_path(observer, text)
    trees = observer.trees()
    if text == LAST:
        if not trees:
            raise UnknownNodeError("there is no run in the journal yet")
        return trees[-1].id
    for tree in trees:
        if tree.key and tree.key in {text, text.removeprefix("=")}:
            return tree.id
    raise UnknownNodeError(f"there is no run {text!r}; 'treefold ps' lists them. Give {HOW}")


def _at_path(observer: Observer, path: str) -> int:
    number, *steps = path.split(".")
    top = next((tree.id for tree in observer.trees() if tree.number == int(number)), None)
    view = None if top is None else observer.get_view(top)
    for index in range(len(steps)):
        wanted = ".".join([number, *steps[: index + 1]])
        children = () if view is None else view.children
        view = next((child for child in children if child.path == wanted), None)
    if view is None:
        raise UnknownNodeError(f"there is no call {path}; 'treefold tree' shows the paths of a run")
    return view.id
