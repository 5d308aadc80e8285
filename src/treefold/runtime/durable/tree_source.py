"""Where the ids of trees and calls come from, and the journal of each tree."""

import itertools
import threading
import time
from typing import ClassVar, Protocol

from treefold.core.fact import Fact
from treefold.runtime.trees.tree import Recorder, Tree


class NewTree(Fact, frozen=True):
    """The id of a new tree, its number, and where its events are recorded."""

    id: int
    number: int
    journal: Recorder | None


class TreeSource(Protocol):
    """Gives ids to trees and calls, from any thread.

    Attributes:
        is_alone: whether no other process makes top-level calls, which may have the same keys.
    """

    is_alone: ClassVar[bool]

    def new_tree(self) -> NewTree:
        """Return the id of a new tree."""
        ...

    def new_fork(self, calls: int) -> NewTree:
        """Return the id of a new tree, after which the ids of *calls* - 1 others are reserved."""
        ...

    def new_call(self, tree: Tree) -> int:
        """Return the id of a new call in *tree*, higher than those of all calls there."""
        ...

    def now(self) -> float:
        """Return the time by the clock that the journal goes by."""
        ...

    def journal_of(self, tree: int) -> Recorder | None:
        """Return where the events of a recorded tree are recorded."""
        ...

    def claim(self, journal: Recorder | None) -> bool:
        """Return whether a tree has got its key; False if another process was quicker.

        Raises:
            StoreError: the store cannot be written.
        """
        ...


class CountedTrees:
    """Counts ids in memory: this process makes all calls that are recorded in *journal*."""

    is_alone: ClassVar[bool] = True

    def __init__(self, journal: Recorder | None = None, *, id: int = 0, number: int = 0) -> None:
        self._journal = journal
        self._ids = itertools.count(id + 1)
        self._numbers = itertools.count(number + 1)
        self._lock = threading.Lock()  # guards replacing the counter of ids

    def new_tree(self) -> NewTree:
        with self._lock:
            return NewTree(next(self._ids), next(self._numbers), self._journal)

    def new_fork(self, calls: int) -> NewTree:
        with self._lock:
            first = next(self._ids)
            self._ids = itertools.count(first + calls)
            return NewTree(first, next(self._numbers), self._journal)

    def new_call(self, tree: Tree) -> int:
        return next(self._ids)

    def now(self) -> float:
        return time.time()

    def journal_of(self, tree: int) -> Recorder | None:
        return self._journal

    def claim(self, journal: Recorder | None) -> bool:
        return True
