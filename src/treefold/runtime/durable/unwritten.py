"""Writes what runtimes of this process have made, before an observer says that it is unknown.

A call is in the journal a moment after it was made. Observers read the journal only, and the code
that made the call may hand its id to one of them at once: to the viewer, for example.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

from treefold.core.errors import StoreError
from treefold.core.store import Store
from treefold.runtime.durable.journal_writer import JournalWriter, writers_here

_LIMIT: Final = 5.0  # seconds to wait for a write


def write_calls(store: Store, nodes: Collection[int]) -> bool:
    """Write those of these calls that runtimes of this process have made and not written yet.

    Returns:
        Whether a runtime of this process writes the journal of *store*: then they may be there now.

    Raises:
        StoreError: they cannot be written now.
    """
    is_written_here = False
    for writer in _writers_of(store):
        is_written_here = True
        # The ids that a fork shares with its source follow its own.
        new = [range(id, id + 1 + call.inherited) for id, call in writer.unwritten_calls()]
        if any(node in ids for ids in new for node in nodes):
            writer.flush(_LIMIT)
    return is_written_here


def write_trees(store: Store) -> None:
    """Write the top-level calls that runtimes of this process have made, if that is possible."""
    for writer in _writers_of(store):
        # While the store cannot be written, its other trees can be listed.
        if writer.failing_since is None and any(
            call.parent == 0 for _, call in writer.unwritten_calls()
        ):
            with suppress(StoreError):
                writer.flush(_LIMIT)


def _writers_of(store: Store) -> Iterator[JournalWriter]:
    # An observer of a file has a store of its own; the id of a journal is the same in both.
    return (one for one in writers_here() if one.store is store or one.store.id == store.id)
