"""A person talks to a model over HTTP, and the model uses the tools of an MCP server."""

import asyncio
from typing import Literal

import pytest

from mcp_servers import tools
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentOptions,
    BlockedError,
    Client,
    HookDecision,
    PreToolUseEvent,
    Runtime,
    TextBlock,
    ToolUseBlock,
    ToolUseError,
)
from treefold.mcp import McpFunction, McpServer
from wire.protocols import PROTOCOLS

OPENAI, ANTHROPIC, _ = PROTOCOLS


async def test_the_model_calls_what_the_server_offers_and_the_tree_shows_it():
    script = [ANTHROPIC.calls(("a", "far_add", '{"a":25,"b":17}')), ANTHROPIC.text("It is 42.")]
    async with (
        asyncio.timeout(60),
        ANTHROPIC.server(*script) as provider,
        McpServer(tools(), prefix="far") as server,
        Runtime() as runtime,
    ):
        given = AgentOptions(
            "You calculate.",
            ANTHROPIC.model(provider),
            tools=server.functions,
            auto_execute_tools=True,
        )
        async with Client(given) as client:
            await client.query("25 + 17?")
            blocks = [block async for block in client.receive_messages()]
        [turn] = runtime.list_toplevel()
        [call] = turn.get_children()
    assert ToolUseBlock("a", "far_add", {"a": 25, "b": 17}) in blocks
    assert blocks[-1] == TextBlock("It is 42.")
    assert not isinstance(call, list)
    assert isinstance(call.function, McpFunction)
    assert call.outputs == 42
    assert client.history[2]["content"] == "42"


@pytest.mark.parametrize("on_blocked", ["raise", "tell"])
async def test_what_a_hook_forbids_does_not_reach_the_server(on_blocked: Literal["raise", "tell"]):
    async def gate(event: PreToolUseEvent) -> HookDecision:
        return HookDecision(continue_=event.tool_input["text"] != "fire", reason="not today")

    calls = [("a", "shout", '{"text":"hello"}'), ("b", "shout", '{"text":"fire"}')]
    script = [OPENAI.calls(*calls), OPENAI.text("Then not.")]
    async with (
        asyncio.timeout(60),
        OPENAI.server(*script) as provider,
        McpServer(tools(), only=["shout", "noted"]) as server,
    ):
        given = AgentOptions(
            "You shout.",
            "gpt-wire",
            f"{provider.url}/v1",
            tools=server.functions,
            auto_execute_tools=True,
            on_blocked=on_blocked,
            hooks={HOOK_PRE_TOOL_USE: [gate]},
        )
        blocks, blocked = list[object](), None
        async with Client(given) as client:
            await client.query("Shout.")
            try:
                async for block in client.receive_messages():
                    blocks.append(block)
            except BlockedError as error:
                blocked = error
        assert await server.call("noted") == "shouted hello"
    assert blocks[0] == ToolUseBlock("a", "shout", {"text": "hello"})
    if on_blocked == "raise":
        assert str(blocked) == "Tool use blocked: not today"
        assert len(blocks) == len(provider.requests) == 1
    else:
        assert blocked is None
        _, told, answer = blocks
        assert isinstance(told, ToolUseError)
        assert told.error == "Tool use blocked: not today"
        assert answer == TextBlock("Then not.")
