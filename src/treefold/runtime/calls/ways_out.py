"""How a person continues a run that has failed, in words."""

from collections.abc import Iterable
from typing import Protocol

from treefold.core.call_keys import name_in
from treefold.core.call_request import CallRequest
from treefold.core.outside import is_of_others, is_outside
from treefold.core.record import CallRecord
from treefold.core.states import NodeState
from treefold.runtime.trees.tree import Tree


class Root(Protocol):
    """A top-level call; see ``CallNode``."""

    @property
    def record(self) -> CallRecord: ...
    @property
    def request(self) -> CallRequest: ...
    @property
    def tree(self) -> Tree: ...
    @property
    def exception(self) -> BaseException | None: ...


def way_out(root: Root, option: str = "") -> str:
    """Return how to continue a tree once it has what it lacked; "" if that is not possible.

    *option* is for the command.
    """
    # A turn of a chat continues with the next one.
    if root.tree.journal is None or root.request.prior is not None:
        return ""
    key = name_in(root.record.requested.key)
    again = f"invoke the key {key!r} again, or " if key else ""
    return f"{again}'treefold resume {root.record.path}{option}'"


def explain_outcome(root: Root, key: str) -> None:
    """Add a note to the exception of a call that keeps it, although its *key* is invoked again."""
    error = root.exception
    if error is None or any("recorded outcome" in note for note in _notes(error)):
        return
    record = root.record
    id, path = record.id, record.path
    if root.tree.journal is None:
        again = "without a store it cannot be continued"
    elif record.state is NodeState.Canceled:
        again = f"to go on with it, runtime.resume({id}) or 'treefold resume {path}'"
    else:
        failed = origin_of(record)
        again = (
            f"to make the call that failed again, runtime.fork({failed.id}) or"
            f" 'treefold fork {failed.path}'"
        )
    error.add_note(
        f"this is the recorded outcome of run {path}, which has the key {key!r}; {again}; to begin"
        f" anew, runtime.delete({id}) or give another key"
    )


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def failed_outside(call: CallRecord) -> bool:
    """Whether *call* failed for want of something outside, itself or because calls below it did."""
    ended = call.ended
    if ended is None or ended.state is not NodeState.Error or ended.exception is None:
        return False
    if is_of_others(ended.exception):
        return any(map(failed_outside, call.children))
    return is_outside(ended.exception)


def origin_of(call: CallRecord) -> CallRecord:
    """Return the call in which the failure of *call* began: itself, or one below it."""
    # An agent fails by itself: it receives the failures of its calls.
    while not call.requested.is_agent and (below := _same_failure(call.children, call)) is not None:
        call = below
    return call


def _same_failure(calls: Iterable[CallRecord], above: CallRecord) -> CallRecord | None:
    failure = None if above.ended is None else above.ended.exception
    for call in calls:
        if failure is not None and call.ended is not None and call.ended.exception == failure:
            return call
    return None
