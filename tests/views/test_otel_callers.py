"""Spans of runs are children of the span that was open where the program made the call."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spans import PATIENCE, ids, looking, provider_for
from treefold import CodeFunction, MemoryStore, RunContext, Runtime
from treefold.views import otel


async def look_twice(ctx: RunContext) -> None:
    await ctx.invoke(looking, {"what": "one"})
    await ctx.invoke(looking, {"what": "two"})


looking_twice = CodeFunction(callable=look_twice, uses=[looking])


def all_named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


async def test_a_call_inside_an_open_span_is_its_child_wherever_the_runtime_lives():
    exporter = InMemorySpanExporter()
    provider = provider_for(exporter)
    tracer = provider.get_tracer("program")
    background = Runtime([looking_twice], store=MemoryStore())
    async with Runtime([looking_twice], store=MemoryStore()) as here, asyncio.timeout(PATIENCE):
        with otel.trace(here, provider), otel.trace(background, provider):

            def from_a_thread() -> None:
                with tracer.start_as_current_span("in a thread"):
                    here.invoke(looking_twice).result(PATIENCE)

            with tracer.start_as_current_span("here"):
                await here.invoke(looking_twice)
                await background.invoke(looking_twice)
            await asyncio.to_thread(from_a_thread)
            await here.invoke(looking_twice)
        await asyncio.to_thread(background.close)
    spans = exporter.get_finished_spans()
    tops = all_named(spans, "look_twice")
    by_span = {ids(span)[1]: span.name for span in spans}
    assert sorted(by_span.get(parent_of(top) or 0, "none") for top in tops) == [
        "here", "here", "in a thread", "none"
    ]  # fmt: skip
    traces = {ids(span)[1]: ids(span)[0] for span in spans}
    for span in spans:
        if (above := parent_of(span)) is not None:
            assert ids(span)[0] == traces[above]
    assert len(all_named(spans, "look")) == 8


def test_a_call_that_another_process_resumes_stays_in_the_trace_and_has_a_link(tmp_path: Path):
    exporter = InMemorySpanExporter()
    provider = provider_for(exporter)
    looked, hold = threading.Event(), threading.Event()

    async def look_and_wait(ctx: RunContext) -> None:
        await ctx.invoke(looking, {"what": "one"})
        looked.set()
        if not hold.is_set():
            await asyncio.Event().wait()

    function = CodeFunction(callable=look_and_wait, uses=[looking])
    first = Runtime([function], store=tmp_path / "run.db")
    with otel.trace(first, provider):
        with provider.get_tracer("program").start_as_current_span("request") as request:
            first.invoke(function)
        assert looked.wait(PATIENCE)
        first.close()
    hold.set()
    second = Runtime([function], store=tmp_path / "run.db")
    with otel.trace(second, provider), second:
        [node] = second.recover()
        node.result(PATIENCE)
        fork = second.fork(node)
        fork.result(PATIENCE)
    spans = exporter.get_finished_spans()
    program = request.get_span_context()
    whole, forked = all_named(spans, "look_and_wait")
    assert whole.parent is None
    assert ids(whole)[0] == program.trace_id
    assert [link.context.span_id for link in whole.links] == [program.span_id]
    first_look, *_ = all_named(spans, "look")
    assert parent_of(first_look) == ids(whole)[1]
    # The fork has a trace of its own, and a link to the tree that was forked.
    assert forked.parent is None
    assert ids(forked)[0] != program.trace_id
    [link] = forked.links
    assert (link.context.trace_id, link.context.span_id) == ids(whole)


def test_a_call_without_an_open_span_is_a_trace_of_its_own():
    exporter = InMemorySpanExporter()
    runtime = Runtime([looking], store=MemoryStore())
    with otel.trace(runtime, provider_for(exporter)), runtime:
        runtime.invoke(looking, {"what": "one"}).result(PATIENCE)
    [span] = exporter.get_finished_spans()
    assert span.parent is None
    assert span.links == ()
