"""Servers that send what no server should, and programs that save what they should not."""

import asyncio
import copy
import gc
import json
import pickle
import weakref
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from support import add
from treefold.core.errors import InvalidValueError, ModelProviderException, ModelRefusedError
from treefold.core.exchange import Exchange, Finish
from treefold.core.model import ModelSettings
from treefold.core.model_events import AttemptFailed
from treefold.core.transcript import ModelText, ToolResult, UserText
from treefold.models import AnthropicModel, OpenAIModel, Timers
from wire import ModelServer, Pause, Reply, anthropic_wire, failure, gemini_wire, stream
from wire.protocols import KEY, PROTOCOLS, Protocol, answer, asked, noting

OPENAI, ANTHROPIC, GEMINI = PROTOCOLS


def sse(*objects: Any) -> Reply:
    return stream(*[f"data: {json.dumps(o)}\n\n".encode() for o in objects])


def claude_call(*pieces: str, stop: str = "tool_use") -> Reply:
    block = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
    deltas = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": piece},
        }
        for piece in pieces
    ]
    return sse(
        {"type": "message_start", "message": {"usage": {"input_tokens": 30}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *deltas,
        {"type": "message_delta", "delta": {"stop_reason": stop}},
        {"type": "message_stop"},
    )


async def test_a_character_split_between_two_pieces_of_claudes_arguments_is_joined():
    async with ModelServer([claude_call('{"a":"\ud83d', '\ude00"}')]) as server:
        session = ANTHROPIC.model(server).open("", [add])
        assert asked(await answer(session, UserText("x")))[0].args == {"a": "\U0001f600"}


async def test_geminis_limit_per_minute_is_waited_for():
    message = "You exceeded your current quota, please check your plan and billing details."
    details = [
        {"violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]},
        {"retryDelay": "21s"},
    ]
    told = {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}
    waits: list[float] = []
    async with ModelServer([failure(429, {"error": told}), GEMINI.text("ok")]) as server:
        await answer(GEMINI.model(server, retry=noting(waits)).open(), UserText("x"))
    assert waits == [21.0]


async def test_a_key_in_an_error_in_the_stream_is_not_repeated(protocol: Protocol):
    error = {"type": "authentication_error", "code": 401, "message": f"Bad key {KEY}"}
    async with ModelServer([sse({"type": "error", "error": error})]) as server:
        with pytest.raises(ModelProviderException) as caught:
            await answer(protocol.model(server).open(), UserText("x"))
    assert KEY not in str(caught.value)


async def test_deeply_nested_json_is_a_broken_stream(protocol: Protocol):
    line = b'data: {"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n"
    async with ModelServer([stream(line)]) as server:
        with pytest.raises(ModelProviderException):
            await answer(protocol.model(server, retry=noting([], ())).open(), UserText("x"))


def test_a_loop_that_ended_is_forgotten(protocol: Protocol):
    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        async with protocol.server(protocol.text("ok")) as server:
            await answer(protocol.model(server).open(), UserText("x"))
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(main())
    gc.collect()
    assert loop() is None


async def test_a_result_that_happens_to_be_an_error_object_is_not_a_failure():
    calls = OPENAI.calls(("c", "add", "{}"))
    async with ModelServer([calls, OPENAI.text("ok")]) as server:
        session = OPENAI.model(server).open("", [add])
        await answer(session, UserText("x"))
        await answer(session, result := ToolResult("c", '{"error": "no such file"}'))
    assert result in session.transcript


async def test_deepseek_gets_its_reasoning_back_within_a_tool_cycle():
    call = {"index": 0, "id": "c", "function": {"name": "add", "arguments": "{}"}}
    first = sse(
        {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]},
    )
    async with ModelServer([first, OPENAI.text("ok")]) as server:
        session = OpenAIModel("deepseek-reasoner", base_url=server.url).open("", [add])
        await answer(session, UserText("x"))
        await answer(session, ToolResult("c", "3"))
        assert server.requests[-1].json["messages"][1]["reasoning_content"] == "hm"


async def test_a_response_that_is_all_thinking_does_not_make_the_next_request_invalid():
    delta = {"reasoning_content": "hm"}
    cut = sse({"choices": [{"index": 0, "delta": delta, "finish_reason": "length"}]})
    async with ModelServer([cut, OPENAI.text("ok")]) as server:
        session = OpenAIModel("deepseek-r1", base_url=server.url).open()
        await answer(session, UserText("x"))
        await answer(session, UserText("go on"))
        for message in server.requests[-1].json["messages"]:
            assert message.get("content") is not None or message.get("tool_calls")


async def test_two_calls_with_one_id_on_two_indexes_are_two_calls():
    calls = [
        {"index": i, "id": "add", "function": {"name": "add", "arguments": f'{{"a":{i}}}'}}
        for i in range(2)
    ]
    reply = sse({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]})
    async with ModelServer([reply]) as server:
        found = asked(await answer(OPENAI.model(server).open("", [add]), UserText("x")))
    assert [call.args for call in found] == [{"a": 0}, {"a": 1}]


async def test_two_calls_of_claude_with_one_id_are_two_calls_and_get_two_results():
    blocks = [anthropic_wire.ToolUse("toolu_1", "add", [f'{{"a":{n}}}']) for n in range(2)]
    thought = anthropic_wire.Thinking(["Twice."], "c2lnbmVk")
    reply = anthropic_wire.message(thought, *blocks, stop_reason="tool_use")
    async with ANTHROPIC.server(reply, ANTHROPIC.text("ok")) as server:
        session = ANTHROPIC.model(server).open("", [add])
        found = asked(await answer(session, UserText("x")))
        assert [call.args for call in found] == [{"a": 0}, {"a": 1}]
        assert found[0].id == "toolu_1" != found[1].id
        await answer(session, *[ToolResult(call.id, "3") for call in found])
        again = ANTHROPIC.model(server).open("", [add], exchanges=session.exchanges)
    assert again.transcript == session.transcript


HUGE = "9" * 5000


async def test_a_call_with_a_huge_index_is_a_call():
    calls = [
        {"index": HUGE, "id": f"c{n}", "function": {"name": "add", "arguments": f'{{"a":{n}}}'}}
        for n in range(2)
    ]
    reply = sse({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]})
    async with ModelServer([reply]) as server:
        found = asked(await answer(OPENAI.model(server).open("", [add]), UserText("x")))
    assert [(call.id, call.args) for call in found] == [("c0", {"a": 0}), ("c1", {"a": 1})]


@pytest.mark.parametrize("code", [HUGE, f"-{HUGE}", 10**4000, 10**10, -5, "0", 1e300, True])
async def test_an_error_in_a_stream_with_an_odd_code_is_retried(protocol: Protocol, code: Any):
    error = {"type": "error", "error": {"type": "server", "code": code, "message": "Oh no."}}
    async with ModelServer([sse(error), protocol.text("ok")]) as server:
        session = protocol.model(server).open()
        [failed] = [
            event
            for event in await answer(session, UserText("x"))
            if isinstance(event, AttemptFailed)
        ]
    assert failed.failure.message == "Oh no."


async def test_a_number_too_long_to_read_is_a_broken_stream_and_is_retried(protocol: Protocol):
    line = f'data: {{"type": "error", "error": {{"code": {HUGE}, "message": "x"}}}}\n\n'
    async with ModelServer([stream(line.encode()), protocol.text("ok")]) as server:
        events = await answer(protocol.model(server).open(), UserText("x"))
    assert AttemptFailed in map(type, events)


async def test_counts_that_cannot_be_are_not_counted():
    usage = {"prompt_tokens": 10**4000, "completion_tokens": 7}
    choice = {"delta": {"content": "ok"}, "finish_reason": "stop"}
    async with ModelServer([sse({"choices": [choice], "usage": usage})]) as server:
        session = OPENAI.model(server).open()
        await answer(session, UserText("x"))
    assert (session.usage.input, session.usage.output) == (0, 7)


async def test_an_answer_larger_than_the_limit_is_cut_and_not_asked_for_again(protocol: Protocol):
    [start, *rest] = protocol.text("one", "two").steps
    assert isinstance(start, bytes)
    endless = stream(start, *[b": " + b"x" * 1000 + b"\n\n"] * 100, *rest)
    async with ModelServer([endless]) as server:
        model = protocol.model(server)
        profile = replace(model.profile, max_response_bytes=50_000)  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(ModelProviderException, match=r"more than 50,000 bytes") as caught:
            await answer(protocol.model(server, profile=profile).open(), UserText("x"))
        assert len(server.requests) == 1
        server.add(endless)
        await answer(model.open(), UserText("x"))
    assert "raise max_response_bytes in the model's profile" in str(caught.value)


async def test_an_answer_that_takes_too_long_in_all_is_cut_and_not_asked_for_again(
    protocol: Protocol,
):
    begin = protocol.text("one", "two").steps[0]
    drops: list[Any] = [Pause(0.02), b": still here\n\n"] * 1000
    async with ModelServer([stream(begin, *drops)]) as server:
        model = protocol.model(server, timers=Timers(None, None, total=0.3))
        with pytest.raises(ModelProviderException, match="not complete after 0.3 s") as caught:
            await answer(model.open(), UserText("x"))
        async with asyncio.timeout(20):
            await server.disconnected.wait()
        assert len(server.requests) == 1
    assert "raise Timers.total" in str(caught.value)


async def test_claude_waits_for_its_calls_whatever_it_says_for_stopping():
    async with ModelServer([claude_call("{}", stop="end_turn")]) as server:
        session = ANTHROPIC.model(server).open("", [add])
        await answer(session, UserText("x"))
    assert session.exchanges[-1].finish is Finish.TOOL_USE


async def test_retry_after_zero_is_obeyed(protocol: Protocol):
    waits: list[float] = []
    first = protocol.failure(429, "slow", retry_after="0")
    async with ModelServer([first, protocol.text("ok")]) as server:
        await answer(protocol.model(server, retry=noting(waits)).open(), UserText("x"))
    assert waits == [0.0]


async def test_a_redirect_does_not_take_geminis_key_elsewhere():
    async with ModelServer([GEMINI.text("x")]) as other:
        target = other.url.replace("127.0.0.1", "localhost")
        away = Reply(307, {"location": f"{target}/x", "content-length": "0"})
        async with ModelServer([away]) as server:
            with pytest.raises(ModelProviderException):
                await answer(GEMINI.model(server, retry=noting([], ())).open(), UserText("x"))
        assert not any(KEY in v for r in other.requests for v in r.headers.values())


async def test_a_number_for_an_id_does_not_break_gemini():
    call = {"functionCall": {"name": "add", "args": {}, "id": 5}}
    reply = gemini_wire.reply(gemini_wire.chunk([call], finish="STOP"))
    async with ModelServer([reply, GEMINI.text("ok")]) as server:
        session = GEMINI.model(server).open("", [add])
        (found,) = asked(await answer(session, UserText("x")))
        await answer(session, ToolResult(found.id, "3"))
    assert session.transcript == [UserText("x"), found, ToolResult(found.id, "3"), ModelText("ok")]


def test_thinking_can_be_asked_of_claude_3_7():
    dialect = AnthropicModel("claude-3-7-sonnet-20250219", api_key="k").dialect(
        "", [], ModelSettings(thinking=8000)
    )
    assert dialect.fields("")["thinking"] == {"type": "enabled", "budget_tokens": 8000}


DEEP = "[" * 100_000 + "]" * 100_000
COMPLAINTS: list[tuple[Any, dict[str, str]]] = [
    ({"error": {"message": "x", "details": [{"violations": ["x", None, 5]}, "x"]}}, {}),
    ({"error": {"message": {"deep": [1]}, "code": {"x": 1}, "details": "x"}}, {}),
    (f'{{"error": {DEEP}}}', {}),
    ("\x00\ufffd not JSON", {}),
    ([], {}),
    ({"error": {"message": "x"}}, {"retry-after": "Mon, 01 Jan 99999 00:00:00 GMT"}),
    ({"error": {"message": "x"}}, {"retry-after": "nan"}),
    ({"error": {"message": "x"}}, {"retry-after-ms": "-5"}),
]


@pytest.mark.parametrize(("body", "headers"), COMPLAINTS)
async def test_whatever_a_server_complains_of_is_one_kind_of_error(
    protocol: Protocol, body: Any, headers: dict[str, str]
):
    async with ModelServer([failure(500, body, headers)]) as server:
        with pytest.raises(ModelProviderException) as caught:
            await answer(protocol.model(server, retry=noting([], ())).open(), UserText("x"))
    assert caught.value.status == 500
    assert len(str(caught.value)) < 3000


async def test_a_complaint_without_end_is_not_read_to_its_end(protocol: Protocol):
    endless = Reply(500, {"content-type": "text/plain"}, tuple([b"x" * 100_000] * 200))
    async with ModelServer([endless]) as server:
        with pytest.raises(ModelProviderException):
            await answer(protocol.model(server, retry=noting([], ())).open(), UserText("x"))
        async with asyncio.timeout(60):
            await server.disconnected.wait()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_request_is_sent_on_to_another_address(protocol: Protocol, status: int):
    async with ModelServer([protocol.text("x")]) as other:
        away = Reply(status, {"location": f"{other.url}/x", "content-length": "0"})
        async with ModelServer([away]) as server:
            with pytest.raises(ModelProviderException, match="redirects are not followed"):
                await answer(protocol.model(server).open(), UserText("x"))
        assert other.requests == []


async def test_nan_is_not_sent_back(protocol: Protocol):
    call = {
        "openai": {"choices": [{"delta": {"tool_calls": [
            {"index": 0, "id": "c", "function": {"name": "add", "arguments": '{"a":NaN}'}}
        ]}, "finish_reason": "tool_calls"}]},
        "gemini": {"candidates": [{"content": {"parts": [
            {"functionCall": {"name": "add", "args": {"a": float("nan")}}}
        ]}, "finishReason": "STOP"}]},
    }  # fmt: skip
    reply = sse(call[protocol.name]) if protocol.name in call else claude_call('{"a":NaN}')
    async with ModelServer([reply, protocol.text("ok")]) as server:
        session = protocol.model(server).open("", [add], ModelSettings(thinking=0))
        [asked_for] = asked(await answer(session, UserText("x")))
        await answer(session, ToolResult(asked_for.id, "no", is_error=True))
        json.loads(server.requests[1].body, parse_constant=pytest.fail)
    assert session.transcript[-1] == ModelText("ok")


async def test_a_junk_line_does_not_give_the_key_away(protocol: Protocol):
    junk = stream(f"data: your key is {KEY}\n\n".encode(), b"data: {]\n\n")
    async with ModelServer([junk]) as server:
        with pytest.raises(ModelProviderException) as caught:
            await answer(protocol.model(server, retry=noting([], ())).open(), UserText("x"))
    assert KEY not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.inner!r}"


async def test_a_malformed_answer_does_not_give_the_key_away(protocol: Protocol):
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 two hundred OK\r\nx: y\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        model = protocol.make(
            base_url=f"http://127.0.0.1:{port}", api_key=KEY, retry=noting([], ())
        )
        with pytest.raises(ModelProviderException) as caught:
            await answer(model.open(), UserText("x"))
    error: BaseException | None = caught.value
    while error is not None:
        assert KEY not in f"{error!r} {error} {vars(error)!r}"
        error = error.__cause__ or error.__context__


def test_a_model_is_not_saved_with_its_key(protocol: Protocol):
    model = protocol.make(api_key=KEY)
    with pytest.raises(TypeError, match="a key cannot be pickled"):
        pickle.dumps(model)


@pytest.mark.parametrize("key", ["kéy-of-mine", "two\nlines-of-it"])
def test_what_cannot_be_a_key_is_refused_without_showing_it(protocol: Protocol, key: str):
    with pytest.raises(InvalidValueError, match="was it copied whole") as caught:
        protocol.make(api_key=key)
    assert key not in str(caught.value)


async def test_a_key_may_come_from_a_file_that_ends_with_a_line_break(protocol: Protocol):
    async with protocol.server(protocol.text("ok")) as server:
        await answer(protocol.model(server, api_key=f"{KEY}\n").open(), UserText("x"))
        assert any(value.endswith(KEY) for value in server.requests[0].headers.values())


def test_errors_survive_being_saved():
    provider = ModelProviderException("OpenAIModel", "m", "down", status=503, attempts=5)
    refused = ModelRefusedError("m", "SAFETY", "I will")
    for error in (provider, refused):
        for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert str(again) == str(error)
            assert vars(again) == vars(error)


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://a..b/v1", "ftp://box/v1", "http://", "http://:80/v1", "box:80"],
)
def test_what_is_no_address_is_refused_in_words(protocol: Protocol, url: str):
    with pytest.raises(InvalidValueError, match="is not an address"):
        protocol.make(base_url=url, api_key=KEY)


@pytest.mark.parametrize("message", ["", "5", "[]", "{}", '{"role":"assistant","tool_calls":[5]}'])
def test_exchanges_that_were_tampered_with_are_refused_or_harmless(
    protocol: Protocol, message: str
):
    name = protocol.make(api_key=KEY).dialect("", [], ModelSettings()).name  # pyright: ignore[reportAttributeAccessIssue]
    saved: dict[str, Any] = {
        "dialect": name, "sent": [message], "received": [message], "finish": "answered",
        "usage": {},
    }  # fmt: skip
    exchange = Exchange.from_dict(saved)
    with suppress(InvalidValueError):  # and nothing else
        assert protocol.make(api_key=KEY).open(exchanges=[exchange]).transcript == []
    for wrong in ("text", [5], None):
        with pytest.raises(InvalidValueError):
            Exchange.from_dict(saved | {"sent": wrong})
