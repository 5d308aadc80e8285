"""Every model and session, seen from outside, over real HTTP."""

import asyncio
import itertools
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from support import add
from treefold import CodeFunction, Provider, TokenUsage, registries, tool
from treefold.core.errors import (
    DefinitionError,
    InvalidValueError,
    ModelProviderException,
    ModelRefusedError,
    TreefoldError,
    UsageError,
)
from treefold.core.exchange import Exchange, Finish
from treefold.core.function import RunContext
from treefold.core.model import ModelSettings, Session
from treefold.core.model_events import (
    AttemptFailed,
    ModelEvent,
    PartCompleted,
    ResponseEnded,
    TextDelta,
    ToolUseDelta,
)
from treefold.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from treefold.models import (
    AnthropicModel,
    GeminiModel,
    OpenAIModel,
    Retry,
    Timers,
    find_model,
    price,
)
from wire import Pause, Reply, Stall, anthropic_wire, cut_after, gemini_wire, openai_wire, stream
from wire.protocols import KEY, PROTOCOLS, Protocol, answer, asked, noting

OPENAI, ANTHROPIC, GEMINI = PROTOCOLS


class Place(BaseModel):
    street: str
    number: int = 1


with registries():

    @tool
    async def visit(place: Place, others: list[Place] | None = None) -> str:
        """Go there."""
        return place.street


def finish_of(events: Sequence[ModelEvent]) -> Finish:
    end = events[-1]
    assert isinstance(end, ResponseEnded)
    return end.exchange.finish


def deltas_of(reply: Reply) -> Reply:
    """Return the first half of *reply*, after which nothing comes."""
    return stream(*reply.steps[: len(reply.steps) // 2 + 1], Stall())


# --- the history, byte for byte


async def test_each_request_repeats_all_earlier_messages_byte_for_byte(protocol: Protocol):
    odd = '{"b": 1.0, "a" : 12345678901234567890, "u": "\\u00e9\\/"}'
    script = [protocol.calls((f"id_{n}", "add", odd)) for n in range(4)]
    async with protocol.server(*script, protocol.text("é😀", " done")) as server:
        session = protocol.model(server).open("You add.", [add])
        calls = asked(await answer(session, UserText("Add. é😀")))
        for _ in range(4):
            calls = asked(await answer(session, ToolResult(calls[0].id, "3 é")))
    sent = [protocol.messages(request.body) for request in server.requests]
    assert len(sent) == 5
    for earlier, later in itertools.pairwise(sent):
        assert later.startswith(earlier + ",")


async def test_all_but_the_messages_is_the_same_in_every_request(protocol: Protocol):
    script = [protocol.calls(("id_1", "add", '{"a":1,"b":2}')), protocol.text("3")]
    async with protocol.server(*script) as server:
        session = protocol.model(server).open("You add.", [add], ModelSettings(max_tokens=30_000))
        [call] = asked(await answer(session, UserText("Add.")))
        await answer(session, ToolResult(call.id, "3"))
    first, second = (request.json for request in server.requests)
    for body in (first, second):
        body.pop("messages", None)
        body.pop("contents", None)
    assert first == second
    assert server.requests[0].path == server.requests[1].path


async def test_what_the_events_brought_is_enough_to_go_on_elsewhere(protocol: Protocol):
    script = [protocol.calls(("id_1", "add", '{"a":1,"b":2}')), protocol.text("3")]
    async with protocol.server(*script, protocol.text("3"), protocol.text("x")) as server:
        session = protocol.model(server).open("", [add])
        events = await answer(session, UserText("Add."))
        saved = [json.dumps(e.exchange.to_dict()) for e in events if isinstance(e, ResponseEnded)]
        [call] = asked(events)
        await answer(session, ToolResult(call.id, "3"))

        loaded = [Exchange.from_dict(json.loads(text)) for text in saved]
        other = protocol.model(server).open("", [add], exchanges=loaded)
        with pytest.raises(UsageError, match="no result yet"):  # it knows what it waits for
            await answer(other, UserText("Hm?"))
        await answer(other, ToolResult(call.id, "3"))
    assert server.requests[1].body == server.requests[2].body
    assert other.usage == session.usage


@pytest.mark.parametrize(("one", "two"), [(0, 1), (1, 2), (2, 0)])
async def test_a_conversation_of_one_provider_is_refused_by_another(one: int, two: int):
    source, target = PROTOCOLS[one], PROTOCOLS[two]
    async with source.server(source.text("ok")) as server, target.server() as other:
        session = source.model(server).open()
        await answer(session, UserText("Hi"))
        with pytest.raises(InvalidValueError):
            target.model(other).open(exchanges=session.exchanges)


async def test_text_said_before_a_call_is_in_the_transcript_and_goes_back():
    said = anthropic_wire.Text(["Let me add."])
    used = anthropic_wire.ToolUse("c1", "add", ['{"a":1,"b":2}'])
    thought = anthropic_wire.Thinking(["Hm."])
    made = gemini_wire.call("add", {"a": 1, "b": 2}, "c1")
    replies = {
        OPENAI: openai_wire.calls([("c1", "add", '{"a":1,"b":2}')], text=["Let me ", "add."]),
        ANTHROPIC: anthropic_wire.message(thought, said, used, stop_reason="tool_use"),
        GEMINI: gemini_wire.reply(
            gemini_wire.chunk([gemini_wire.text("Let me add.")]),
            gemini_wire.chunk([made], "STOP", gemini_wire.USAGE),
        ),
    }
    for protocol, reply in replies.items():
        async with protocol.server(reply, protocol.text("3")) as server:
            session = protocol.model(server).open("", [add])
            await answer(session, UserText("Add."))
            await answer(session, ToolResult("c1", "3"))
        kinds = [type(p) for p in session.transcript if not isinstance(p, ThinkingPart)]
        assert kinds == [UserText, ModelText, ToolUse, ToolResult, ModelText], protocol
        assert "Let me add." in server.requests[1].body.decode()


async def test_an_empty_answer_leaves_a_session_that_can_go_on(protocol: Protocol):
    replies = {
        OPENAI: openai_wire.text(),
        ANTHROPIC: anthropic_wire.message(),
        GEMINI: gemini_wire.reply(gemini_wire.chunk([], "STOP", gemini_wire.USAGE)),
    }
    async with protocol.server(replies[protocol], *[protocol.text("ok")] * 6) as server:
        session = protocol.model(server).open()
        await answer(session, UserText("Hi"))
        await answer(session, UserText("Hello?"))
    assert session.transcript[-1] == ModelText("ok")


async def test_an_empty_result_can_be_sent(protocol: Protocol):
    script = [protocol.calls(("id_1", "add", '{"a":1,"b":2}')), protocol.text("ok")]
    async with protocol.server(*script) as server:
        session = protocol.model(server).open("", [add])
        [call] = asked(await answer(session, UserText("Add.")))
        await answer(session, ToolResult(call.id, ""))
    assert ToolResult(call.id, "") in session.transcript


async def test_a_failed_result_reads_as_a_failure(protocol: Protocol):
    script = [protocol.calls(("id_1", "add", '{"a":1,"b":2}')), protocol.text("ok")]
    async with protocol.server(*script) as server:
        session = protocol.model(server).open("", [add])
        [call] = asked(await answer(session, UserText("Add.")))
        await answer(session, ToolResult(call.id, "ValueError: b is odd", is_error=True))
    assert "ValueError: b is odd" in server.requests[1].body.decode()
    assert "error" in protocol.messages(server.requests[1].body).replace("ValueError", "")


async def test_one_call_cannot_have_two_results(protocol: Protocol):
    script = [protocol.calls(("id_1", "add", '{"a":1,"b":2}')), protocol.text("ok")]
    async with protocol.server(*script) as server:
        session = protocol.model(server).open("", [add])
        [call] = asked(await answer(session, UserText("Add.")))
        with pytest.raises(UsageError):
            await answer(session, ToolResult(call.id, "3"), ToolResult(call.id, "4"))
        await answer(session, ToolResult(call.id, "3"))


async def test_a_result_is_refused_when_there_was_no_call(protocol: Protocol):
    async with protocol.server() as server:
        with pytest.raises(UsageError, match="no such call"):
            await answer(protocol.model(server).open("", [add]), ToolResult("id_1", "3"))
    assert server.requests == []


async def test_a_string_in_place_of_user_text_is_refused_in_words(protocol: Protocol):
    async with protocol.server() as server:
        with pytest.raises((TreefoldError, TypeError), match="UserText"):
            await answer(protocol.model(server).open(), "Hi")  # pyright: ignore[reportArgumentType]
    assert server.requests == []


async def test_a_call_of_an_unknown_function_is_passed_on_and_can_be_answered(protocol: Protocol):
    script = [protocol.calls(("id_1", "subtract", '{"a":1}')), protocol.text("ok")]
    async with protocol.server(*script) as server:
        session = protocol.model(server).open("", [add])
        [call] = asked(await answer(session, UserText("Subtract.")))
        assert (call.name, dict(call.args)) == ("subtract", {"a": 1})
        await answer(session, ToolResult(call.id, "no such tool", is_error=True))
    assert session.transcript[-1] == ModelText("ok")


# --- what a session says while it streams


async def test_deltas_add_up_to_the_parts_and_parts_to_the_transcript(protocol: Protocol):
    calls = [("id_1", "add", '{"a":1,"b":2}'), ("id_2", "add", '{"a":3,"b":4}')]
    async with protocol.server(protocol.calls(*calls)) as server:
        session = protocol.model(server).open("", [add])
        events = await answer(session, UserText("Add."))
    parts = [event.part for event in events if isinstance(event, PartCompleted)]
    assert [UserText("Add."), *parts] == list(session.transcript)
    for index, (key, name, given) in enumerate(calls):
        mine = [e for e in events if isinstance(e, ToolUseDelta) and e.index == index]
        assert json.loads("".join(e.arguments for e in mine)) == json.loads(given)
        assert (mine[-1].id, mine[-1].name) == (key, name)
    assert finish_of(events) is Finish.TOOL_USE


async def test_the_providers_word_for_the_end_is_told(protocol: Protocol):
    words = {OPENAI: "stop", ANTHROPIC: "end_turn", GEMINI: "STOP"}
    async with protocol.server(protocol.text("ok")) as server:
        end = (await answer(protocol.model(server).open(), UserText("Hi")))[-1]
    assert isinstance(end, ResponseEnded)
    assert end.reason == words[protocol]


async def test_an_end_that_nobody_knows_keeps_what_was_said(protocol: Protocol):
    text = [gemini_wire.text("Well.")]
    replies = {
        OPENAI: openai_wire.text("Well.", finish="tired"),
        ANTHROPIC: anthropic_wire.message(anthropic_wire.Text(["Well."]), stop_reason="tired"),
        GEMINI: gemini_wire.reply(gemini_wire.chunk(text, "TIRED", gemini_wire.USAGE)),
    }
    async with protocol.server(replies[protocol]) as server:
        session = protocol.model(server).open()
        end = (await answer(session, UserText("Hi")))[-1]
    assert isinstance(end, ResponseEnded)
    assert end.reason.lower() == "tired"
    assert session.transcript[-1] == ModelText("Well.")


# --- leaving and cancelling


async def test_a_loop_that_is_left_with_break_leaves_a_session_that_can_be_used(
    protocol: Protocol,
):
    async with protocol.server(deltas_of(protocol.text("a", "b", "c")), protocol.text("d")) as s:
        session = protocol.model(s).open()
        async with asyncio.timeout(60):
            async for event in session.send(UserText("Hi")):
                if isinstance(event, TextDelta):
                    break
            await answer(session, UserText("Hello"))
    assert session.transcript == [UserText("Hello"), ModelText("d")]


async def test_a_response_nobody_began_to_read_does_not_block_the_session(protocol: Protocol):
    async with protocol.server(protocol.text("ok")) as server:
        session = protocol.model(server).open()
        unread = session.send(UserText("Never."))
        await answer(session, UserText("Hi"))
        await unread.aclose()
        assert len(server.requests) == 1


async def test_cancelling_whoever_reads_closes_the_connection_even_between_two_events(
    protocol: Protocol,
):
    async def read() -> None:
        async for event in session.send(UserText("Hi")):
            if isinstance(event, TextDelta):
                busy.set()
                await asyncio.Event().wait()

    busy = asyncio.Event()
    async with protocol.server(deltas_of(protocol.text("a", "b", "c"))) as server:
        session = protocol.model(server).open()
        async with asyncio.timeout(60):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(read())
                await busy.wait()
                task.cancel()
            del task
            async with asyncio.timeout(60):
                await server.disconnected.wait()
    assert session.transcript == []


@pytest.mark.parametrize(("protocol", "steps"), [(OPENAI, 1), (ANTHROPIC, 8)], ids=str)
async def test_cancelling_while_the_arguments_of_a_call_come_in_keeps_nothing(
    protocol: Protocol, steps: int
):
    async def read() -> None:
        async for event in session.send(UserText("Hi")):
            if isinstance(event, ToolUseDelta):
                seen.set()

    seen = asyncio.Event()
    begun = stream(*protocol.calls(("id_1", "add", '{"a":1,"b":2}')).steps[:steps], Stall())
    async with protocol.server(begun, protocol.text("ok")) as server:
        session = protocol.model(server).open("", [add])
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            task = group.create_task(read())
            await seen.wait()
            task.cancel()
        async with asyncio.timeout(60):
            await server.disconnected.wait()
        assert session.transcript == []
        await answer(session, UserText("Hi"))  # and no call waits for a result


# --- retry


async def test_a_break_after_tool_results_is_retried_from_those_results(protocol: Protocol):
    broken = protocol.text("one ", "two ", "three ", "four")
    script = [
        protocol.calls(("id_1", "add", '{"a":1,"b":2}')),
        cut_after(broken, len(broken.body) // 2),
        protocol.failure(503),
        protocol.text("3"),
    ]
    async with protocol.server(*script) as server:
        session = protocol.model(server).open("", [add])
        [call] = asked(await answer(session, UserText("Add.")))
        events = await answer(session, ToolResult(call.id, "3"))
    bodies = [request.body for request in server.requests]
    assert len(bodies) == 4
    assert bodies[1] == bodies[2] == bodies[3]
    failed = [event for event in events if isinstance(event, AttemptFailed)]
    assert [(event.attempt, event.wait) for event in failed] == [(1, 5), (2, 10)]
    said = [part for part in session.transcript if not isinstance(part, ThinkingPart)]
    assert said == [UserText("Add."), call, ToolResult(call.id, "3"), ModelText("3")]


async def test_a_wait_is_told_before_it_begins(protocol: Protocol):
    async def sleep(seconds: float) -> None:
        order.append(seconds)

    order: list[Any] = []
    script = [protocol.failure(500), protocol.failure(500), protocol.text("ok")]
    async with protocol.server(*script) as server:
        model = protocol.model(server, retry=Retry((1, 2), sleep=sleep))
        async for event in model.open().send(UserText("Hi")):
            order.append(type(event))  # noqa: PERF401 - sleep() writes into it meanwhile
    assert order[:4] == [AttemptFailed, 1, AttemptFailed, 2]


async def test_each_message_has_the_whole_schedule(protocol: Protocol):
    waits: list[float] = []
    one = [*[protocol.failure(500)] * 4, protocol.text("ok")]
    async with protocol.server(*one, *one) as server:
        session = protocol.model(server, retry=noting(waits)).open()
        await answer(session, UserText("Hi"))
        await answer(session, UserText("Again"))
    assert waits == [5, 10, 15, 20] * 2


async def test_without_a_schedule_there_is_one_attempt(protocol: Protocol):
    async with protocol.server(protocol.failure(500), protocol.text("ok")) as server:
        with pytest.raises(ModelProviderException) as caught:
            await answer(protocol.model(server, retry=Retry(())).open(), UserText("Hi"))
        assert (caught.value.attempts, len(server.requests)) == (1, 1)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 422])
async def test_a_fault_of_ours_is_not_retried(protocol: Protocol, status: int):
    async with protocol.server(protocol.failure(status), protocol.text("ok")) as server:
        with pytest.raises(ModelProviderException) as caught:
            await answer(protocol.model(server).open(), UserText("Hi"))
        assert len(server.requests) == 1
    assert caught.value.status == status


@pytest.mark.parametrize("status", [408, 409, 429])
async def test_a_limit_that_did_not_pass_is_not_called_a_bad_request(
    protocol: Protocol, status: int
):
    async with protocol.server(*[protocol.failure(status, "Not now.")] * 5) as server:
        with pytest.raises(ModelProviderException) as caught:
            await answer(protocol.model(server).open(), UserText("Hi"))
    assert (caught.value.status, caught.value.attempts) == (status, 5)
    assert "rejects this request" not in str(caught.value)


async def test_a_wait_that_is_too_long_is_told_to_whoever_might_wait(protocol: Protocol):
    limit = protocol.failure(429, "Too many requests.", retry_after="86400")
    async with protocol.server(limit) as server:
        with pytest.raises(ModelProviderException, match="86400|24 h|1 day"):
            await answer(protocol.model(server).open(), UserText("Hi"))


LATE_FAULTS: list[tuple[Protocol, Reply]] = [
    (OPENAI, stream(openai_wire.error_event("invalid_key"))),
    (OPENAI, openai_wire.text("a", openai_wire.error_event("insufficient_quota"))),
    (OPENAI, openai_wire.text("a", openai_wire.error_event("context_length"))),
    (ANTHROPIC, stream(anthropic_wire.error_event("authentication_error"))),
    (
        ANTHROPIC,
        stream(anthropic_wire.message_start(), anthropic_wire.error_event("billing_error")),
    ),
    (ANTHROPIC, stream(anthropic_wire.error_event("invalid_request_error"))),
    (GEMINI, stream(gemini_wire.error_event(400))),
    (GEMINI, stream(gemini_wire.chunk([gemini_wire.text("a")]), gemini_wire.error_event(403))),
]


@pytest.mark.parametrize(("protocol", "reply"), LATE_FAULTS)
async def test_a_fault_of_ours_told_in_the_stream_is_not_retried_either(
    protocol: Protocol, reply: Reply
):
    async with protocol.server(reply, protocol.text("ok")) as server:
        session = protocol.model(server).open()
        with pytest.raises(ModelProviderException):
            await answer(session, UserText("Hi"))
        assert len(server.requests) == 1
        assert session.transcript == []


async def test_a_failure_names_the_provider_the_model_and_what_was_raised(protocol: Protocol):
    names = {OPENAI: "OpenAIModel", ANTHROPIC: "AnthropicModel", GEMINI: "GeminiModel"}
    async with protocol.server(*[protocol.failure(503, "Busy.")] * 2) as server:
        model = protocol.model(server, retry=noting([], (1,)))
        with pytest.raises(ModelProviderException, match="after 2 attempts: Busy") as caught:
            await answer(model.open(), UserText("Hi"))
    error = caught.value
    assert (error.provider, error.status, error.attempts) == (names[protocol], 503, 2)
    assert isinstance(error.inner, Exception)


async def test_a_stream_that_breaks_for_good_tells_what_was_raised(protocol: Protocol):
    broken = cut_after(protocol.text("one ", "two ", "three"), 200)
    async with protocol.server(broken) as server:
        model = protocol.model(server, retry=Retry(()))
        with pytest.raises(ModelProviderException) as caught:
            await answer(model.open(), UserText("Hi"))
    assert isinstance(caught.value.inner, Exception)


async def test_keep_alives_keep_the_idle_timer_from_running_out(protocol: Protocol):
    alive = {ANTHROPIC: anthropic_wire.PING}.get(protocol, b": keep-alive\n\n")
    reply = protocol.text("one ", "two")
    slow = stream(*reply.steps[:1], *[Pause(0.1), alive] * 10, *reply.steps[1:])
    async with protocol.server(slow) as server:
        session = protocol.model(server, timers=Timers(first_byte=5, idle=0.6)).open()
        async with asyncio.timeout(60):
            events = await answer(session, UserText("Hi"))
    assert not [event for event in events if isinstance(event, AttemptFailed)]


async def test_the_time_a_reader_takes_is_not_the_providers(protocol: Protocol):
    async with protocol.server(protocol.text("one ", "two ", "three")) as server:
        session = protocol.model(server, timers=Timers(first_byte=5, idle=0.1)).open()
        events: list[ModelEvent] = []
        async for event in session.send(UserText("Hi")):
            events.append(event)
            await asyncio.sleep(0.15)  # longer than the provider may stand still
    assert not [event for event in events if isinstance(event, AttemptFailed)]


# --- accounting


async def test_usage_is_the_sum_over_all_requests(protocol: Protocol):
    script = [protocol.calls(("id_1", "add", '{"a":1,"b":2}')), protocol.text("3")]
    async with protocol.server(*script) as server:
        session = protocol.model(server).open("", [add])
        [call] = asked(await answer(session, UserText("Add.")))
        once = session.usage
        await answer(session, ToolResult(call.id, "3"))
    assert once.total > 0
    assert session.usage == once + once
    assert sum((e.usage for e in session.exchanges), TokenUsage()) == session.usage


async def test_no_token_is_counted_twice(protocol: Protocol):
    totals = {OPENAI: 18, ANTHROPIC: 11 + 5 + 3 + 7, GEMINI: 20}
    async with protocol.server(protocol.text("ok")) as server:
        session = protocol.model(server).open()
        await answer(session, UserText("Hi"))
    assert session.usage.total == totals[protocol]
    assert session.usage.cache_read == 3


async def test_tokens_of_a_request_that_failed_for_good_are_counted():
    broken = ANTHROPIC.text("one ", "two ", "three")
    script = [cut_after(broken, len(broken.body) // 2)] * 2
    async with ANTHROPIC.server(*script) as server:
        session = ANTHROPIC.model(server, retry=noting([], (1,))).open()
        with pytest.raises(ModelProviderException):
            await answer(session, UserText("Hi"))
    assert session.usage.input == 2 * 11


async def test_tokens_of_a_refused_request_are_counted(protocol: Protocol):
    said = [gemini_wire.text("Well, ")]
    replies = {
        OPENAI: openai_wire.completion({"refusal": "No."}),
        ANTHROPIC: anthropic_wire.message(stop_reason="refusal"),
        GEMINI: gemini_wire.reply(gemini_wire.chunk(said, "SAFETY", gemini_wire.USAGE)),
    }
    async with protocol.server(replies[protocol]) as server:
        session = protocol.model(server).open()
        with pytest.raises(ModelRefusedError):
            await answer(session, UserText("Hi"))
    assert session.usage.input > 0


async def test_tokens_of_a_response_that_was_left_are_counted_where_the_provider_told():
    async with ANTHROPIC.server(deltas_of(ANTHROPIC.text("a", "b", "c"))) as server:
        session = ANTHROPIC.model(server).open()
        sent = session.send(UserText("Hi"))
        async with asyncio.timeout(60):
            await anext(sent)  # the response has started
            await anext(sent)
            await sent.aclose()
    assert session.usage.input == 11


# --- functions and settings


async def test_nested_arguments_are_described_to_the_model(protocol: Protocol):
    async with protocol.server(protocol.text("ok")) as server:
        await answer(protocol.model(server).open("", [visit]), UserText("Go."))
    told = json.dumps(server.requests[0].json["tools"])
    for word in ("Go there.", '"street"', '"number"', '"others"', '"required": ["place"]'):
        assert word in told


def nothing(ctx: RunContext) -> None: ...


@pytest.mark.parametrize("name", ["two words", "semi;colon", "x" * 200])
async def test_a_function_that_no_model_can_name_is_refused_when_opening(
    protocol: Protocol, name: str
):
    async with protocol.server() as server:
        model, function = protocol.model(server), CodeFunction(name=name, callable=nothing)
        with pytest.raises(DefinitionError):
            model.open("", [function])


async def test_extra_fields_are_in_each_request_as_they_are(protocol: Protocol):
    settings = ModelSettings(extra={"my_field": {"deep": [1, None]}})
    async with protocol.server(protocol.text("ok"), protocol.text("ok")) as server:
        session = protocol.model(server).open(settings=settings)
        await answer(session, UserText("Hi"))
        await answer(session, UserText("Again"))
    assert [r.json["my_field"] for r in server.requests] == [{"deep": [1, None]}] * 2


async def test_a_system_prompt_is_sent_once_and_in_its_place(protocol: Protocol):
    async with protocol.server(protocol.text("ok")) as server:
        await answer(protocol.model(server).open("You are {brief}."), UserText("Hi"))
    body = server.requests[0].body.decode()
    assert body.count("You are {brief}.") == 1
    assert "You are {brief}." not in protocol.messages(server.requests[0].body) or (
        protocol is OPENAI and server.requests[0].json["messages"][0]["role"] == "system"
    )


# --- names, keys, clients


async def test_a_compatible_server_is_reached_by_its_name_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with OPENAI.server(OPENAI.text("ok")) as server:
        model = find_model(f"openai:Qwen/qwen3:8b@{server.url}/v1")
        session = model.open()
        await answer(session, UserText("Hi"))
    [request] = server.requests
    assert (request.path, request.json["model"]) == ("/v1/chat/completions", "Qwen/qwen3:8b")
    assert model.provider is Provider.OpenAI
    assert find_model(model) is model
    assert find_model(model.name).name == model.name


async def test_a_key_from_the_environment_is_used_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    made: dict[Protocol, tuple[str, Callable[..., Any]]] = {
        ANTHROPIC: ("ANTHROPIC_API_KEY", lambda url: AnthropicModel("claude-x", base_url=url)),
        GEMINI: ("GEMINI_API_KEY", lambda url: GeminiModel("gemini-x", base_url=url)),
    }
    for protocol, (name, make) in made.items():
        monkeypatch.setenv(name, KEY)
        async with protocol.server(protocol.text("ok")) as server:
            model = make(server.url)
            session: Session = model.open()
            events = await answer(session, UserText("Hi"))
        [request] = server.requests
        assert KEY in "".join(request.headers.values())
        assert KEY not in request.path + request.body.decode()
        shown = repr([model, session, events, vars(model), session.exchanges]) + caplog.text
        assert KEY not in shown


async def test_two_keys_for_one_address_are_not_mixed_up(protocol: Protocol):
    async with protocol.server(*[protocol.text("ok")] * 4) as server:
        keys = ["key-one", "key-two", "key-one", "key-two"]
        for key in keys:
            await answer(protocol.model(server, api_key=key).open(), UserText("Hi"))
    for request, key in zip(server.requests, keys, strict=True):
        assert any(value.endswith(key) for value in request.headers.values())


def test_a_program_may_run_one_loop_after_another(protocol: Protocol):
    async def ask() -> Any:
        async with protocol.server(protocol.text("ok")) as server:
            session = protocol.model(server).open()
            await answer(session, UserText("Hi"))
            return session.transcript[-1]

    assert asyncio.run(ask()) == asyncio.run(ask()) == ModelText("ok")


@pytest.mark.parametrize(
    "name", ["", "openai", "openai:", "claude-opus-4-1", "anthropic:", "openai:m@", "local:"]
)
def test_a_name_stands_for_a_model_or_is_refused_in_words(name: str):
    try:
        assert find_model(name).name
    except InvalidValueError as error:
        assert repr(name)[1:-1] in str(error)  # noqa: PT017 - either is fine


def test_no_sdk_is_imported_before_it_is_needed():
    code = (
        "import sys, treefold, treefold.models as m\n"
        "m.find_model('anthropic:claude-opus-4-1'); m.find_model('gemini:gemini-2.5-pro')\n"
        "m.find_model('openai:qwen3@ollama'); m.find_model('local')\n"
        "bad = {'openai', 'anthropic', 'google.genai', 'xllamacpp', 'httpx', 'aiohttp',"
        " 'genai_prices'}\n"
        "sys.exit(str(sorted(bad & set(sys.modules))) if bad & set(sys.modules) else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "variable"),
    [("openai:gpt-4o", "OPENAI"), ("anthropic:claude-opus-4-1", "ANTHROPIC")],
)
async def test_a_provider_that_cannot_be_reached_is_named_by_its_address(
    monkeypatch: pytest.MonkeyPatch, name: str, variable: str
):
    monkeypatch.setenv(f"{variable}_API_KEY", KEY)
    monkeypatch.setenv(f"{variable}_BASE_URL", "http://127.0.0.1:9/v1")  # the package's own way
    kind = {"OPENAI": OpenAIModel, "ANTHROPIC": AnthropicModel}[variable]
    model = kind(name.partition(":")[2], retry=Retry(()), timers=Timers(5, 5))
    with pytest.raises(ModelProviderException) as caught:
        await answer(model.open(), UserText("Hi"))
    assert "nothing listens at http" in str(caught.value)


# --- prices


def test_thinking_costs_as_much_as_any_other_output():
    model = find_model("anthropic:claude-opus-4-1")
    thought, said = TokenUsage(reasoning=1_000_000), TokenUsage(output=1_000_000)
    assert price(thought, model) == price(said, model) == 75


def test_cached_tokens_cost_what_the_provider_says():
    model = find_model("anthropic:claude-opus-4-1")
    kinds = ("input", "cache_read", "cache_write", "cache_write_1h")
    costs = [price(TokenUsage(**{kind: 1_000_000}), model) for kind in kinds]
    assert [float(cost or 0) for cost in costs] == [15, 1.5, 18.75, 30]


def test_an_unknown_price_is_unknown():
    usage = TokenUsage(input=1000, output=1000)
    assert price(usage, find_model("anthropic:claude-of-next-year")) is None
    assert price(usage, OpenAIModel("gpt-4o", base_url="http://box:1/v1")) is None


def test_a_model_at_an_address_from_the_environment_has_no_price_either(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://box:1/v1")
    assert price(TokenUsage(input=1000), OpenAIModel("gpt-4o", api_key=KEY)) is None
