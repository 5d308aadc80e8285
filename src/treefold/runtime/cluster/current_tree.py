"""The tree of a node wherever it runs just now, for watches."""

from collections.abc import Callable

from treefold.core.views import NodeView
from treefold.runtime.engine import Engine
from treefold.runtime.trees.tree import Tree


class CurrentTree:
    """Finds the tree of a node again after this process has taken it over or given it up."""

    def __init__(self, engine: Engine, node: int) -> None:
        self._engine = engine
        self._node = node
        self._waiting: dict[Callable[[], None], Tree] = {}

    def _tree(self) -> Tree:
        return self._engine.find(self._node).tree

    def view(self, id: int) -> NodeView:
        return self._tree().view(id)

    def on_next_event(self, wake: Callable[[], None]) -> None:
        tree = self._waiting[wake] = self._tree()
        tree.on_next_event(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        if (tree := self._waiting.pop(wake, None)) is not None:
            tree.forget(wake)
