"""Errors of MCP servers and connections to them."""

from treefold.core.errors import CallError, UsageError


class McpToolError(CallError):
    """The server reports that a tool failed; the message is the server's own, for a model to read.

    Example:
        >>> from treefold.mcp import McpToolError
        >>> str(McpToolError("there is no city 'Atlantis'"))
        "there is no city 'Atlantis'"
    """


class McpConnectionError(CallError):
    """The server cannot be started or reached, or is disconnected.

    If the server was started for the connection, the message has the end of its stderr.

    Example:
        >>> import asyncio
        >>> from treefold.mcp import McpConnectionError, McpServer
        >>> async def main():
        ...     async with McpServer(["no-such-program"]):
        ...         pass
        >>> asyncio.run(main())
        Traceback (most recent call last):
            ...
        treefold.errors.McpConnectionError: MCP server 'no-such-program' cannot be started: ...
    """


def missing_package(error: ModuleNotFoundError) -> UsageError:
    """Return the error to raise when a package of the extra is not installed."""
    missing = str(error.name).partition(".")[0]
    return UsageError(
        f"MCP needs a package that is not installed ({missing}): pip install 'treefold[mcp]'"
    )
