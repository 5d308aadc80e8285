"""What the entries of a node add up to: its state, its times, and whether its tree is parked."""

from collections.abc import Iterable
from dataclasses import dataclass

from treefold.core.states import NodeState


class NodeStatus:
    """The current state of one node, and when it started and ended."""

    __slots__ = ("ended", "started", "state")

    def __init__(self) -> None:
        self.state = NodeState.Waiting
        self.started: float | None = None
        self.ended: float | None = None

    def update(self, state: NodeState, at: float | None) -> None:
        """Change to *state*, at that time."""
        self.state = state
        if state is NodeState.Running and self.started is None:
            self.started = at
        self.ended = at if state.final else None


@dataclass(frozen=True, slots=True)
class OpenNode:
    """A call that has not ended.

    Attributes:
        idles: whether it does nothing of its own while one of its child calls is open.
        asks: whether it has a pending question.
        wakes: when the first of its sleeps ends; None if it does not sleep.
    """

    tree: int
    id: int
    parent: int
    idles: bool
    asks: bool
    wakes: float | None


def parked_trees(nodes: Iterable[OpenNode]) -> dict[int, bool]:
    """Return, for each open tree, whether nothing in it can continue yet.

    A call waits for the answer to a question, or sleeps.

    A node that does not idle may be doing something besides its child calls, so its tree is not
    parked unless it has a question itself, or sleeps.
    """
    found = list(nodes)
    waiting = {node.parent for node in found}
    trees = dict.fromkeys((node.tree for node in found), True)
    for node in found:
        waits = node.asks or node.wakes is not None
        if not waits and not (node.idles and node.id in waiting):
            trees[node.tree] = False
    return trees


def sleeping_trees(nodes: Iterable[OpenNode]) -> dict[int, float]:
    """Return when the first call of a tree wakes, for each tree in which one sleeps."""
    trees: dict[int, float] = {}
    for node in nodes:
        if node.wakes is not None:
            trees[node.tree] = min(node.wakes, trees.get(node.tree, node.wakes))
    return trees
