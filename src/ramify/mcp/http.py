"""Serve a web application on a socket, until cancelled."""

import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette

from ramify.core.errors import UsageError


async def serve_app(app: Starlette, host: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve *app*; *on_ready* is told the address when requests may come.

    Raises:
        UsageError: nothing can be served at that address.
    """
    listening = _listen(host, port)
    with listening:
        config = uvicorn.Config(
            app, log_config=None, log_level="critical", access_log=False, ws="none", lifespan="on"
        )
        config.timeout_graceful_shutdown = 0  # what still runs is cancelled
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        try:
            await server.startup(sockets=[listening])
            shown = f"[{host}]" if ":" in host else host
            on_ready(f"http://{shown}:{listening.getsockname()[1]}")
            await server.main_loop()
        finally:
            if server.started:
                await server.shutdown(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise UsageError(f"nothing can be served at {host}:{port}: {error}") from None
