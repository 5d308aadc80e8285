"""Spans with ids that follow from a journal, handed to whatever tracer a program has set up.

Everything goes through the tracer, and so through the program's own sampler, limits, processors and
exporters; whatever those raise is told to whoever wants to know, and does not come back here.
"""

import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
    set_span_in_context,
)

from treefold.version import __version__
from treefold.views.conventions import Attributes

_FLUSHED_EVERY: Final = 256  # spans; a usual queue has room for 2,048, and drops the rest
_LONGEST_FLUSH: Final = 30_000  # milliseconds


class FixedIds:
    """Gives the next span of a thread the ids that were set for it; any other gets random ones.

    It takes the place of a tracer's generator, which all share who trace by the same name.
    """

    def __init__(self, others: Any) -> None:
        self._others = others
        self._next = threading.local()

    def fix(self, ids: tuple[int, int] | None) -> None:
        """Let the next span of this thread have these ids, of its trace and its own."""
        self._next.ids = ids

    def generate_trace_id(self) -> int:
        """Return the id of a trace that begins."""
        ids: tuple[int, int] | None = getattr(self._next, "ids", None)
        return self._others.generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        """Return the id of a span that begins."""
        ids: tuple[int, int] | None = getattr(self._next, "ids", None)
        return self._others.generate_span_id() if ids is None else ids[1]

    def is_trace_id_random(self) -> bool:
        """Say no: it looks so, and is the same every time."""
        return False


class SpanMaker:
    """Begins and ends spans of one journal.

    Args:
        journal: what tells it from every other.
        complain: is told what the program's tracing raises.
        is_over: whether nobody waits for spans any longer.
    """

    def __init__(
        self,
        journal: str,
        provider: TracerProvider,
        complain: Callable[[str], None],
        is_over: Callable[[], bool],
    ) -> None:
        self.journal = journal
        self._tracer = provider.get_tracer("treefold", __version__)
        self._ids = _fixed_ids(self._tracer)
        self._flush: Callable[[int], object] | None = getattr(provider, "force_flush", None)
        self._complain = complain
        self._is_over = is_over
        self._unflushed = 0

    def begin(
        self,
        name: str,
        ids: tuple[int, int],
        above: Span | None,
        at: float,
        attributes: Attributes,
        links: Sequence[Link] = (),
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        """Return a span that began at that time, below another or at the top of its trace."""
        context = Context() if above is None else set_span_in_context(above, Context())
        if self._ids is not None:
            self._ids.fix(ids)
        try:
            return self._tracer.start_span(
                name, context, kind, attributes, links, start_time=nanoseconds(at)
            )
        except Exception as error:  # noqa: BLE001 - a program's own sampler or processor
            self._complain(f"a span could not be begun: {error!r}")
            return INVALID_SPAN
        finally:
            if self._ids is not None:
                self._ids.fix(None)

    def end(self, span: Span, at: float, error_type: str | None, message: str | None) -> None:
        """Send a span, as one that failed if it has an *error_type*.

        Raises:
            InterruptedError: nobody waits for it any longer.
        """
        try:
            if error_type is not None:
                span.set_attribute("error.type", error_type)
                span.set_status(StatusCode.ERROR, message)
            self._unflushed += span.is_recording()
            span.end(nanoseconds(at))
        except Exception as error:  # noqa: BLE001 - a program's own processor
            self._complain(f"a span could not be ended: {error!r}")
        if self._unflushed >= _FLUSHED_EVERY:
            self.flush()

    def flush(self) -> None:
        """Wait until everything is sent, so that no queue runs over.

        Raises:
            InterruptedError: nobody waits for that any longer.
        """
        self._unflushed = 0
        try:
            if self._flush is not None and self._flush(_LONGEST_FLUSH) is False:
                self._complain("what was to be sent has not been taken in time")
        except Exception as error:  # noqa: BLE001 - a program's own processor
            self._complain(f"spans could not be sent: {error!r}")
        if self._is_over():
            raise InterruptedError

    def ids(self, tree: int, key: str) -> tuple[int, int]:
        """Return the ids of the trace of a *tree*, and of the span in it that *key* stands for."""
        return _number(f"{self.journal}/{tree}", 16), _number(f"{self.journal}/{key}", 8)

    def link(self, tree: int, key: str) -> Link:
        """Return a link to that span, whenever it was sent."""
        trace, span = self.ids(tree, key)
        flags = TraceFlags(TraceFlags.SAMPLED)
        return Link(SpanContext(trace, span, is_remote=True, trace_flags=flags))


def nanoseconds(at: float) -> int:
    """Return a time as spans have it."""
    return int(at * 1e9)


def _fixed_ids(tracer: Tracer) -> FixedIds | None:
    """Have *tracer* use ids that it is given; None if it is none of the SDK's."""
    given: Any = getattr(tracer, "id_generator", None)
    if given is None:
        return None
    if not isinstance(given, FixedIds):
        given = FixedIds(given)
        tracer.id_generator = given  # pyright: ignore[reportAttributeAccessIssue]
    return given


def _number(key: str, size: int) -> int:
    """Return a number of so many bytes that is the same in every process, and never 0."""
    return int.from_bytes(blake2b(key.encode(), digest_size=size).digest()) or 1
