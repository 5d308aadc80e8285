"""What ``treefold.mcp`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from treefold.mcp.errors import (
    McpConnectionError as McpConnectionError,
    McpToolError as McpToolError,
)
from treefold.mcp.function import McpFunction as McpFunction
from treefold.mcp.server import McpServer as McpServer
from treefold.mcp.serving import serve as serve
