"""What OpenAI-compatible servers need, over real HTTP."""

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from support import look
from treefold import registries, tool
from treefold.core.errors import (
    DefinitionError,
    InvalidValueError,
    ModelProviderException,
    ModelRefusedError,
    UsageError,
)
from treefold.core.exchange import Finish
from treefold.core.model import ModelSettings
from treefold.core.model_events import AttemptFailed, Noticed, ResponseEnded, TextWasThinking
from treefold.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from treefold.core.usage import TokenUsage
from treefold.models import price
from treefold.models.openai.model import LOCAL_SERVERS, OpenAIModel
from treefold.models.profiles import Profile
from wire import Stall, failure, in_pieces, openai_wire, stream, then
from wire.protocols import KEY, PROTOCOLS, answer, asked, noting

OPENAI, ANTHROPIC, _ = PROTOCOLS


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "registry.ollama.ai/library/smollm2 does not support tools"),
        (500, "tools param requires --jinja flag"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'),
    ],
)
async def test_a_server_that_cannot_call_functions_is_asked_for_text_only(
    status: int, message: str
):
    script = [OPENAI.failure(status, message), OPENAI.text("ok"), OPENAI.text("ok")]
    async with OPENAI.server(*script) as server:
        session = OPENAI.model(server).open("", [look])
        events = await answer(session, UserText("Hi"))
        await answer(session, UserText("Again"))
    assert isinstance(events[0], Noticed)
    assert message in events[0].text
    assert "cannot call functions" in events[0].text
    assert ["tools" in request.json for request in server.requests] == [True, False, False]
    assert session.transcript[-1] == ModelText("ok")


async def test_what_a_server_that_has_no_functions_to_refuse_says_is_its_own_affair():
    async with OPENAI.server(OPENAI.failure(400, "it does not support tools")) as server:
        with pytest.raises(ModelProviderException, match="does not support tools"):
            await answer(OPENAI.model(server).open(), UserText("Hi"))
    assert len(server.requests) == 1


async def test_claude_does_not_lose_its_functions_over_words():
    async with ANTHROPIC.server(ANTHROPIC.failure(400, "ollama does not support tools")) as server:
        with pytest.raises(ModelProviderException, match="does not support tools"):
            await answer(ANTHROPIC.model(server).open("", [look]), UserText("Hi"))
    assert len(server.requests) == 1


async def test_asking_again_without_functions_is_no_failed_attempt():
    waits: list[float] = []
    script = [
        OPENAI.failure(400, "it does not support tools"),
        OPENAI.failure(500),
        OPENAI.text("ok"),
    ]
    async with OPENAI.server(*script) as server:
        session = OPENAI.model(server, retry=noting(waits)).open("", [look])
        events = await answer(session, UserText("Hi"))
    assert waits == [5.0]
    assert [event.attempt for event in events if isinstance(event, AttemptFailed)] == [1]


def test_local_servers_have_names():
    for name, address in LOCAL_SERVERS.items():
        assert OpenAIModel("m", base_url=name).base_url == address
    assert set(LOCAL_SERVERS) == {"llamacpp", "lmstudio", "ollama", "vllm"}
    assert OpenAIModel("m", base_url="http://box:1/v1/").base_url == "http://box:1/v1"
    with pytest.raises(InvalidValueError, match="nor one of llamacpp"):
        OpenAIModel("m", base_url="llama.cpp")


async def test_openais_key_is_not_given_to_other_servers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with OPENAI.server(OPENAI.text("ok")) as server:
        await answer(OpenAIModel("m", base_url=server.url).open(), UserText("Hi"))
    assert server.requests[0].headers["authorization"] == "Bearer not-needed"


async def test_an_address_in_the_environment_is_used_and_has_no_price(
    monkeypatch: pytest.MonkeyPatch,
):
    async with OPENAI.server(OPENAI.text("ok")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        model = OpenAIModel("gpt-4o")
        await answer(model.open(), UserText("Hi"))
        assert model.name == f"openai:gpt-4o@{server.url}"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert price(TokenUsage(input=1), model) is None


async def test_calls_with_the_same_id_are_told_apart():
    twice = openai_wire.calls([("c1", "look", '{"at":"a"}'), ("c1", "look", '{"at":"b"}')])
    apart = openai_wire.completion(
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 1, "id": "c1", "function": {"name": "look", "arguments": "{}"}}]},
        finish="tool_calls",
    )
    for reply in (twice, apart):
        async with OPENAI.server(reply, OPENAI.text("ok")) as server:
            session = OPENAI.model(server).open("", [look])
            first, second = asked(await answer(session, UserText("Look.")))
            assert first.id == "c1" != second.id
            assert first.fault is second.fault is None
            await answer(session, ToolResult(first.id, "1"), ToolResult(second.id, "2"))


def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="openai:gpt-5 needs a key: set OPENAI_API_KEY"):
        OpenAIModel("gpt-5").open()
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    OpenAIModel("gpt-5").open()


async def body_of(profile: Profile | None = None, **settings: Any) -> dict[str, Any]:
    async with OPENAI.server(OPENAI.text("ok")) as server:
        session = OPENAI.model(server, profile=profile).open(settings=ModelSettings(**settings))
        await answer(session, UserText("Hi"))
    return server.requests[0].json


async def test_settings_become_fields():
    assert await body_of(max_tokens=10, temperature=0.0, top_p=0.5, extra={"seed": 1}) == {
        "model": "gpt-4o",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 10,
        "temperature": 0.0,
        "top_p": 0.5,
        "seed": 1,
        "messages": [{"role": "user", "content": "Hi"}],
    }


async def test_a_profile_says_what_a_model_takes():
    profile = Profile(sampling=False, stream_usage=False, max_tokens_field="max_completion_tokens")
    assert await body_of(profile, max_tokens=10, temperature=0.0) == {
        "model": "gpt-4o",
        "stream": True,
        "max_completion_tokens": 10,
        "messages": [{"role": "user", "content": "Hi"}],
    }


async def test_a_schema_for_the_answer_is_passed_on():
    schema = {"type": "object"}
    body = await body_of(response_schema=schema)
    assert body["response_format"]["json_schema"]["schema"] == schema


async def test_reasoning_is_thinking_and_goes_back_in_the_field_it_came_in():
    for field in ("reasoning_content", "reasoning"):
        script = [openai_wire.reasoning("Hm", "m.", text=["ok"], field=field), OPENAI.text("ok")]
        async with OPENAI.server(*script) as server:
            session = OPENAI.model(server).open()
            await answer(session, UserText("Hi"))
            await answer(session, UserText("Hi"))
        assert session.transcript[1:3] == [ThinkingPart("Hmm."), ModelText("ok")]
        assert server.requests[1].json["messages"][1][field] == "Hmm."


async def test_thinking_is_not_sent_to_models_that_refuse_it():
    profile = Profile(replays_thinking=False)
    script = [openai_wire.reasoning("Hmm.", text=["<think>Well.</think>ok"]), OPENAI.text("ok")]
    async with OPENAI.server(*script) as server:
        session = OPENAI.model(server, profile=profile).open()
        await answer(session, UserText("Hi"))
        await answer(session, UserText("Hi"))
    sent = server.requests[1].json["messages"][1]
    assert sent == {"role": "assistant", "content": "ok"}
    assert [type(part) for part in session.transcript[1:4]] == [
        ThinkingPart,
        ThinkingPart,
        ModelText,
    ]


async def test_a_closing_tag_alone_makes_what_was_said_thinking():
    async with OPENAI.server(OPENAI.text("Hm", "m.</th", "ink>\n\nok")) as server:
        session = OPENAI.model(server).open()
        events = await answer(session, UserText("Hi"))
    assert TextWasThinking() in events
    assert session.transcript[1:] == [ThinkingPart("Hmm."), ModelText("ok")]


@pytest.mark.parametrize(
    ("reply", "thinking"),
    [
        (OPENAI.text("Hm", "m.</think>ok"), ["Hmm."]),
        (openai_wire.reasoning("Hm", "m.", text=["o", "k"]), ["Hmm."]),  # told apart by the server
        (OPENAI.text("o", "k"), []),  # it did not think this time
    ],
)
async def test_a_model_that_thinks_first_is_understood_however_its_server_puts_it(
    reply: Any, thinking: list[str]
):
    async with OPENAI.server(reply) as server:
        session = OPENAI.model(server, profile=Profile(thinks_first=True)).open()
        await answer(session, UserText("Hi"))
    assert session.transcript[1:] == [*map(ThinkingPart, thinking), ModelText("ok")]


async def test_a_refusal_is_an_error():
    refusal = openai_wire.completion({"refusal": "I cannot help with that."})
    async with OPENAI.server(refusal) as server:
        with pytest.raises(ModelRefusedError) as caught:
            await answer(OPENAI.model(server).open(), UserText("Hi"))
    assert caught.value.text == "I cannot help with that."


async def test_arguments_that_are_no_json_are_a_fault_that_can_be_answered():
    script = [openai_wire.calls([("c1", "look", "{'at': 1}")]), OPENAI.text("ok")]
    async with OPENAI.server(*script) as server:
        session = OPENAI.model(server).open("", [look])
        [call] = asked(await answer(session, UserText("Look.")))
        assert call == ToolUse("c1", "look", {}, "the arguments are not a JSON object: {'at': 1}")
        await answer(session, ToolResult("c1", call.fault or "", is_error=True))
    told = server.requests[1].json["messages"]
    assert json.loads(told[1]["tool_calls"][0]["function"]["arguments"]) == {
        "__not_json__": "{'at': 1}"
    }
    assert json.loads(told[2]["content"]) == {"tool_error": call.fault}


async def test_lenient_json_is_repaired_if_asked_for():
    reply = openai_wire.calls([("c1", "look", '{"at": "the mo')], finish="length")
    async with OPENAI.server(reply, reply) as server:
        strict = OPENAI.model(server).open("", [look])
        settings = ModelSettings(allow_lenient_tool_json=True)
        lenient = OPENAI.model(server).open("", [look], settings)
        [call] = asked(await answer(strict, UserText("Look.")))
        assert call.fault is not None
        events = await answer(lenient, UserText("Look."))
    assert asked(events) == [ToolUse("c1", "look", {"at": "the mo"})]
    assert isinstance(events[-1], ResponseEnded)
    assert events[-1].exchange.finish is Finish.MAX_TOKENS


async def test_a_server_that_does_not_stream_is_understood():
    message = {"role": "assistant", "content": "Hello"}
    body = {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    async with OPENAI.server(failure(200, body)) as server:
        session = OPENAI.model(server).open()
        await answer(session, UserText("Hi"))
    assert session.transcript[-1] == ModelText("Hello")
    assert session.usage.input == 3


async def test_a_server_that_leaves_the_connection_open_after_done_is_not_waited_for():
    async with OPENAI.server(then(OPENAI.text("ok"), Stall()), OPENAI.text("ok")) as server:
        session = OPENAI.model(server).open()
        await answer(session, UserText("Hi"))
        await answer(session, UserText("Hi"))
    assert server.disconnects == 1


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_a_stream_may_be_cut_anywhere_on_the_wire(size: int):
    async with OPENAI.server(in_pieces(OPENAI.text("é😀", "— fine"), size)) as server:
        session = OPENAI.model(server).open()
        await answer(session, UserText("Hi"))
    assert session.transcript[-1] == ModelText("é😀— fine")


async def test_a_packed_stream_is_unpacked():
    reply = OPENAI.text("packed")
    packed = stream(gzip.compress(reply.body), headers={"content-encoding": "gzip"})
    async with OPENAI.server(packed) as server:
        session = OPENAI.model(server).open()
        await answer(session, UserText("Hi"))
    assert session.transcript[-1] == ModelText("packed")


def test_names_that_no_provider_takes_are_refused():
    with registries():

        @tool
        async def größe() -> None: ...

    with pytest.raises(DefinitionError, match="a model cannot call a function named 'größe'"):
        OpenAIModel("m", base_url="ollama").open("", [größe])
    with pytest.raises(DefinitionError, match="two functions are named 'look'"):
        OpenAIModel("m", base_url="ollama").open("", [look, replace_look()])


def replace_look() -> Any:
    with registries():

        @tool
        async def look() -> None: ...

    return look


def test_a_profile_can_be_overridden():
    model = OpenAIModel("deepseek-r1:8b", base_url="ollama")
    assert model.profile.thinks_first
    mine = replace(model.profile, thinks_first=False)
    assert OpenAIModel("deepseek-r1:8b", base_url="ollama", profile=mine).profile == mine
