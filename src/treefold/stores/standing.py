"""Where a node stands after some entries: its state, and when it began and ended."""

from treefold.core.states import NodeState


class Standing:
    """What the states of one node have come to."""

    __slots__ = ("ended", "started", "state")

    def __init__(self) -> None:
        self.state = NodeState.Waiting
        self.started: float | None = None
        self.ended: float | None = None

    def take(self, state: NodeState, at: float | None) -> None:
        """Take in the next state."""
        self.state = state
        if state is NodeState.Running and self.started is None:
            self.started = at
        self.ended = at if state.final else None
