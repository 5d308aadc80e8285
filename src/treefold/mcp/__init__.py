"""The Model Context Protocol: use the tools of its servers, and serve functions as its tools.

Needs the extra ``treefold[mcp]``, which is loaded when the first connection is made.

To use tools: ``server`` has a ``connection``, over HTTP or to a ``program``, and gives a
``function`` for each tool. To serve them: ``serving`` puts a ``bridge`` before a runtime, over
``stdio`` or ``http``. Both sides share ``content`` and ``wire``.
"""

from treefold.exports import exports

__getattr__, __dir__, __all__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "treefold.mcp.errors": ["McpConnectionError", "McpToolError"],
        "treefold.mcp.function": ["McpFunction"],
        "treefold.mcp.server": ["McpServer"],
        "treefold.mcp.serving": ["serve"],
    },
)
