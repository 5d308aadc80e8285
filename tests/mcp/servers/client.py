"""A client made with the official SDK, as a program: client.py MODE ABLE FOLDER TARGET.

It connects to TARGET, a module to serve or an address (with the token in TREEFOLD_MCP_TOKEN), and
prints all that it was told as JSON. It can be asked something if ABLE is "able".
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

mode, able, place, target = sys.argv[1:]
told: dict[str, Any] = {}


def plain(result: CallToolResult) -> Any:
    text = "\n".join(block.text for block in result.content)  # pyright: ignore
    return [text, result.structured_content, result.is_error]


async def calls(client: Client) -> None:
    tools = (await client.list_tools()).tools
    told["tools"] = {tool.name: [tool.description, tool.input_schema] for tool in tools}
    told["outputs"] = {tool.name: tool.output_schema for tool in tools}
    told["calls"] = results = {}
    told["repeatable"] = [tool.name for tool in tools if tool.annotations is not None]
    for name, args in [
        ("double", {"n": 4}),
        ("double", {"n": "four"}),
        ("double", {"m": 4}),
        ("chatter", {}),
        ("fail", {}),
        ("leave", {}),
        ("remember", {}),
        ("many", {"n": 3}),
        ("planner", {"goal": "the end"}),
    ]:
        results[f"{name} {json.dumps(args)}"] = plain(await client.call_tool(name, args))
    try:
        await client.call_tool("dubble", {})
    except MCPError as error:
        told["dubble"] = error.message


async def exists(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110, ASYNC240 - there is no event to wait for
        await asyncio.sleep(0.02)


async def cancel(client: Client) -> None:
    folder = Path(place)
    async with asyncio.TaskGroup() as group:
        napping = group.create_task(client.call_tool("nap", {"folder": str(folder)}))
        await exists(folder / "began")
        napping.cancel()
    await exists(folder / "ended")
    told["afterwards"] = plain(await client.call_tool("double", {"n": 1}))


async def progress(client: Client) -> None:
    told["progress"] = seen = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append([progress, message])

    told["many"] = plain(await client.call_tool("many", {"n": 5}, progress_callback=on_progress))


async def ask(client: Client) -> None:
    told["colour"] = plain(await client.call_tool("ask_colour", {}))


async def elicited(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    told.setdefault("asked", []).append([params.message, getattr(params, "requested_schema", None)])
    colour = "green" if len(told["asked"]) == 1 else "Blue"
    return ElicitResult(action="accept", content={"answer": colour})


@asynccontextmanager
async def streams(url: str) -> AsyncGenerator[Any, None]:
    headers = {"Authorization": f"Bearer {os.environ['TREEFOLD_MCP_TOKEN']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(url, http_client=http) as both,
    ):
        yield both


async def main() -> None:
    command = ["-W", "error", "-m", "treefold", "mcp", target]
    server: Any = (
        streams(target)
        if target.startswith("http")
        else StdioServerParameters(command=sys.executable, args=command)
    )
    options: dict[str, Any] = {"elicitation_callback": elicited} if able == "able" else {}
    async with asyncio.timeout(60), Client(server, mode=mode, **options) as client:
        told["version"] = client.protocol_version
        told["server"] = client.server_info.name if client.server_info else None
        for one in (calls, progress, ask, cancel):
            await one(client)
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main())
