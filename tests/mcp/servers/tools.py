"""A server with tools of every kind, made with the official SDK; ``--http`` for HTTP."""

import asyncio
import base64
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

server = MCPServer("tools")
events: list[str] = []


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool(structured_output=False, annotations=ToolAnnotations(idempotent_hint=True))
def shout(text: str) -> str:
    """Say it loud, and note it."""
    events.append(f"shouted {text}")
    return text.upper()


@server.tool(structured_output=False, annotations=ToolAnnotations(destructive_hint=True))
def fail(reason: str) -> str:
    """Fail."""
    raise ToolError(reason)


@server.tool(name="dotted.name with spaces", structured_output=False)
def dotted() -> str:
    """Have a name that no provider takes."""
    return "dotted"


@server.tool(structured_output=False)
async def wait(mark: str) -> str:
    """Wait for ever, and note it when that is cancelled."""
    events.append(f"{mark} began")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        events.append(f"{mark} was cancelled")
        raise
    return ""


@server.tool(structured_output=False)
def noted() -> str:
    """Tell what was noted."""
    return " ".join(events)


@server.tool(structured_output=False)
def environment(name: str) -> str:
    """Tell the value of a variable."""
    return os.environ.get(name, "(not set)")


@server.tool(structured_output=False)
def folder() -> str:
    """Tell where it was started."""
    return str(Path.cwd())


@server.tool(structured_output=False)
def header(name: str, context: Context) -> str:
    """Tell the value of a header of the request."""
    headers = context.headers
    return headers.get(name, "(not set)") if headers is not None else "(no headers)"


@server.tool()
def blocks() -> CallToolResult:
    """Give every kind of content."""
    data = base64.b64encode(b"x" * 2500).decode()
    return CallToolResult(
        content=[
            TextContent(text="first"),
            ImageContent(data=data, mime_type="image/png"),
            AudioContent(data=data, mime_type="audio/wav"),
            ResourceLink(
                name="report", uri="file:///report.pdf", mime_type="application/pdf", size=1_500_000
            ),
            EmbeddedResource(
                resource=TextResourceContents(
                    uri="file:///a.txt", mime_type="text/plain", text="inside"
                )
            ),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///b.bin", blob=data)),
            TextContent(text="last"),
        ]
    )


@server.tool(structured_output=False)
def long_text(characters: int) -> str:
    """Give a long text."""
    return "a" * characters


@server.tool(structured_output=False)
def controls() -> str:
    """Give what a terminal would obey."""
    return "\x1b[31mred\x00\x07\u202e\r\n"


@server.tool(structured_output=False)
def start_others(folder: str) -> str:
    """Start programs that would outlive the server."""
    for apart in (False, True):
        subprocess.Popen(["sleep", "300"], cwd=folder, start_new_session=apart)
    return "started"


@server.tool(structured_output=False)
def die(words: str) -> str:
    """End at once."""
    sys.stderr.write(words)
    sys.stderr.flush()
    os._exit(3)


@server.tool(structured_output=False)
def print_loudly() -> str:
    """Write what is no message to the standard output."""
    os.write(1, b"hello from a tool\n")
    return "printed"


@server.tool(structured_output=False)
def learn() -> str:
    """Have one more tool from now on."""

    @server.tool(structured_output=False)
    def learned() -> str:
        """Be new."""
        return "new"

    return "learned"


def serve_http() -> None:
    """Serve HTTP at any free port, and print it."""
    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(server.streamable_http_app(), log_level="critical")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    logging.disable()
    if "--http" in sys.argv:
        serve_http()
    else:
        server.run("stdio")
