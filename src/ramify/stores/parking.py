"""Which trees are open, and which of these wait for a person and nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenNode:
    """A call that has not ended, and whether it has a question that waits."""

    tree: int
    id: int
    parent: int
    asks: bool


def parked(nodes: Iterable[OpenNode]) -> dict[int, bool]:
    """Return, for each tree that is open, whether nothing can go on in it until somebody answers.

    A call with an open child waits for that one; so it depends on those that have none.
    """
    found = list(nodes)
    waiting = {node.parent for node in found}
    trees = dict.fromkeys((node.tree for node in found), True)
    for node in found:
        if not node.asks and node.id not in waiting:
            trees[node.tree] = False
    return trees
