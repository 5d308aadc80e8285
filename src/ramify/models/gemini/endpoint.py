"""Requests to Google, with what its SDK knows of addresses, versions and authentication.

As with the others, the SDK does not get to see the conversation: its typed layer would rewrite
thought signatures on the way. It has no public way to send a body as it is, so it is asked for a
request without one, once, and the connections are ours.
"""

import ssl
from typing import Any, Final
from urllib.parse import quote
from urllib.request import getproxies

import aiohttp

from ramify.core.provider import Provider
from ramify.models.attempt import ByteStream
from ramify.models.clients import (
    CONNECT_IN,
    KEEP_CONNECTION,
    MOST_CONNECTIONS,
    MOST_OF_A_COMPLAINT,
    shared_client,
)
from ramify.models.json_text import parsed
from ramify.models.request_error import RequestError, of_connection, of_status
from ramify.models.secret import Secret, public_url

_BROKEN: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
_FAILED: Final = 300  # the first status that is not an answer


class GeminiEndpoint:
    """Google's server."""

    key_name = "GEMINI_API_KEY"

    def __init__(self, sdk: Any, base_url: str | None, key: Secret, model: str) -> None:
        self._sdk = sdk
        self._base_url = base_url
        name = model if "/" in model else f"models/{model}"
        self._path = f"{quote(name)}:streamGenerateContent?alt=sse"
        self._key = key
        self.address = public_url(base_url) if base_url else "Google"

    def clean(self, error: RequestError) -> RequestError:
        return error.without(self._key)

    async def open(self, body: bytes) -> ByteStream:
        identity = (Provider.Gemini, self._base_url, self._path, self._key)
        line = await shared_client(identity, self._line, _Line.close)
        try:
            response = await line.send(body)
            if response.status < _FAILED:
                return AiohttpByteStream(response)
            failure = await self._failure(response)
        except _BROKEN as error:
            failure = of_connection(error)
        raise failure

    async def _failure(self, response: aiohttp.ClientResponse) -> RequestError:
        """Return what a response that is none reports."""
        try:
            read = await response.content.read(MOST_OF_A_COMPLAINT)
        finally:
            response.close()
        text = self._key.scrub(read.decode("utf-8", "replace"))
        body = parsed(text) or text
        raised = self._sdk.errors.APIError(response.status, body if body is not text else {})
        return of_status(response.status, body, response.headers, raised)

    def _line(self) -> "_Line":
        return _Line(self._sdk, self._base_url, self._path, self._key)


class _Line:
    """What Google's client knows, made ready for requests that differ in their body only."""

    def __init__(self, sdk: Any, base_url: str | None, path: str, key: Secret) -> None:
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # or it reads three times whom to trust
        options = sdk.types.HttpOptions(
            base_url=base_url,
            client_args={"verify": nobody},
            async_client_args={"verify": nobody, "ssl": nobody},
        )
        client = sdk.Client(api_key=key.reveal(), vertexai=False, http_options=options)
        request = client._api_client._build_request("post", path, {}, None)
        client.close()
        self._url = request.url
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=MOST_CONNECTIONS, keepalive_timeout=KEEP_CONNECTION
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_IN),
            headers=request.headers,
            trust_env=bool(getproxies()),  # which asks in a thread, on each request
        )

    async def send(self, body: bytes) -> aiohttp.ClientResponse:
        return await self._http.post(self._url, data=body, allow_redirects=False)

    async def close(self) -> None:
        await self._http.close()


class AiohttpByteStream:
    """The body of a response."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except _BROKEN as error:
            raise of_connection(error) from error

    async def close(self) -> None:
        self._response.release()
