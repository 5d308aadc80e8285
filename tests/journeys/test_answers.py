"""Answers of a declared type, and agents around agents, as tools of other agents."""

from typing import Any

import pytest
from pydantic import BaseModel

from agent_scripts import ended
from journeys.stage import REPORTED, Result, actor, assert_same, call, children, playing
from ramify import Ensemble, NoAnswerError, Runtime, ThinkMore, TokenUsage, registries, tool
from wire.protocols import Protocol


class Place(BaseModel):
    """Where something is."""

    town: str
    houses: int


with registries():

    @tool
    async def look(at: str) -> str:
        """Look at something."""
        return f"{at} is fine"


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
    if protocol.name == "gemini":
        assert body["generationConfig"]["responseJsonSchema"]["required"] == ["town", "houses"]
        assert "tools" not in body
    else:
        assert play.said[0].functions == ("return_result",)
    assert "houses" in play.said[1].texts[0]


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
