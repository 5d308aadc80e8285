"""A tree: the events of one top-level call, and what its nodes share.

Publishing costs the run one append. Events are folded into views when a view is requested, in the
thread that requests it, so that watching a run costs it nothing.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from treefold.core.errors import ClosedError
from treefold.core.events import Event, ProcessDied
from treefold.core.views import NodeView
from treefold.runtime.trees.bags import SessionBag, close_all


class Recorder(Protocol):
    """The part of the journal writer that a tree and its nodes use."""

    @property
    def redacts(self) -> bool:
        """Whether texts are changed before they are written."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether events are not written any more."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether so many entries are unwritten that a call should wait for them if it can."""
        ...

    def record(self, tree: int, *events: Event) -> None:
        """Record *events* of the tree with this id."""
        ...

    def stream(self, tree: int, event: Any) -> None:
        """Broadcast *event* to observers; it is not recorded."""
        ...

    def redacted(self, text: str) -> str:
        """Return *text* as it would be written."""
        ...

    def as_written(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as they come back from the journal."""
        ...

    async def saved(self, node: Any) -> None:
        """Wait until all events so far are durable; *node* asks for help if they cannot be."""
        ...

    def suspend(self) -> None:
        """Stop writing: the next driver resumes the calls that are open."""
        ...


class Tree:
    """The events of one tree, the callbacks that wait for more, its bags, leases and pauses."""

    __slots__ = (
        "_bags",
        "_closed",
        "_fold",
        "_fold_lock",
        "_live",
        "_lock",
        "_pending",
        "_waiting",
        "asked",
        "id",
        "journal",
        "kept",
        "last_death",
        "lease_waiters",
        "leases",
        "number",
        "paused",
        "pauses",
    )

    def __init__(
        self, id: int, number: int, *, kept: bool, journal: Recorder | None = None
    ) -> None:
        self.id = id  # that of its top-level node
        self.number = number
        self.journal = journal
        self.kept = kept  # until it is deleted; otherwise only while it runs
        self.last_death: ProcessDied | None = None  # if there was no progress since
        self._bags: dict[int, SessionBag] = {}
        self._closed = False
        self.asked: dict[int, int] = {}  # the number of questions a node has asked
        self.pauses: dict[Any, Any] = {}  # Pause objects, by node
        self.paused: set[Any] = set()  # the nodes whose state is Paused
        self.leases: dict[Any, Any] = {}  # Lease objects, by holder
        self.lease_waiters: dict[Any, None] = {}  # SlotRequest objects, in order
        self._pending: deque[Event] = deque()
        self._live: dict[int, list[Event]] = {}  # events that a later one will replace, by node
        self._waiting: list[Callable[[], None]] = []
        self._lock = threading.Lock()  # guards _waiting, _live and the bags; held briefly
        self._fold_lock = threading.Lock()
        self._fold: Any = None  # a TreeFold, made for the first view

    # Events

    def publish(self, event: Event) -> None:
        """Record *event*, and wake the callbacks that wait for one."""
        if self.journal is not None:
            self.journal.record(self.id, event)
        self._pending.append(event)
        self._wake()

    def as_written(self, text: str) -> str:
        """Return *text* as the journal has it: redacted."""
        return text if self.journal is None else self.journal.redacted(text)

    def show(self, event: Event) -> None:
        """Publish *event* in this process only, without recording it."""
        self._pending.append(event)
        self._wake()

    def publish_live(self, event: Event) -> None:
        """Publish an event that is of interest only until ``publish_instead`` of its node.

        If no view is requested by then, it is dropped: a long response arrives in thousands of
        pieces.
        """
        if self.journal is not None:
            self.journal.stream(self.id, event)
        with self._lock:
            self._live.setdefault(event.node, []).append(event)
        self._wake()

    def publish_instead(self, event: Event) -> None:
        """Record *event*, and drop the live events of its node."""
        if self.journal is not None:
            self.journal.record(self.id, event)
        with self._lock:
            self._pending.append(event)
            self._live.pop(event.node, None)
        self._wake()

    def _wake(self) -> None:
        if self._waiting:
            with self._lock:
                waiting, self._waiting = self._waiting, []
            for wake in waiting:
                wake()

    def view(self, id: int) -> NodeView:
        """Return a snapshot of the node with this id."""
        with self._fold_lock:
            self._prepare()
            with self._lock:
                live, self._live = self._live, {}
                count = len(self._pending)
            self._fold.apply(self._take_pending(count))
            self._fold.apply(event for events in live.values() for event in events)
            return self._fold.views[id]

    def restore(self, events: Iterable[Event]) -> dict[int, Any]:
        """Fold the events of an earlier process; return the record of each node."""
        with self._fold_lock:
            self._prepare()
            self._fold.take(events)
            return dict(self._fold.records)

    def expect_views(self) -> None:
        """Import and make the fold now, so that the first view takes no longer than the next."""
        with self._fold_lock:
            self._prepare()

    def _prepare(self) -> None:
        if self._fold is None:
            from treefold.core.fold import TreeFold  # noqa: PLC0415 - only views need it

            self._fold = TreeFold(self.number)

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Call *wake* once, at the next event."""
        with self._lock:
            self._waiting.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Remove a callback added with ``on_next_event``."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(wake)

    def _take_pending(self, count: int) -> Iterator[Event]:
        """Yield the first *count* pending events, and remove each after it was folded."""
        # Not before: Ctrl-C may come at any time, and would lose an event.
        for _ in range(count):
            yield self._pending[0]
            self._pending.popleft()

    # Bags

    def bag_of(self, id: int) -> SessionBag:
        """Return the bag of the node with this id, which is made on first use."""
        with self._lock:
            if self._closed:
                raise ClosedError(f"the tree of node {id} is gone, and its session bags with it")
            return self._bags.setdefault(id, SessionBag())

    async def close_bags(self) -> None:
        """Close the bags, newest first; no more can be made."""
        if self._bags:
            await close_all(self.take_bags())
        self._closed = True

    def take_bags(self) -> list[SessionBag]:
        """Return the bags, which the caller closes; no more can be made."""
        with self._lock:
            self._closed = True
            bags, self._bags = self._bags, {}
        return list(bags.values())
