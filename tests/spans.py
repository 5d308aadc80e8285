"""Spans as tests want to see them, and a function to trace."""

import logging
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
)
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
    """Return the attributes of a span but for those that say where it is, and how fast."""
    places = {"treefold.journal.id", "treefold.tree.id", "treefold.node.id", "treefold.node.path"}
    places.add("gen_ai.response.time_to_first_chunk")
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


# A real collector


@contextmanager
def collector(*answers: int) -> Generator[tuple[str, list[ExportTraceServiceRequest]]]:
    """Serve OTLP on loopback; the first requests are answered with these statuses."""
    taken: list[ExportTraceServiceRequest] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = left.pop(0) if left else 200
            if status == 200:
                taken.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", taken
    finally:
        server.shutdown()
        thread.join(PATIENCE)
        server.server_close()


@contextmanager
def provider_to(address: str) -> Generator[TracerProvider]:
    """Return a provider that sends spans in batches to the collector at *address*."""
    provider = TracerProvider(
        shutdown_on_exit=False, resource=Resource.create({"service.name": "nightly"})
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(address, timeout=5)))
    yield provider
    provider.shutdown()
