"""A person talks to a model over HTTP, and the model uses the tools of an MCP server."""

import asyncio

from mcp_servers import TOOLS
from ramify import (
    HOOK_PRE_TOOL_USE,
    AgentOptions,
    Client,
    HookDecision,
    PreToolUseEvent,
    Runtime,
    TextBlock,
    ToolUseBlock,
    ToolUseError,
)
from ramify.mcp import McpFunction, McpServer
from wire.protocols import PROTOCOLS

OPENAI, ANTHROPIC, _ = PROTOCOLS


async def test_the_model_calls_what_the_server_offers_and_the_tree_shows_it():
    script = [ANTHROPIC.calls(("a", "far_add", '{"a":25,"b":17}')), ANTHROPIC.text("It is 42.")]
    async with (
        asyncio.timeout(60),
        ANTHROPIC.server(*script) as provider,
        McpServer(TOOLS, prefix="far") as server,
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
    assert call.outputs == {"result": 42}
    assert client.history[2]["content"] == '{"result": 42}'


async def test_what_a_hook_forbids_does_not_reach_the_server():
    async def gate(event: PreToolUseEvent) -> HookDecision:
        return HookDecision(continue_=False, reason="not today")

    script = [OPENAI.calls(("a", "add", '{"a":1,"b":2}')), OPENAI.text("Then not.")]
    async with (
        asyncio.timeout(60),
        OPENAI.server(*script) as provider,
        McpServer(TOOLS, only=["add"]) as server,
    ):
        given = AgentOptions(
            "You calculate.",
            "gpt-wire",
            f"{provider.url}/v1",
            tools=server.functions,
            auto_execute_tools=True,
            hooks={HOOK_PRE_TOOL_USE: [gate]},
        )
        async with Client(given) as client:
            await client.query("1 + 2?")
            blocks = [block async for block in client.receive_messages()]
    [error] = [block for block in blocks if isinstance(block, ToolUseError)]
    assert error.error == "Tool use blocked: not today"
    assert blocks[-1] == TextBlock("Then not.")
