"""The Model Context Protocol: use the tools of MCP servers, and serve functions as MCP tools.

Needs the extra ``treefold[mcp]``, which is loaded when the first connection is made.

As a client: ``server`` has a ``connection`` over an ``http_transport`` or a ``stdio_transport``,
and gives a ``function`` for each tool. As a server: ``serving`` puts a ``tool_server`` before a
runtime, over ``stdio`` or ``http``. Both sides share ``content`` and ``messages``.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
