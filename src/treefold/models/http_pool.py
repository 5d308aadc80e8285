"""Pooled connections to one URL, for requests that differ in their body only.

Servers close idle connections without notice, and llama.cpp closes each one after a streamed
answer although it announces keep-alive. A request that fails on a connection from the pool before
the answer begins is therefore repeated once, at once, on a new connection.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ssl import SSLContext
from types import SimpleNamespace
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from treefold.models.clients import CONNECT_IN, KEEP_CONNECTION, MOST_CONNECTIONS
from treefold.models.secret import public_headers, public_url

_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_IN)


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go, with which headers, and which certificates are trusted."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    ssl: SSLContext | bool = True

    def public(self) -> "Target":
        """Return the target without credentials."""
        return Target(public_url(self.url), public_headers(self.headers))


@dataclass(slots=True)
class _Sending:
    """What is known about a request while it is sent."""

    reused: bool = False  # it went out on a connection that had carried another one


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
            limit=MOST_CONNECTIONS, keepalive_timeout=KEEP_CONNECTION, ssl=target.ssl
        )
        self._pooled = self._session(connector, [trace])
        self._unpooled: aiohttp.ClientSession | None = None

    async def send(self, body: bytes) -> aiohttp.ClientResponse:
        """Send *body* and return the response when its headers have arrived."""
        sending = _Sending()
        try:
            return await self._post(self._pooled, body, sending)
        except aiohttp.ClientConnectionError as error:
            if not (sending.reused and _is_unanswered(error)):
                raise
        # Other connections of the pool may be dead as well, so the repeat does not use the pool.
        if self._unpooled is None:
            connector = aiohttp.TCPConnector(
                limit=MOST_CONNECTIONS, force_close=True, ssl=self._target.ssl
            )
            self._unpooled = self._session(connector, [])
        return await self._post(self._unpooled, body, sending)

    async def _post(
        self, session: aiohttp.ClientSession, body: bytes, sending: _Sending
    ) -> aiohttp.ClientResponse:
        try:
            return await session.post(
                self._target.url,
                data=body,
                # Not in the session: aiohttp would send them to a proxy as well.
                headers=self._target.headers,
                # What is said to one server, key included, is not for another.
                allow_redirects=False,
                proxy=self._proxy,
                proxy_headers=self._proxy_headers,
                trace_request_ctx=sending,
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
    """Whether the connection was lost before the server began to answer."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)  # otherwise it is the beginning of an answer
    return isinstance(error, aiohttp.ClientOSError | ConnectionResetError)


def _proxy_for(url: str) -> tuple[str | None, dict[str, str]]:
    """Return the proxy that the environment sets for *url*, and the headers for it."""
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
    # aiohttp sends this on as Proxy-Authorization, whether the proxy opens a tunnel or not.
    headers = {"Authorization": f"Basic {b64encode(credentials).decode()}"}
    return f"{user.scheme}://{user.netloc.rpartition('@')[2]}", headers
