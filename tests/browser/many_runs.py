"""A journal of thousands of runs, made quickly: one real run, copied under other ids."""

from collections.abc import Sequence
from contextlib import suppress

from browser import newsroom
from treefold import Function, MemoryStore, Runtime
from treefold.core.fact import replace
from treefold.stores import Entry, Store
from treefold.testing.store_suite import write


def recorded(function: Function, args: dict[str, str]) -> list[Entry]:
    """Run a function once; return the entries of its run, which has the id 1."""
    store = MemoryStore()
    # A run that is to fail raises an OSError.
    with (
        Runtime([function], models=newsroom.model(), store=store) as runtime,
        suppress(OSError),
    ):
        runtime.invoke(function, args).result(60)
    first, *others = store.entries(1)
    return [replace(first, texts=store.texts(1)), *others]


def copy_into(store: Store, runs: Sequence[Sequence[Entry]], count: int, *, after: int = 0) -> None:
    """Append *count* copies of *runs* in turn to a store that has *after* runs already."""
    node, _ = store.highest()
    for number in range(after + 1, after + count + 1):
        entries = runs[number % len(runs)]
        write(store, [_moved(entry, node, number) for entry in entries])
        node += max(entry.node for entry in entries)


def _moved(entry: Entry, by: int, number: int) -> Entry:
    call = entry.call
    if call is not None and call.parent:
        call = replace(call, parent=call.parent + by)
    elif call is not None:
        call = replace(call, key=f"=job {number}", index=number)
    return replace(entry, tree=entry.tree + by, node=entry.node + by, call=call, seq=0)
