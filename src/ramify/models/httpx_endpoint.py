"""Requests through an SDK that stands on httpx2: OpenAI's and Anthropic's are twins in this.

The SDK's client says where to, and with which headers and key; its HTTP client brings proxies,
certificates and connections. What it does not get to see is the conversation: its typed layer would
walk through all of it on each request, and build an object for each chunk of the answer.
"""

from functools import cache
from ssl import SSLContext
from typing import Final

import aiohttp
import httpx2

from ramify.models.clients import (
    CONNECT_IN,
    KEEP_CONNECTION,
    MOST_CONNECTIONS,
    MOST_OF_A_COMPLAINT,
    shared_client,
)
from ramify.models.json_text import parsed
from ramify.models.request_error import RequestError, of_connection, of_status
from ramify.models.secret import Secret
from ramify.models.wire_model import SdkClient

_BROKEN: Final = (
    httpx2.HTTPError,
    httpx2.StreamError,
    httpx2.InvalidURL,
    aiohttp.ClientError,
    OSError,
    TimeoutError,
    ValueError,
)
_FAILED: Final = 300  # the first status that is not an answer
_TIMEOUT: Final = httpx2.Timeout(None, connect=CONNECT_IN)  # the rest is up to the attempt


class HttpxEndpoint:
    """One server, behind one SDK."""

    def __init__(self, client: SdkClient, key: Secret, key_name: str) -> None:
        self._client = client
        self._key = key
        self.key_name = key_name
        self.address = client.address

    def clean(self, error: RequestError) -> RequestError:
        return error.without(self._key)

    async def open(self, body: bytes) -> "HttpxByteStream":
        line = await shared_client((self._client.identity, self._key), self._line, _Line.close)
        try:
            response = await line.send(body)
            if response.status_code < _FAILED:
                return HttpxByteStream(response)
            failure = await self._failure(response)
        except _BROKEN as error:
            failure = of_connection(error)
        raise failure

    async def _failure(self, response: httpx2.Response) -> RequestError:
        """Return what a response that is none reports."""
        read = b""
        try:
            async for piece in response.aiter_bytes():
                read += piece
                if len(read) > MOST_OF_A_COMPLAINT:
                    break
        finally:
            await response.aclose()
        text = self._key.scrub(read.decode("utf-8", "replace"))
        body = parsed(text) or text
        told = f"HTTP {response.status_code}"
        raised = self._client.package.APIStatusError(told, response=response, body=body)
        return of_status(response.status_code, body, response.headers, raised)

    def _line(self) -> "_Line":
        return _Line(self._client, self._key)


class _Line:
    """What an SDK's client knows, made ready for requests that differ in their body only."""

    def __init__(self, wanted: SdkClient, key: Secret) -> None:
        # aiohttp's pool costs the same however many connections are open; httpx's grows with them.
        self._http = wanted.package.DefaultAioHttpClient(
            verify=_trusted(),
            limits=httpx2.Limits(
                max_connections=MOST_CONNECTIONS,
                max_keepalive_connections=MOST_CONNECTIONS,
                keepalive_expiry=KEEP_CONNECTION,
            ),
            timeout=_TIMEOUT,
            follow_redirects=False,  # what is said to one server is not for another
        )
        client = wanted.make(key, self._http)
        told = {**client.default_headers, **client.auth_headers}
        self._headers = httpx2.Headers({k: v for k, v in told.items() if isinstance(v, str)})
        self._headers.update(wanted.headers)
        self._url = httpx2.URL(f"{str(client.base_url).rstrip('/')}/{wanted.path}")
        self._extensions = {"timeout": _TIMEOUT.as_dict()}

    async def send(self, body: bytes) -> httpx2.Response:
        request = httpx2.Request(
            "POST", self._url, headers=self._headers, content=body, extensions=self._extensions
        )
        return await self._http.send(request, stream=True)

    async def close(self) -> None:
        await self._http.aclose()


@cache
def _trusted() -> SSLContext:
    """Return whom all clients trust; to read that takes longer than to make a client."""
    return httpx2.create_ssl_context()


class HttpxByteStream:
    """The body of a response."""

    def __init__(self, response: httpx2.Response) -> None:
        packed = "content-encoding" in response.headers
        self._response = response
        self._chunks = response.aiter_bytes() if packed else response.aiter_raw()

    async def read(self) -> bytes:
        try:
            return await anext(self._chunks, b"")
        except _BROKEN as error:
            raise of_connection(error) from error

    async def close(self) -> None:
        await self._response.aclose()
