"""Sessions with Gemini, over real HTTP through Google's package."""

from typing import Any

import pytest

from support import look
from treefold import CodeFunction
from treefold.core.errors import ModelProviderException, ModelRefusedError
from treefold.core.exchange import Exchange, Finish
from treefold.core.function import RunContext
from treefold.core.model import ModelSettings
from treefold.core.model_events import ResponseEnded
from treefold.core.transcript import ModelText, ToolResult, ToolUse, UserText
from treefold.models import Retry
from wire.gemini_wire import USAGE, call, chunk, reply, text
from wire.protocols import PROTOCOLS, answer, asked

_, _, GEMINI = PROTOCOLS


def end_of(events: list[Any]) -> ResponseEnded:
    assert isinstance(events[-1], ResponseEnded)
    return events[-1]


async def test_a_request_repeats_the_models_content_and_adds_responses_of_the_user():
    made = [call("look", {"at": "x"}, "c1", "c2ln"), call("look", {"at": "y"}, "c2")]
    script = [reply(chunk(made, "STOP", USAGE)), reply(chunk([text("ok")], "STOP", USAGE))]
    async with GEMINI.server(*script) as server:
        session = GEMINI.model(server).open("Be brief.", [look])
        await answer(session, UserText("Look."))
        await answer(session, ToolResult("c1", "1"), ToolResult("c2", "2"))
    first, second = (request.json for request in server.requests)
    assert second["contents"][:1] == first["contents"]
    assert second["contents"][1] == {"role": "model", "parts": made}
    assert second["contents"][2]["role"] == "user"
    names = [part["functionResponse"]["name"] for part in second["contents"][2]["parts"]]
    assert names == ["look", "look"]
    assert len(second["contents"]) == 3
    for field in ("tools", "generationConfig", "systemInstruction"):
        assert first[field] == second[field]


async def test_signatures_of_many_cycles_all_go_back_in_order():
    script = [
        reply(chunk([call("look", {"at": str(n)}, f"c{n}", f"c2ln{n}A==")], "STOP", USAGE))
        for n in range(5)
    ]
    async with GEMINI.server(*script, GEMINI.text("ok")) as server:
        model = GEMINI.model(server)
        session = model.open("", [look])
        await answer(session, UserText("Look."))
        for n in range(5):
            saved = [Exchange.from_dict(e.to_dict()) for e in session.exchanges]
            session = model.open("", [look], exchanges=saved)  # restored before each request
            await answer(session, ToolResult(f"c{n}", "x"))
    sent = server.requests[-1].json["contents"]
    signed = [p["thoughtSignature"] for one in sent for p in one["parts"] if "functionCall" in p]
    assert signed == [f"c2ln{n}A==" for n in range(5)]


@pytest.mark.parametrize(
    "settings",
    [
        ModelSettings(),
        ModelSettings(thinking=1000),
        ModelSettings(max_tokens=100),
    ],
)
async def test_summaries_of_thoughts_are_off_whatever_is_set(settings: ModelSettings):
    async with GEMINI.server(GEMINI.text("ok")) as server:
        await answer(GEMINI.model(server).open("", [look], settings), UserText("Hi"))
    config = server.requests[0].json["generationConfig"]
    assert config["thinkingConfig"]["includeThoughts"] is False


async def test_an_extra_generation_setting_leaves_the_others_as_they_are():
    extra = {"generationConfig": {"stopSequences": ["END"]}}
    settings = ModelSettings(max_tokens=100, temperature=0.5, extra=extra)
    async with GEMINI.server(GEMINI.text("ok")) as server:
        await answer(GEMINI.model(server).open("", [look], settings), UserText("Hi"))
    config = server.requests[0].json["generationConfig"]
    assert config["stopSequences"] == ["END"]
    assert (config.get("maxOutputTokens"), config.get("temperature")) == (100, 0.5)
    assert config["thinkingConfig"] == {
        "includeThoughts": False,
        "thinkingBudget": 128,
    }  # the least


def nothing(ctx: RunContext, command: str) -> None: ...


async def test_a_tool_that_claude_was_trained_on_is_explained_to_gemini():
    shell = CodeFunction(name="bash", desc="Run a command in a shell.", callable=nothing)
    shell.trained_as = "bash"
    async with GEMINI.server(GEMINI.text("ok")) as server:
        await answer(GEMINI.model(server).open("", [shell]), UserText("Hi"))
    [declared] = server.requests[0].json["tools"][0]["functionDeclarations"]
    assert (declared["name"], declared["description"]) == ("bash", "Run a command in a shell.")
    assert "command" in repr(declared)


async def test_calls_in_several_chunks_are_one_batch_with_ids_that_differ():
    chunks = [chunk([call("look", {"at": str(n)})]) for n in range(3)]
    script = [reply(*chunks, chunk([], "STOP", USAGE)), GEMINI.text("ok")]
    async with GEMINI.server(*script) as server:
        session = GEMINI.model(server).open("", [look])
        events = await answer(session, UserText("Look."))
        calls = asked(events)
        assert end_of(events).exchange.finish is Finish.TOOL_USE
        await answer(session, *[ToolResult(one.id, one.args["at"]) for one in calls])
    assert len({one.id for one in calls}) == 3
    told = server.requests[1].json["contents"][-1]["parts"]
    results = [part["functionResponse"]["response"] for part in told]
    assert [list(result.values()) for result in results] == [["0"], ["1"], ["2"]]


async def test_ids_made_up_in_two_cycles_do_not_collide():
    one = reply(chunk([call("look", {"at": "x"})], "STOP", USAGE))
    async with GEMINI.server(one, one, GEMINI.text("ok")) as server:
        session = GEMINI.model(server).open("", [look])
        [first] = asked(await answer(session, UserText("Look.")))
        [second] = asked(await answer(session, ToolResult(first.id, "x")))
        await answer(session, ToolResult(second.id, "x"))
    assert first.id != second.id


async def test_a_malformed_call_that_does_not_get_better_is_a_failure_of_the_provider():
    bad = reply(chunk([], "MALFORMED_FUNCTION_CALL", USAGE))
    async with GEMINI.server(bad, bad) as server:
        session = GEMINI.model(server, retry=Retry((0,))).open("", [look])
        with pytest.raises(ModelProviderException, match="MALFORMED_FUNCTION_CALL"):
            await answer(session, UserText("Look."))
        assert len(server.requests) == 2
    assert session.transcript == []
    assert session.usage.input > 0  # both attempts were paid for


async def test_a_whole_call_before_max_tokens_is_kept_and_can_be_answered():
    script = [
        reply(chunk([call("look", {"at": "x"}, "c1")], "MAX_TOKENS", USAGE)),
        GEMINI.text("ok"),
    ]
    async with GEMINI.server(*script) as server:
        session = GEMINI.model(server).open("", [look])
        events = await answer(session, UserText("Look."))
        assert end_of(events).exchange.finish is Finish.MAX_TOKENS
        await answer(session, ToolResult("c1", "x"))
    assert session.transcript == [
        UserText("Look."), ToolUse("c1", "look", {"at": "x"}), ToolResult("c1", "x"),
        ModelText("ok"),
    ]  # fmt: skip


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "SPII", "IMAGE_SAFETY", "LANGUAGE"])
async def test_a_filter_is_named_and_the_session_can_go_on(reason: str):
    async with GEMINI.server(reply(chunk([], reason, USAGE)), GEMINI.text("ok")) as server:
        session = GEMINI.model(server).open()
        with pytest.raises(ModelRefusedError) as caught:
            await answer(session, UserText("Hi"))
        assert caught.value.reason == reason
        await answer(session, UserText("Something else"))
    assert len(server.requests[1].json["contents"]) == 1


async def test_the_answer_is_json_by_the_schema_that_was_asked_for():
    schema = {
        "type": "array",
        "items": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    async with GEMINI.server(GEMINI.text('[{"name":', '"Soup"}]')) as server:
        session = GEMINI.model(server).open(settings=ModelSettings(response_schema=schema))
        await answer(session, UserText("Recipes?"))
    config = server.requests[0].json["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    assert schema in (config.get("responseJsonSchema"), config.get("responseSchema"))
    assert session.transcript[-1] == ModelText('[{"name":"Soup"}]')
