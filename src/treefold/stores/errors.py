"""The errors that the stores of a journal raise when they refuse to write."""

from treefold.core.errors import FencedError, StoreOwnedError, UsageError
from treefold.core.store import Call, Entry


def owned_error(journal: str, process: str = "") -> StoreOwnedError:
    """Return the error for joining a journal that has an owner."""
    owner, stop = "another runtime", "close it"
    if process:
        owner, stop = f"process {process}", "stop that process"
    return StoreOwnedError(
        journal, f"it is owned by {owner}; {stop}, or read and answer with treefold.attach()"
    )


def fenced_error(journal: str, entry: Entry, call: Call | None = None) -> FencedError:
    """Return the error for an entry whose number is taken, or whose *call* is if one is given."""
    taken = f"node:{entry.node} already has an entry {entry.number}"
    if call is not None:
        caller = f"node:{call.parent}" if call.parent else "the top level"
        taken = f"{caller} already has a call with the key {call.key!r}, or a node:{entry.node}"
    return FencedError(journal, f"{taken}: another runtime has written to it")


def overtaken_error(journal: str) -> FencedError:
    """Return the error for a position in the journal that is taken."""
    return FencedError(journal, "another runtime has written to it, although this one owns it")


def not_owner_error(journal: str) -> UsageError:
    """Return the error for writing without being the owner."""
    return UsageError(f"only the owner of {journal} may write to it; call join() first")


def missing_call_error(entry: Entry) -> UsageError:
    """Return the error for a new node without a call."""
    return UsageError(f"the first entry of node:{entry.node} must have a call")


def still_open_error(tree: int) -> UsageError:
    """Return the error for deleting a tree that has not ended."""
    return UsageError(f"node:{tree} has not ended; cancel it first")


def forked_error(tree: int) -> UsageError:
    """Return the error for deleting a tree that was forked."""
    return UsageError(f"node:{tree} was forked; delete the fork first, which shares its calls")
