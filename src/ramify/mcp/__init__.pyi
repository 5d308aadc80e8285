"""What ``ramify.mcp`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from ramify.mcp.errors import (
    McpConnectionError as McpConnectionError,
    McpToolError as McpToolError,
)
from ramify.mcp.function import McpFunction as McpFunction
from ramify.mcp.server import McpServer as McpServer
from ramify.mcp.serving import serve as serve
