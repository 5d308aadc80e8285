"""Serve a web application on a socket, until cancelled."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from ramify.core.errors import UsageError
from ramify.mcp.address import LAST_PORT


async def serve_app(app: Any, host: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve *app*; *on_ready* is told the address when requests may come.

    Raises:
        UsageError: nothing can be served at that address.
    """
    with listen(host, port) as listening:
        await serve_on(listening, app, lambda: on_ready(address_of(listening, host)))


def listen(host: str, port: int) -> socket.socket:
    """Return a socket to serve on; port 0 is any that is free.

    Raises:
        UsageError: nothing can be served at that address.
    """
    if not 0 <= port <= LAST_PORT:
        raise UsageError(f"nothing can be served at {host}:{port}: ports end at {LAST_PORT}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(f"nothing can be served at {host}:{port}: {error}") from None
    # Connections inherit it; otherwise every second part of an answer waits for 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address_of(listening: socket.socket, host: str) -> str:
    """Return the address of a socket by which *host* is reached."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"


async def serve_on(listening: socket.socket, app: Any, on_ready: Callable[[], None]) -> None:
    """Serve *app* on a socket until this is cancelled; *on_ready* is called when requests may come.

    What still runs then is cancelled, and what was not read by then never is.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,  # whoever sends one may have made it up
        server_header=False,
    )
    config.timeout_graceful_shutdown = 0
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    try:
        await server.startup(sockets=[listening])
        on_ready()
        await server.main_loop()
    finally:
        if server.started:
            await server.shutdown(sockets=[listening])
            for connection in list(server.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)  # for what that calls
