"""Spans as tests want to see them, and a function to trace."""

import logging
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from treefold import CodeFunction, RunContext
from treefold.views import otel

PATIENCE: Final = 60  # seconds
OURS: Final = "treefold.views.otel"  # the name of its log


async def look(ctx: RunContext, what: str) -> str:
    """Look something up."""
    return f"{what}, twice"


looking = CodeFunction(callable=look)


def provider_for(exporter: SpanExporter, **options: Any) -> TracerProvider:
    """Return a provider that sends each span to *exporter* at once."""
    provider = TracerProvider(shutdown_on_exit=False, **options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@contextmanager
def traced(source: Any, **options: Any) -> Generator[InMemorySpanExporter]:
    """Trace *source* in the block; what it is given has all that ended when the block has."""
    exporter = InMemorySpanExporter()
    tracing = otel.trace(source, provider_for(exporter), **options)
    try:
        yield exporter
    finally:
        assert tracing.close(PATIENCE)


def sent_of(source: Any, **options: Any) -> Sequence[ReadableSpan]:
    """Return the spans of a journal."""
    with traced(source, **options) as exporter:
        pass
    return exporter.get_finished_spans()


Shape = dict[str, Any]  # the name of a span, and those below it


def shapes(spans: Iterable[ReadableSpan]) -> list[Shape]:
    """Return how *spans* hang together, by when they began; those without a parent stand on top."""
    ordered = sorted(spans, key=lambda span: (span.start_time or 0, -(span.end_time or 0)))
    below: dict[int, Shape] = {}
    tops: list[Shape] = []
    for span in ordered:
        below[ids(span)[1]] = {}
    for span in ordered:
        parent = None if span.parent is None else span.parent.span_id
        name = span.name
        if parent in below:
            home = below[parent]
            while name in home:  # the next one of this name
                name += "'"
            home[name] = below[ids(span)[1]]
        else:
            tops.append({name: below[ids(span)[1]]})
    return tops


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Return the ids of a span: of its trace, and its own."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def facts(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span but for those that say where it is."""
    places = {"treefold.journal.id", "treefold.tree.id", "treefold.node.id", "treefold.node.path"}
    return {name: item for name, item in (span.attributes or {}).items() if name not in places}


def named(spans: Iterable[ReadableSpan], name: str) -> ReadableSpan:
    """Return the only span of that name."""
    [found] = [span for span in spans if span.name == name]
    return found


def happenings(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    """Return what happened during a span."""
    return [(event.name, dict(event.attributes or {})) for event in span.events]


def complaints(records: Iterable[logging.LogRecord]) -> list[str]:
    """Return what treefold had to say of it."""
    return [record.getMessage() for record in records if record.name == OURS]
