"""The events of one top-level call, for whoever wants to see them, and the bags of its nodes.

Publishing costs the run one append. Events are folded into views by whoever asks for a view, in
the asker's own thread, so that being watched costs a run nothing.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from ramify.core.errors import ClosedError
from ramify.core.events import Event
from ramify.core.views import NodeView, TreeFold
from ramify.runtime.bags import SessionBag, close_all


class Tree:
    """One tree: what happened in it, who waits for more, and what its calls keep."""

    __slots__ = (
        "_bags",
        "_closed",
        "_fold",
        "_fold_lock",
        "_lock",
        "_pending",
        "_waiting",
        "kept",
        "number",
    )

    def __init__(self, number: int, *, kept: bool) -> None:
        self.number = number
        self.kept = kept  # until somebody deletes it; otherwise only while it runs
        self._bags: dict[int, SessionBag] = {}
        self._closed = False
        self._pending: deque[Event] = deque()
        self._waiting: list[Callable[[], None]] = []
        self._lock = threading.Lock()  # for who waits, and for the bags; never held for long
        self._fold_lock = threading.Lock()
        self._fold: TreeFold | None = None

    # Events

    def publish(self, event: Event) -> None:
        """Record *event* and wake those who wait."""
        self._pending.append(event)
        if self._waiting:
            with self._lock:
                waiting, self._waiting = self._waiting, []
            for wake in waiting:
                wake()

    def view(self, id: int) -> NodeView:
        """Return the node with this id as it stands."""
        with self._fold_lock:
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

    # Bags

    def bag_of(self, id: int) -> SessionBag:
        """Return the bag of the node with this id, made when first asked for."""
        with self._lock:
            if self._closed:
                raise ClosedError(f"the tree of node {id} is gone, and its session bags with it")
            return self._bags.setdefault(id, SessionBag())

    async def close_bags(self) -> None:
        """Close what the bags hold, newest first; there will be no more."""
        if self._bags:
            await close_all(self.take_bags())
        self._closed = True

    def take_bags(self) -> list[SessionBag]:
        """Hand out the bags, to be closed; there will be no more."""
        with self._lock:
            self._closed = True
            bags, self._bags = self._bags, {}
        return list(bags.values())
