"""What only Gemini's protocol has."""

from typing import Any

import pytest

from treefold import registries, tool
from treefold.core.errors import InvalidValueError, ModelRefusedError
from treefold.core.exchange import Finish
from treefold.core.model import ModelSettings
from treefold.core.model_events import AttemptFailed, ResponseEnded
from treefold.core.transcript import ModelText, ToolResult, ToolUse, UserText
from wire.gemini_wire import USAGE, blocked_prompt, call, chunk, reply, text, thought
from wire.protocols import PROTOCOLS, answer, asked

_, _, GEMINI = PROTOCOLS

called: list[str] = []

with registries():

    @tool
    async def look(at: str) -> str:
        """Look at something."""
        called.append(at)
        return at


SIGNATURE = "CpcBAXLI2nwf+/PLwA=="


async def test_thought_signatures_go_back_with_their_parts_byte_for_byte():
    calls = [call("look", {"at": "é"}, signature=SIGNATURE), call("look", {"at": "y"})]
    script = [
        reply(chunk([text("Let me "), text("see.")]), chunk(calls, finish="STOP")),
        reply(chunk([text("Done.")]), chunk([text("", signature="bGFzdA==")], finish="STOP")),
        reply(chunk([text("Bye.")], finish="STOP")),
    ]
    async with GEMINI.server(*script) as server:
        session = GEMINI.model(server).open("", [look])
        first, second = asked(await answer(session, UserText("Look.")))
        await answer(session, ToolResult(first.id, "1"), ToolResult(second.id, "2", is_error=True))
        await answer(session, UserText("Thanks."))

    sent = server.requests[1].body.decode()
    parts = (
        '{"role":"model","parts":[{"text":"Let me see."},'
        '{"functionCall":{"name":"look","args":{"at":"é"}},"thoughtSignature":"'
        + SIGNATURE
        + '"},{"functionCall":{"name":"look","args":{"at":"y"}}}]}'
    )
    assert parts in sent
    results = (
        '{"functionResponse":{"name":"look","response":{"result":"1"}}},'
        '{"functionResponse":{"name":"look","response":{"error":"2"}}}'
    )
    assert results in sent
    last = server.requests[2].body.decode()
    assert sent[sent.index('"contents":[') : -len("]}")] in last
    assert '[{"text":"Done."},{"text":"","thoughtSignature":"bGFzdA=="}]' in last


async def test_a_missing_id_is_made_up_and_not_sent_back():
    both = [call("look", {"at": "x"}), call("look", {"at": "y"}, id="given")]
    script = [reply(chunk(both, finish="STOP")), reply(chunk([text("ok")], finish="STOP"))]
    async with GEMINI.server(*script) as server:
        model = GEMINI.model(server)
        session = model.open("", [look])
        first, second = asked(await answer(session, UserText("Look.")))
        assert first.id != second.id == "given"
        restored = model.open("", [look], exchanges=session.exchanges)
        assert restored.transcript == session.transcript  # the same made-up id
        await answer(restored, ToolResult(first.id, "1"), ToolResult("given", "2"))
    responses = [
        part["functionResponse"] for part in server.requests[1].json["contents"][-1]["parts"]
    ]
    assert [response.get("id") for response in responses] == [None, "given"]
    assert first.id not in server.requests[1].body.decode()


async def test_functions_are_never_called_by_the_sdk():
    called.clear()
    async with GEMINI.server(reply(chunk([call("look", {"at": "x"})], finish="STOP"))) as server:
        events = await answer(GEMINI.model(server).open("", [look]), UserText("Look."))
    assert asked(events) == [ToolUse("treefold-call-1-0", "look", {"at": "x"})]
    assert called == []
    assert len(server.requests) == 1


async def test_thoughts_are_not_summarised_and_budgets_are_passed_on():
    async with GEMINI.server(*[GEMINI.text("ok")] * 3) as server:
        model = GEMINI.model(server)
        await answer(model.open(), UserText("Hi"))
        await answer(model.open(settings=ModelSettings(thinking=0)), UserText("Hi"))
        settings = ModelSettings(max_tokens=10, temperature=0.5, top_p=0.9, thinking=500)
        await answer(model.open("Be brief.", settings=settings), UserText("Hi"))
    configs = [request.json["generationConfig"] for request in server.requests]
    assert configs == [
        {"thinkingConfig": {"includeThoughts": False, "thinkingBudget": 32768}},
        {"thinkingConfig": {"includeThoughts": False, "thinkingBudget": 128}},  # it always thinks
        {
            "thinkingConfig": {"includeThoughts": False, "thinkingBudget": 500},
            "maxOutputTokens": 10,
            "temperature": 0.5,
            "topP": 0.9,
        },
    ]
    assert server.requests[2].json["systemInstruction"] == {"parts": [{"text": "Be brief."}]}


async def test_a_response_schema_makes_the_answer_json():
    schema = {"type": "array", "items": {"type": "string"}}
    async with GEMINI.server(GEMINI.text('["a"]')) as server:
        model = GEMINI.model(server)
        settings = ModelSettings(response_schema=schema)
        await answer(model.open(settings=settings), UserText("List."))
        with pytest.raises(InvalidValueError, match="exclude each other"):
            model.open("", [look], settings)
    config = server.requests[0].json["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    assert config["responseJsonSchema"] == schema


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT"])
async def test_what_a_filter_stopped_is_an_error_that_is_not_retried(reason: str):
    async with GEMINI.server(reply(chunk([text("Well, ")]), chunk([], finish=reason))) as server:
        session = GEMINI.model(server).open()
        with pytest.raises(ModelRefusedError, match=reason) as caught:
            await answer(session, UserText("Hi"))
        assert len(server.requests) == 1
    assert caught.value.text == "Well, "
    assert session.transcript == []


async def test_a_blocked_prompt_is_refused():
    async with GEMINI.server(blocked_prompt("SAFETY")) as server:
        with pytest.raises(ModelRefusedError, match="SAFETY"):
            await answer(GEMINI.model(server).open(), UserText("Hi"))


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
async def test_a_call_that_the_model_got_wrong_is_asked_for_again(reason: str):
    script = [reply(chunk([], finish=reason, finishMessage="print(look(")), GEMINI.text("ok")]
    async with GEMINI.server(*script) as server:
        session = GEMINI.model(server).open("", [look])
        events = await answer(session, UserText("Look."))
    [failed] = [event for event in events if isinstance(event, AttemptFailed)]
    assert f"{reason}: print(look(" in failed.failure.message
    assert session.transcript[-1] == ModelText("ok")


async def test_max_tokens_keeps_what_was_said():
    async with GEMINI.server(reply(chunk([text("One, t")], finish="MAX_TOKENS"))) as server:
        session = GEMINI.model(server).open()
        end = (await answer(session, UserText("Count.")))[-1]
    assert isinstance(end, ResponseEnded)
    assert end.exchange.finish is Finish.MAX_TOKENS
    assert session.transcript[-1] == ModelText("One, t")


async def test_usage_tells_cached_and_thinking_tokens_apart():
    usage: dict[str, Any] = {
        "promptTokenCount": 100, "cachedContentTokenCount": 60, "thoughtsTokenCount": 7,
        "candidatesTokenCount": 5, "totalTokenCount": 112,
    }  # fmt: skip
    async with GEMINI.server(reply(chunk([text("ok")], finish="STOP", usage=usage))) as server:
        session = GEMINI.model(server).open()
        await answer(session, UserText("Hi"))
    found = session.usage
    assert (found.input, found.cache_read, found.reasoning, found.output) == (40, 60, 7, 5)


async def test_summaries_that_come_all_the_same_are_thinking():
    parts = [thought("Hmm."), text("ok")]
    async with GEMINI.server(reply(chunk(parts, finish="STOP", usage=USAGE))) as server:
        session = GEMINI.model(server).open()
        await answer(session, UserText("Hi"))
    assert [type(part).__name__ for part in session.transcript] == [
        "UserText",
        "ThinkingPart",
        "ModelText",
    ]


@pytest.mark.parametrize(
    ("path", "environment", "served"),
    [
        ("", "", "/v1beta"),
        ("/gateway", "", "/gateway/v1beta"),
        ("/v1beta", "", "/v1beta"),
        ("/gemini/v1", "", "/gemini/v1"),
        ("/v1alpha/", "", "/v1alpha"),
        ("", "v1", "/v1"),
        ("", "beta", "/v1beta"),
    ],
)
async def test_a_server_of_ones_own_is_asked_for_the_version_that_gateways_serve(
    path: str, environment: str, served: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", environment)
    async with GEMINI.server(GEMINI.text("ok")) as server:
        model = GEMINI.make(base_url=server.url + path, api_key="k")
        await answer(model.open(), UserText("Hi"))
    [request] = server.requests
    assert request.path == f"{served}/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
