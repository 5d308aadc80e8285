"""Serve functions to clients of the Model Context Protocol."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext

from treefold.core.errors import DuplicateNameError, InvalidValueError
from treefold.core.function import Function, checked_functions
from treefold.http_server.address import parse_address
from treefold.http_server.tokens import checked_token
from treefold.mcp.sdk import no_sdk
from treefold.mcp.stdio import Stdio, own_stdio
from treefold.runtime.runtime import Runtime


class ServingRuntime(Runtime):
    """Forgets a tree when its call has been answered."""

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
    """Serve *functions* as the tools of an MCP server, until the client goes or this is cancelled.

    Each call is a top-level node of *runtime*, which is the caller's to close; without one, there
    is a runtime for the time of serving, and it forgets each tree when its call has been answered.
    When a client cancels a call, or goes, the node is cancelled with all below it.

    Args:
        functions: code, agents, anything.
        runtime: runs the calls, wherever it lives.
        http: "PORT" or "HOST:PORT" to serve streamable HTTP at /mcp instead of stdin and stdout.
        token: what clients of HTTP send with each request, as ``Authorization: Bearer TOKEN``.
        allow_remote: whether other machines may reach that. Nothing is encrypted.
        name: what the server calls itself.
        stdio: stdin and stdout, if they were taken over before.
        on_ready: is told the address, or "stdio", when requests may come.

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
        UsageError: nothing can be served at the address.
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
        from treefold.mcp.bridge import Bridge  # noqa: PLC0415 - slow
        from treefold.mcp.http import serve_http  # noqa: PLC0415 - slow
        from treefold.mcp.wire import Incoming, Outgoing  # noqa: PLC0415 - slow
    except ModuleNotFoundError as error:
        raise no_sdk(error) from None
    async with _running(runtime, served.values()) as used:
        server = Bridge(served, used).server(name)
        if address is not None:
            await serve_http(server, *address, key, on_ready)
            return
        with own_stdio() if stdio is None else nullcontext(stdio) as wire:
            on_ready("stdio")
            await server.run(
                Incoming(wire.more), Outgoing(wire.write), server.create_initialization_options()
            )


def _by_name(functions: Iterable[Function]) -> dict[str, Function]:
    served: dict[str, Function] = {}
    for function in checked_functions(functions, "serve"):
        if served.setdefault(function.name, function) is not function:
            raise DuplicateNameError(
                f"two functions are called {function.name!r}: give one another name, or serve them"
                " apart"
            )
    if not served:
        raise InvalidValueError("there is nothing to serve: give at least one function")
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
