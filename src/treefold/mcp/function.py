"""A tool of an MCP server, as a Function."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from treefold.core.agent_events import NoticeGiven
from treefold.core.function import Ask, Function, RunContext
from treefold.core.json_schema import without_defaults
from treefold.core.parameter import JsonSchema
from treefold.core.parameters import Parameters
from treefold.runtime.calls.node import CallNode


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """A tool, as a server lists it."""

    name: str
    description: str
    input_schema: JsonSchema
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False
    output_schema: JsonSchema | None = None


class ToolCaller(Protocol):
    """Calls tools of a server."""

    async def call_noting(
        self, tool: str, args: Mapping[str, Any], on_notice: Callable[[str], None]
    ) -> Any:
        """Return the result of a tool; *on_notice* gets what the user should know about it.

        Raises:
            CallError: the call failed.
        """
        ...


class McpFunction(Function):
    """A tool of an MCP server; ``McpServer.functions`` lists them.

    It is ``repeatable``, and so called again after a crash, if the server declares it read-only or
    idempotent. Its tags are ``mcp``, those given to the McpServer, and ``read_only`` or
    ``destructive`` if the server declares it so.

    Attributes:
        tool: the server's own name for it.

    Example:
        >>> from treefold.mcp import McpFunction, McpServer
        >>> tool = McpTool(name="read", description="Read.", input_schema={}, read_only=True)
        >>> McpFunction("files_read", tool, McpServer(["file-server"])).repeatable
        True
    """

    def __init__(
        self,
        name: str,
        tool: McpTool,
        server: ToolCaller,
        *,
        tags: Iterable[str] = (),
        ask: Ask = False,
    ) -> None:
        hints = {"read_only": tool.read_only, "destructive": tool.destructive}
        super().__init__(
            name,
            tool.description,
            tags={"mcp", *tags, *(tag for tag, is_set in hints.items() if is_set)},
            repeatable=tool.read_only or tool.idempotent,
            ask=ask,
        )
        self.tool = tool.name
        self._server = server
        self._parameters = _parameters(name, tool.input_schema)

    @property
    def parameters(self) -> Parameters:
        return self._parameters

    def definition(self) -> Mapping[str, Any]:
        return {"arguments": [self.tool, without_defaults(self.input_schema)]}

    async def run_call(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        notices: list[str] = []
        result = await self._server.call_noting(self.tool, args, notices.append)
        node = ctx.node
        assert isinstance(node, CallNode)  # there is no other that runs
        for notice in notices:
            node.tree.publish(NoticeGiven(node.id, notice))
        return result


def _parameters(name: str, schema: JsonSchema) -> Parameters:
    try:
        return Parameters.of_schema(name, schema)
    except Exception:  # noqa: BLE001 - a foreign schema may be invalid; the server checks arguments
        return Parameters(name, [], takes_more=True, json_schema=schema)
