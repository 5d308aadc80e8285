"""Start and end spans with ids that are derived from a journal, through the program's tracer.

The program's own sampler, limits, processors and exporters apply. Exceptions that they raise are
reported to a callback and not propagated.
"""

import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from treefold.version import __version__
from treefold.views.conventions import SCHEMA_URL, Attributes

_FLUSH_EVERY: Final = 256  # spans; the default queue holds 2,048, and drops what exceeds it
_FLUSH_TIMEOUT: Final = 30_000  # milliseconds


class FixedIdGenerator:
    """Gives the next span of a thread the ids that were set for it; other spans get random ids.

    It replaces the id generator of a tracer, which may be shared: tracers are cached by name.
    """

    def __init__(self, default: Any) -> None:
        self._default = default
        self._next = threading.local()

    def set_next(self, ids: tuple[int, int] | None) -> None:
        """Set the trace id and the span id of the next span of this thread."""
        self._next.ids = ids

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        ids: tuple[int, int] | None = getattr(self._next, "ids", None)
        return self._default.generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        ids: tuple[int, int] | None = getattr(self._next, "ids", None)
        return self._default.generate_span_id() if ids is None else ids[1]

    def is_trace_id_random(self) -> bool:
        """Return False: ids are derived from the journal."""
        return False


class JournalTracer:
    """Starts and ends the spans of one journal.

    Args:
        journal: its unique id.
        report: is called with a message when the program's tracing raises.
        is_abandoned: whether sending is to stop.
    """

    def __init__(
        self,
        journal: str,
        provider: TracerProvider,
        report: Callable[[str], None],
        is_abandoned: Callable[[], bool],
    ) -> None:
        self.journal = journal
        self._tracer = provider.get_tracer("treefold", __version__, SCHEMA_URL)
        self._ids = _use_fixed_ids(self._tracer)
        self._flush: Callable[[int], object] | None = getattr(provider, "force_flush", None)
        self._report = report
        self._is_abandoned = is_abandoned
        self._unflushed = 0

    def start_span(
        self,
        name: str,
        ids: tuple[int, int],
        parent: Span | None,
        at: float,
        attributes: Attributes,
        links: Sequence[Link] = (),
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        """Return a span that started at the time *at*, below *parent* or as the root of a trace."""
        context = Context() if parent is None else set_span_in_context(parent, Context())
        if self._ids is not None:
            self._ids.set_next(ids)
        try:
            return self._tracer.start_span(
                name, context, kind, attributes, links, start_time=nanoseconds(at)
            )
        except Exception as error:  # noqa: BLE001 - the program's own sampler or processor
            self._report(f"a span could not be started: {error!r}")
            return INVALID_SPAN
        finally:
            if self._ids is not None:
                self._ids.set_next(None)

    def end_span(self, span: Span, at: float, error_type: str | None, message: str | None) -> None:
        """End a span, which sends it; with an *error_type*, its status is *error*.

        Raises:
            InterruptedError: sending was abandoned.
        """
        try:
            if error_type is not None:
                span.set_attribute("error.type", error_type)
                span.set_status(StatusCode.ERROR, message)
            self._unflushed += span.is_recording()
            span.end(nanoseconds(at))
        except Exception as error:  # noqa: BLE001 - the program's own processor
            self._report(f"a span could not be ended: {error!r}")
        if self._unflushed >= _FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Wait until everything is sent, so that no queue overflows.

        Raises:
            InterruptedError: sending was abandoned.
        """
        self._unflushed = 0
        try:
            if self._flush is not None and self._flush(_FLUSH_TIMEOUT) is False:
                self._report("the exporter did not take all spans in time")
        except Exception as error:  # noqa: BLE001 - the program's own processor
            self._report(f"spans could not be sent: {error!r}")
        if self._is_abandoned():
            raise InterruptedError

    def ids(self, tree: int, key: str) -> tuple[int, int]:
        """Return the id of the trace of a *tree*, and of the span in it that *key* identifies."""
        return _hash(f"{self.journal}/{tree}", 16), _hash(f"{self.journal}/{key}", 8)


def link_to(ids: tuple[int, int]) -> Link:
    """Return a link to the span with this trace id and span id, perhaps of another process."""
    trace, span = ids
    flags = TraceFlags(TraceFlags.SAMPLED)
    return Link(SpanContext(trace, span, is_remote=True, trace_flags=flags))


# The open span of a program, in the form of the W3C's header


def open_span() -> str | None:
    """Return the span that is open in the current context, None if there is none."""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def span_of(traceparent: str | None) -> Span | None:
    """Return a span that stands for an open one of the program; None if that cannot be read."""
    if traceparent is None:
        return None
    carrier = {"traceparent": traceparent}
    found = get_current_span(TraceContextTextMapPropagator().extract(carrier, Context()))
    context = found.get_span_context()
    return NonRecordingSpan(context) if context.is_valid else None


def nanoseconds(at: float) -> int:
    """Return a time in seconds as OpenTelemetry has it."""
    return int(at * 1e9)


def _use_fixed_ids(tracer: Tracer) -> FixedIdGenerator | None:
    """Install an id generator in *tracer*; None if it is not a tracer of the SDK."""
    given: Any = getattr(tracer, "id_generator", None)
    if given is None:
        return None
    if not isinstance(given, FixedIdGenerator):
        given = FixedIdGenerator(given)
        tracer.id_generator = given  # pyright: ignore[reportAttributeAccessIssue]
    return given


def _hash(key: str, size: int) -> int:
    """Return a hash of *size* bytes that is the same in every process, and never 0."""
    return int.from_bytes(blake2b(key.encode(), digest_size=size).digest()) or 1
