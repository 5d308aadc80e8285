"""Which trees are open, and which of these wait for a person and nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenNode:
    """A call that has not ended.

    Attributes:
        idles: whether it does nothing of its own while a call that it made is open.
        asks: whether it has a question that waits.
    """

    tree: int
    id: int
    parent: int
    idles: bool
    asks: bool


def parked(nodes: Iterable[OpenNode]) -> dict[int, bool]:
    """Return, for each tree that is open, whether nothing can go on in it until somebody answers.

    What code does while a call of its is open, nobody knows before it runs.
    """
    found = list(nodes)
    waiting = {node.parent for node in found}
    trees = dict.fromkeys((node.tree for node in found), True)
    for node in found:
        if not node.asks and not (node.idles and node.id in waiting):
            trees[node.tree] = False
    return trees
