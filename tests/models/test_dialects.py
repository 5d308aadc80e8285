"""The finer points of each protocol, without a network: chunks in, a message and its parts out."""

import json
from dataclasses import replace
from typing import Any

import pytest

from treefold import CodeFunction
from treefold.core.errors import DefinitionError
from treefold.core.exchange import Finish
from treefold.core.function import RunContext
from treefold.core.model import ModelSettings
from treefold.core.model_events import ModelEvent, TextDelta, ToolUseDelta
from treefold.core.provider import Provider
from treefold.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from treefold.models import AnthropicModel, GeminiModel, OpenAIModel
from treefold.models.decoder import Decoder, RefusedError, Response, StreamFailedError
from treefold.models.dialect import Dialect
from treefold.models.profiles import Profile, profile_of
from treefold.models.sse import BrokenStreamError


def nothing(ctx: RunContext) -> None: ...


LOOK = CodeFunction(name="look", callable=nothing)


def gemini(model: str = "gemini-2.5-pro", **settings: Any) -> Dialect:
    return GeminiModel(model, api_key="a-key").dialect("", [LOOK], ModelSettings(**settings))


def claude(model: str = "claude-opus-4-1", *functions: Any, **settings: Any) -> Dialect:
    listed = functions or (LOOK,)
    return AnthropicModel(model, api_key="a-key").dialect("", listed, ModelSettings(**settings))


def openai(profile: Profile | None = None) -> Dialect:
    model = OpenAIModel("m", base_url="ollama", profile=profile)
    return model.dialect("", [LOOK], ModelSettings())


def decode(dialect: Dialect, *chunks: Any) -> tuple[Decoder, list[ModelEvent]]:
    decoder = dialect.decoder()
    data = b"".join(
        chunk if isinstance(chunk, bytes) else f"data: {json.dumps(chunk)}\n\n".encode()
        for chunk in chunks
    )
    return decoder, [*decoder.feed(data), *decoder.end()]


def response(dialect: Dialect, *chunks: Any) -> tuple[Response, dict[str, Any]]:
    found = decode(dialect, *chunks)[0].response()
    return found, json.loads(found.message or "{}")


def candidate(*parts: Any, finish: str | None = "STOP", **more: Any) -> dict[str, Any]:
    one: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}} | more
    return {"candidates": [one | ({"finishReason": finish} if finish else {})]}


def choice(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} | more


def block(index: int, fields: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": fields},
        *[{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas],
    ]


def stop(reason: str, **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


class TestGemini:
    def test_a_response_that_could_be_continued_was_cut_off(self):
        found, _ = response(gemini(), candidate({"text": "x"}, finish="CONTINUATION"))
        assert found.finish is Finish.MAX_TOKENS

    @pytest.mark.parametrize("reason", ["OTHER", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"])
    def test_some_ends_are_worth_another_try(self, reason: str):
        with pytest.raises(BrokenStreamError, match=reason):
            response(gemini(), candidate({"text": "x"}, finish=reason))

    def test_only_the_first_candidate_counts(self):
        two = candidate({"text": "a"})
        two["candidates"] += candidate({"text": "b"})["candidates"]
        assert response(gemini(), two)[1]["parts"] == [{"text": "a"}]

    def test_calls_are_counted(self):
        call = {"functionCall": {"name": "look", "args": {}}}
        _, events = decode(gemini(), candidate(call, call))
        assert [e.index for e in events if isinstance(e, ToolUseDelta)] == [0, 1]

    def test_a_call_without_a_name_breaks_the_stream(self):
        with pytest.raises(BrokenStreamError, match="a call without a name"):
            response(gemini(), candidate({"functionCall": {"args": {}}}))

    def test_tokens_of_tool_prompts_are_read_too(self):
        usage = {"promptTokenCount": 10, "toolUsePromptTokenCount": 5, "candidatesTokenCount": -3}
        decoder, _ = decode(gemini(), candidate({"text": "x"}) | {"usageMetadata": usage})
        assert (decoder.usage.input, decoder.usage.output) == (15, 0)

    def test_an_error_in_the_stream_has_its_code(self):
        with pytest.raises(StreamFailedError) as caught:
            response(gemini(), {"error": {"code": 403, "message": "no", "status": "X"}})
        assert (caught.value.status, caught.value.kind, str(caught.value)) == (403, "X", "no")

    def test_summaries_of_thoughts_are_shown_and_not_sent_back(self):
        dialect = gemini()
        summary = {"text": "Hm.", "thought": True}
        signed = summary | {"thoughtSignature": "c2ln"}
        found, _ = response(dialect, candidate(summary, signed, {"text": "ok"}))
        message = found.message or ""
        parts, repeated = dialect.read_response(message, 0)
        assert parts == [ThinkingPart("Hm."), ThinkingPart("Hm.", "c2ln"), ModelText("ok")]
        assert json.loads(repeated)["parts"] == [signed, {"text": "ok"}]
        alone = response(dialect, candidate(summary))[0].message or ""
        _, repeated = dialect.read_response(alone, 0)
        assert repeated == alone  # a content needs a part

    def test_a_signature_alone_is_thinking_that_cannot_be_read(self):
        message = json.dumps({"role": "model", "parts": [{"thoughtSignature": "c2ln"}]})
        assert gemini().read(message, 0, ()) == [ThinkingPart("", "c2ln", redacted=True)]

    def test_two_calls_of_one_id_are_told_apart(self):
        call = {"functionCall": {"id": "x", "name": "look", "args": {}}}
        message = json.dumps({"role": "model", "parts": [call, call]})
        first, second = gemini().read(message, 3, ())
        assert isinstance(first, ToolUse)
        assert isinstance(second, ToolUse)
        assert first.id == "x" != second.id

    def test_functions_are_called_when_the_model_sees_fit(self):
        assert gemini().fields("")["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}

    def test_a_model_without_a_budget_of_its_own_is_left_to_itself(self):
        config = gemini("gemini-2.5-flash-lite").fields("")["generationConfig"]
        assert config["thinkingConfig"] == {"includeThoughts": False}
        asked = gemini("gemini-2.5-flash-lite", thinking=500).fields("")["generationConfig"]
        assert asked["thinkingConfig"]["thinkingBudget"] == 500
        assert "thinkingConfig" not in gemini("gemini-2.0-flash").fields("")["generationConfig"]


class TestClaude:
    def test_citations_are_kept_with_those_that_were_there(self):
        deltas = [{"type": "citations_delta", "citation": {"n": n}} for n in (2, 3)]
        text: dict[str, Any] = {"type": "text", "text": "x", "citations": [{"n": 1}]}
        _, message = response(claude(), *block(0, text, *deltas), stop("end_turn"))
        assert message["content"][0]["citations"] == [{"n": 1}, {"n": 2}, {"n": 3}]

    def test_text_that_a_block_begins_with_is_said(self):
        _, events = decode(claude(), *block(0, {"type": "text", "text": "Hi"}), stop("end_turn"))
        assert events == [TextDelta("Hi")]

    def test_calls_that_the_provider_makes_itself_are_not_ours(self):
        delta = {"type": "input_json_delta", "partial_json": '{"q":1}'}
        search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
        decoder, events = decode(claude(), *block(0, search, delta), stop("pause_turn"))
        assert events == []
        assert decoder.response().finish is Finish.PAUSED
        assert '"input":{"q":1}' in (decoder.response().message or "")

    @pytest.mark.parametrize("reason", ["end_turn", "pause_turn", "something_new"])
    def test_a_call_is_waited_for_whatever_else_is_said(self, reason: str):
        use = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
        assert response(claude(), *block(0, use), stop(reason))[0].finish is Finish.TOOL_USE

    def test_blocks_are_kept_in_their_order(self):
        later = block(1, {"type": "text", "text": "b"})
        _, message = response(
            claude(), *later, *block(0, {"type": "text", "text": "a"}), stop("end_turn")
        )
        assert [one["text"] for one in message["content"]] == ["a", "b"]

    def test_what_is_not_said_again_stays_as_it_was(self):
        start = {"type": "message_start", "message": {"usage": {"input_tokens": 7}}}
        text = block(0, {"type": "text", "text": "x"})
        more = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 2}}
        decoder, _ = decode(claude(), start, *text, stop("end_turn", input_tokens=None), more)
        assert decoder.response().reason == "end_turn"
        assert (decoder.usage.input, decoder.usage.output) == (7, 2)

    def test_thinking_can_be_turned_off(self):
        for model in ("claude-opus-4-1", "claude-opus-4-6"):
            assert "thinking" not in claude(model, thinking=0).fields("")

    def test_without_the_header_thinking_comes_out_of_max_tokens_even_with_functions(self):
        profile = replace(profile_of(Provider.Anthropic, "claude-opus-4-1"), headers={})
        model = AnthropicModel("claude-opus-4-1", api_key="a-key", profile=profile)
        fields = model.dialect("", [LOOK], ModelSettings(max_tokens=4000)).fields("")
        assert fields["thinking"]["budget_tokens"] == 3000

    def test_two_functions_may_not_have_one_name_on_the_wire(self):
        shell, bash = (CodeFunction(name=name, callable=nothing) for name in ("shell", "bash"))
        shell.trained_as = "bash"
        with pytest.raises(DefinitionError, match="same name for this model"):
            claude("claude-opus-4-1", shell, bash)


class TestOpenAI:
    def test_an_empty_usage_does_not_wipe_out_the_last(self):
        usage = {"prompt_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": 4}}
        decoder, _ = decode(
            openai(), choice({"content": "x"}, usage=usage), choice({}, "stop", usage={})
        )
        assert (decoder.usage.input, decoder.usage.cache_write) == (5, 4)

    def test_an_end_without_a_beginning_is_a_broken_stream(self):
        with pytest.raises(BrokenStreamError):
            response(openai(), b"data: [DONE]\n\n")

    def test_a_server_that_gave_up_is_asked_again(self):
        with pytest.raises(BrokenStreamError, match="gave up"):
            response(openai(), choice({"content": "x"}, "error"))

    @pytest.mark.parametrize("reason", ["length", "max_tokens"])
    def test_the_longest_response_has_two_names(self, reason: str):
        found, _ = response(openai(), choice({"content": "x"}, reason))
        assert found.finish is Finish.MAX_TOKENS

    def test_a_message_of_calls_alone_has_no_content(self):
        call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}
        _, message = response(openai(), choice({"tool_calls": [call]}, "tool_calls"))
        assert message["content"] is None

    def test_details_of_reasoning_go_back(self):
        details = [{"type": "reasoning.encrypted", "data": "c2ln"}]
        chunks = [choice({"reasoning_details": details}), choice({"content": "x"}, "stop")]
        assert response(openai(), *chunks)[1]["reasoning_details"] == details

    def test_a_filter_is_named(self):
        with pytest.raises(RefusedError) as caught:
            response(openai(), choice({"content": "x"}, "content_filter"))
        assert (caught.value.reason, caught.value.text) == ("content_filter", "x")

    @pytest.mark.parametrize(
        ("error", "status", "message"),
        [
            ({"code": "429", "message": "slow"}, 429, "slow"),
            ({"code": 503}, 503, "{'code': 503}"),
            ({"code": "server_error", "message": "x"}, None, "x"),
            ("just words", None, "just words"),
        ],
    )
    def test_an_error_in_the_stream_is_read_as_far_as_it_says(
        self, error: Any, status: int | None, message: str
    ):
        with pytest.raises(StreamFailedError) as caught:
            response(openai(), {"error": error})
        assert (caught.value.status, str(caught.value)) == (status, message)

    def test_reasoning_in_a_field_and_in_tags_are_both_thinking(self):
        chunks = [
            choice({"reasoning_content": "a"}),
            choice({"content": "<think>b</think>"}),
            choice({"reasoning_content": "c"}),
            choice({"content": "ok"}, "stop"),
        ]
        dialect = openai(Profile(thinks_first=True))
        found, _ = response(dialect, *chunks)
        assert dialect.read(found.message or "", 0, ()) == [
            ThinkingPart("ac"),
            ThinkingPart("b"),
            ModelText("ok"),
        ]

    def test_several_texts_are_paragraphs_of_one_message(self):
        [message] = openai().write([], [UserText("a"), UserText("b")])
        assert json.loads(message)["content"] == "a\n\nb"

    def test_only_what_we_wrote_ourselves_is_a_failure(self):
        call = ToolUse("c", "look")
        for content in ('{"error": "x"}', '{"tool_error": 5}', ' {"tool_error": "x"}', "{"):
            result = ToolResult("c", content)
            [message] = openai().write([(call, result)], [])
            assert openai().read(message, 0, [call]) == [result]
