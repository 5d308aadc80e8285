"""The events of one top-level call, for whoever wants to see them, and what its nodes share.

Publishing costs the run one append. Events are folded into views by whoever asks for a view, in
the asker's own thread, so that being watched costs a run nothing.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from treefold.core.errors import ClosedError
from treefold.core.events import Event, ProcessDied
from treefold.core.views import NodeView
from treefold.runtime.bags import SessionBag, close_all


class Recorder(Protocol):
    """Whoever writes down what happens."""

    @property
    def redacts(self) -> bool:
        """Whether texts are changed before they are written."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether nothing is written any more."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether so much is still to be written that whoever can should wait for it."""
        ...

    def record(self, tree: int, *events: Event) -> None:
        """Take down *events* of the tree with this id."""
        ...

    def stream(self, tree: int, event: Any) -> None:
        """Let those see *event* who look on from elsewhere; it is not taken down."""
        ...

    def redacted(self, text: str) -> str:
        """Return *text* as it would be written."""
        ...

    def as_written(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as they come back from the journal."""
        ...

    async def saved(self, node: Any) -> None:
        """Wait until all that happened so far is safe; if there is trouble, *node* has it."""
        ...

    def suspend(self) -> None:
        """Write down nothing more: what is open will be gone on with."""
        ...


class Tree:
    """One tree: what happened in it, who waits for more, what its calls keep and share."""

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
        self.kept = kept  # until somebody deletes it; otherwise only while it runs
        self.last_death: ProcessDied | None = None  # since which there was no progress
        self._bags: dict[int, SessionBag] = {}
        self._closed = False
        self.asked: dict[int, int] = {}  # how many questions a node has had
        self.pauses: dict[Any, Any] = {}  # what stands still, by node
        self.paused: set[Any] = set()  # the nodes that wait for a person
        self.leases: dict[Any, Any] = {}  # what may make requests, by node
        self.lease_waiters: dict[Any, None] = {}  # who waits to make one, in order
        self._pending: deque[Event] = deque()
        self._live: dict[int, list[Event]] = {}  # what a later event will make void, by node
        self._waiting: list[Callable[[], None]] = []
        self._lock = threading.Lock()  # for who waits, and for the bags; never held for long
        self._fold_lock = threading.Lock()
        self._fold: Any = None  # a TreeFold, when somebody looks

    # Events

    def publish(self, event: Event) -> None:
        """Record *event* and wake those who wait."""
        if self.journal is not None:
            self.journal.record(self.id, event)
        self._pending.append(event)
        self._wake()

    def as_written(self, text: str) -> str:
        """Return *text* as whoever looks later will find it."""
        return text if self.journal is None else self.journal.redacted(text)

    def show(self, event: Event) -> None:
        """Let those see *event* who look, and nobody after this process has ended."""
        self._pending.append(event)
        self._wake()

    def publish_live(self, event: Event) -> None:
        """Record something that is of interest only until ``publish_instead`` of its node.

        If nobody looks by then, it is dropped: a long answer comes in thousands of pieces.
        """
        if self.journal is not None:
            self.journal.stream(self.id, event)
        with self._lock:
            self._live.setdefault(event.node, []).append(event)
        self._wake()

    def publish_instead(self, event: Event) -> None:
        """Record *event*, and drop what was live of its node."""
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
        """Return the node with this id as it stands."""
        with self._fold_lock:
            self._prepare()
            with self._lock:
                live, self._live = self._live, {}
                count = len(self._pending)
            self._fold.apply(self._take_pending(count))
            self._fold.apply(event for events in live.values() for event in events)
            return self._fold.views[id]

    def restore(self, events: Iterable[Event]) -> dict[int, Any]:
        """Take in what happened in an earlier process; return what is known of each node."""
        with self._fold_lock:
            self._prepare()
            self._fold.take(events)
            return dict(self._fold.records)

    def expect_views(self) -> None:
        """Load what is needed to make views, so that the first takes no longer than the next."""
        with self._fold_lock:
            self._prepare()

    def _prepare(self) -> None:
        if self._fold is None:
            from treefold.core.fold import TreeFold  # noqa: PLC0415 - only who looks needs it

            self._fold = TreeFold(self.number)

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Have *wake* called once, at the next event."""
        with self._lock:
            self._waiting.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Take back what ``on_next_event`` was given."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(wake)

    def _take_pending(self, count: int) -> Iterator[Event]:
        """Give the first events, each gone only when it was taken in: Ctrl-C may come any time."""
        for _ in range(count):
            yield self._pending[0]
            self._pending.popleft()

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
