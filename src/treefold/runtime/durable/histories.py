"""What a tree and its forks have spent of the budget of a runtime, read from the journal."""

from collections.abc import Sequence

from treefold.core.events import Event, TreeForked
from treefold.core.guards import budget_in
from treefold.core.store import Store
from treefold.runtime.calls.budgets import History, Spent, spent_in
from treefold.runtime.durable.tree_reader import read_events
from treefold.runtime.guarding import guards_in


def history_of(store: Store, tree: int, account: str) -> History:
    """Return the first tree of the family of *tree*, and what the family has spent of *account*.

    A family is a tree with all its forks, and theirs. What a fork shares is counted once, and what
    it did without that budget is not counted.
    """
    first, spent = _first(store, tree), Spent()
    family = [first]
    for one in family:  # it grows meanwhile
        family += store.forks(one)
        events = read_events(store, one, long_texts=False)
        guards = budget_in(guards_in(events))
        if guards is not None and guards.paid_from == account:
            spent = spent.plus(*spent_in(events[_inherited(events, one) :]))
    return first, spent


def _first(store: Store, tree: int) -> int:
    """Return the tree that *tree* was forked from, directly or not, and that is no fork."""
    while True:
        events = read_events(store, tree, long_texts=False)
        if not (inherited := _inherited(events, tree)):
            return tree
        forked = events[inherited - 1]
        assert isinstance(forked, TreeForked)
        tree = forked.source


def _inherited(events: Sequence[Event], tree: int) -> int:
    """Return how many events come before those that are the tree's own."""
    forks = (
        number
        for number, event in enumerate(events, 1)
        if isinstance(event, TreeForked) and event.node == tree
    )
    return max(forks, default=0)
