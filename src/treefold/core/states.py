"""The states of a node, and which may follow which. Nothing else knows the order."""

from enum import StrEnum

from treefold.core.errors import IllegalTransitionError


class NodeState(StrEnum):
    """Where a call stands.

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

    __hash__ = str.__hash__  # Enum's own is Python code, and slow; a member equals its value

    @property
    def final(self) -> bool:
        """Whether a call in this state has ended."""
        return not NEXT[self]


NEXT: dict[NodeState, tuple[NodeState, ...]] = {
    NodeState.Waiting: (NodeState.Running, NodeState.Canceled),
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


def check_transition(now: NodeState, then: NodeState) -> None:
    """Raise IllegalTransitionError unless *then* may follow *now*."""
    if then not in NEXT[now]:
        legal = ", ".join(NEXT[now]) or "nothing: it has ended"
        raise IllegalTransitionError(f"a node cannot go from {now} to {then}; legal: {legal}")
