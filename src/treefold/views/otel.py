"""OpenTelemetry spans from a journal.

A background thread reads events from the journal and turns them into spans, so a run is not
affected by being traced and never waits for an exporter: the journal is the queue. Errors are
logged once, and never reach the program.
"""

import asyncio
import logging
import os
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from treefold.core.errors import TreefoldError, UnknownNodeError, UsageError
from treefold.core.store import Store, TreeRow
from treefold.runtime.observe.observer import Observer, attach
from treefold.runtime.runtime import Runtime
from treefold.runtime.trees.event_stream import EventStream
from treefold.stores.sqlite_store import SqliteStore

log = logging.getLogger(__name__)

_POLL_INTERVAL: Final = 0.1  # seconds, at least
_IDLE_FACTOR: Final = 9  # the thread is idle this many times as long as it used the processor
CLOSE_TIMEOUT: Final = 5.0  # seconds

Source = Runtime | Observer | Store | str | os.PathLike[str]


def trace(source: Source, tracer_provider: Any = None, *, contents: bool = False) -> "Tracing":
    """Create spans from a journal until the returned object is closed.

    For a runtime, spans of everything that ends from now on; for a journal (its path, store or
    observer), also of what it already contains. Every call and every request to a model is a span,
    sent when it has ended. Ids are derived from the journal, so a run that is sent again has the
    same ids. A call that the program makes while a span of its own is open is a child of that span.

    Args:
        source: a ``Runtime(store=...)``, or a journal, even one that another process writes.
        tracer_provider: receives the spans; by default, the global one of the program.
        contents: whether to send texts, too: prompts, answers, arguments, results, error messages.

    Raises:
        UsageError: the runtime has no store.
        StoreError: the journal cannot be read.

    Example:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        >>> from treefold import MemoryStore, Runtime, agent
        >>> from treefold.testing import ScriptedModel
        >>> from treefold.views import otel
        >>> provider, exporter = TracerProvider(), InMemorySpanExporter()
        >>> provider.add_span_processor(SimpleSpanProcessor(exporter))
        >>> @agent
        ... def greet(name: str) -> str:
        ...     return f"Greet {name}."
        >>> with Runtime([greet], models=ScriptedModel("Hi!"), store=MemoryStore()) as runtime:
        ...     with otel.trace(runtime, provider):
        ...         runtime.invoke(greet, {"name": "Ada"}).result()
        'Hi!'
        >>> [span.name for span in exporter.get_finished_spans()]
        ['chat scripted', 'invoke_agent greet']
    """
    since = time.time() if isinstance(source, Runtime) else 0.0
    observer, owns_observer = _observer_of(source)
    provider = _provider(tracer_provider)
    if isinstance(source, Runtime) and provider is not None:
        from treefold.views.journal_tracer import open_span  # noqa: PLC0415 - needs the extra

        source.record_spans(open_span)
    return Tracing(observer, provider, contents=contents, since=since, owns_observer=owns_observer)


@dataclass(slots=True)
class _Tree:
    """A tree that is being read."""

    reader: EventStream
    spans: Any  # a TreeSpans
    row: TreeRow | None = None  # when the tree was last read


class Tracing:
    """Reads a journal in a background thread and creates spans; returned by ``trace``.

    Close it, or use it in a ``with`` or ``async with`` block: closing sends everything that has
    ended. The tracer provider belongs to the program, which shuts it down.

    Args:
        observer: of the journal.
        provider: receives the spans; None for no spans.
        contents: whether texts are sent, too.
        since: nothing that ended before this time is sent.
        owns_observer: whether closing also closes the observer.

    Example:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> from treefold import MemoryStore
        >>> from treefold.views import otel
        >>> tracing = otel.trace(MemoryStore(), TracerProvider())
        >>> tracing.close(timeout=10)
        True
    """

    def __init__(
        self,
        observer: Observer,
        provider: Any,
        *,
        contents: bool,
        since: float,
        owns_observer: bool,
    ) -> None:
        self._observer = observer
        self._contents = contents
        self._since = since
        self._owns_observer = owns_observer
        self._position = 0  # of the newest event, at the last poll
        self._open: dict[int, _Tree] = {}  # trees that are being read, by id
        self._finished: set[int] = set()  # trees that are not read any more
        self._warned = False
        self._closing = threading.Event()
        self._abandoned = threading.Event()
        self._thread: threading.Thread | None = None
        if provider is None:
            self._release()
            return
        from treefold.views.journal_tracer import JournalTracer  # noqa: PLC0415 - needs the extra

        abandoned = self._abandoned.is_set
        self._tracer = JournalTracer(observer.journal, provider, self._warn_once, abandoned)
        self._thread = threading.Thread(target=self._run, name="treefold otel", daemon=True)
        self._thread.start()

    def close(self, timeout: float = CLOSE_TIMEOUT) -> bool:
        """Send everything that has ended, and stop; False if that takes over *timeout* seconds."""
        self._closing.set()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        if not self._thread.is_alive():
            return True
        self._abandoned.set()
        self._warn_once(f"not all of them could be sent within {timeout:g} s")
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await asyncio.to_thread(self.close)

    # In the background thread

    def _run(self) -> None:
        interval = _POLL_INTERVAL
        try:
            while not self._closing.wait(interval):
                began = time.thread_time()
                self._poll()
                interval = max(_POLL_INTERVAL, _IDLE_FACTOR * (time.thread_time() - began))
            self._poll(last=True)
            self._tracer.flush()
        except InterruptedError:  # close() has timed out
            pass
        finally:
            self._release()

    def _release(self) -> None:
        if self._owns_observer:
            self._observer.close()

    def _poll(self, *, last: bool = False) -> None:
        """Read new events, if there are any."""
        try:
            position = self._observer.last()
            if position == self._position and not last:
                return
            rows = self._observer.trees()
        except TreefoldError as error:  # the next poll may succeed
            self._warn_once(f"the journal cannot be read: {error}")
            return
        for gone in self._open.keys() - {row.id for row in rows}:
            del self._open[gone]
        for row in rows:
            if row.id not in self._finished and not self._is_too_old(row):
                self._read(row, last=last)
        self._position = position

    def _is_too_old(self, row: TreeRow) -> bool:
        return not row.open and row.ended is not None and row.ended < self._since

    def _read(self, row: TreeRow, *, last: bool) -> None:
        tree = self._open.get(row.id)
        # There may be thousands of parked trees: do not read them again and again.
        if tree is not None and row.parked and row == tree.row and not last:
            return
        try:
            if tree is None:
                tree = self._open[row.id] = self._begin(row.id)
            if events := tree.reader.read():
                tree.spans.apply(events)
            tree.row = row
        except InterruptedError:
            raise
        except UnknownNodeError:  # it has just been deleted
            self._finished.add(row.id)
        except Exception as error:  # noqa: BLE001 - no error here may affect the run
            self._warn_once(f"run {row.number} is skipped: {error!r}")
            self._finished.add(row.id)
        if not row.open:
            self._finished.add(row.id)
        if row.id in self._finished:
            self._open.pop(row.id, None)

    def _begin(self, id: int) -> _Tree:
        from treefold.views.tree_spans import TreeSpans  # noqa: PLC0415 - needs the extra

        read = partial(self._observer.events, id, long_texts=self._contents)
        spans = TreeSpans(
            id,
            self._tracer,
            lambda: read().read(),
            contents=self._contents,
            since=self._since,
        )
        return _Tree(read(), spans)

    def _warn_once(self, what: str) -> None:
        """Log a warning; further ones are dropped."""
        if not self._warned:
            self._warned = True
            log.warning("spans of %r are missing: %s", self._observer, what)


def _provider(given: Any) -> Any:
    """Return the tracer provider to use; log a warning and return None if there is none."""
    try:
        from opentelemetry import trace as api  # noqa: PLC0415 - needs the extra
    except ImportError:
        log.warning("no spans are created: install OpenTelemetry with treefold[otel]")
        return None
    if given is None:
        given = api.get_tracer_provider()
    if isinstance(given, api.ProxyTracerProvider):
        log.warning(
            "no spans are created: there is no tracer provider; call"
            " opentelemetry.trace.set_tracer_provider first, or pass tracer_provider="
        )
        return None
    return given


def _observer_of(source: Source) -> tuple[Observer, bool]:
    """Return an observer of *source*, and whether it has to be closed."""
    if isinstance(source, Observer):
        return source, False
    if not isinstance(source, Runtime):
        return attach(source), True
    store = source.store
    if store is None:
        raise UsageError(
            "spans are created from the journal of a runtime: pass Runtime(store='run.db'), or"
            " Runtime(store=MemoryStore()) to keep the journal in memory"
        )
    if isinstance(store, SqliteStore) and os.path.exists(store.name):
        # With a connection of its own, the thread never blocks the runtime's connection.
        return attach(store.name), True
    return attach(store), True
