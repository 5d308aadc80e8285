"""Failing or hanging exporters do not affect the run, and are logged once."""

import subprocess
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import NoOpTracerProvider

import warm_python
from spans import (
    PATIENCE,
    collector,
    complaints,
    ids,
    looking,
    provider_for,
    provider_to,
    shapes,
)
from treefold import CodeFunction, MemoryStore, RunContext, Runtime, ToolUse, agent
from treefold.testing import ScriptedModel
from treefold.views import otel
from treefold.views.conventions import SCHEMA_URL


async def look_often(ctx: RunContext, times: int) -> int:
    """Look many things up."""
    return len([await ctx.invoke(looking, {"what": str(n)}) for n in range(times)])


looking_often = CodeFunction(callable=look_often, uses=[looking])


class Broken(SpanExporter):
    """Raises whenever it is given something."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError("the disk is full")

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        raise OSError("the disk is full")


class Rude(SpanProcessor):
    """Raises where nobody catches it."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise OSError("no room to begin")

    def on_end(self, span: ReadableSpan) -> None:
        raise OSError("no room to end")

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        raise OSError("no room to flush")


class Stuck(SpanExporter):
    """Takes nothing until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        self.released.wait(PATIENCE)
        return SpanExportResult.SUCCESS


def test_an_exporter_that_raises_does_not_touch_the_run(caplog: pytest.LogCaptureFixture):
    with Runtime([looking_often], store=MemoryStore()) as runtime:
        tracing = otel.trace(runtime, provider_for(Broken()))
        assert runtime.invoke(looking_often, {"times": 20}).result() == 20
        assert tracing.close(PATIENCE)

    assert complaints(caplog.records) == []  # the SDK has said it


def test_a_processor_that_raises_does_not_touch_the_run(caplog: pytest.LogCaptureFixture):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Rude())
    with Runtime([looking_often], store=MemoryStore()) as runtime:
        tracing = otel.trace(runtime, provider)
        assert runtime.invoke(looking_often, {"times": 20}).result() == 20
        assert tracing.close(PATIENCE)

    assert complaints(caplog.records) == [
        "spans of <Observer of memory> are missing: a span could not be started:"
        " OSError('no room to begin')"
    ]


def test_an_exporter_that_is_stuck_keeps_neither_the_run_nor_the_end_waiting(
    caplog: pytest.LogCaptureFixture,
):
    exporter = Stuck()
    with Runtime([looking_often], store=MemoryStore()) as runtime:
        tracing = otel.trace(runtime, provider_for(exporter))
        assert runtime.invoke(looking_often, {"times": 20}).result() == 20
        assert exporter.entered.wait(PATIENCE)
        assert runtime.invoke(looking_often, {"times": 20}).result() == 20
        assert tracing.close(0.01) is False
    exporter.released.set()
    assert tracing.close(PATIENCE)

    assert complaints(caplog.records) == [
        "spans of <Observer of memory> are missing: not all of them could be sent within 0.01 s"
    ]


def test_more_spans_than_a_queue_has_room_for_all_arrive():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=512))
    store = MemoryStore()
    with Runtime([looking_often], store=store) as runtime:
        assert runtime.invoke(looking_often, {"times": 2000}).result() == 2000
    assert otel.trace(store, provider).close(PATIENCE)
    provider.shutdown()

    assert len({ids(span) for span in exporter.get_finished_spans()}) == 2001


def test_what_the_sampler_does_not_want_is_not_sent():
    store = MemoryStore()
    with Runtime([looking_often], store=store) as runtime:
        for _ in range(40):
            runtime.invoke(looking_often, {"times": 1}).result()
    found: dict[str, list[Any]] = {}
    for name, sampler in ("none", ALWAYS_OFF), ("half", ParentBased(TraceIdRatioBased(0.5))):
        exporter = InMemorySpanExporter()
        assert otel.trace(store, provider_for(exporter, sampler=sampler)).close(PATIENCE)
        found[name] = shapes(exporter.get_finished_spans())

    assert found["none"] == []
    assert 0 < len(found["half"]) < 40
    assert found["half"] == [{"look_often": {"look": {}}}] * len(found["half"])


def test_a_provider_of_another_make_is_put_up_with():
    with Runtime([looking], store=MemoryStore()) as runtime:
        tracing = otel.trace(runtime, NoOpTracerProvider())
        assert runtime.invoke(looking, {"what": "b"}).result() == "b, twice"
        assert tracing.close(PATIENCE)


PROGRAM = """
import logging, sys
{before}
from treefold import CodeFunction, MemoryStore, Runtime
from treefold.views import otel

def add(ctx, a: int, b: int) -> int:
    return a + b

logging.basicConfig(format="%(message)s")
adding = CodeFunction(callable=add)
with Runtime([adding], store=MemoryStore()) as runtime, otel.trace(runtime) as tracing:
    print(runtime.invoke(adding, {{"a": 1, "b": 2}}).result(), tracing.close())
"""


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (
            'sys.modules["opentelemetry"] = None',
            "no spans are created: install OpenTelemetry with treefold[otel]\n",
        ),
        (
            "",
            "no spans are created: there is no tracer provider; call"
            " opentelemetry.trace.set_tracer_provider first, or pass tracer_provider=\n",
        ),
    ],
    ids=["not installed", "not set up"],
)
def test_a_program_without_opentelemetry_runs_and_is_told_once(before: str, said: str):
    program = warm_python.command("-c", PROGRAM.format(before=before))
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=True)

    assert (done.stdout, done.stderr) == ("3 True\n", said)


# A real collector


def test_a_collector_gets_the_tree(tmp_path: Any):
    @agent(uses=[looking])
    def work() -> str:
        return "Work."

    model = ScriptedModel(ToolUse("c1", "look", {"what": "b"}), "done")
    with (
        collector() as (address, taken),
        provider_to(address) as provider,
        Runtime([work], models=model, store=tmp_path / "run.db") as runtime,
    ):
        tracing = otel.trace(runtime, provider)
        runtime.invoke(work).result()
        assert tracing.close(PATIENCE)
    [resource] = [found for request in taken for found in request.resource_spans]
    [scope] = resource.scope_spans
    spans = {span.name: span for span in scope.spans}

    assert "nightly" in {item.value.string_value for item in resource.resource.attributes}
    assert (scope.scope.name, scope.schema_url) == ("treefold", SCHEMA_URL)
    assert spans.keys() == {"chat scripted", "execute_tool look", "invoke_agent work"}
    top = spans["invoke_agent work"]
    assert {span.parent_span_id for span in scope.spans} == {b"", top.span_id}
    assert {span.trace_id for span in scope.spans} == {top.trace_id}


HALF = "\ud83d"  # of a character, which no encoder takes
MESSY = f"\x1b[2J<script>{HALF}\x00\u202e"


def test_whatever_a_model_says_reaches_the_collector_in_one_piece():
    async def echo(ctx: RunContext, what: str) -> str:
        """Say it again."""
        return what

    async def fail(ctx: RunContext, what: str) -> str:
        """Fail with it."""
        raise ValueError(MESSY + what)  # what a model says has been put right by then

    @agent(uses=[CodeFunction(callable=echo), CodeFunction(callable=fail)])
    def work() -> str:
        return "Work."

    said = {"what": MESSY + "x" * 250_000}
    call = [ToolUse(MESSY + n * 10_000, n, said) for n in ("echo", "fail")]
    store = MemoryStore()
    with Runtime([work], models=ScriptedModel(call, MESSY), store=store) as runtime:
        runtime.invoke(work).result()
    with collector() as (address, taken), provider_to(address) as provider:
        assert otel.trace(store, provider, contents=True).close(PATIENCE)
    spans = [
        span
        for request in taken
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]

    assert sorted(span.name for span in spans) == [
        "chat scripted",
        "chat scripted",
        "execute_tool echo",
        "execute_tool fail",
        "invoke_agent work",
    ]
    assert sum(span.ByteSize() for span in spans) < 300_000


def test_a_collector_that_comes_back_gets_everything():
    store = MemoryStore()
    with (
        collector(503) as (address, taken),
        provider_to(address) as provider,
        Runtime([looking], store=store) as runtime,
    ):
        tracing = otel.trace(runtime, provider)
        assert runtime.invoke(looking, {"what": "b"}).result() == "b, twice"
        assert tracing.close(PATIENCE)

    assert len(taken) == 1
