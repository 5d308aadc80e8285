"""What a tree and its forks have spent of the budget of a runtime, read from the journal."""

from collections.abc import Collection, Sequence

from treefold.core.errors import StoreDamagedError, UnknownNodeError
from treefold.core.events import Event, TreeForked
from treefold.core.guards import budget_in
from treefold.core.store import Store
from treefold.runtime.calls.budgets import History, Spent, spent_in
from treefold.runtime.durable.tree_reader import read_events
from treefold.runtime.guarding import guards_in


def history_of(
    store: Store, tree: int, account: str, counted: Collection[int] = ()
) -> History | None:
    """Return the first tree of the family of *tree*, and what the family has spent of *account*.

    A family is a tree with all its forks, and theirs. What forks share is counted once, and what a
    tree did without that budget is not counted, unless a fork that has it goes on from there.

    Returns:
        None if the first tree is among those that are *counted*.
    """
    first, spent = _first(store, tree), Spent()
    if first in counted:
        return None
    family, paying = [first], set[int]()
    shared: dict[int, Spent] = {}  # what forks have from trees that are not paid from the account
    for one in family:  # it grows meanwhile
        family += store.forks(one)
        events = _events_of_fork(store, one)
        guards = budget_in(guards_in(events))
        if guards is None or guards.paid_from != account:
            continue
        paying.add(one)
        inherited = _inherited(events, one)
        spent = spent.plus(*spent_in(events[inherited:]))
        if inherited and (source := _source(events[inherited - 1])) not in paying:
            shared[source] = max(shared.get(source, Spent()), spent_in(events[:inherited]))
    for one in shared.values():
        spent = spent.plus(*one)
    return first, spent


def _events_of_fork(store: Store, tree: int) -> Sequence[Event]:
    """Return the events of *tree*; none if it was deleted since it was found."""
    try:
        return read_events(store, tree, long_texts=False)
    except (UnknownNodeError, StoreDamagedError):
        if store.find(node=tree) is not None:
            raise
        return ()


def _first(store: Store, tree: int) -> int:
    """Return the tree that *tree* was forked from, directly or not, and that is no fork."""
    while True:
        events = read_events(store, tree, long_texts=False)
        if not (inherited := _inherited(events, tree)):
            return tree
        tree = _source(events[inherited - 1])


def _source(forked: Event) -> int:
    assert isinstance(forked, TreeForked)
    return forked.source


def _inherited(events: Sequence[Event], tree: int) -> int:
    """Return how many events come before those that are the tree's own."""
    forks = (
        number
        for number, event in enumerate(events, 1)
        if isinstance(event, TreeForked) and event.node == tree
    )
    return max(forks, default=0)
