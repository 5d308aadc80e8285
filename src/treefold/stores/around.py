"""Which entries of a tree are around one of its calls, for stores that read whole trees anyway."""

from collections.abc import Collection, Sequence

from treefold.core.store import Entry


def entries_around(
    entries: Sequence[Entry], call: int, leaving_out: Collection[str]
) -> list[Entry]:
    """Return what ``Store.entries_around`` does, out of all *entries* of the tree of *call*."""
    parents = {entry.node: entry.call.parent for entry in entries if entry.call is not None}
    if call not in parents:
        return []
    # A call above that a fork only shares has no call here, so that the top is added by itself.
    above = {entries[0].tree} - {call}
    caller = parents[call]
    while caller:
        above.add(caller)
        caller = parents.get(caller, 0)
    below = {call}
    # A call is written after its caller.
    for node, parent in parents.items():
        if parent in below:
            below.add(node)
    return [
        entry
        for entry in entries
        if entry.node in below or (entry.node in above and entry.kind not in leaving_out)
    ]
