"""Find the journal that a command line names, and the run or the call in it."""

import os
import re
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Final

from treefold.cli.options import DEFAULT_STORE, LAST, NODE_HELP, STORE_VARIABLE
from treefold.core.address import address
from treefold.core.errors import InvalidValueError, StoreError, UnknownNodeError
from treefold.core.store import Store
from treefold.core.views import NodeView
from treefold.runtime.observe.observer import Observer, attach
from treefold.stores.opening import open_store
from treefold.stores.urls import is_url

_NOT_DRIVEN: Final = (
    "no process drives this journal now: unfinished runs resume when their program is started again"
)
_PATH: Final = re.compile(r"[0-9]+(\.[0-9]+)*")
_DIGITS: Final = 18  # of a number that fits into a column of the store
_NODE: Final = re.compile(rf"node:([0-9]{{1,{_DIGITS}}})")
_KEY: Final = "="


def journal_path(store: str | None) -> str:
    """Return the path or URL of the journal: *store*, that of the environment, or the default."""
    return store or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE


def shared_journal(store: str | None) -> str:
    """Return the URL of the journal that workers share.

    Raises:
        InvalidValueError: none is named, or it is a file.
    """
    path = store or os.environ.get(STORE_VARIABLE)
    if path and is_url(path):
        return path
    found = f"{path} is a file, which one process runs; " if path else ""
    raise InvalidValueError(
        f"{found}give the database that workers share: --store postgresql://USER@HOST/DATABASE, or"
        f" set {STORE_VARIABLE}"
    )


def existing_journal(store: str | None) -> str:
    """Return ``journal_path(store)``.

    Raises:
        StoreError: there is no such file, or it is empty.
    """
    path = journal_path(store)
    if is_url(path):
        return path
    found = os.path.expanduser(path)
    if not os.path.exists(found):
        raise StoreError(
            path, f"there is no such journal; give --store FILE or set {STORE_VARIABLE}"
        )
    # A store would initialize an empty file as a new journal.
    if os.path.isfile(found) and not os.path.getsize(found):
        raise StoreError(path, f"it is empty; give --store FILE or set {STORE_VARIABLE}")
    return path


def observe(store: str | None) -> Observer:
    """Return an observer of the journal that *store* or the environment names.

    Raises:
        StoreError: there is none, or it cannot be read.
    """
    return attach(existing_journal(store))


@contextmanager
def driven(path: str) -> Generator[Store]:
    """Open the journal at *path* for writing; create it if it is missing.

    A file is owned meanwhile. A journal in a database has an owner for each run.

    Raises:
        StoreOwnedError: another process drives it.
        StoreError: it cannot be written.
    """
    with closing(open_store(path)) as store:
        if store.cluster is None:
            store.join()
        yield store


def warn_if_not_driven(observer: Observer) -> None:
    """Say on stderr that no process resumes the unfinished runs of the journal now."""
    if not observer.is_driven:
        sys.stdout.flush()  # so that the warning comes after what it is about
        print(_NOT_DRIVEN, file=sys.stderr)


def run_id(observer: Observer, text: str) -> int:
    """Return the id of the run that *text* names.

    Raises:
        UnknownNodeError: there is none.
        InvalidValueError: it names a call inside a run.
    """
    node = node_id(observer, text)
    run = observer.tree_of(node)
    if node != run:
        path = observer.get_view(node).path
        number = path.partition(".")[0]
        raise InvalidValueError(f"{address(path)} is not a whole run: give {number}")
    return run


def node_id(observer: Observer, text: str) -> int:
    """Return the id of the run or the call that *text* names.

    Digits are the number of a run, digits and dots a path, ``last`` is the newest run, ``node:17``
    is an id, ``=KEY`` a key, and so is everything else.

    Raises:
        UnknownNodeError: there is none.
    """
    if _PATH.fullmatch(text):
        return _at_path(observer, text)
    if found := _NODE.fullmatch(text):
        id = int(found[1])
        observer.tree_of(id)  # raises if there is no such node
        return id
    if text == LAST:
        if (newest := observer.find_number()) is None:
            raise UnknownNodeError("there is no run in the journal yet")
        return newest
    key = text.removeprefix(_KEY)
    # Trees that continue each other have the same key: the newest is what became of the call.
    if key and (tree := observer.find_key(key)) is not None:
        return tree
    raise UnknownNodeError(
        f"there is no run with the key {key!r}; 'treefold ps' lists them. Give {NODE_HELP}"
    )


def _at_path(observer: Observer, path: str) -> int:
    number, *steps = path.split(".")
    is_number = not number.startswith("0") and len(number) <= _DIGITS
    top = observer.find_number(int(number)) if is_number else None
    if top is None:
        raise UnknownNodeError(f"there is no run {number}; 'treefold ps' lists them")
    if not steps:
        return top
    view: NodeView | None = observer.get_view(top)
    for index in range(len(steps)):
        wanted = ".".join([number, *steps[: index + 1]])
        children = () if view is None else view.children
        view = next((child for child in children if child.path == wanted), None)
    if view is None:
        raise UnknownNodeError(
            f"there is no call {path}; 'treefold tree {number}' shows the paths of the run"
        )
    return view.id
