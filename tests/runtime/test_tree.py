"""The views of a tree, and whoever is interrupted while they are made."""

from typing import Any

import pytest

from treefold import NodeState
from treefold.core.events import CallEnded, CallRequested, CallStarted
from treefold.runtime.trees.tree import Tree


class Interrupting(CallStarted):
    """Ctrl-C comes while this is taken in, once."""

    def __getattribute__(self, name: str) -> Any:
        if name == "at" and interrupts:
            raise interrupts.pop()
        return object.__getattribute__(self, name)


interrupts: list[KeyboardInterrupt] = []


def requested(id: int, parent: int | None = None) -> CallRequested:
    return CallRequested(id, parent, 1, 1, "work", {}, key=f"#{id}")


def test_an_interrupt_while_a_view_is_made_loses_nothing_of_the_tree():
    tree = Tree(1, 1, kept=True)
    started = Interrupting(1, 1.0)
    for event in (requested(1), started, requested(2, 1), CallStarted(2, 2.0)):
        tree.publish(event)
    tree.publish(CallEnded(2, NodeState.Success, 3.0, "done", None))
    interrupts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        tree.view(1)
    view = tree.view(1)
    assert (view.state, [child.outputs for child in view.children]) == (NodeState.Running, ["done"])
