"""What only Claude's protocol has."""

from dataclasses import replace
from typing import Any

import pytest

from support import look
from treefold import CodeFunction
from treefold.core.errors import ModelRefusedError, UsageError
from treefold.core.exchange import Finish
from treefold.core.function import RunContext
from treefold.core.model import Caching, ModelSettings
from treefold.core.model_events import AttemptFailed, ResponseEnded, ThinkingDelta
from treefold.core.provider import Provider
from treefold.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from treefold.models.profiles import profile_of
from wire import stream
from wire.anthropic_wire import Raw, Redacted, Text, Thinking, ToolUse as Use, event, message
from wire.protocols import PROTOCOLS, answer, asked

_, ANTHROPIC, _ = PROTOCOLS


SIGNATURE = "EqQBCkYIBxgCKkD+/w==="
REDACTED = "EmwKAhgBEgy3va3pzix/LafPsn4a+=="


async def test_thinking_signatures_and_redacted_blocks_go_back_byte_for_byte():
    blocks = [Thinking(["Let me ", "see. é"], SIGNATURE), Redacted(REDACTED)]
    call = Use("t1", "look", ['{"at" ', ': "x"}'])
    script = [
        message(*blocks, Text(["Looking."]), call, stop_reason="tool_use"),
        message(Thinking(["Again."], "c2Vjb25k"), Use("t2", "look", []), stop_reason="tool_use"),
        message(Text(["Done."])),
    ]
    async with ANTHROPIC.server(*script) as server:
        session = ANTHROPIC.model(server).open("", [look])
        await answer(session, UserText("Look."))
        await answer(session, ToolResult("t1", "nothing"))
        await answer(session, ToolResult("t2", "nothing", is_error=True))

    second, third = (request.body.decode() for request in server.requests[1:])
    thinking = '{"type":"thinking","thinking":"Let me see. é","signature":"' + SIGNATURE + '"}'
    redacted = '{"type":"redacted_thinking","data":"' + REDACTED + '"}'
    said = '{"type":"text","text":"Looking."}'
    assert f'{{"role":"assistant","content":[{thinking},{redacted},{said},' in second
    assert '"input":{"at" : "x"}' in second
    history = second[second.index('"messages":[') : -len("]}")]
    assert history in third  # all that was sent and received before, and in that order
    assert '"tool_use_id":"t2","content":"nothing","is_error":true' in third
    assert session.transcript[1:3] == [
        ThinkingPart("Let me see. é", SIGNATURE),
        ThinkingPart("", REDACTED, redacted=True),
    ]


async def test_opus_4_1_thinks_with_the_largest_budget_and_between_calls():
    async with ANTHROPIC.server(message(Text(["ok"]))) as server:
        await answer(ANTHROPIC.model(server).open("Be brief.", [look]), UserText("Hi"))
    [request] = server.requests
    assert request.headers["anthropic-beta"] == "interleaved-thinking-2025-05-14"
    body = request.json
    assert (body["max_tokens"], body["stream"], body["system"]) == (32_000, True, "Be brief.")
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 64_000}
    assert body["tool_choice"] == {"type": "auto"}
    assert "temperature" not in body


async def test_the_budget_is_part_of_max_tokens_without_the_header_for_thinking_between_calls():
    gateway = {"Authorization": "Bearer gateway"}
    profile = replace(profile_of(Provider.Anthropic, "claude-opus-4-1"), headers=gateway)
    async with ANTHROPIC.server(message(Text(["ok"]))) as server:
        model = ANTHROPIC.model(server, profile=profile)
        await answer(model.open("", [look]), UserText("Hi"))
    body = server.requests[0].json
    assert (body["max_tokens"], body["thinking"]["budget_tokens"]) == (32_000, 24_000)


async def test_later_models_decide_themselves_how_much_to_think():
    async with ANTHROPIC.server(message(Text(["ok"]))) as server:
        profile = profile_of(Provider.Anthropic, "claude-opus-4-6")
        session = ANTHROPIC.model(server, profile=profile).open("", [look])
        await answer(session, UserText("Hi"))
    [request] = server.requests
    assert request.json["thinking"] == {"type": "adaptive"}
    assert "anthropic-beta" not in request.headers


@pytest.mark.parametrize(
    ("settings", "thinking"),
    [
        (ModelSettings(thinking=0), None),
        (ModelSettings(thinking=2000), {"type": "enabled", "budget_tokens": 2000}),
        (ModelSettings(max_tokens=4000), {"type": "enabled", "budget_tokens": 3000}),
        (ModelSettings(max_tokens=100), None),
    ],
)
async def test_without_functions_thinking_comes_out_of_max_tokens(
    settings: ModelSettings, thinking: Any
):
    async with ANTHROPIC.server(message(Text(["ok"]))) as server:
        await answer(ANTHROPIC.model(server).open("", settings=settings), UserText("Hi"))
    assert server.requests[0].json.get("thinking") == thinking


def marked(body: dict[str, Any]) -> list[tuple[int, Any]]:
    """Return which messages have a watermark, and which."""
    return [
        (at, block["cache_control"])
        for at, message in enumerate(body["messages"])
        for block in message["content"]
        if "cache_control" in block
    ]


@pytest.mark.parametrize("caching", [Caching.MINUTES, Caching.HOUR])
async def test_the_cache_watermark_is_on_the_newest_message_only(caching: Caching):
    script = [ANTHROPIC.calls(("t1", "look", "{}")), message(Text(["ok"])), message(Text(["ok"]))]
    async with ANTHROPIC.server(*script) as server:
        session = ANTHROPIC.model(server).open("", [look], ModelSettings(caching=caching))
        await answer(session, UserText("Look."))
        await answer(session, ToolResult("t1", "nothing"))
        await answer(session, UserText("Thanks."))
    mark = {"type": "ephemeral", "ttl": caching.value}
    assert [marked(request.json) for request in server.requests] == [
        [(0, mark)],
        [(2, mark)],
        [(4, mark)],
    ]
    assert all("cache_control" not in sent for e in session.exchanges for sent in e.sent)


async def test_without_caching_there_is_no_watermark():
    async with ANTHROPIC.server(message(Text(["ok"]))) as server:
        await answer(ANTHROPIC.model(server).open("", [look]), UserText("Hi"))
    assert marked(server.requests[0].json) == []


async def test_usage_tells_cached_tokens_apart():
    usage = {
        "input_tokens": 10, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 7,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        "output_tokens": 5, "output_tokens_details": {"thinking_tokens": 3},
    }  # fmt: skip
    async with ANTHROPIC.server(message(Text(["ok"]), usage=usage)) as server:
        session = ANTHROPIC.model(server).open()
        await answer(session, UserText("Hi"))
    found = session.usage
    assert (found.input, found.cache_read, found.cache_write) == (10, 7, 10)
    assert (found.cache_write_1h, found.reasoning, found.output) == (20, 3, 2)


def nothing(ctx: RunContext) -> None: ...


def trained(name: str, kind: str) -> CodeFunction:
    function = CodeFunction(name=name, desc="", callable=nothing)
    function.trained_as = kind
    return function


async def test_trained_tools_are_offered_as_what_the_model_was_trained_on():
    functions = [trained("shell", "bash"), trained("text_editor", "text_editor"), look]
    script = [
        ANTHROPIC.calls(("t1", "str_replace_based_edit_tool", "{}"), ("t2", "bash", "{}")),
        message(Text(["ok"])),
    ]
    async with ANTHROPIC.server(*script) as server:
        session = ANTHROPIC.model(server).open("", functions)
        calls = asked(await answer(session, UserText("Edit.")))
        await answer(session, *[ToolResult(call.id, "done") for call in calls])
    assert [call.name for call in calls] == ["text_editor", "shell"]
    assert server.requests[0].json["tools"][:2] == [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    ]
    assert server.requests[0].json["tools"][2]["name"] == "look"
    assert '"name":"str_replace_based_edit_tool"' in server.requests[1].body.decode()


async def test_models_without_trained_tools_are_offered_them_as_functions():
    async with ANTHROPIC.server(message(Text(["ok"]))) as server:
        profile = profile_of(Provider.Anthropic, "claude-3-5-haiku")
        session = ANTHROPIC.model(server, profile=profile).open("", [trained("shell", "bash")])
        await answer(session, UserText("Hi"))
    assert server.requests[0].json["tools"][0]["name"] == "shell"


async def finish_of(*script: Any) -> tuple[Finish, str, Any]:
    async with ANTHROPIC.server(*script) as server:
        session = ANTHROPIC.model(server).open("", [look])
        end = (await answer(session, UserText("Hi")))[-1]
    assert isinstance(end, ResponseEnded)
    return end.exchange.finish, end.reason, session


async def test_a_response_that_reached_max_tokens_is_kept_as_far_as_it_is_complete():
    finish, reason, session = await finish_of(
        message(Text(["One, two, th"]), stop_reason="max_tokens")
    )
    assert (finish, reason) == (Finish.MAX_TOKENS, "max_tokens")
    assert session.transcript[-1] == ModelText("One, two, th")


async def test_thinking_that_was_cut_off_cannot_be_sent_back_and_is_dropped():
    _, _, session = await finish_of(message(Thinking(["Hmm"], ""), stop_reason="max_tokens"))
    assert session.transcript == [UserText("Hi")]


async def test_a_call_that_was_cut_off_has_a_fault_and_can_be_answered():
    cut = message(Use("t1", "look", ['{"at": "x']), stop_reason="max_tokens")
    async with ANTHROPIC.server(cut, message(Text(["ok"]))) as server:
        profile = profile_of(Provider.Anthropic, "x")  # one that does not think
        session = ANTHROPIC.model(server, profile=profile).open("", [look])
        [call] = asked(await answer(session, UserText("Hi")))
        assert call == ToolUse("t1", "look", {}, call.fault)
        assert "not a JSON object" in str(call.fault)
        await answer(session, ToolResult("t1", str(call.fault), is_error=True))
        assert '"input":{"__not_json__":"{\\"at\\": \\"x"}' in server.requests[1].body.decode()


async def test_a_full_context_window_is_a_maximum_too():
    finish, reason, _ = await finish_of(
        message(Text(["x"]), stop_reason="model_context_window_exceeded")
    )
    assert (finish, reason) == (Finish.MAX_TOKENS, "model_context_window_exceeded")


async def test_a_refusal_is_an_error_that_is_not_retried_and_leaves_no_trace_in_the_history():
    async with ANTHROPIC.server(message(Text(["I will"]), stop_reason="refusal")) as server:
        session = ANTHROPIC.model(server).open()
        with pytest.raises(ModelRefusedError, match="would not answer this") as caught:
            await answer(session, UserText("Hi"))
        assert (caught.value.reason, caught.value.text) == ("refusal", "I will")
        assert len(server.requests) == 1
    assert session.transcript == []
    assert session.usage.input > 0  # it was paid for


async def test_a_paused_response_goes_on_when_nothing_is_sent():
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}}
    said = Thinking(["Hm."]), Text(["Let me search."]), Raw(search)
    paused = message(*said, stop_reason="pause_turn")
    async with ANTHROPIC.server(paused, message(Text(["Found."]))) as server:
        session = ANTHROPIC.model(server).open()
        end = (await answer(session, UserText("Search.")))[-1]
        assert isinstance(end, ResponseEnded)
        assert end.exchange.finish is Finish.PAUSED
        with pytest.raises(UsageError, match="send nothing"):
            await answer(session, UserText("Well?"))
        await answer(session)
    assert session.transcript == [
        UserText("Search."),
        ThinkingPart("Hm.", "c2lnbmVk"),
        ModelText("Let me search."),
        ModelText("Found."),
    ]
    assert len(server.requests[1].json["messages"]) == 2


async def test_a_stream_without_a_stop_reason_is_retried():
    script = [message(Text(["x"]), stop_reason=None), message(Text(["ok"]))]
    async with ANTHROPIC.server(*script) as server:
        session = ANTHROPIC.model(server).open()
        events = await answer(session, UserText("Hi"))
    [failed] = [event for event in events if isinstance(event, AttemptFailed)]
    assert failed.failure.message == "the stream ended without a stop reason"
    assert session.transcript[-1] == ModelText("ok")


async def test_thinking_is_streamed():
    async with ANTHROPIC.server(message(Thinking(["a", "b"], "c2ln"), Text(["ok"]))) as server:
        events = await answer(ANTHROPIC.model(server).open(), UserText("Hi"))
    assert [e.text for e in events if isinstance(e, ThinkingDelta)] == ["a", "b"]


async def test_an_empty_response_leaves_a_history_that_can_be_sent():
    async with ANTHROPIC.server(message(), message(Text(["ok"]))) as server:
        session = ANTHROPIC.model(server).open()
        await answer(session, UserText("Hi"))
        await answer(session, UserText("Well?"))
    assert session.transcript == [UserText("Hi"), UserText("Well?"), ModelText("ok")]


async def test_a_block_that_was_never_begun_breaks_the_stream():
    delta = {"type": "text_delta", "text": "x"}
    broken = stream(event({"type": "content_block_delta", "index": 3, "delta": delta}))
    async with ANTHROPIC.server(broken, message(Text(["ok"]))) as server:
        events = await answer(ANTHROPIC.model(server).open(), UserText("Hi"))
    [failed] = [event for event in events if isinstance(event, AttemptFailed)]
    assert "content block 3 was never started" in failed.failure.message


async def test_a_schema_for_the_answer_is_passed_on():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    async with ANTHROPIC.server(message(Text(['{"n":1}']))) as server:
        settings = ModelSettings(response_schema=schema)
        await answer(ANTHROPIC.model(server).open("", settings=settings), UserText("Hi"))
    assert server.requests[0].json["output_config"]["format"]["schema"] == schema
