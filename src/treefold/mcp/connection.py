"""One connection to a server: the SDK's client owned by one task, its failures in our words."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, Final, Protocol, TypeVar, cast

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from treefold.core.errors import CallTimeoutError, ClosedError, TreefoldError
from treefold.mcp.content import fault_of, value_of
from treefold.mcp.errors import McpConnectionError, McpToolError
from treefold.mcp.function import McpTool
from treefold.mcp.output import wraps_result
from treefold.mcp.secrets import Secrets
from treefold.mcp.wire import LONGEST_LINE
from treefold.runtime.owner import Owner
from treefold.toolbox.shell.output import cut_middle, plain_text
from treefold.version import __version__

R = TypeVar("R")

_MOST_PAGES: Final = 1000
_LONGEST_DESCRIPTION: Final = 10_000  # characters
_LONGEST_CAUSE: Final = 500  # characters
# What the SDK says where an HTTP server only gave a status.
_NOT_ITS_WORDS: Final = ("Server returned an error response", "Session terminated")
_TO_CONNECT: Final = 15.0  # seconds
_TO_SAY_GOODBYE: Final = 2.0  # seconds
_TO_LOOK: Final = 3.0  # seconds
_LONGEST_LOOK: Final = 4096  # bytes
# What a server of the old transport may answer to a POST at the address of its stream.
_OLD_STATUSES: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_OLD_TRANSPORT: Final = (
    "it speaks the HTTP+SSE transport of 2024-11-05, which was replaced by streamable HTTP: give"
    " the address of its streamable HTTP endpoint (often /mcp instead of /sse), update the server,"
    " or connect through a bridge program, such as McpServer(['uvx', 'mcp-proxy', URL])"
)


class Endpoint(Protocol):
    """Where a server is."""

    def streams(self) -> AbstractAsyncContextManager[Any]:
        """Reach it, and give the SDK's streams to and from it."""
        ...

    async def settle(self) -> None:
        """Let it end, if it is about to; on the loop of its streams."""
        ...

    async def hint(self) -> str:
        """Return what helps where the server could not be reached; nothing if that is unknown."""
        ...

    def last_words(self) -> list[str]:
        """Return what is known of its end, in sentences; from any thread."""
        ...


class HttpEndpoint:
    """A server at an address, over streamable HTTP."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)
        self._refusal = ""
        self._status = 0  # of that

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Any, None]:
        waits = httpx2.Timeout(_TO_CONNECT, read=None)  # how long a call may take is said elsewhere
        hooks = {"response": [self._look_at]}
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=waits, event_hooks=hooks) as http,
            streamable_http_client(
                self._url, http_client=http, max_sse_event_size=LONGEST_LINE
            ) as streams,
        ):
            try:
                yield streams
            finally:
                http.timeout = httpx2.Timeout(_TO_SAY_GOODBYE)

    async def settle(self) -> None:
        pass

    async def hint(self) -> str:
        if self._status not in _OLD_STATUSES:
            return ""
        accept = {"Accept": "text/event-stream"}
        with suppress(TimeoutError, httpx2.HTTPError):
            async with (
                asyncio.timeout(_TO_LOOK),
                httpx2.AsyncClient(headers=self._headers) as http,
                http.stream("GET", self._url, headers=accept) as response,
            ):
                return _OLD_TRANSPORT if await _names_endpoint(response) else ""
        return ""

    def last_words(self) -> list[str]:
        return [f"it last refused with HTTP {self._refusal}"] if self._refusal else []

    async def _look_at(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status >= HTTPStatus.BAD_REQUEST and response.request.method == "POST":
            self._status = status
            self._refusal = f"{status} {response.reason_phrase}".strip()


class Connection:
    """Talks to one server, from any loop and thread, until it is closed."""

    def __init__(self, label: str, endpoint: Endpoint, secrets: Secrets) -> None:
        self._label = label
        self._endpoint = endpoint
        self._secrets = secrets
        self._owner = Owner(self._client(), f"MCP server {label}")
        self._wrapping = frozenset[str]()  # tools that wrap their results

    async def open(self, seconds: float | None) -> list[McpTool]:
        """Reach the server, and return what tools it has; both within *seconds*."""
        timer = asyncio.timeout(seconds)
        try:
            async with timer:
                await self._owner.open()
                return await self.tools()
        except BaseException as error:
            await self.aclose()
            if isinstance(error, TimeoutError) and timer.expired():
                raise await self._lost(f"has not answered in {seconds:g} s") from None
            if isinstance(error, TreefoldError) or not isinstance(error, Exception):
                raise
            what = "; ".join(filter(None, [_why_not_started(error), await self._endpoint.hint()]))
            raise await self._lost(what) from None

    async def tools(self) -> list[McpTool]:
        """Return all the tools that the server has now."""

        async def collect(client: Client) -> list[McpTool]:
            tools: list[McpTool] = []
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                try:
                    page = await client.list_tools(cursor=cursor)
                except MCPError as error:
                    if error.code == types.METHOD_NOT_FOUND:  # it has other things than tools
                        return tools
                    raise
                tools += map(_tool, page.tools)
                cursor = page.next_cursor
                if not cursor:
                    return tools
            raise McpConnectionError(f"MCP server {self._label} has no end of tools to list")

        try:
            found = await self._ask(collect)
        except McpToolError as error:
            raise McpConnectionError(
                f"MCP server {self._label} cannot say what tools it has: {error}"
            ) from None
        self._wrapping = frozenset(tool.name for tool in found if tool.wraps_result)
        return found

    async def call(
        self, tool: str, args: Mapping[str, Any], seconds: float | None, max_chars: int | None
    ) -> Any:
        """Call a tool; whoever gives up waiting has the server told so, and nobody else."""
        timer = asyncio.timeout(seconds)
        try:
            async with timer:
                result = await self._ask(lambda client: client.call_tool(tool, dict(args)))
        except TimeoutError:
            if not timer.expired():
                raise
            raise CallTimeoutError(
                f"{tool} of MCP server {self._label} took longer than {seconds:g} s; give"
                " McpServer(timeout=...) more if it needs that"
            ) from None
        if result.is_error:
            raise McpToolError(self._scrubbed(fault_of(result, max_chars)))
        return value_of(result, max_chars, wrapped=tool in self._wrapping)

    async def aclose(self) -> None:
        """End the connection, and the server if it is a program of ours."""
        await self._owner.aclose()

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[Client, None]:
        us = types.Implementation(name="treefold", version=__version__)
        async with Client(self._endpoint.streams(), client_info=us, cache=None) as client:
            yield client

    async def _ask(self, work: Callable[[Client], Coroutine[Any, Any, R]]) -> R:
        """Do *work* with the client; whatever the SDK raises is an error of ours."""
        try:
            return await self._owner.call(work)
        except MCPError as error:
            if _has_closed(error):
                raise await self._lost("is gone") from None
            if error.message in _NOT_ITS_WORDS:
                raise await self._lost("did not answer") from None
            raise McpToolError(self._scrubbed(error.message)) from None
        except ClosedError:
            failure = self._owner.failure
            what = "is gone" if failure is None else f"is gone ({_cause(failure)})"
            raise await self._lost(what) from None
        except TreefoldError:
            raise
        except Exception as error:  # noqa: BLE001 - an answer that the protocol does not allow
            raise McpToolError(
                f"its answer cannot be used: {self._scrubbed(_cause(error))}"
            ) from None

    async def _lost(self, what: str) -> McpConnectionError:
        with suppress(ClosedError):
            await self._owner.call(lambda client: self._endpoint.settle())
        text = "; ".join([what, *self._endpoint.last_words()])
        return McpConnectionError(f"MCP server {self._label} {self._scrubbed(text)}")

    def _scrubbed(self, text: str) -> str:
        return self._secrets.scrub(text)


async def _names_endpoint(response: httpx2.Response) -> bool:
    """Whether a stream begins as that of the old transport does, with an ``endpoint`` event."""
    kind = response.headers.get("content-type", "").lower()
    if response.status_code != HTTPStatus.OK or not kind.startswith("text/event-stream"):
        return False
    begun = b""
    async for piece in response.aiter_bytes():
        begun += piece
        lines = begun.splitlines()
        if any(line.replace(b" ", b"") == b"event:endpoint" for line in lines):
            return True
        if len(begun) > _LONGEST_LOOK:
            break
    return False


def _tool(tool: types.Tool) -> McpTool:
    hints = tool.annotations or types.ToolAnnotations()
    return McpTool(
        name=tool.name,
        description=cut_middle(plain_text(tool.description or ""), _LONGEST_DESCRIPTION),
        input_schema=tool.input_schema,
        read_only=bool(hints.read_only_hint),
        idempotent=bool(hints.idempotent_hint),
        destructive=bool(hints.destructive_hint),
        wraps_result=wraps_result(tool.output_schema),
    )


def _why_not_started(error: Exception) -> str:
    first = _first(error)
    if isinstance(first, MCPError) and _has_closed(first):
        return "ended the connection before it had begun"
    if isinstance(first, MCPError):
        return f"refused the connection: {first.message}"
    if isinstance(first, OSError):
        return f"cannot be started: {first}"
    return f"cannot be reached: {_cause(first)}"


def _has_closed(error: MCPError) -> bool:
    """Whether the SDK says that the connection is gone; servers use that code for other things."""
    by_us = error.message == "Connection closed" or error.message.startswith("SSE stream")
    return error.code == types.CONNECTION_CLOSED and by_us


def _cause(error: BaseException) -> str:
    first = _first(error)
    text = cut_middle(" ".join(str(first).split()), _LONGEST_CAUSE)
    return f"{type(first).__name__}: {text}" if text else type(first).__name__


def _first(error: BaseException) -> BaseException:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _first(group.exceptions[0])
    return error
