"""The states of a node, and the table of legal transitions between them."""

from enum import StrEnum

from treefold.core.errors import IllegalTransitionError


class NodeState(StrEnum):
    """The state of a call.

    Example:
        >>> NodeState.Success.final, NodeState.Paused.final
        (True, False)
    """

    Waiting = "waiting"
    Running = "running"
    Paused = "paused"
    Success = "success"
    Error = "error"
    Canceled = "canceled"

    # Enum.__hash__ is slow Python code; the hash of str fits, since a member equals its value.
    __hash__ = str.__hash__

    final: bool  # whether a call in this state has ended


NEXT: dict[NodeState, tuple[NodeState, ...]] = {
    # A call whose start fails, before the start is recorded, goes from Waiting to Error.
    NodeState.Waiting: (NodeState.Running, NodeState.Error, NodeState.Canceled),
    NodeState.Running: (
        NodeState.Paused,
        NodeState.Success,
        NodeState.Error,
        NodeState.Canceled,
    ),
    NodeState.Paused: (NodeState.Running, NodeState.Error, NodeState.Canceled),
    NodeState.Success: (),
    NodeState.Error: (),
    NodeState.Canceled: (),
}
for _state, _next in NEXT.items():
    _state.final = not _next

# For code that runs in every call: in Python 3.11 an attribute of an enum takes ten times as long.
WAITING, RUNNING, PAUSED, SUCCESS, ERROR, CANCELED = NodeState


def check_transition(now: NodeState, then: NodeState) -> None:
    """Raise IllegalTransitionError unless *then* may follow *now*."""
    if then not in NEXT[now]:
        legal = ", ".join(NEXT[now]) or "nothing: it has ended"
        raise IllegalTransitionError(f"a node cannot go from {now} to {then}; legal: {legal}")
