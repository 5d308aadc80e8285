"""A connection to an MCP server, whose tools become functions."""

import logging
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

from treefold.core.errors import InvalidValueError, UsageError
from treefold.core.function import Ask, checked_tags, checked_timeout
from treefold.core.truncation import truncate
from treefold.mcp.errors import McpConnectionError, missing_package
from treefold.mcp.function import McpFunction, McpTool
from treefold.mcp.naming import fit_names
from treefold.mcp.secrets import Secrets
from treefold.models.secret import public_url

_LONGEST_LABEL: Final = 200  # characters

_log = logging.getLogger("treefold.mcp")


class _Connection(Protocol):
    async def open(self, seconds: float | None) -> list[McpTool]: ...

    async def tools(self) -> list[McpTool]: ...

    async def call(
        self,
        tool: str,
        args: Mapping[str, Any],
        seconds: float | None,
        max_chars: int | None,
        on_notice: Callable[[str], None],
    ) -> Any: ...

    async def aclose(self) -> None: ...


class McpServer:
    """A connection to an MCP server, open inside ``async with``; ``functions`` are its tools.

    They can be used wherever a Function can, from any thread, while the connection is open. A
    program is started for the connection and ended with it, along with all its descendants. If it
    ends earlier, calls fail with an McpConnectionError.

    Args:
        target: a command, as a list, or the URL of a server (streamable HTTP).
        env: environment variables for the program, beside the few that it inherits, such as PATH.
        cwd: the folder to start the program in.
        headers: sent with every HTTP request, for example to authenticate.
        prefix: is put before the name of each function, with an underscore between.
        only: the tools to include, by the server's own names.
        without: the tools to exclude.
        timeout: seconds for one call; None for no limit.
        start_timeout: seconds to connect and list the tools.
        max_chars: a result that is longer as text loses its middle; None for no limit.
        tags: tags of every function.
        ask: whether a person approves each call that a model asks for, as for ``@tool``; a dict has
            that for some of the tools, by the server's own names.

    Example:
        >>> import asyncio, sys
        >>> from treefold import Runtime
        >>> from treefold.mcp import McpServer
        >>> async def main():
        ...     command = [sys.executable, "-m", "treefold", "mcp", "treefold.toolbox:bash"]
        ...     async with McpServer(command, prefix="other") as server, Runtime() as runtime:
        ...         print(server.functions)
        ...         return await runtime.invoke(server.functions[0], {"command": "echo hello"})
        >>> asyncio.run(main())
        [<McpFunction other_bash>]
        'hello'
    """

    def __init__(  # noqa: PLR0913 - options, all passed by name
        self,
        target: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        headers: Mapping[str, str] | None = None,
        prefix: str = "",
        only: Iterable[str] | None = None,
        without: Iterable[str] = (),
        timeout: float | None = 300,
        start_timeout: float | None = 30,
        max_chars: int | None = 100_000,
        tags: Iterable[str] = (),
        ask: Ask | dict[str, Ask] = False,
    ) -> None:
        self._url, self._command = _checked_target(target)
        self._env = _checked_texts(env or {}, "env")
        self._headers = _checked_texts(headers or {}, "headers")
        self._secrets = Secrets.of(self._env, self._headers)
        self._label = self._secrets.scrub(_label(self._url, self._command))
        self._cwd = cwd
        if self._url and (env is not None or cwd is not None):
            raise InvalidValueError(f"env and cwd are for commands, and {self._label} is a URL")
        if self._command and headers is not None:
            raise InvalidValueError(
                f"headers are for URLs, and {self._label} is a command: pass env"
            )
        self._prefix = prefix
        self._only = None if only is None else _checked_names(only, "only")
        self._without = _checked_names(without, "without")
        self._timeout = checked_timeout(timeout, f"MCP server {self._label}")
        self._start_timeout = checked_timeout(start_timeout, f"MCP server {self._label}")
        if max_chars is not None and max_chars < 1:
            raise InvalidValueError(f"max_chars must be at least 1, or None, got {max_chars!r}")
        self._max_chars = max_chars
        self._tags = checked_tags(tags, f"MCP server {self._label}")
        by_name = cast("dict[str, Ask]", ask) if isinstance(ask, dict) else None
        self._asks: Mapping[str, Ask] = by_name or {}
        self._ask: Ask = cast("Ask", ask) if by_name is None else False  # of the other tools
        self._connection: _Connection | None = None
        self._functions: list[McpFunction] = []

    def __repr__(self) -> str:
        return f"<McpServer {self._label}>"

    @property
    def functions(self) -> list[McpFunction]:
        """The tools that the server had when they were last listed."""
        return list(self._functions)

    async def __aenter__(self) -> Self:
        if self._connection is not None:
            raise UsageError(f"{self!r} is open already; create another for a second connection")
        connection = self._connect()
        self._connection = connection
        try:
            tools = await connection.open(self._start_timeout)
            self._check_filters(tools)
        except BaseException:
            self._connection = None
            await connection.aclose()
            raise
        self._use(tools)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def refresh(self) -> list[McpFunction]:
        """List the tools again, as they may have changed, and return them."""
        self._use(await self._open_connection().tools())
        return self.functions

    async def call(self, tool: str, args: Mapping[str, Any] | None = None) -> Any:
        """Call a tool by the server's own name for it, outside any tree.

        Raises:
            McpToolError: the server reports that the tool failed.
            McpConnectionError: the server is disconnected, or was never connected.
            CallTimeoutError: it took too long; the request was cancelled on the server.
        """
        return await self.call_noting(
            tool, args or {}, lambda notice: _log.warning("%s of %s: %s", tool, self._label, notice)
        )

    async def call_noting(
        self, tool: str, args: Mapping[str, Any], on_notice: Callable[[str], None]
    ) -> Any:
        """Call a tool; *on_notice* gets what the user should know about the result."""
        connection = self._open_connection()
        return await connection.call(tool, args, self._timeout, self._max_chars, on_notice)

    def _open_connection(self) -> _Connection:
        if self._connection is None:
            raise McpConnectionError(
                f"MCP server {self._label} is not connected; use its functions inside"
                " 'async with McpServer(...)'"
            )
        return self._connection

    def _connect(self) -> _Connection:
        try:
            from treefold.mcp.connection import ServerConnection  # noqa: PLC0415 - slow
            from treefold.mcp.http_transport import HttpTransport  # noqa: PLC0415 - slow
            from treefold.mcp.stdio_transport import StdioTransport  # noqa: PLC0415 - slow
        except ModuleNotFoundError as error:
            raise missing_package(error) from None
        if self._url:
            return ServerConnection(
                self._label, HttpTransport(self._url, self._headers), self._secrets
            )
        transport = StdioTransport(self._command, self._env, self._cwd)
        return ServerConnection(self._label, transport, self._secrets)

    def _check_filters(self, tools: Sequence[McpTool]) -> None:
        """Refuse unknown names in *only*, *without* and *ask*: a misspelt one has no effect."""
        known = [tool.name for tool in tools]
        named = (*(self._only or ()), *self._without, *self._asks)
        unknown = [name for name in named if name not in known]
        if unknown:
            listed = ", ".join(known) or "none"
            raise InvalidValueError(
                f"MCP server {self._label} has no tool {unknown[0]!r}; it has {listed}"
            )

    def _use(self, tools: Sequence[McpTool]) -> None:
        wanted = {tool.name: tool for tool in tools if self._is_included(tool.name)}
        names, asks = fit_names(wanted, self._prefix), self._asks
        self._functions = [
            McpFunction(names[name], tool, self, tags=self._tags, ask=asks.get(name, self._ask))
            for name, tool in wanted.items()
        ]

    def _is_included(self, name: str) -> bool:
        return (self._only is None or name in self._only) and name not in self._without


def _checked_target(target: str | Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the URL and the command in *target*; one of them is empty."""
    if isinstance(target, str):
        if not target.startswith(("http://", "https://")):
            raise InvalidValueError(
                f"target must be a URL or a list, got {target!r}; pass a command as a list:"
                f" McpServer({shlex.split(target)!r})"
            )
        return target, ()
    command = tuple(os.fspath(part) for part in target)
    if not command or not all(isinstance(part, str) and "\0" not in part for part in command):
        raise InvalidValueError(f"a command must be a list of strings, got {target!r}")
    return "", command


def _label(url: str, command: Sequence[str]) -> str:
    shown = truncate(public_url(url) if url else shlex.join(command), _LONGEST_LABEL)
    return repr(shown) if command else shown


def _checked_texts(given: Mapping[str, str], what: str) -> dict[str, str]:
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            kind = type(value).__name__
            raise InvalidValueError(f"{what} must map strings to strings, got {name!r}: {kind}")
        if any(bad in name + value for bad in ("\0", "\r", "\n" if what == "headers" else "\0")):
            raise InvalidValueError(f"{what}[{name!r}] has a control character that cannot be sent")
    return dict(given)


def _checked_names(names: Iterable[str], what: str) -> tuple[str, ...]:
    found = tuple(names)
    if isinstance(names, str) or not all(isinstance(name, str) for name in found):
        raise InvalidValueError(f"{what} must be a list of names, got {names!r}")
    return found
