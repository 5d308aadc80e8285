"""Streamable HTTP to a server at a URL."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from treefold.mcp.messages import LONGEST_LINE

_CONNECT_TIMEOUT: Final = 15.0  # seconds
_CLOSE_TIMEOUT: Final = 2.0  # seconds
_PROBE_TIMEOUT: Final = 3.0  # seconds
_LONGEST_PROBE: Final = 4096  # bytes
# What a server of the old transport may answer to a POST at the address of its stream.
_OLD_STATUSES: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_OLD_TRANSPORT: Final = (
    "it speaks the HTTP+SSE transport of 2024-11-05, which was replaced by streamable HTTP: give"
    " the address of its streamable HTTP endpoint (often /mcp instead of /sse), update the server,"
    " or connect through a proxy program, such as McpServer(['uvx', 'mcp-proxy', URL])"
)


class HttpTransport:
    """Reaches a server at *url*, with *headers* on every request."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)
        self._last_error = ""
        self._last_status = 0  # of that error

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Any, None]:
        # No read timeout: the timeout of a call is enforced by Connection.call.
        timeout = httpx2.Timeout(_CONNECT_TIMEOUT, read=None)
        hooks = {"response": [self._note_error]}
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=timeout, event_hooks=hooks) as http,
            streamable_http_client(
                self._url, http_client=http, max_sse_event_size=LONGEST_LINE
            ) as streams,
        ):
            try:
                yield streams
            finally:
                http.timeout = httpx2.Timeout(_CLOSE_TIMEOUT)

    async def wait_for_exit(self) -> None:
        pass

    async def connection_hint(self) -> str:
        if self._last_status not in _OLD_STATUSES:
            return ""
        accept = {"Accept": "text/event-stream"}
        with suppress(TimeoutError, httpx2.HTTPError):
            async with (
                asyncio.timeout(_PROBE_TIMEOUT),
                httpx2.AsyncClient(headers=self._headers) as http,
                http.stream("GET", self._url, headers=accept) as response,
            ):
                return _OLD_TRANSPORT if await _names_endpoint(response) else ""
        return ""

    def failure_details(self) -> list[str]:
        return [f"its last error was HTTP {self._last_error}"] if self._last_error else []

    async def _note_error(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status >= HTTPStatus.BAD_REQUEST and response.request.method == "POST":
            self._last_status = status
            self._last_error = f"{status} {response.reason_phrase}".strip()


async def _names_endpoint(response: httpx2.Response) -> bool:
    """Whether a stream begins with an ``endpoint`` event, as that of the old transport does."""
    kind = response.headers.get("content-type", "").lower()
    if response.status_code != HTTPStatus.OK or not kind.startswith("text/event-stream"):
        return False
    beginning = b""
    async for chunk in response.aiter_bytes():
        beginning += chunk
        lines = beginning.splitlines()
        if any(line.replace(b" ", b"") == b"event:endpoint" for line in lines):
            return True
        if len(beginning) > _LONGEST_PROBE:
            break
    return False
