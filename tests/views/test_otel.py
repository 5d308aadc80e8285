"""Spans of runs: their names, parents and attributes."""

import asyncio
import json
import time
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import treefold
from spans import (
    PATIENCE,
    facts,
    happenings,
    ids,
    looking,
    named,
    provider_for,
    sent_of,
    shapes,
    traced,
)
from treefold import (
    CancellationException,
    CodeFunction,
    MemoryStore,
    ModelProviderException,
    RunContext,
    Runtime,
    ThinkingPart,
    TokenUsage,
    ToolUse,
    agent,
    tool,
)
from treefold.models.retry import Retry
from treefold.testing import HANGS, ScriptedFailure, ScriptedModel
from treefold.testing.scripted import Reply
from treefold.views import otel

USAGE = TokenUsage(input=10, cache_read=5, cache_write=3, output=2, reasoning=1)
COUNTS = {
    "gen_ai.usage.input_tokens": 18,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.usage.cache_read.input_tokens": 5,
    "gen_ai.usage.cache_write.input_tokens": 3,
    "gen_ai.usage.reasoning.output_tokens": 1,
}
SECRET = "the colour is octarine"


@agent(uses=[looking], model="small")
def summarise(text: str) -> str:
    """Summarise a text."""
    return f"Summarise: {text}"


@agent(uses=[summarise, looking], model="large")
def digest(topic: str) -> str:
    """Write a digest."""
    return f"Write about {topic}."


async def both(ctx: RunContext) -> list[str]:
    """Two digests at once."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_wait(ctx, topic)) for topic in ("sea", "air")]
    return [task.result() for task in tasks]


async def _wait(ctx: RunContext, topic: str) -> str:
    return await ctx.invoke(digest, {"topic": topic})


both_at_once = CodeFunction(callable=both, uses=[digest])


def large(request: Any) -> Reply:
    """Ask for a summary and a look the first time, and answer the second."""
    if len(request.transcript) > 1:
        return "the digest"
    return [ToolUse("c1", "summarise", {"text": "a"}), ToolUse("c2", "look", {"what": "b"})]


def models(**options: Any) -> dict[str, ScriptedModel]:
    return {
        "large": ScriptedModel(large, name="openai:big@http://127.0.0.1:8080/v1", **options),
        "small": ScriptedModel(lambda _: "short", name="anthropic:claude-haiku-4-5", **options),
    }


ONE_DIGEST = {
    "chat big": {},
    "invoke_agent summarise": {"chat claude-haiku-4-5": {}},
    "execute_tool look": {},
    "chat big'": {},
}


def test_the_spans_of_a_run_hang_together_as_its_calls_do():
    with (
        Runtime([both_at_once], models=models(), store=MemoryStore()) as runtime,
        traced(runtime) as exporter,
    ):
        assert runtime.invoke(both_at_once).result() == ["the digest"] * 2
    spans = exporter.get_finished_spans()

    assert shapes(spans) == [
        {"both": {"invoke_agent digest": ONE_DIGEST, "invoke_agent digest'": ONE_DIGEST}}
    ]
    assert len({ids(span)[0] for span in spans}) == 1
    assert len({ids(span) for span in spans}) == len(spans) == 13


def test_every_span_lies_within_the_time_of_the_one_above_it():
    with (
        Runtime([digest], models=models(), store=MemoryStore()) as runtime,
        traced(runtime) as exporter,
    ):
        runtime.invoke(digest, {"topic": "sea"}).result()
    spans = {ids(span)[1]: span for span in exporter.get_finished_spans()}

    for span in spans.values():
        above = span if span.parent is None else spans[span.parent.span_id]
        assert None not in {above.start_time, above.end_time, span.start_time, span.end_time}
        times = (above.start_time, span.start_time, span.end_time, above.end_time)
        assert list(times) == sorted(times, key=lambda time: time or 0)


def test_agents_tools_and_requests_are_named_by_the_conventions():
    prices = {"price": lambda usage: Decimal("0.25")}
    with (
        Runtime([digest], models=models(usage=USAGE, **prices), store=MemoryStore()) as runtime,
        traced(runtime) as exporter,
    ):
        node = runtime.invoke(digest, {"topic": "sea"})
        node.result()
    spans = exporter.get_finished_spans()
    big = {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "big",
    }
    haiku = {
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-haiku-4-5",
    }

    assert facts(named(spans, "invoke_agent digest")) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "digest",
        "gen_ai.agent.description": "Write a digest.",
        **big,
        **{name: 2 * count for name, count in COUNTS.items()},
        "treefold.node.state": "success",
    }
    assert facts(named(spans, "invoke_agent summarise")) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "summarise",
        "gen_ai.agent.description": "Summarise a text.",
        "gen_ai.tool.call.id": "c1",
        **haiku,
        **COUNTS,
        "treefold.node.state": "success",
    }
    assert facts(named(spans, "execute_tool look")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Look something up.",
        "gen_ai.tool.call.id": "c2",
        "treefold.node.state": "success",
    }
    assert facts(named(spans, "chat claude-haiku-4-5")) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": "summarise",
        **haiku,
        **COUNTS,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("stop",),
        "treefold.cost.usd": 0.25,
    }
    kinds = {span.name: span.kind for span in spans}
    assert kinds["chat big"] == kinds["chat claude-haiku-4-5"] == SpanKind.CLIENT
    assert kinds["invoke_agent digest"] == kinds["execute_tool look"] == SpanKind.INTERNAL
    top = named(spans, "invoke_agent digest").attributes
    assert top is not None
    assert (top["treefold.node.id"], top["treefold.node.path"]) == (node.id, node.path)


def test_with_contents_spans_tell_what_was_said():
    @agent(system="Be brief.", uses=[looking])
    def work(n: int) -> str:
        return f"Do it {n} times."

    first = [ThinkingPart("hm"), ToolUse("c1", "look", {"what": "b"})]
    with (
        Runtime([work], models=ScriptedModel(first, "done"), store=MemoryStore()) as runtime,
        traced(runtime, contents=True) as exporter,
    ):
        runtime.invoke(work, {"n": 3}).result()
    spans = exporter.get_finished_spans()
    top, called = facts(named(spans, "invoke_agent work")), facts(named(spans, "execute_tool look"))
    asked, answered = [facts(span) for span in spans if span.name == "chat scripted"]
    prompt = [{"role": "user", "parts": [{"type": "text", "content": "Do it 3 times."}]}]
    parts = [
        {"type": "reasoning", "content": "hm"},
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"what": "b"}},
    ]
    response = {"type": "tool_call_response", "id": "c1", "response": "b, twice"}
    done = {"role": "assistant", "parts": [{"type": "text", "content": "done"}]}
    told = {
        name: json.loads(str(item))
        for name, item in top.items()
        if "messages" in name or "instructions" in name or name.startswith("treefold.node.")
        if name != "treefold.node.state"
    }

    assert told == {
        "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
        "gen_ai.input.messages": prompt,
        "gen_ai.output.messages": [{**done, "finish_reason": "stop"}],
        "treefold.node.arguments": {"n": 3},
        "treefold.node.result": "done",
    }
    assert json.loads(called["gen_ai.tool.call.arguments"]) == {"what": "b"}
    assert json.loads(called["gen_ai.tool.call.result"]) == "b, twice"
    assert json.loads(asked["gen_ai.input.messages"]) == prompt
    assert json.loads(asked["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": parts, "finish_reason": "tool_call"}
    ]
    assert json.loads(answered["gen_ai.input.messages"]) == [{"role": "tool", "parts": [response]}]


def test_each_result_of_a_batch_is_a_message_and_texts_are_not_escaped():
    @agent(uses=[looking])
    def work() -> str:
        return "Grüße 🌊"

    async def manage(ctx: RunContext, name: str) -> str:
        return await ctx.invoke(work)

    managing = CodeFunction(callable=manage, uses=[work])
    batch = [ToolUse("c1", "look", {"what": "Äpfel"}), ToolUse("c2", "look", {"what": "\ud800"})]
    with (
        Runtime([managing], models=ScriptedModel(batch, "schön"), store=MemoryStore()) as runtime,
        traced(runtime, contents=True) as exporter,
    ):
        runtime.invoke(managing, {"name": "Zoë"}).result()
    spans = exporter.get_finished_spans()
    asked, answered = [facts(span) for span in spans if span.name == "chat scripted"]
    assert "Grüße 🌊" in asked["gen_ai.input.messages"]
    assert '"Äpfel"' in asked["gen_ai.output.messages"]
    messages = json.loads(answered["gen_ai.input.messages"])
    assert [message["role"] for message in messages] == ["tool", "tool"]
    results = [(part["id"], part["response"]) for [part] in (one["parts"] for one in messages)]
    assert results == [("c1", "Äpfel, twice"), ("c2", "\ufffd, twice")]
    assert facts(named(spans, "manage")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "manage",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.arguments": '{"name":"Zoë"}',
        "gen_ai.tool.call.result": '"schön"',
        "treefold.node.state": "success",
    }


async def fail(ctx: RunContext, why: str) -> str:
    """Fail."""
    raise ZeroDivisionError(f"since {SECRET}")


failing = CodeFunction(callable=fail)


async def ask(ctx: RunContext) -> str:
    """Ask somebody."""
    return await ctx.ask(f"Is it true that {SECRET}?")


asking = CodeFunction(callable=ask, repeatable=True)


def everything_secret() -> tuple[Any, ScriptedModel]:
    """Return an agent that says the secret wherever there is something to say."""

    @agent(system=SECRET, uses=[failing, asking])
    def confide(text: str) -> str:
        return f"Keep this: {text}"

    calls = [ToolUse("c1", "fail", {"why": SECRET}), ToolUse("c2", "ask", {})]
    replies: list[Any] = [ScriptedFailure(529, SECRET), calls, SECRET]
    retry = Retry((0,))
    return confide, ScriptedModel(*replies, retry=retry)


@pytest.mark.parametrize("contents", [False, True])
def test_without_contents_no_span_says_a_word_of_anybody(*, contents: bool):
    confide, model = everything_secret()
    with (
        Runtime([confide], models=model, store=MemoryStore()) as runtime,
        traced(runtime, contents=contents) as exporter,
    ):
        node = runtime.invoke(confide, {"text": SECRET})
        _answer_first(runtime, SECRET)
        assert node.result(PATIENCE) == SECRET
    spans = exporter.get_finished_spans()

    assert shapes(spans) == [
        {
            "invoke_agent confide": {
                "chat scripted": {},
                "execute_tool fail": {},
                "execute_tool ask": {},
                "chat scripted'": {},
            }
        }
    ]
    said = [span.name for span in spans if "octarine" in (span.to_json() or "")]
    assert len(said) == (len(spans) if contents else 0)


def _answer_first(runtime: Runtime, text: str) -> None:
    until = time.monotonic() + PATIENCE
    while not (questions := runtime.questions()):
        assert time.monotonic() < until
        time.sleep(0.01)
    runtime.answer(questions[0].id, text)


def test_a_call_that_fails_is_an_error_of_the_type_that_it_raised():
    @agent(uses=[failing], model="m")
    def work() -> str:
        return "Work."

    replies = [ToolUse("c1", "fail", {"why": "?"}), ScriptedFailure(400, "no such model")]
    store = MemoryStore()
    with (
        Runtime([work], models={"m": ScriptedModel(*replies)}, store=store) as runtime,
        traced(runtime) as exporter,
        pytest.raises(ModelProviderException),
    ):
        runtime.invoke(work).result()
    spans = exporter.get_finished_spans()
    found = [
        (span.name, span.status.status_code, span.status.description, facts(span).get("error.type"))
        for span in spans
    ]

    assert found == [
        ("chat scripted", StatusCode.UNSET, None, None),
        ("execute_tool fail", StatusCode.ERROR, None, "ZeroDivisionError"),
        ("chat scripted", StatusCode.ERROR, None, "ModelProviderException"),
        ("invoke_agent work", StatusCode.ERROR, None, "ModelProviderException"),
    ]
    told = named(sent_of(store, contents=True), "execute_tool fail")
    assert told.status.description == f"since {SECRET}"


def test_what_is_cancelled_is_no_error():
    @agent
    def work() -> str:
        return "Work."

    async def run(ctx: RunContext) -> str:
        return await ctx.invoke(work)

    running = CodeFunction(callable=run, uses=[work])
    store = MemoryStore()
    with (
        Runtime([running], models=ScriptedModel(HANGS), store=store) as runtime,
        traced(runtime) as exporter,
    ):
        node = runtime.invoke(running)
        for view in runtime.watch(node, timeout=PATIENCE):
            if view.children and view.children[0].status == "waits for the model":
                break
        node.cancel("enough")
        with pytest.raises(CancellationException):
            node.result(PATIENCE)
    found = [
        (span.name, span.status.status_code, facts(span).get("treefold.node.state"))
        for span in exporter.get_finished_spans()
    ]

    assert found == [
        ("chat scripted", StatusCode.UNSET, None),
        ("invoke_agent work", StatusCode.UNSET, "canceled"),
        ("run", StatusCode.UNSET, "canceled"),
    ]
    left = named(exporter.get_finished_spans(), "chat scripted")
    assert facts(left)["gen_ai.response.finish_reasons"] == ("error",)


def test_pauses_and_questions_are_events_of_the_call():
    async def deploy(ctx: RunContext) -> str:
        return await ctx.ask("Deploy?", ["yes", "no"])

    deploying = CodeFunction(callable=deploy)
    with (
        Runtime([deploying], store=MemoryStore()) as runtime,
        traced(runtime, contents=True) as exporter,
    ):
        node = runtime.invoke(deploying)
        _answer_first(runtime, "yes")
        assert node.result(PATIENCE) == "yes"
    [span] = exporter.get_finished_spans()

    assert happenings(span) == [
        ("treefold.paused", {"treefold.paused.reason": "Deploy?"}),
        (
            "treefold.question",
            {"treefold.question.kind": "human", "treefold.question.text": "Deploy?"},
        ),
        ("treefold.answer", {"treefold.answer.text": "yes"}),
        ("treefold.resumed", {}),
    ]


def test_attempts_that_failed_are_events_of_the_request():
    @agent
    def work() -> str:
        return "Work."

    replies = [ScriptedFailure(529, "busy"), ScriptedFailure(None, "cut off"), "done"]
    model = ScriptedModel(*replies, retry=Retry((0, 0)))
    with (
        Runtime([work], models=model, store=MemoryStore()) as runtime,
        traced(runtime) as exporter,
    ):
        runtime.invoke(work).result()
    span = named(exporter.get_finished_spans(), "chat scripted")

    assert span.status.status_code == StatusCode.UNSET
    assert happenings(span) == [
        (
            "treefold.retry",
            {"error.type": "529", "treefold.retry.attempt": 1, "treefold.retry.wait": 0},
        ),
        (
            "treefold.retry",
            {"error.type": "connection", "treefold.retry.attempt": 2, "treefold.retry.wait": 0},
        ),
    ]


def test_an_open_call_has_no_span_and_those_below_it_name_it_already():
    @agent(uses=[looking, asking])
    def work() -> str:
        return "Work."

    replies = [[ToolUse("c1", "look", {"what": "b"}), ToolUse("c2", "ask", {})], "done"]
    store = MemoryStore()
    with Runtime([work], models=ScriptedModel(*replies), store=store) as runtime:
        node = runtime.invoke(work)
        for view in runtime.watch(node, timeout=PATIENCE):
            if any(child.questions for child in view.children):
                break
        early = sent_of(store)
        _answer_first(runtime, "yes")
        node.result(PATIENCE)
    late = sent_of(store)

    assert shapes(early) == [{"chat scripted": {}}, {"execute_tool look": {}}]
    assert {span.parent.span_id for span in early if span.parent is not None} == {
        ids(named(late, "invoke_agent work"))[1]
    }
    assert shapes(late) == [
        {
            "invoke_agent work": {
                "chat scripted": {},
                "execute_tool look": {},
                "execute_tool ask": {},
                "chat scripted'": {},
            }
        }
    ]


def test_the_same_run_gives_the_same_spans_every_time():
    store = MemoryStore()
    with (
        Runtime([both_at_once], models=models(usage=USAGE), store=store) as runtime,
        traced(runtime) as exporter,
    ):
        runtime.invoke(both_at_once).result()
    live = sorted(span.to_json() or "" for span in exporter.get_finished_spans())

    assert sorted(span.to_json() or "" for span in sent_of(store)) == live
    with treefold.attach(store) as observer:
        assert sorted(span.to_json() or "" for span in sent_of(observer)) == live
        assert len(observer.trees()) == 1  # the observer of the caller is not closed


def test_different_runs_have_different_ids():
    stores = [MemoryStore(), MemoryStore()]
    for store in stores:
        with Runtime([looking], store=store) as runtime:
            for _ in range(2):
                runtime.invoke(looking, {"what": "b"}).result()

    found = [ids(span) for store in stores for span in sent_of(store)]
    assert len({trace for trace, _ in found}) == len({span for _, span in found}) == 4


def test_of_a_runtime_only_what_ends_from_then_on_is_sent():
    store = MemoryStore()
    with Runtime([looking], store=store) as runtime:
        runtime.invoke(looking, {"what": "before"}).result()
        with traced(runtime, contents=True) as exporter:
            runtime.invoke(looking, {"what": "after"}).result()
    results = [facts(span)["gen_ai.tool.call.result"] for span in exporter.get_finished_spans()]

    assert results == ['"after, twice"']
    assert len(sent_of(store)) == 2


def test_other_spans_of_the_program_keep_their_random_ids():
    exporter = InMemorySpanExporter()
    provider = provider_for(exporter)
    store = MemoryStore()
    with (
        Runtime([looking], store=store) as runtime,
        otel.trace(runtime, provider) as tracing,
    ):
        runtime.invoke(looking, {"what": "b"}).result()
        tracer = provider.get_tracer("treefold", treefold.__version__)
        for _ in range(2):
            tracer.start_span("mine").end()
        assert tracing.close(PATIENCE)
    spans = exporter.get_finished_spans()

    assert sorted(span.name for span in spans) == ["look", "mine", "mine"]
    assert len({ids(span)[0] for span in spans}) == 3


async def test_a_block_in_a_loop_does_not_stand_in_its_way():
    exporter = InMemorySpanExporter()
    async with (
        Runtime([looking], store=MemoryStore()) as runtime,
        otel.trace(runtime, provider_for(exporter)),
    ):
        await runtime.invoke(looking, {"what": "b"})

    assert [span.name for span in exporter.get_finished_spans()] == ["look"]


def test_tools_of_turns_are_calls_too():
    @tool
    async def double(n: int) -> int:
        return 2 * n

    store = MemoryStore()
    with Runtime([double], store=store) as runtime:
        assert runtime.invoke(double, {"n": 2}).result() == 4

    assert [span.name for span in sent_of(store)] == ["double"]
