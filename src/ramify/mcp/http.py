"""Serve a web application on a socket, until cancelled."""

import ipaddress
import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.applications import Starlette

from ramify.core.errors import InvalidValueError, UsageError

_LAST_PORT: Final = 65_535


def address_of(text: str, *, allow_remote: bool) -> tuple[str, int]:
    """Return the host and the port that *text*, "[HOST:]PORT", means.

    Raises:
        InvalidValueError: it is none, or others than this machine could reach it.

    Example:
        >>> address_of("8000", allow_remote=False)
        ('127.0.0.1', 8000)
        >>> address_of("[::1]:8000", allow_remote=False)
        ('::1', 8000)
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isascii() or not port.isdigit() or int(port) > _LAST_PORT:
        raise InvalidValueError(f"{text!r} is no address: give PORT or HOST:PORT, such as 8000")
    if not allow_remote and not is_loopback(host):
        raise InvalidValueError(
            f"other machines could reach {host}, and whoever can may call every function that is"
            " served; say allow_remote (--allow-remote) if that is wanted"
        )
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach *host*."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
