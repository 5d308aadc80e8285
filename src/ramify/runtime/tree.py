"""The events of one top-level call, for whoever wants to see them.

Publishing costs the run one append. Events are folded into views by whoever asks for a view, in
the asker's own thread, so no watcher can slow a run down.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from ramify.core.events import Event
from ramify.core.views import NodeView, TreeFold
from ramify.runtime.bags import SessionBag


class Tree:
    """One tree: what happened in it, and who waits for more."""

    __slots__ = ("_fold", "_lock", "_pending", "_waiting", "bags", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.bags: list[SessionBag] = []
        self._pending: deque[Event] = deque()
        self._waiting: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._fold: TreeFold | None = None

    def publish(self, event: Event) -> None:
        """Record *event* and wake those who wait."""
        self._pending.append(event)
        if self._waiting:
            with self._lock:
                waiting, self._waiting = self._waiting, []
            for wake in waiting:
                wake()

    def new_bag(self) -> SessionBag:
        """Return a new bag that is closed with the tree."""
        bag = SessionBag()
        self.bags.append(bag)
        return bag

    def view(self, id: int) -> NodeView:
        """Return the node with this id as it stands."""
        with self._lock:
            if self._fold is None:
                self._fold = TreeFold(self.number)
            self._fold.apply(self._take_pending())
            return self._fold.views[id]

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Have *wake* called once, at the next event."""
        with self._lock:
            self._waiting.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Take back what ``on_next_event`` was given."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(wake)

    def _take_pending(self) -> Iterator[Event]:
        with suppress(IndexError):
            while True:
                yield self._pending.popleft()
