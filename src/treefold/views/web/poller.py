"""Poll the journal on behalf of all streams, about ten times a second.

A subscriber receives a snapshot whenever it differs from the last one. Snapshots that it was too
slow for are skipped, so nothing is ever queued. Without subscribers there is no polling.
"""

import asyncio
import logging
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from anyio import to_thread

from treefold.core.errors import StoreError, TreefoldError, UnknownNodeError
from treefold.core.views import NodeView
from treefold.runtime.observe.observer import Observer
from treefold.views import data
from treefold.views.web.listing import Listing
from treefold.views.web.run_query import RunQuery, select

_INTERVAL: Final = 0.1  # seconds between two polls, at least
_IDLE_FACTOR: Final = 9  # the poller is idle this many times as long as the last poll took
_LONGEST_INTERVAL: Final = 1.0  # seconds, however long a poll took
_MAX_AGE: Final = 2.0  # seconds after which the runs are listed again, even without a new event

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the journal at one moment.

    Attributes:
        trees: the runs that the subscriber asked for, as JSON.
        questions: the open questions, as JSON.
        view: the tree that the subscriber follows, if any.
    """

    trees: str
    questions: str
    view: NodeView | None


class Subscriber:
    """Receives snapshots of one tree, or of the list of runs alone, and the runs of a query."""

    def __init__(self, tree: int | None, query: RunQuery) -> None:
        self.tree = tree
        self.query = query
        self._snapshot: Snapshot | None = None
        self._changed = asyncio.Event()
        self._is_closed = False

    async def next(self) -> Snapshot | None:
        """Wait for a snapshot that differs from the last one; None if there will be no more."""
        await self._changed.wait()
        self._changed.clear()
        return None if self._is_closed else self._snapshot

    def publish(self, snapshot: Snapshot) -> None:
        """Make *snapshot* the next one, unless it equals the last one."""
        last = self._snapshot
        # Identity first: comparing two views of a large tree is slow.
        if last is None or snapshot.view is not last.view or snapshot != last:
            self._snapshot = snapshot
            self._changed.set()

    def close(self) -> None:
        """Publish no more snapshots."""
        self._is_closed = True
        self._changed.set()


class _RunList:
    """The list of all runs; it may be long, so it is read after a change, and not often."""

    def __init__(self, observer: Observer, listing: Listing) -> None:
        self._observer = observer
        self._listing = listing
        self._trees: list[dict[str, Any]] = []
        self._driven = False
        self._texts: dict[RunQuery, str] = {}
        self._version: object = None  # of the journal, when the list was read
        self._idle_until = 0.0
        self._fresh_until = 0.0

    def read(
        self, questions: Sequence[Mapping[str, Any]], queries: Iterable[RunQuery]
    ) -> dict[RunQuery, str]:
        """Return, for each query, its runs and whether a process drives the journal, as JSON."""
        start, driven = time.monotonic(), self._observer.is_driven
        version = (self._observer.last(), driven, [question["id"] for question in questions])
        is_fresh = version == self._version and start < self._fresh_until
        if not is_fresh and start >= self._idle_until:
            self._trees, self._driven = self._listing.trees(questions), driven
            self._texts.clear()
            self._version = version
            now = time.monotonic()
            self._idle_until = now + _IDLE_FACTOR * (now - start)
            self._fresh_until = now + _MAX_AGE
        self._texts = {query: self._texts.get(query) or self._text(query) for query in set(queries)}
        return self._texts

    def _text(self, query: RunQuery) -> str:
        return data.to_json({**select(self._trees, query), "driven": self._driven})


class Poller:
    """Polls for all subscribers at once, for as long as ``run`` runs."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._listing = Listing(observer)
        self._runs = _RunList(observer, self._listing)
        self._took = 0.0  # seconds of the last poll, less the list of runs, which limits itself
        self._subscribers: set[Subscriber] = set()
        self._subscribed = asyncio.Event()
        self._unsubscribed = asyncio.Event()  # by the last subscriber
        self._is_closed = False

    @contextmanager
    def subscribe(
        self, tree: int | None, query: RunQuery | None = None
    ) -> Generator[Subscriber, None, None]:
        """Give a subscriber for as long as the context lasts."""
        subscriber = Subscriber(tree, query or RunQuery())
        self._subscribers.add(subscriber)
        self._subscribed.set()
        if self._is_closed:
            subscriber.close()
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            if not self._subscribers:
                self._unsubscribed.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            if not self._subscribers:
                await self._subscribed.wait()
            self._subscribed.clear()
            await self._poll()
            interval = min(_LONGEST_INTERVAL, max(_INTERVAL, _IDLE_FACTOR * self._took))
            try:
                async with asyncio.timeout(interval):
                    await self._subscribed.wait()
            except TimeoutError:
                continue

    async def close(self, seconds: float) -> None:
        """Close all subscribers, and wait up to *seconds* until they are gone."""
        self._is_closed = True
        for subscriber in self._subscribers:
            subscriber.close()
        try:
            async with asyncio.timeout(seconds):
                while self._subscribers:
                    self._unsubscribed.clear()
                    await self._unsubscribed.wait()
        except TimeoutError:
            return

    async def _poll(self) -> None:
        subscribers = list(self._subscribers)
        trees = {one.tree for one in subscribers if one.tree is not None}
        queries = {one.query for one in subscribers}
        try:
            runs, questions, views = await to_thread.run_sync(self._read, trees, queries)
        except Exception as error:
            # The client gets the error itself when it reconnects.
            log.warning("%s", error, exc_info=not isinstance(error, TreefoldError))
            for subscriber in subscribers:
                subscriber.close()
            return
        for subscriber in subscribers:
            if subscriber.tree is None:
                subscriber.publish(Snapshot(runs[subscriber.query], questions, None))
            elif subscriber.tree in views:
                subscriber.publish(
                    Snapshot(runs[subscriber.query], questions, views[subscriber.tree])
                )
            else:
                subscriber.close()

    def _read(
        self, trees: set[int], queries: set[RunQuery]
    ) -> tuple[Mapping[RunQuery, str], str, Mapping[int, NodeView]]:
        start = time.monotonic()
        views: dict[int, NodeView] = {}
        for tree in trees:
            try:
                views[tree] = self._observer.get_view(tree)
            except (UnknownNodeError, StoreError):  # it was deleted, or is damaged
                continue
        questions = self._listing.questions()
        text = data.to_json({"questions": questions})
        self._took = time.monotonic() - start
        return self._runs.read(questions, queries), text, views
