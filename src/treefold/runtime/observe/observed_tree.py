"""A tree that another process may be driving, folded from its journal."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from treefold.core.errors import StoreDamagedError, UnknownNodeError
from treefold.core.events import CallRequested
from treefold.core.frames import Frame
from treefold.core.record import TreeFold
from treefold.core.snapshot import snapshot
from treefold.core.store import Store
from treefold.core.views import NodeView
from treefold.runtime.durable.live_text import LiveTextReader
from treefold.runtime.durable.tree_reader import TreeReader, reporting_damage
from treefold.runtime.observe.poll import Poll


class ObservedTree:
    """Folds the events of one tree in a journal; each view first reads the new ones."""

    def __init__(self, store: Store, id: int, poll: Poll) -> None:
        self.id = id
        self._store = store
        self._poll = poll
        self._lock = threading.Lock()  # one thread reads at a time
        self._reader = TreeReader(store, id)
        self._live_text = LiveTextReader(store, id)
        self._fold: TreeFold | None = None  # None before the first read

    def view(self, id: int) -> NodeView:
        """Return a snapshot of the node with this id.

        Raises:
            UnknownNodeError: there is no such node, or it was deleted.
        """
        with self._folded(id) as fold:
            return snapshot(fold[id])

    def stack(self, id: int) -> list[Frame]:
        """Return the calls from the top-level one through a node to what it waits for now.

        Raises:
            UnknownNodeError: there is no such node, or it was deleted.
        """
        with self._folded(id) as fold:
            calls = [fold[id]]
            while (above := calls[0].parent) is not None:
                calls.insert(0, above)
            while below := [one for one in calls[-1].children if not one.state.final]:
                calls.append(below[-1])
            return [call.frame for call in calls]

    def responses(self, id: int) -> int:
        """Return the number of the last model response that a node has received."""
        with self._folded(id) as fold:
            return fold[id].conversation.step

    def drives(self) -> list[int]:
        """Return the topmost nodes of what may have an owner of its own in a shared store."""
        with self._folded(self.id) as fold:
            found, nodes = [self.id], [fold[self.id]]
            for node in nodes:  # the list grows meanwhile
                nodes += node.children
                found += [node.id] if node.requested.queue else []
            return found

    @contextmanager
    def _folded(self, id: int) -> Generator[TreeFold]:
        """Read the new events, and give the fold, which has the node with this id."""
        with self._lock:
            self._poll.check_open()
            try:
                self._read_new()
            except BaseException:
                # Some of the events may have been folded: start again.
                self._reader, self._fold = TreeReader(self._store, self.id), None
                self._live_text = LiveTextReader(self._store, self.id)
                raise
            if self._fold is None or id not in self._fold:
                raise unknown_node(self._store, id)
            with reporting_damage(self._store, self.id):
                yield self._fold

    def _read_new(self) -> None:
        events = self._reader.read()
        if not events and self._store.find(node=self.id) is None:
            raise unknown_node(self._store, self.id)
        if self._fold is None:
            if not isinstance(events[0], CallRequested):
                raise StoreDamagedError(
                    self._store.name, f"node:{self.id} has lost its first entry"
                )
            self._fold = TreeFold()
        with reporting_damage(self._store, self.id):
            self._fold.apply_all(events)
            for node, response in self._live_text.read(self._reader.numbers).items():
                self._fold.show_arriving(node, response)

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Call *wake* once, when something was written to the journal."""
        self._poll.on_next_event(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Remove a callback added with ``on_next_event``."""
        self._poll.forget(wake)


def unknown_node(store: Store, id: object) -> UnknownNodeError:
    """Return the error for a node that is not in the journal."""
    return UnknownNodeError(f"{store.name} has no node:{id!r}; it may have been deleted")
