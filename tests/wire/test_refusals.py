"""What sessions meet at a server that insists on a window, and on thinking where it was issued."""

import asyncio
import urllib.request
from dataclasses import replace
from typing import Any

import pytest

from support import add
from treefold import ModelProviderException, ToolResult, UserText
from treefold.core.model import Model
from treefold.core.provider import Provider
from treefold.models import Exchange, ModelSettings
from treefold.models.anthropic.model import AnthropicModel
from treefold.models.profiles import profile_of
from wire.checks.anthropic_messages import BINDING_BETA
from wire.checks.thoughts import data_of
from wire.protocols import KEY, PROTOCOLS, Protocol, answer, protocol as protocol
from wire.replies import with_length

_, ANTHROPIC, _ = PROTOCOLS
DROPS = {"thinking": {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}}


async def test_a_request_that_is_longer_than_the_window_is_refused_with_a_remedy(
    protocol: Protocol,
):
    async with protocol.server(protocol.text("Yes."), expects={"window"}) as server:
        session = protocol.model(server).open("", [])
        await answer(session, UserText("Well?"))
        server.window = 100
        with pytest.raises(ModelProviderException, match=r"100.*shorten the conversation"):
            await answer(session, UserText("x" * 500))
    assert server.refusals == {"window": 1}


async def thought(protocol: Protocol) -> Exchange:
    """Return an exchange in which a model has thought and asked for a call."""
    async with protocol.server(protocol.calls(("toolu_1", "add", '{"a":1,"b":2}'))) as server:
        session = protocol.model(server).open("Be brief.", [add])
        await answer(session, UserText("Add."))
    return session.exchanges[0]


async def go_on(model: Model, system: str, exchange: Exchange, **extra: Any) -> None:
    session = model.open(system, [add], ModelSettings(extra=extra), exchanges=[exchange])
    await answer(session, ToolResult("toolu_1", "3"))


async def test_another_server_of_the_provider_knows_what_was_thought(protocol: Protocol):
    exchange = await thought(protocol)
    async with protocol.server(protocol.text("3.")) as server:
        await go_on(protocol.model(server), "Be brief.", exchange)


async def test_thinking_after_another_system_prompt_is_refused_by_models_that_bind_it():
    exchange = await thought(ANTHROPIC)
    async with ANTHROPIC.server(ANTHROPIC.text("3."), expects={"binding"}) as server:
        with pytest.raises(ModelProviderException, match="bound to a different conversation"):
            await go_on(ANTHROPIC.model(server), "Be verbose.", exchange)
        server.binds_thinking = False
        await go_on(ANTHROPIC.model(server), "Be verbose.", exchange)
    assert server.refusals == {"binding": 1}


async def test_thinking_that_is_to_be_dropped_is_not_refused():
    exchange = await thought(ANTHROPIC)
    profile = profile_of(Provider.Anthropic, "claude-opus-4-1")
    profile = replace(profile, headers={"anthropic-beta": BINDING_BETA})
    reply = ANTHROPIC.text("3.")
    async with ANTHROPIC.server(reply, with_length(reply)) as server:
        model = AnthropicModel("claude-5", api_key=KEY, base_url=server.url, profile=profile)
        await go_on(model, "Be verbose.", exchange, **DROPS)
        [sent] = server.requests
        headers = {"anthropic-beta": BINDING_BETA}
        again = urllib.request.Request(server.url + "/v1/messages", sent.body, headers)
        got = await asyncio.to_thread(read, again)
    assert server.thinking_dropped == ["messages.1.content.0"] * 2
    dropped = {"type": "thinking_dropped", "reason": "prefix_binding_mismatch"}
    told = next(data_of(got))["message"]["input_transformations"]
    assert told == [{**dropped, "path": "messages.1.content.0"}]


def read(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read()
