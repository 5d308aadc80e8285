"""Functions that walk a tree of nodes: down, up, and to find out whether it is parked."""

from collections.abc import Container
from typing import Any, TypeVar

from treefold.core.function import Node
from treefold.core.states import NodeState
from treefold.runtime.calls.node import CallNode

N = TypeVar("N", bound=Node)


def subtree(node: CallNode) -> list[CallNode]:
    """Return *node* and all below it, each node before its children."""
    found: list[CallNode] = []
    stack = [node]
    while stack:
        node = stack.pop()
        found.append(node)
        stack.extend(reversed(node.children))
    return found


def root_of(node: CallNode) -> CallNode:
    """Return the top-level call of the tree of *node*."""
    while node.parent is not None:
        node = node.parent
    return node


def upwards(node: N) -> list[N]:
    """Return *node* and every call above it, the top-level one last."""
    found: list[Any] = []
    above: Node | None = node
    while above is not None:
        found.append(above)
        above = above.parent
    return found


def is_parked(root: CallNode, elsewhere: Container[int] = ()) -> bool:
    """Whether nothing in the tree can continue before a person answers a question.

    The ids in *elsewhere* are those of calls below *root* that other processes run: they are waited
    for, too.
    """
    for node in subtree(root):
        is_elsewhere = node is not root and node.id in elsewhere
        if node.state.final or node.state is NodeState.Paused or is_elsewhere:
            continue
        if node.parent is not None and not node.is_under_way:  # its caller has to start it first
            continue
        under_way = [child for child in node.children if child.is_under_way]
        if not any(node.function.is_agent or child.asked_for for child in under_way):
            return False
    return not root.state.final
