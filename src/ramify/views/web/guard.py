"""Who may ask for anything: the token, and the names that a request may come under.

Stands before the whole application, knows headers and paths, and nothing of what is served. A page
of another site can make a browser send requests here, and by DNS rebinding even read the answers;
it can forge neither Host nor Origin, and it has no token.
"""

import hmac
import ipaddress
import platform
import re
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API: Final = "/api/"

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE: Final = ("0.0.0.0", "::")  # what a socket is bound to that listens on every address
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")

# Nothing is loaded from elsewhere, nothing in the page itself is run, and what a script puts into
# it as markup is refused by the browser.
_POLICY: Final = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
))  # fmt: skip
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

_WRONG_HOST: Final = "this viewer does not answer to that name; use the address that it printed"
_WRONG_ORIGIN: Final = "the page that sent this is not the viewer's own; use the one that it serves"
_WRONG_TOKEN: Final = (
    "the token is missing or wrong; open the address that the viewer printed, token included"
)


class Hosts:
    """The names that a server is known under, whatever port they are reached by.

    Ports are left open so that a tunnel may lead to another one.

    Args:
        bound: the address that it listens at.

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
        """Whether *host*, as a request says it, is one of them."""
        parts = _HOST.fullmatch(host.lower())
        if parts is None:
            return False
        name = parts[1] or parts[2]
        return name in self._names or (self._any_address and _is_address(name))


def _is_address(name: str) -> bool:
    """Whether *name* is a number: what no name server can give another meaning."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Lets through what may be answered, and says how every answer is to be treated."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: Hosts) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_api = scope["path"].startswith(API)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(Headers(scope=scope), is_api=is_api)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, headers: Headers, *, is_api: bool) -> Response | None:
        host = headers.getlist("host")
        if len(host) != 1 or not self._hosts.has(host[0]):
            return _refused(403, _WRONG_HOST)
        if any(origin != f"http://{host[0].lower()}" for origin in _lower(headers, "origin")):
            return _refused(403, _WRONG_ORIGIN)
        if is_api and not self._is_known(headers.getlist("authorization")):
            return _refused(401, _WRONG_TOKEN, {"www-authenticate": "Bearer"})
        return None

    def _is_known(self, credentials: list[str]) -> bool:
        if len(credentials) != 1:
            return False
        scheme, _, token = credentials[0].partition(" ")
        # headers are read as Latin-1: a character for each byte
        right = hmac.compare_digest(token.strip().encode("latin-1", "replace"), self._token)
        return right and scheme.lower() == "bearer"


def _lower(headers: Headers, name: str) -> Iterable[str]:
    return (value.lower() for value in headers.getlist(name))


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": why}, status_code=status, headers=headers)
