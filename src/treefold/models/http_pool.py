"""Pooled connections to one URL, for requests that differ in their body only.

Servers close idle connections without notice, and llama.cpp closes each one after a streamed
response although it announces keep-alive. A request that fails on a connection from the pool before
the response begins is therefore repeated once, immediately, on a new connection.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from ssl import SSLContext
from types import SimpleNamespace
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from treefold.models.secret import public_headers, public_url

_MAX_CONNECTIONS: Final = 10_000
_KEEPALIVE_TIMEOUT: Final = 60.0  # seconds
_LARGE: Final = 2**20  # bytes; aiohttp sends a larger body in pieces if it is a file
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=15.0)


@dataclass(frozen=True, slots=True)
class Target:
    """The URL, the headers and the trusted certificates of requests."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    ssl: SSLContext | bool = True

    def public(self) -> "Target":
        """Return the target without credentials."""
        return Target(public_url(self.url), public_headers(self.headers))


@dataclass(slots=True)
class _RequestState:
    """The state of a request while it is sent."""

    reused: bool = False  # whether its connection has carried another request


class HttpPool:
    """Sends requests to one target. Belongs to one event loop."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._proxy, self._proxy_headers = _proxy_for(target.url)
        self._cookies = aiohttp.CookieJar()
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        # aiohttp's pool costs the same however many connections are open; httpx's grows with them.
        connector = aiohttp.TCPConnector(
            limit=_MAX_CONNECTIONS, keepalive_timeout=_KEEPALIVE_TIMEOUT, ssl=target.ssl
        )
        self._pooled = self._session(connector, [trace])
        self._unpooled: aiohttp.ClientSession | None = None

    async def send(self, body: bytes) -> aiohttp.ClientResponse:
        """Send *body* and return the response when its headers have arrived."""
        state = _RequestState()
        try:
            return await self._post(self._pooled, body, state)
        except aiohttp.ClientConnectionError as error:
            if not (state.reused and _is_unanswered(error)):
                raise
        # Other connections of the pool may be dead as well, so the repetition does not use it.
        if self._unpooled is None:
            connector = aiohttp.TCPConnector(
                limit=_MAX_CONNECTIONS, force_close=True, ssl=self._target.ssl
            )
            self._unpooled = self._session(connector, [])
        return await self._post(self._unpooled, body, state)

    async def _post(
        self, session: aiohttp.ClientSession, body: bytes, state: _RequestState
    ) -> aiohttp.ClientResponse:
        try:
            return await session.post(
                self._target.url,
                data=body if len(body) <= _LARGE else BytesIO(body),
                # Not in the session: aiohttp would send them to a proxy as well.
                headers=self._target.headers,
                # Requests, key included, are for this server only.
                allow_redirects=False,
                proxy=self._proxy,
                proxy_headers=self._proxy_headers,
                trace_request_ctx=state,
            )
        except aiohttp.ClientResponseError as error:
            # The exception holds the request's headers, and with them the key.
            public = self._target.public()
            headers = CIMultiDictProxy(CIMultiDict(public.headers))
            error.request_info = aiohttp.RequestInfo(URL(public.url), "POST", headers)
            error.args = (error.request_info, error.history)
            raise

    async def close(self) -> None:
        """Close all connections."""
        try:
            await self._pooled.close()
        finally:
            if self._unpooled is not None:
                await self._unpooled.close()

    def _session(
        self, connector: aiohttp.BaseConnector, traces: list[aiohttp.TraceConfig]
    ) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            timeout=_TIMEOUT,
            cookie_jar=self._cookies,
            trace_configs=traces,
        )


async def _note_reuse(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    params: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    context.trace_request_ctx.reused = True


def _is_unanswered(error: aiohttp.ClientConnectionError) -> bool:
    """Whether the connection was lost before the response began."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)  # otherwise it is the beginning of a response
    return isinstance(error, aiohttp.ClientOSError | ConnectionResetError)


def _proxy_for(url: str) -> tuple[str | None, dict[str, str]]:
    """Return the proxy that the environment sets for *url*, and the headers for the proxy."""
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None, {}
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    user = urlsplit(proxy)
    if user.username is None:
        return proxy, {}
    credentials = f"{unquote(user.username)}:{unquote(user.password or '')}".encode()
    # aiohttp sends this as Proxy-Authorization, whether the proxy opens a tunnel or not.
    headers = {"Authorization": f"Basic {b64encode(credentials).decode()}"}
    return f"{user.scheme}://{user.netloc.rpartition('@')[2]}", headers
