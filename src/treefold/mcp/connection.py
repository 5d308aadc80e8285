"""A connection to a server: the SDK's client in one task, its failures as errors of treefold."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, Protocol, TypeVar, cast

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError

from treefold.core.errors import CallTimeoutError, ClosedError, TreefoldError
from treefold.core.truncation import truncate_middle
from treefold.mcp.content import error_text, to_value
from treefold.mcp.errors import McpConnectionError, McpToolError
from treefold.mcp.function import McpTool
from treefold.mcp.output import wraps_result
from treefold.mcp.result_schema import ResultSchema, Unchecked
from treefold.mcp.secrets import Secrets
from treefold.runtime.loops.resource_task import ResourceTask
from treefold.toolbox.shell.output import plain_text
from treefold.version import __version__

R = TypeVar("R")

_MOST_PAGES: Final = 1000
_LONGEST_DESCRIPTION: Final = 10_000  # characters
_UNCHECKED: Final = "the result was not checked against the output schema of the tool"
_LONGEST_CAUSE: Final = 500  # characters
# The SDK's own messages for an HTTP error without a JSON-RPC body.
_SDK_MESSAGES: Final = ("Server returned an error response", "Session terminated")


class Transport(Protocol):
    """How a server is reached."""

    def streams(self) -> AbstractAsyncContextManager[Any]:
        """Connect to the server, and give the SDK's streams to and from it."""
        ...

    async def wait_for_exit(self) -> None:
        """Wait briefly for the end of a server that is exiting; on the loop of its streams."""
        ...

    async def connection_hint(self) -> str:
        """Return advice for a server that could not be reached; empty if there is none."""
        ...

    def failure_details(self) -> list[str]:
        """Return what is known about the end of the server, as clauses; from any thread."""
        ...


class ServerConnection:
    """A client of one server, for any event loop and thread, until it is closed."""

    def __init__(self, label: str, transport: Transport, secrets: Secrets) -> None:
        self._label = label
        self._transport = transport
        self._secrets = secrets
        self._owner = ResourceTask(self._client(), f"MCP server {label}")
        self._wrapping = frozenset[str]()  # tools that wrap their results
        self._results: dict[str, ResultSchema] = {}  # of tools that have an output schema

    async def open(self, seconds: float | None) -> list[McpTool]:
        """Connect to the server and return its tools, both within *seconds*."""
        timer = asyncio.timeout(seconds)
        try:
            async with timer:
                await self._owner.open()
                return await self.tools()
        except BaseException as error:
            await self.aclose()
            if isinstance(error, TimeoutError) and timer.expired():
                message = f"did not respond within {seconds:g} s"
                raise await self._connection_error(message) from None
            if isinstance(error, TreefoldError) or not isinstance(error, Exception):
                raise
            hint = await self._transport.connection_hint()
            message = "; ".join(filter(None, [_connect_failure(error), hint]))
            raise await self._connection_error(message) from None

    async def tools(self) -> list[McpTool]:
        """Return all tools that the server has now."""

        async def collect(client: Client) -> list[McpTool]:
            tools: list[McpTool] = []
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                try:
                    page = await client.list_tools(cursor=cursor)
                except MCPError as error:
                    if error.code == types.METHOD_NOT_FOUND:  # it serves no tools
                        return tools
                    raise
                tools += map(_tool, page.tools)
                cursor = page.next_cursor
                if not cursor:
                    return tools
            raise McpConnectionError(
                f"MCP server {self._label} lists more than {_MOST_PAGES:,} pages of tools"
            )

        try:
            found = await self._request(collect)
        except McpToolError as error:
            raise McpConnectionError(
                f"MCP server {self._label} cannot list its tools: {error}"
            ) from None
        self._wrapping = frozenset(tool.name for tool in found if wraps_result(tool.output_schema))
        self._results = {
            tool.name: ResultSchema(tool.output_schema)
            for tool in found
            if tool.output_schema is not None
        }
        return found

    async def call(
        self,
        tool: str,
        args: Mapping[str, Any],
        seconds: float | None,
        max_chars: int | None,
        on_notice: Callable[[str], None],
    ) -> Any:
        """Call a tool; a timeout or cancellation also cancels the request on the server.

        *on_notice* is called with what the user should know about the result.
        """
        timer = asyncio.timeout(seconds)
        try:
            async with timer:
                result = await self._request(lambda client: client.call_tool(tool, dict(args)))
        except TimeoutError:
            if not timer.expired():
                raise
            raise CallTimeoutError(
                f"{tool} of MCP server {self._label} took longer than {seconds:g} s; pass a longer"
                " McpServer(timeout=...) if it needs more time"
            ) from None
        if result.is_error:
            raise McpToolError(self._scrubbed(error_text(result, max_chars)))
        if (schema := self._results.get(tool)) is not None:
            if "structured_content" not in result.model_fields_set:
                raise McpToolError(
                    "invalid response: it lacks the content that its schema promises"
                )
            try:
                fault = schema.fault(result.structured_content)
            except Unchecked as why:
                on_notice(self._scrubbed(f"{_UNCHECKED}: {why}"))
                fault = None
            if fault is not None:
                fault = truncate_middle(self._scrubbed(fault), _LONGEST_CAUSE)
                raise McpToolError(f"invalid response: {fault}")
        return to_value(result, max_chars, wrapped=tool in self._wrapping)

    async def aclose(self) -> None:
        """Close the connection, and end the server if it was started for the connection."""
        await self._owner.aclose()

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[Client, None]:
        info = types.Implementation(name="treefold", version=__version__)
        async with Client(self._transport.streams(), client_info=info, cache=None) as client:
            # It would use ``re`` for the patterns of the server, which may never end.
            client.session.validate_tool_result = _accept
            yield client

    async def _request(self, work: Callable[[Client], Coroutine[Any, Any, R]]) -> R:
        """Run *work* with the client; exceptions of the SDK become errors of treefold."""
        try:
            return await self._owner.call(work)
        except MCPError as error:
            if _is_connection_closed(error):
                raise await self._connection_error("is disconnected") from None
            if error.message in _SDK_MESSAGES:
                raise await self._connection_error("did not respond") from None
            raise McpToolError(self._scrubbed(error.message)) from None
        except ClosedError:
            failure = self._owner.failure
            cause = "" if failure is None else f" ({_cause(failure)})"
            raise await self._connection_error(f"is disconnected{cause}") from None
        except TreefoldError:
            raise
        except Exception as error:  # noqa: BLE001 - a response that the protocol does not allow
            raise McpToolError(f"invalid response: {self._scrubbed(_cause(error))}") from None

    async def _connection_error(self, message: str) -> McpConnectionError:
        with suppress(ClosedError):
            await self._owner.call(lambda client: self._transport.wait_for_exit())
        text = "; ".join([message, *self._transport.failure_details()])
        return McpConnectionError(f"MCP server {self._label} {self._scrubbed(text)}")

    def _scrubbed(self, text: str) -> str:
        return self._secrets.scrub(text)


async def _accept(name: str, result: types.CallToolResult) -> None:
    """Accept each result: ``Connection.call`` checks it."""


def _tool(tool: types.Tool) -> McpTool:
    hints = tool.annotations or types.ToolAnnotations()
    return McpTool(
        name=tool.name,
        description=truncate_middle(plain_text(tool.description or ""), _LONGEST_DESCRIPTION),
        input_schema=tool.input_schema,
        read_only=bool(hints.read_only_hint),
        idempotent=bool(hints.idempotent_hint),
        destructive=bool(hints.destructive_hint),
        output_schema=tool.output_schema,
    )


def _connect_failure(error: Exception) -> str:
    first = _first(error)
    if isinstance(first, MCPError) and _is_connection_closed(first):
        return "closed the connection during the handshake"
    if isinstance(first, MCPError):
        return f"refused the connection: {first.message}"
    if isinstance(first, OSError):
        return f"cannot be started: {first}"
    return f"cannot be reached: {_cause(first)}"


def _is_connection_closed(error: MCPError) -> bool:
    """Whether the SDK reports a closed connection."""
    # Servers use the same code for errors of their own, so the message is checked, too.
    by_sdk = error.message == "Connection closed" or error.message.startswith("SSE stream")
    return error.code == types.CONNECTION_CLOSED and by_sdk


def _cause(error: BaseException) -> str:
    first = _first(error)
    text = truncate_middle(" ".join(str(first).split()), _LONGEST_CAUSE)
    return f"{type(first).__name__}: {text}" if text else type(first).__name__


def _first(error: BaseException) -> BaseException:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _first(group.exceptions[0])
    return error
