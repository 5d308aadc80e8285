"""Spans for OpenTelemetry, from a journal.

A thread of its own reads what was written down and makes spans of it: a run does not know that it
is traced, and does not wait for whoever takes the spans. What these are slow to take waits in the
journal. Nothing that goes wrong here comes back to the program; the log says it once.
"""

import asyncio
import logging
import os
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from treefold.core.errors import TreefoldError, UsageError
from treefold.core.store import Store, TreeRow
from treefold.runtime.observer import Observer, attach
from treefold.runtime.runtime import Runtime
from treefold.runtime.tree_reader import TreeReader
from treefold.stores.sqlite_store import SqliteStore

log = logging.getLogger(__name__)

_LOOKS_EVERY: Final = 0.1  # seconds
_REST: Final = 9  # times as long as it has worked it leaves the processor to the run
PATIENCE: Final = 5.0  # seconds that closing may take

Source = Runtime | Observer | Store | str | os.PathLike[str]


def trace(source: Source, tracer_provider: Any = None, *, contents: bool = False) -> "Tracing":
    """Make spans of what happens in a journal, until the returned object is closed.

    Of a runtime, all that ends from now on; of a journal (its path, store or observer), all that is
    in it, too. Every call and every request to a model is a span, sent when it has ended. The ids
    follow from the journal, so that whoever sends the same run again sends the same ids.

    Args:
        source: a ``Runtime(store=...)``, or a journal, whoever drives it.
        tracer_provider: where spans go; otherwise to the one that the program has set.
        contents: send what was said, too: prompts, answers, arguments, results, messages of errors.

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
    observer, is_ours = _observer_of(source)
    provider = _provider(tracer_provider)
    return Tracing(observer, provider, contents=contents, since=since, is_ours=is_ours)


@dataclass(slots=True)
class _Tree:
    """A tree that is being read."""

    reader: TreeReader
    spans: Any  # a TreeSpans
    row: TreeRow | None = None  # as it was when it was read last


class Tracing:
    """Reads a journal in a thread of its own and makes spans; made by ``trace``.

    Close it, or use it in a ``with`` or ``async with`` block: what has ended by then is sent. The
    tracer provider is the program's, which shuts it down.

    Args:
        observer: of the journal.
        provider: where spans go; None for nowhere.
        contents: whether texts are sent, too.
        since: what ended before that time is not sent.
        is_ours: whether the observer is closed with it.

    Example:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> from treefold import MemoryStore
        >>> from treefold.views import otel
        >>> tracing = otel.trace(MemoryStore(), TracerProvider())
        >>> tracing.close(timeout=10)
        True
    """

    def __init__(
        self, observer: Observer, provider: Any, *, contents: bool, since: float, is_ours: bool
    ) -> None:
        self._observer = observer
        self._contents = contents
        self._since = since
        self._is_ours = is_ours
        self._seen = 0  # the place of the newest event, at the last look
        self._open: dict[int, _Tree] = {}  # trees that are being read, by their ids
        self._over: set[int] = set()  # trees of which nothing more is to be read
        self._complained = False
        self._closing = threading.Event()
        self._given_up = threading.Event()
        self._thread: threading.Thread | None = None
        if provider is None:
            self._let_go()
            return
        from treefold.views.span_maker import SpanMaker  # noqa: PLC0415 - needs the extra

        over = self._given_up.is_set
        self._maker = SpanMaker(observer.journal, provider, self._complain, over)
        self._thread = threading.Thread(target=self._run, name="treefold otel", daemon=True)
        self._thread.start()

    def close(self, timeout: float = PATIENCE) -> bool:
        """Send what has ended, and stop; False if *timeout* seconds are too few for that."""
        self._closing.set()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        if not self._thread.is_alive():
            return True
        self._given_up.set()
        self._complain(f"they could not all be sent within {timeout:g} s")
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await asyncio.to_thread(self.close)

    # In the thread

    def _run(self) -> None:
        rest = _LOOKS_EVERY
        try:
            while not self._closing.wait(rest):
                began = time.thread_time()
                self._look()
                rest = max(_LOOKS_EVERY, _REST * (time.thread_time() - began))
            self._look(last=True)
            self._maker.flush()
        except InterruptedError:  # nobody waits any longer
            pass
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._is_ours:
            self._observer.close()

    def _look(self, *, last: bool = False) -> None:
        """Read what is new, if anything is."""
        try:
            place = self._observer.last()
            if place == self._seen and not last:
                return
            rows = self._observer.trees()
        except TreefoldError as error:  # it may be readable again
            self._complain(f"the journal cannot be read: {error}")
            return
        for gone in self._open.keys() - {row.id for row in rows}:
            del self._open[gone]
        for row in rows:
            if row.id not in self._over and not self._is_past(row):
                self._read(row, last=last)
        self._seen = place

    def _is_past(self, row: TreeRow) -> bool:
        return not row.open and row.ended is not None and row.ended < self._since

    def _read(self, row: TreeRow, *, last: bool) -> None:
        if (tree := self._open.get(row.id)) is None:
            tree = self._open[row.id] = self._begin(row.id)
        if row.parked and row == tree.row and not last:  # there may be thousands of them
            return
        try:
            if events := tree.reader.read():
                tree.spans.take(events)
        except InterruptedError:
            raise
        except Exception as error:  # noqa: BLE001 - a run must not hear of it, whatever it is
            self._complain(f"tree {row.id} is left out: {error!r}")
            self._over.add(row.id)
        tree.row = row
        if not row.open:
            self._over.add(row.id)
        if row.id in self._over:
            del self._open[row.id]

    def _begin(self, id: int) -> _Tree:
        from treefold.views.tree_spans import TreeSpans  # noqa: PLC0415 - needs the extra

        read = partial(self._observer.events, id, long_texts=self._contents)
        spans = TreeSpans(
            id,
            self._maker,
            lambda: read().read(),
            contents=self._contents,
            since=self._since,
        )
        return _Tree(read(), spans)

    def _complain(self, what: str) -> None:
        """Say what is wrong, the first time that anything is."""
        if not self._complained:
            self._complained = True
            log.warning("spans of %r are missing: %s", self._observer, what)


def _provider(given: Any) -> Any:
    """Return where spans go; None for nowhere, and then the log says why."""
    try:
        from opentelemetry import trace as api  # noqa: PLC0415 - needs the extra
    except ImportError:
        log.warning("no spans are made: OpenTelemetry is not installed; install treefold[otel]")
        return None
    if given is None:
        given = api.get_tracer_provider()
    if isinstance(given, api.ProxyTracerProvider):
        log.warning(
            "no spans are made: the program has set no tracer provider; call"
            " opentelemetry.trace.set_tracer_provider first, or give one as tracer_provider="
        )
        return None
    return given


def _observer_of(source: Source) -> tuple[Observer, bool]:
    """Return who looks on at *source*, and whether to close that in the end."""
    if isinstance(source, Observer):
        return source, False
    if not isinstance(source, Runtime):
        return attach(source), True
    store = source.store
    if store is None:
        raise UsageError(
            "spans are made from what is written down: Runtime(store='run.db'), or"
            " Runtime(store=MemoryStore()) if no file is wanted"
        )
    if isinstance(store, SqliteStore) and os.path.exists(store.name):
        return attach(store.name), True  # so that nobody waits for us to have read
    return attach(store), True
