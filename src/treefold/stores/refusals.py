"""What a store of a journal says when it will not write."""

from treefold.core.errors import FencedError, StoreOwnedError, UsageError
from treefold.core.store import Call, Entry


def owned(journal: str, process: str = "") -> StoreOwnedError:
    """Return the error for a journal that is driven already."""
    where = f" (process {process})" if process else ""
    return StoreOwnedError(
        journal,
        f"another runtime drives it{where}; end that one first, or only look on and answer with "
        "treefold.attach",
    )


def fenced(journal: str, entry: Entry, call: Call | None = None) -> FencedError:
    """Return the error for an entry whose number is taken, or for one whose *call* is."""
    taken = f"node {entry.node} has an entry {entry.number} already"
    if call is not None:
        caller = f"node {call.parent}" if call.parent else "the top level"
        taken = f"{caller} has a call with the key {call.key!r}, or another is node {entry.node}"
    return FencedError(journal, f"{taken}; another runtime has written to it")


def overtaken(journal: str) -> FencedError:
    """Return the error for a place in the journal that is taken."""
    return FencedError(journal, "another runtime has written to it, though this one drives it")


def not_driving(journal: str) -> UsageError:
    """Return the error for somebody who may only read."""
    return UsageError(f"only who drives {journal} may write to it; call drive() first")


def without_call(entry: Entry) -> UsageError:
    """Return the error for a node that nobody has called."""
    return UsageError(f"the first entry of node {entry.node} has to say who called it")


def still_open(tree: int) -> UsageError:
    """Return the error for deleting a tree that has not ended."""
    return UsageError(f"tree {tree} has not ended; cancel it first")


def forked(tree: int) -> UsageError:
    """Return the error for deleting what another tree goes on from."""
    return UsageError(f"a fork goes on from tree {tree}; delete that first")
