"""Serve functions to clients of the Model Context Protocol."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext

from ramify.core.errors import DuplicateNameError, InvalidValueError
from ramify.core.function import Function, checked_functions
from ramify.mcp.address import address_of
from ramify.mcp.sdk import no_sdk
from ramify.mcp.stdio import Stdio, own_stdio
from ramify.runtime.runtime import Runtime


class ServingRuntime(Runtime):
    """Forgets a tree when its call has been answered."""

    keeps_finished_trees = False


async def serve(
    functions: Iterable[Function],
    *,
    runtime: Runtime | None = None,
    http: str | None = None,
    allow_remote: bool = False,
    name: str = "ramify",
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
        allow_remote: whether other machines may reach that; whoever can may call everything.
        name: what the server calls itself.
        stdio: stdin and stdout, if they were taken over before.
        on_ready: is told the address, or "stdio", when requests may come.

    Example:
        >>> import asyncio
        >>> from ramify import CodeFunction
        >>> from ramify.mcp import McpServer, serve
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> functions = [CodeFunction(callable=add)]
        >>> async def main():
        ...     ready = asyncio.get_running_loop().create_future()
        ...     async with asyncio.TaskGroup() as group:
        ...         task = group.create_task(serve(functions, http="0", on_ready=ready.set_result))
        ...         async with McpServer(await ready) as server:
        ...             print(await server.call("add", {"a": 1, "b": 2}))
        ...         task.cancel()
        >>> asyncio.run(main())
        3

    Raises:
        UsageError: nothing can be served at the address.
        InvalidValueError: other machines could reach the address.
    """
    served = _by_name(functions)
    address = None if http is None else address_of(http, allow_remote=allow_remote)
    try:
        from ramify.mcp.bridge import Bridge  # noqa: PLC0415 - slow
        from ramify.mcp.http import serve_app  # noqa: PLC0415 - slow
        from ramify.mcp.wire import Incoming, Outgoing  # noqa: PLC0415 - slow
    except ModuleNotFoundError as error:
        raise no_sdk(error) from None
    async with _running(runtime, served.values()) as used:
        server = Bridge(served, used).server(name)
        if address is not None:
            host, port = address
            app = server.streamable_http_app(host=host)
            await serve_app(app, host, port, lambda url: on_ready(f"{url}/mcp"))
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
