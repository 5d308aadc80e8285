"""Answers of a declared type, and agents around agents, as tools of other agents."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from agent_scripts import ended
from journeys.roles import REPORTED, Result, actor, assert_same, call, children, playing
from support import look
from treefold import (
    CallGraphError,
    Ensemble,
    MemoryStore,
    ModelProviderException,
    NoAnswerError,
    Runtime,
    ThinkMore,
    TokenUsage,
    ToolResult,
    UserText,
)
from treefold.models import Profile
from treefold.testing import replay
from wire import Reply, failure
from wire.protocols import PROTOCOLS, Protocol, answer

OPENAI, _, _ = PROTOCOLS


class Place(BaseModel):
    """Where something is."""

    town: str
    houses: int


async def test_an_agent_below_returns_what_it_declares(protocol: Protocol):
    scout = actor("scout", look, returns=Place)
    lead = actor("lead", scout, returns=list[str])
    scouting = [
        protocol.calls(call("l", "look", at="Ulm")),
        protocol.text("It is Ulm."),  # which is no Place
        protocol.calls(call("r1", "return_result", town="Ulm")),  # nor is this
        protocol.calls(call("r2", "return_result", town="Ulm", houses=7)),
    ]
    asks = [
        protocol.calls(call("s", "scout", task="Scout.")),
        protocol.calls(call("r", "return_result", result=["Ulm"])),
    ]
    async with (
        playing(protocol, lead=asks, scout=scouting) as (server, play),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        assert await node == ["Ulm"]
        assert_same(runtime.get_view(node.id), node)
    assert children(node)[0].outputs == Place(town="Ulm", houses=7)
    assert play.told("scout")[0].functions == ("look", "return_result")
    _, _, reminded, corrected = play.told("scout")
    assert "return_result" in reminded.texts[0]
    assert "houses" in corrected.results[0].content
    assert corrected.results[0].is_error
    assert play.told("lead")[1].results == (Result('{"town": "Ulm", "houses": 7}'),)
    assert len(server.requests) == 6


async def test_an_agent_without_functions_returns_what_it_declares(protocol: Protocol):
    scout = actor("scout", returns=Place)
    wrong, right = '{"town":"Ulm"}', '{"town":"Ulm","houses":7}'
    async with (
        playing(protocol, scout=[protocol.text(wrong), protocol.text(right)]) as (server, play),
        Runtime([scout], models=protocol.model(server)) as runtime,
    ):
        assert await runtime.invoke(scout, {"task": "Scout."}) == Place(town="Ulm", houses=7)
    body = server.requests[0].json
    if protocol.name == "anthropic":
        assert play.said[0].functions == ("return_result",)
    else:
        schema = (
            body["generationConfig"]["responseJsonSchema"]
            if protocol.name == "gemini"
            else body["response_format"]["json_schema"]["schema"]
        )
        assert schema["required"] == ["town", "houses"]
        assert "tools" not in body
    assert "houses" in play.said[1].texts[0]


async def test_calls_that_come_as_text_are_made_and_noticed_once():
    scout = actor("scout", look, returns=Place)
    looks = [f'{{"name": "look", "arguments": {{"at": "{at}"}}}}' for at in ("Ulm", "Bonn")]
    ends = '<tool_call>{"name": "return_result", "arguments": {"town": "Ulm", "houses": 7}}'
    script = [OPENAI.text(*text) for text in (*looks, ends)]
    async with (
        OPENAI.server(*script) as server,
        Runtime([scout], models=OPENAI.model(server)) as runtime,
    ):
        node = runtime.invoke(scout, {"task": "Scout."})
        assert await node == Place(town="Ulm", houses=7)
        [notice] = runtime.get_view(node.id).notices
    assert "sent function calls as text" in notice
    assert [one.outputs for one in children(node)[:2]] == ["Ulm is fine", "Bonn is fine"]
    roles = [message["role"] for message in server.requests[2].json["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]


WRONG, RIGHT = '{"town":"Ulm"}', '{"town":"Ulm","houses":7}'
NO_TOOLS = OPENAI.failure(400, "this model does not support tools")


NO_SCHEMA = OPENAI.failure(400, "'response_format' is not supported")


@pytest.mark.parametrize("case", ["at once", "known", "tools refused", "schema ignored"])
async def test_a_result_of_a_type_is_asked_for_by_schema(case: str):
    scout = actor("scout", returns=Place)
    begins = {"tools refused": [NO_TOOLS], "schema ignored": [OPENAI.text("It is Ulm.")]}
    script = [*begins.get(case, ()), OPENAI.text(WRONG), OPENAI.text(RIGHT)]
    profile = Profile(
        calls_functions=case != "known",
        results_by_schema=False if case in {"known", "tools refused"} else None,
    )
    async with (
        OPENAI.server(*script) as server,
        Runtime([scout], models=OPENAI.model(server, profile=profile)) as runtime,
    ):
        assert await runtime.invoke(scout, {"task": "Scout."}) == Place(town="Ulm", houses=7)
    assert server.left == 0
    asked, again = (request.json for request in server.requests[-2:])
    assert "tools" not in asked
    assert asked["response_format"]["type"] == "json_schema"
    assert asked["response_format"]["json_schema"]["schema"]["required"] == ["town", "houses"]
    system, prompt, *_ = asked["messages"]
    assert system["content"].startswith("You are scout.")
    assert "houses" in system["content"]
    assert prompt["content"] == "Scout."
    reminder = again["messages"][-1]["content"]
    assert "houses" in reminder
    for sent in server.requests[1:]:
        assert "return_result" not in sent.json["messages"][-1]["content"]
        assert "tools" not in sent.json


@pytest.mark.parametrize(
    "refusal",
    [
        NO_SCHEMA,
        failure(400, {"error": {"message": "Unsupported value.", "param": "response_format"}}),
        failure(
            422,
            {
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "response_format"],
                        "msg": "Extra inputs are not permitted",
                    }
                ]
            },
        ),
        OPENAI.failure(400, "guided decoding is not enabled"),
        OPENAI.failure(500, "cannot make a grammar of the JSON schema"),
    ],
)
async def test_a_server_that_refuses_a_schema_is_offered_the_function(refusal: Reply):
    scout = actor("scout", returns=Place)
    script = [
        refusal,
        OPENAI.text("It is Ulm."),
        OPENAI.calls(call("r", "return_result", town="Ulm", houses=7)),
    ]
    async with (
        OPENAI.server(*script) as server,
        Runtime([scout], models=OPENAI.model(server)) as runtime,
    ):
        node = runtime.invoke(scout, {"task": "Scout."})
        assert await node == Place(town="Ulm", houses=7)
        [notice] = runtime.get_view(node.id).notices
    assert "results_by_schema=False" in notice
    refused, *others = (request.json for request in server.requests)
    assert "response_format" in refused
    assert "tools" not in refused
    for body in others:
        assert [tool["function"]["name"] for tool in body["tools"]] == ["return_result"]
        assert "response_format" not in body
        assert body["messages"][0]["content"] == "You are scout."


@pytest.mark.parametrize("status", [400, 422])
async def test_another_bad_request_is_not_taken_for_a_refused_schema_nor_sent_again(
    status: int,
):
    scout = actor("scout", returns=Place)
    async with (
        OPENAI.server(OPENAI.failure(status, "the user is banned")) as server,
        Runtime([scout], models=OPENAI.model(server)) as runtime,
    ):
        node = await ended(runtime.invoke(scout, {"task": "Scout."}))
        assert runtime.get_view(node.id).notices == ()
    assert len(server.requests) == 1
    assert isinstance(node.exception, ModelProviderException)
    assert "the user is banned" in str(node.exception)
    assert "if it does not accept response schemas, set results_by_schema" in str(node.exception)


async def test_a_reminder_is_the_same_in_a_replay():
    scout = actor("scout", returns=Place)
    store = MemoryStore()
    async with (
        OPENAI.server(OPENAI.text("It is Ulm."), OPENAI.text(RIGHT)) as server,
        Runtime([scout], models=OPENAI.model(server), store=store) as runtime,
    ):
        await runtime.invoke(scout, {"task": "Scout."})
    assert "return_result" not in server.requests[1].json["messages"][-1]["content"]
    done = await asyncio.to_thread(replay, [scout], store)
    done.check()


async def test_a_server_that_refuses_schemas_and_functions_is_asked_no_further():
    scout = actor("scout", returns=Place)
    async with (
        OPENAI.server(NO_SCHEMA, NO_TOOLS, NO_SCHEMA) as server,
        Runtime([scout], models=OPENAI.model(server)) as runtime,
    ):
        with pytest.raises(ModelProviderException, match="'response_format' is not supported"):
            await runtime.invoke(scout, {"task": "Scout."})
    assert len(server.requests) == 3


async def test_an_agent_with_other_functions_is_not_asked_by_schema():
    scout = actor("scout", look, returns=Place)
    script = [OPENAI.text("It is Ulm."), OPENAI.calls(call("r", "return_result", result=WRONG))]
    script += [OPENAI.calls(call("s", "return_result", town="Ulm", houses=7))]
    async with (
        OPENAI.server(*script) as server,
        Runtime([scout], models=OPENAI.model(server)) as runtime,
    ):
        assert await runtime.invoke(scout, {"task": "Scout."}) == Place(town="Ulm", houses=7)
    for request in server.requests:
        names = [tool["function"]["name"] for tool in request.json["tools"]]
        assert names == ["look", "return_result"]
        assert "response_format" not in request.json


async def test_a_conversation_that_has_called_for_its_result_keeps_the_function():
    scout = actor("scout", returns=Place)
    function = scout.return_function
    assert function is not None
    wrong = OPENAI.calls(call("r", "return_result", town="Ulm"))
    async with OPENAI.server(NO_SCHEMA, wrong, OPENAI.text("It is Ulm.")) as server:
        model = OPENAI.model(server)
        begun = model.open("", [function])
        await answer(begun, UserText("Scout."))
        resumed = model.open("", [function], exchanges=begun.exchanges)
        await answer(resumed, ToolResult("r", "houses is missing", is_error=True))
    assert len(server.requests) == 3
    assert "response_format" not in server.requests[-1].json
    assert len(server.requests[-1].json["tools"]) == 1


@pytest.mark.parametrize("text", ['["Ulm"]', '{"result": ["Ulm"]}', '```json\n["Ulm"]\n```'])
async def test_a_result_in_text_may_be_wrapped_as_a_call_would_have_it(text: str):
    scout = actor("scout", returns=list[str])
    async with (
        OPENAI.server(OPENAI.text(text)) as server,
        Runtime([scout], models=OPENAI.model(server)) as runtime,
    ):
        assert await runtime.invoke(scout, {"task": "Scout."}) == ["Ulm"]


async def test_using_functions_and_returning_a_type_needs_a_model_that_calls():
    scout = actor("scout", look, returns=Place)
    async with OPENAI.server(NO_TOOLS) as server:
        cannot = OPENAI.model(server, profile=Profile(calls_functions=False))
        with pytest.raises(CallGraphError, match="cannot call functions, and this uses look"):
            Runtime([scout], models=cannot)
        async with Runtime([scout], models=OPENAI.model(server)) as runtime:
            node = runtime.invoke(scout, {"task": "Scout."})
            with pytest.raises(ModelProviderException, match="does not support tools.*'returns'"):
                await node
    assert len(server.requests) == 1


async def test_an_agent_that_says_nothing_three_times_has_no_answer(protocol: Protocol):
    scout = actor("scout")
    lead = actor("lead", scout)
    asks = [protocol.calls(call("s", "scout", task="Scout.")), protocol.text("Led.")]
    async with (
        playing(protocol, lead=asks, scout=[protocol.text(" ")] * 3) as (server, play),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        node = await ended(runtime.invoke(lead, {"task": "Lead."}))
        assert_same(runtime.get_view(node.id), node)
    assert node.outputs == "Led."
    assert isinstance(children(node)[0].exception, NoAnswerError)
    assert len(play.told("scout")) == 3
    assert play.told("lead")[1].results[0].is_error


def around(kind: str, agent: Any) -> Any:
    return Ensemble(agent, {"default": 2}) if kind == "ensemble" else ThinkMore(agent, rounds=2)


@pytest.mark.parametrize("kind", ["ensemble", "think_more"])
async def test_an_agent_calls_an_agent_that_is_asked_several_times(protocol: Protocol, kind: str):
    scout = actor("scout", look)
    several = around(kind, scout)
    lead = actor("lead", several)
    answers = ["It is Ulm.", "It is Jena.", "It is Bonn."]
    asks = [protocol.calls(call("s", several.name, task="Scout.")), protocol.text("Led.")]
    async with (
        playing(protocol, lead=asks, scout=[protocol.text(a) for a in answers]) as (server, play),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        assert await node == "Led."
        assert_same(runtime.get_view(node.id), node)
    assert play.told("lead")[0].functions == (f"scout_{kind}",)
    assert play.told("lead")[1].results == (Result("It is Bonn."),)
    [middle] = children(node)
    assert [child.outputs for child in children(middle)] == answers
    last = play.told("scout")[-1]
    assert last.functions == ("look",)
    assert last.texts[0].startswith("Scout.\n\n")
    assert "It is Jena." in last.texts[0]
    assert node.total_usage == sum([REPORTED[protocol.name]] * 5, TokenUsage())
