"""A tree that another process may be driving, as its journal tells it."""

import threading
from collections.abc import Callable

from ramify.core.errors import UnknownNodeError
from ramify.core.events import CallRequested
from ramify.core.fold import TreeFold
from ramify.core.store import Store
from ramify.core.views import NodeView
from ramify.runtime.poll import Poll
from ramify.runtime.tree_reader import TreeReader


class ObservedTree:
    """Folds what is in the journal; whoever looks reads on from where the last one stopped."""

    def __init__(self, store: Store, id: int, poll: Poll) -> None:
        self.id = id
        self._store = store
        self._poll = poll
        self._lock = threading.Lock()  # for reading on
        self._reader = TreeReader(store, id)
        self._fold: TreeFold | None = None  # when something was read

    def expect_views(self) -> None:
        """Do nothing: there is nothing to prepare."""

    def view(self, id: int) -> NodeView:
        """Return the node with this id as it stands.

        Raises:
            UnknownNodeError: it is not there, or not any more.
        """
        with self._lock:
            self._poll.check_open()
            try:
                self._read_on()
            except BaseException:  # half of it may have been taken in
                self._reader, self._fold = TreeReader(self._store, self.id), None
                raise
            found = None if self._fold is None else self._fold.views.get(id)
        if found is None:
            raise unknown_node(self._store, id)
        return found

    def _read_on(self) -> None:
        events = self._reader.read()
        if not events:
            if self._store.find(node=self.id) is None:
                raise unknown_node(self._store, self.id)
            return
        if self._fold is None:
            first = events[0]
            assert isinstance(first, CallRequested)  # so every tree begins
            self._fold = TreeFold(first.index)
        self._fold.apply(events)

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Have *wake* called once, when something was written."""
        self._poll.on_next_event(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Take back what ``on_next_event`` was given."""
        self._poll.forget(wake)


def unknown_node(store: Store, id: object) -> UnknownNodeError:
    """Return the error for a node that is not in the journal."""
    return UnknownNodeError(f"{store.name} has no node {id!r}; it may have been deleted")
