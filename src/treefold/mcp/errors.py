"""What goes wrong with servers that others wrote."""

from treefold.core.errors import CallError


class McpToolError(CallError):
    """The server says that the call failed; the message is what it says, for a model to read.

    Example:
        >>> from treefold.mcp import McpToolError
        >>> str(McpToolError("there is no city 'Atlantis'"))
        "there is no city 'Atlantis'"
    """


class McpConnectionError(CallError):
    """The server cannot be started or reached, or is gone.

    The message has what it last wrote to its stderr, if it is a program of ours.

    Example:
        >>> import asyncio
        >>> from treefold.mcp import McpConnectionError, McpServer
        >>> async def main():
        ...     async with McpServer(["no-such-program"]):
        ...         pass
        >>> asyncio.run(main())
        Traceback (most recent call last):
            ...
        treefold.mcp.errors.McpConnectionError: MCP server 'no-such-program' cannot be started: ...
    """
