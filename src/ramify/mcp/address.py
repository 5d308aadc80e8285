"""Where to serve, and who could reach it there."""

import ipaddress
from typing import Final

from ramify.core.errors import InvalidValueError

LAST_PORT: Final = 65_535


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
    if not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
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
