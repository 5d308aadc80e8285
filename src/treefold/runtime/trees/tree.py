"""A tree: the records of one top-level call and all below it, and what its nodes share."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from treefold.core.arriving import ArrivingResponse, Delta
from treefold.core.errors import ClosedError
from treefold.core.events import Event, ProcessDied, set_number
from treefold.core.function import Node
from treefold.core.record import CallRecord, TreeFold
from treefold.core.snapshot import snapshot
from treefold.core.views import NodeView
from treefold.runtime.trees.bags import SessionBag
from treefold.runtime.trees.dependencies import Dependencies
from treefold.runtime.trees.run_log import LOGGED, is_enabled

P = TypeVar("P")


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
    def path(self) -> str | None:
        """The file that it writes to; None if other processes cannot open the store."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether so many entries are unwritten that a call should wait for them if it can."""
        ...

    def record(self, tree: int, *events: Event) -> None:
        """Record *events* of the tree with this id."""
        ...

    def stream(self, tree: int, node: int, delta: Delta) -> None:
        """Broadcast a fragment of a response of *node* to observers; it is not recorded."""
        ...

    def length(self, node: int) -> int:
        """Return the number of entries of a node, including those that are not written yet."""
        ...

    def redacted(self, text: str) -> str:
        """Return *text* as it would be written."""
        ...

    def as_written(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as they come back from the journal."""
        ...

    async def saved(self, node: Node) -> None:
        """Wait until all events so far are durable; *node* asks for help if they cannot be."""
        ...

    async def confirmed(self) -> None:
        """Wait until no other process can have taken over what this records.

        Raises:
            FencedError: one has.
        """
        ...

    def suspend(self) -> None:
        """Stop writing: the next driver resumes the calls that are open."""
        ...


class Tree:  # noqa: PLR0904 - records, views, those who wait, and bags, under one lock
    """The records of one tree, the callbacks that wait for a change, and its bags.

    Events are published on the runtime's loop, and applied to the records at once. Views may be
    made in any thread. Without a journal, the tree keeps its events itself.
    """

    __slots__ = (
        "_arriving",
        "_bags",
        "_closed",
        "_events",
        "_fold",
        "_last_view",
        "_lock",
        "_parts",
        "_waiting",
        "deps",
        "id",
        "is_given_up",
        "is_held",
        "journal",
        "kept",
        "last_death",
        "now",
        "number",
        "paused",
    )

    def __init__(
        self,
        id: int,
        number: int,
        *,
        kept: bool,
        journal: Recorder | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.id = id  # that of its top-level node
        self.number = number
        self.journal = journal
        self.now = now  # the time by the clock of the journal: what it records is compared with it
        self.kept = kept  # until it is deleted; otherwise only while it runs
        self.deps: Dependencies | None = None  # what calls have as ``ctx.deps``
        self.last_death: ProcessDied | None = None  # if there was no progress since
        self.paused: set[Node] = set()  # the nodes whose state is Paused
        self.is_given_up = False  # other workers run it; its calls end here without a record
        self.is_held = False  # whether a pause holds some of its calls before they start
        self._fold = TreeFold()
        # None if they are in the journal.
        self._events: list[Event] | None = [] if journal is None else None
        self._arriving: dict[int, CallRecord] = {}  # the calls whose responses are arriving
        self._parts: dict[type, Any] = {}
        self._bags: dict[int, SessionBag] = {}
        self._closed = False
        self._last_view: NodeView | None = None  # if this process has given the tree up
        self._waiting: list[Callable[[], None]] = []
        self._lock = threading.Lock()  # guards the records, _waiting and the bags; held briefly

    def part(self, kind: type[P]) -> P:
        """Return the object of this class that belongs to the tree; it is made on first use.

        Higher folders keep here what they know about a tree.
        """
        if (found := self._parts.get(kind)) is None:
            found = self._parts[kind] = kind()
        return found

    # Events

    def publish(self, event: Event, *, is_recorded: bool = True) -> CallRecord:
        """Record *event* in the journal, and apply it; return the record of its call.

        If not *is_recorded*, it is applied in this process only: see ``show``.

        Raises:
            TooLargeError: it is too large for the journal; it was not applied.
            InvalidValueError: the journal could not be read with a value of it; the same.
        """
        if is_recorded and self.journal is not None:
            self.journal.record(self.id, event)
        with self._lock:
            record = self._fold.apply(event)
            if self._events is not None:
                self._events.append(event)
            waiting = self._waiting
            if waiting:
                self._waiting = []
        for wake in waiting:
            wake()
        if (logged := LOGGED.get(type(event))) is not None:
            level, level_below, log_event = logged
            level = level if record.parent is None else level_below
            if is_enabled(level):
                log_event(self, record, event, level)
        return record

    def stream(self, node: int, delta: Delta) -> None:
        """Add a fragment of a response that is arriving, which observers are shown as well."""
        if self.journal is not None:
            self.journal.stream(self.id, node, delta)
        with self._lock:
            record = self._fold.stream(node, delta)
            if self._events is not None:
                self._arriving[node] = record
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def read_events(self, after: int) -> tuple[list[Event], dict[int, ArrivingResponse]]:
        """Return the events with higher numbers, and the arriving responses by node.

        Only a tree without a journal has them.
        """
        assert self._events is not None
        with self._lock:
            arriving: dict[int, ArrivingResponse] = {}
            for node, record in tuple(self._arriving.items()):
                if (response := record.conversation.arriving) is None:
                    del self._arriving[node]
                else:
                    arriving[node] = response
            events = self._events[after:]
        # Here, because most trees are never read.
        for number, event in enumerate(events, after + 1):
            set_number(event, number)
        return events, arriving

    def show(self, event: Event) -> CallRecord:
        """Apply *event* in this process only, without recording it."""
        return self.publish(event, is_recorded=False)

    def restore(self, events: Iterable[Event]) -> None:
        """Apply the events of an earlier process."""
        with self._lock:
            self._fold.apply_all(events)

    def as_written(self, text: str) -> str:
        """Return *text* as the journal has it: redacted."""
        return text if self.journal is None else self.journal.redacted(text)

    @property
    def records(self) -> list[CallRecord]:
        """The records of all nodes, by rising ids: each is after that of its caller."""
        with self._lock:
            return [record for _, record in sorted(self._fold.items())]

    def record_of(self, id: int) -> CallRecord:
        """Return the record of the node with this id."""
        return self._fold[id]

    def view(self, id: int) -> NodeView:
        """Return a snapshot of the node with this id."""
        with self._lock:
            for view in () if self._last_view is None else _all_views(self._last_view):
                if view.id == id:
                    return view
            return snapshot(self._fold[id])

    def freeze(self) -> None:
        """Keep the views as they are: what happens from here on is only the end of its tasks."""
        self.is_given_up = True
        with self._lock:
            self._last_view = self._last_view or snapshot(self._fold[self.id])

    def wake(self) -> None:
        """Wake what waits for the next event; usable in any thread."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Call *wake* once, at the next event."""
        with self._lock:
            self._waiting.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Remove a callback added with ``on_next_event``."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(wake)

    # Bags

    def bag_of(self, id: int) -> SessionBag:
        """Return the bag of the node with this id, which is made on first use."""
        with self._lock:
            if self._closed:
                raise ClosedError(f"the tree of node:{id} is gone, and its session bags with it")
            return self._bags.setdefault(id, SessionBag())

    @property
    def has_bags(self) -> bool:
        """Whether one of its nodes has a bag."""
        return bool(self._bags)

    def take_bags(self) -> list[SessionBag]:
        """Return the bags, which the caller closes; no more can be made."""
        with self._lock:
            self._closed = True
            bags, self._bags = self._bags, {}
        return list(bags.values())


def _all_views(view: NodeView) -> Iterator[NodeView]:
    yield view
    for child in view.children:
        yield from _all_views(child)
