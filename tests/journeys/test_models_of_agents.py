"""Which model an agent talks to, with which functions, and what goes back to it."""

import json
from typing import Any

import pytest

from agent_scripts import agent_node
from journeys.roles import Result, actor, assert_same, call, children, playing
from treefold import (
    CodeFunction,
    Function,
    Provider,
    RunContext,
    Runtime,
    ThinkingPart,
    registries,
    tool,
)
from wire import Request
from wire.anthropic_wire import Redacted, Text, Thinking, ToolUse as Use, message
from wire.gemini_wire import USAGE, call as part_of_call, chunk, reply, text
from wire.protocols import PROTOCOLS, Protocol
from wire.replies import compact

OPENAI, ANTHROPIC, GEMINI = PROTOCOLS
MINUTES = {"type": "ephemeral", "ttl": "5m"}
HOUR = {"type": "ephemeral", "ttl": "1h"}

with registries():

    @tool
    async def look(at: str = "it") -> str:
        """Look at something."""
        return f"{at} is fine"

    @tool
    async def only_claude() -> str:
        """Do what only Claude may."""
        return "done by Claude"

    @tool
    async def only_gemini() -> str:
        """Do what only Gemini may."""
        return "done by Gemini"

    @tool
    async def only_gpt() -> str:
        """Do what only that model may."""
        return "done by GPT"


def marks(request: Request) -> list[tuple[int, int, Any]]:
    """Return where the cache watermarks of *request* are, by message and block, and which."""
    found: list[tuple[int, int, Any]] = []
    body = request.json
    for number, one in enumerate(body["messages"]):
        for place, block in enumerate(one["content"]):
            if "cache_control" in block:
                found.append((number, place - len(one["content"]), block["cache_control"]))
    assert request.body.count(b"cache_control") == len(found)  # and nowhere else
    return found


# --- model_tools, and other models


async def test_each_provider_is_offered_its_own_functions(protocol: Protocol):
    own, done = {
        "openai": ("only_gpt", "done by GPT"),
        "anthropic": ("only_claude", "done by Claude"),
        "gemini": ("only_gemini", "done by Gemini"),
    }[protocol.name]
    script = [protocol.calls(call("o", own)), protocol.text("Worked.")]
    asks = [protocol.calls(call("w", "worker", task="Work.")), protocol.text("Led.")]
    async with playing(protocol, lead=asks, worker=script) as (server, play):
        model = protocol.model(server)
        tools: dict[Provider | str, list[Function]] = {
            Provider.Anthropic: [only_claude],
            Provider.Gemini: [only_gemini],
            "openai:another": [only_claude],
        }
        if protocol is OPENAI:
            tools[model.name] = [only_gpt]  # by the name of the model, too
        lead = actor("lead", actor("worker", look, model_tools=tools))
        async with Runtime([lead], models=model) as runtime:
            node = runtime.invoke(lead, {"task": "Lead."})
            assert await node == "Led."
            assert_same(runtime.get_view(node.id), node)
    assert [said.functions for said in play.told("worker")] == [("look", own)] * 2
    assert play.told("worker")[1].results == (Result(done),)


@pytest.mark.parametrize("other", PROTOCOLS, ids=str)
async def test_one_call_may_have_another_model(protocol: Protocol, other: Protocol):
    worker = actor("worker", look, model_tools={Provider.Gemini: [only_gemini]})

    def program(agent: Function) -> CodeFunction:
        async def both(ctx: RunContext) -> list[str]:
            usual = await ctx.invoke(agent, {"task": "Work."})
            return [usual, await ctx.invoke(agent, {"task": "Work."}, model="another")]

        return CodeFunction(callable=both, uses=[agent])

    both = program(worker)
    usual = [protocol.calls(call("l", "look")), protocol.text("Usual.")]
    special = [other.calls(call("l", "look")), other.text("Special.")]
    async with (
        playing(protocol, worker=usual) as (server, play),
        playing(other, worker=special) as (second, played),
    ):
        models = {"default": protocol.model(server), "another": other.model(second)}
        async with Runtime([both], models=models) as runtime:
            node = runtime.invoke(both)
            assert await node == ["Usual.", "Special."]
            direct = runtime.invoke(worker, {"task": "Once."}, model=models["another"])
            second.on_request = None
            second.add(other.text("Direct."))
            assert await direct == "Direct."
    for protocol_of, said in ((protocol, play), (other, played)):
        more = ("only_gemini",) if protocol_of is GEMINI else ()
        assert said.told("worker")[0].functions == ("look", *more)
        assert said.told("worker")[1].results == (Result("it is fine"),)
    used = [agent_node(child).model for child in [*children(node), direct]]
    assert used == [models["default"].name, models["another"].name, models["another"].name]


# --- thinking


async def test_claude_gets_its_thinking_back_byte_for_byte():
    thought = 'Grüße, 🌍:\u2028 a "quote", a \\ and a\ttab'
    signature = "RXFRQkNrWUlBUmdDS2tEL//++aA=="
    opaque = "UkVEQUNURUQ/Pz8+Pj4="
    first = message(
        Thinking([thought[:7], thought[7:]], signature),
        Redacted(opaque),
        Text(["Looking."]),
        Use("a", "look", ['{"at":', ' "x"}']),
        stop_reason="tool_use",
    )
    second = message(
        Thinking(["Again."], "QUdBSU4="), Use("b", "look", ['{"at":"y"}']), stop_reason="tool_use"
    )
    asks = [ANTHROPIC.calls(call("w", "worker", task="Work.")), ANTHROPIC.text("Led.")]
    lead = actor("lead", actor("worker", look))
    script = [first, second, ANTHROPIC.text("Worked.")]
    async with (
        playing(ANTHROPIC, lead=asks, worker=script) as (server, _),
        Runtime([lead], models=ANTHROPIC.model(server)) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        assert await node == "Led."
    told = [request.body for request in server.requests if b"You are worker." in request.body]
    blocks = [
        {"type": "thinking", "thinking": thought, "signature": signature},
        {"type": "redacted_thinking", "data": opaque},
        {"type": "text", "text": "Looking."},
    ]
    thinking = compact(blocks)[1:-1].encode()
    for body in told[1:]:
        assert thinking in body
        sent = json.loads(body)["messages"][1]["content"]
        assert sent[:3] == blocks
    at = told[1].index(thinking)
    assert told[2][: at + len(thinking)] == told[1][: at + len(thinking)]
    assert b'"signature":"QUdBSU4="' in told[2]
    [worker] = children(node)
    parts = [p for p in agent_node(worker).get_transcript() if isinstance(p, ThinkingPart)]
    assert parts == [
        ThinkingPart(thought, signature),
        ThinkingPart("", opaque, redacted=True),
        ThinkingPart("Again.", "QUdBSU4="),
    ]


async def test_gemini_gets_its_signatures_back_byte_for_byte():
    signature = "Q3BjQkFmLy8rK0E9PQ=="
    made = [
        text("Grüße 🌍, ich suche."),
        part_of_call("look", {"at": "ein „Haus“ \\ \u2028"}, "c1", signature),
        part_of_call("look", {"at": "y"}, "c2"),
    ]
    more = [part_of_call("look", {}, "c3", "TUVIUg==")]
    script = [
        reply(chunk(made, "STOP", USAGE)),
        reply(chunk(more, "STOP", USAGE)),
        reply(chunk([text("Worked.", "TEFTVA==")], "STOP", USAGE)),
    ]
    asks = [GEMINI.calls(call("w", "worker", task="Work.")), GEMINI.text("Led.")]
    lead = actor("lead", actor("worker", look))
    async with (
        playing(GEMINI, lead=asks, worker=script) as (server, play),
        Runtime([lead], models=GEMINI.model(server)) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        assert await node == "Led."
    told = [request.body for request in server.requests if b"You are worker." in request.body]
    for body in told[1:]:
        assert compact(made[1]).encode() in body
        assert json.loads(body)["contents"][1] == {"role": "model", "parts": made}
    assert compact(more[0]).encode() in told[2]
    assert play.told("worker")[1].results == (
        Result("ein „Haus“ \\ \u2028 is fine"),
        Result("y is fine"),
    )


# --- prompt caching


async def test_each_agent_of_a_tree_is_cached_as_its_functions_suggest():
    clerk = actor("clerk")  # has no functions
    scout = actor("scout", look)  # leaf functions only
    lead = actor("lead", clerk, scout)  # other agents

    def scripts() -> dict[str, Any]:
        return {
            "lead": [
                ANTHROPIC.calls(call("s", "scout", task="Scout.")),
                ANTHROPIC.calls(call("c", "clerk", task="Write.")),
                ANTHROPIC.text("Led."),
            ]
            * 2,
            "scout": [
                ANTHROPIC.calls(call("l1", "look")),
                ANTHROPIC.calls(call("l2", "look"), call("l3", "look")),
                ANTHROPIC.text("Scouted."),
            ]
            * 2,
            "clerk": [ANTHROPIC.text("Written.")] * 2,
        }

    async with (
        playing(ANTHROPIC, **scripts()) as (server, _),
        Runtime([lead], models=ANTHROPIC.model(server)) as runtime,
    ):
        for _ in range(2):
            assert await runtime.invoke(lead, {"task": "Lead."}) == "Led."
    found = {
        agent: [marks(r) for r in server.requests if f"You are {agent}.".encode() in r.body]
        for agent in ("lead", "scout", "clerk")
    }
    newest = (0, 2, 4)
    assert found["clerk"] == [[], []]
    assert found["scout"] == [[(at, -1, MINUTES)] for at in newest] * 2
    assert found["lead"][:3] == [[], [], []]  # nothing is known yet
    assert found["lead"][3:] == [[(at, -1, HOUR)] for at in newest]


async def test_runs_that_failed_say_nothing_of_how_long_to_cache():
    clerk = actor("clerk")
    lead = actor("lead", clerk, look)
    calls = [ANTHROPIC.calls(call("l1", "look")), ANTHROPIC.calls(call("l2", "look"))]
    script = [*calls, ANTHROPIC.failure(401, "wrong key"), *calls, ANTHROPIC.text("Led.")]
    async with (
        playing(ANTHROPIC, lead=script) as (server, _),
        Runtime([lead], models=ANTHROPIC.model(server)) as runtime,
    ):
        with pytest.raises(Exception, match="wrong key"):
            await runtime.invoke(lead, {"task": "Lead."})
        assert await runtime.invoke(lead, {"task": "Lead."}) == "Led."
    assert [marks(request) for request in server.requests] == [[]] * 6
