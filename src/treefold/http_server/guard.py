"""Refuse requests without the token, with a foreign Host or from a foreign Origin.

A page of another site can make a browser send requests here, and by DNS rebinding even read the
responses; it can forge neither Host nor Origin, and it does not have the token.
"""

import hmac
import ipaddress
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treefold.http_server.connections import authenticated

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE: Final = ("0.0.0.0", "::")  # a socket bound to these listens on every address
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")


class Hosts:
    """The names that a server may be addressed by, with any port, as a tunnel may use another one.

    Args:
        bound: the address that it listens on.

    Example:
        >>> hosts = Hosts("127.0.0.1")
        >>> [hosts.has(host) for host in ("127.0.0.1:4747", "LocalHost", "evil.example:4747")]
        [True, True, False]
    """

    def __init__(self, bound: str) -> None:
        self._names = {*_LOCAL, bound.lower()}
        self._any_address = bound in _EVERYWHERE
        if self._any_address and (own := platform.node().lower()):
            self._names |= {own, f"{own}.local"}

    def has(self, host: str) -> bool:
        """Whether *host*, the value of a Host header, is one of them."""
        parts = _HOST.fullmatch(host.lower())
        if parts is None:
            return False
        name = parts[1] or parts[2]
        return name in self._names or (self._any_address and _is_address(name))


def _is_address(name: str) -> bool:
    """Whether *name* is an IP address, which no name server can redirect."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What a guard requires of requests, and which headers it adds to responses.

    Attributes:
        token: the token that requests send as ``Authorization: Bearer TOKEN``.
        hosts: the names that requests may use.
        wrong_host: the error message for a request with another Host.
        wrong_origin: the error message for a request from a page of another origin.
        wrong_token: the error message for a request without the token.
        needs_token: whether a path needs the token.
        headers: the headers of every response.
    """

    token: str
    hosts: Hosts
    wrong_host: str
    wrong_origin: str
    wrong_token: str
    needs_token: Callable[[str], bool] = lambda path: True
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class Guard:
    """ASGI middleware that passes the requests that *policy* allows to *app*."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy
        self._token = policy.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._policy.headers)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, policy = Headers(scope=scope), self._policy
        host = headers.getlist("host")
        if len(host) != 1 or not policy.hosts.has(host[0]):
            return _refused(403, policy.wrong_host)
        if any(origin != f"http://{host[0].lower()}" for origin in _lower(headers, "origin")):
            return _refused(403, policy.wrong_origin)
        if self._has_token(headers.getlist("authorization")):
            authenticated(scope)
        elif policy.needs_token(scope["path"]):
            return _refused(401, policy.wrong_token, {"www-authenticate": "Bearer"})
        return None

    def _has_token(self, credentials: list[str]) -> bool:
        if len(credentials) != 1:
            return False
        scheme, _, token = credentials[0].partition(" ")
        # Starlette decodes headers as Latin-1, one character per byte.
        right = hmac.compare_digest(token.strip().encode("latin-1", "replace"), self._token)
        return right and scheme.lower() == "bearer"


def _lower(headers: Headers, name: str) -> Iterable[str]:
    return (value.lower() for value in headers.getlist(name))


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": why}, status_code=status, headers=headers)
