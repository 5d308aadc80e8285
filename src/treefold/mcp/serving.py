"""Serve functions to MCP clients."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext

from treefold.core.errors import DuplicateNameError, InvalidValueError
from treefold.core.function import Function, checked_functions
from treefold.http_server.address import parse_address
from treefold.http_server.tokens import checked_token
from treefold.mcp.errors import missing_package
from treefold.mcp.stdio import Stdio, take_over_stdio
from treefold.runtime.runtime import Runtime


class ServingRuntime(Runtime):
    """Drops a tree when its call has ended."""

    keeps_finished_trees = False


async def serve(
    functions: Iterable[Function],
    *,
    runtime: Runtime | None = None,
    http: str | None = None,
    token: str | None = None,
    allow_remote: bool = False,
    name: str = "treefold",
    stdio: Stdio | None = None,
    on_ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve *functions* as MCP tools until the client disconnects or the task is cancelled.

    Each call is a top-level node of *runtime*, which the caller closes; without one, a runtime is
    created for the time of serving, and drops each tree when its call has ended. When a client
    cancels a call, or disconnects, the node is cancelled with all calls below it.

    Args:
        functions: functions of any kind, such as code and agents.
        runtime: runs the calls; it may live on another event loop.
        http: "PORT" or "HOST:PORT" to serve streamable HTTP at /mcp instead of stdin and stdout.
        token: HTTP clients send it with each request, as ``Authorization: Bearer TOKEN``.
        allow_remote: whether other machines may reach the address. There is no encryption.
        name: the name of the server.
        stdio: stdin and stdout, if they were taken over before.
        on_ready: is called with the URL, or "stdio", when requests are accepted.

    Example:
        >>> import asyncio, secrets
        >>> from treefold import CodeFunction
        >>> from treefold.mcp import McpServer, serve
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> functions = [CodeFunction(callable=add)]
        >>> token = secrets.token_urlsafe()
        >>> headers = {"Authorization": f"Bearer {token}"}
        >>> async def main():
        ...     ready = asyncio.get_running_loop().create_future()
        ...     async with asyncio.TaskGroup() as group:
        ...         task = group.create_task(
        ...             serve(functions, http="0", token=token, on_ready=ready.set_result)
        ...         )
        ...         async with McpServer(await ready, headers=headers) as server:
        ...             print(await server.call("add", {"a": 1, "b": 2}))
        ...         task.cancel()
        >>> asyncio.run(main())
        3

    Raises:
        UsageError: the address is not available.
        InvalidValueError: other machines could reach the address, or the token is missing, too
            short or not ASCII.
    """
    served = _by_name(functions)
    address = None if http is None else parse_address(http, allow_remote=allow_remote)
    if address is not None and token is None:
        raise InvalidValueError(
            "serve(http=...) needs a token that clients send as 'Authorization: Bearer TOKEN':"
            " pass token=secrets.token_urlsafe(32)"
        )
    key = "" if token is None else checked_token(token, "token")
    try:
        from treefold.mcp.http import serve_http  # noqa: PLC0415 - slow
        from treefold.mcp.messages import MessageReader, MessageWriter  # noqa: PLC0415 - slow
        from treefold.mcp.tool_server import ToolServer  # noqa: PLC0415 - slow
    except ModuleNotFoundError as error:
        raise missing_package(error) from None
    async with _running(runtime, served.values()) as used:
        server = ToolServer(served, used).server(name)
        if address is not None:
            await serve_http(server, *address, key, on_ready)
            return
        with take_over_stdio() if stdio is None else nullcontext(stdio) as wire:
            on_ready("stdio")
            await server.run(
                MessageReader(wire.read),
                MessageWriter(wire.write),
                server.create_initialization_options(),
            )


def _by_name(functions: Iterable[Function]) -> dict[str, Function]:
    served: dict[str, Function] = {}
    for function in checked_functions(functions, "serve"):
        if served.setdefault(function.name, function) is not function:
            raise DuplicateNameError(
                f"two functions are called {function.name!r}: rename one, or serve them separately"
            )
    if not served:
        raise InvalidValueError("there is nothing to serve: pass at least one function")
    return served


@asynccontextmanager
async def _running(
    runtime: Runtime | None, functions: Iterable[Function]
) -> AsyncGenerator[Runtime, None]:
    if runtime is not None:
        yield runtime
        return
    async with ServingRuntime(functions) as made:
        yield made
