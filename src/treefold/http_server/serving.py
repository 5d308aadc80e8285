"""Serve an ASGI application on a socket, until cancelled."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

import uvicorn

from treefold.core.errors import UsageError
from treefold.http_server.address import LAST_PORT
from treefold.http_server.connections import ConnectionLimits, Connections, LimitedProtocol

_ACCEPTED_AT_ONCE: Final = 16  # connections
_QUEUED: Final = 1024  # connections


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 for any free port.

    Raises:
        UsageError: the address is not available.
    """
    if not 0 <= port <= LAST_PORT:
        raise UsageError(f"cannot listen on {host}:{port}: the highest port is {LAST_PORT}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error}") from None
    # Connections inherit it; otherwise every second chunk of a response is delayed by 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def url_of(listening: socket.socket, host: str) -> str:
    """Return the URL of *listening*, with *host* as the name of this machine."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"


async def serve_on(
    listening: socket.socket,
    app: Any,
    on_ready: Callable[[], None],
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve *app* on a socket until cancelled; call *on_ready* when it accepts connections.

    Cancellation also cancels requests that are still running, and drops unsent data.
    Connections are limited until ``connections.authenticated`` is called for one of their requests.
    """
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,  # clients can forge them
        server_header=False,
        backlog=_ACCEPTED_AT_ONCE,
    )
    config.timeout_graceful_shutdown = 0
    config.load()
    server = uvicorn.Server(config)
    server.server_state = Connections(limits or ConnectionLimits())
    server.lifespan = config.lifespan_class(config)
    try:
        await server.startup(sockets=[listening])
        # asyncio accepts as many connections at once as the backlog, before it reports the first
        # one; the others wait in the kernel's queue, which costs no file descriptors.
        listening.listen(_QUEUED)
        on_ready()
        await server.main_loop()
    finally:
        if server.started:
            await server.shutdown(sockets=[listening])
            for connection in list(server.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)  # let the callbacks of abort() run
