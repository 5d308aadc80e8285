"""Parse addresses to listen on, and tell which of them only this machine can reach."""

import ipaddress
from typing import Final

from treefold.core.errors import InvalidValueError

LAST_PORT: Final = 65_535


def parse_address(text: str, *, allow_remote: bool) -> tuple[str, int]:
    """Return the host and the port of *text*, "[HOST:]PORT".

    Raises:
        InvalidValueError: it is not an address, or other machines could reach it.

    Example:
        >>> parse_address("8000", allow_remote=False)
        ('127.0.0.1', 8000)
        >>> parse_address("[::1]:8000", allow_remote=False)
        ('::1', 8000)
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
        raise InvalidValueError(f"address must be PORT or HOST:PORT, such as 8000, got {text!r}")
    if not allow_remote and not is_loopback(host):
        raise InvalidValueError(
            f"other machines could reach {host}, and a client that has the token may call every"
            " function that is served; pass allow_remote=True (--allow-remote) if that is intended"
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
