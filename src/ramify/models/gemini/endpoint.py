"""Requests through Google's SDK, which stands on aiohttp.

Its client does authentication and addresses, on connections that we lend it. As with the others, it
does not get to see the conversation: its typed layer would rewrite signatures on the way.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote
from urllib.request import getproxies

import aiohttp

from ramify.core.model import Provider
from ramify.models.attempt import ByteStream
from ramify.models.clients import CONNECT_IN, KEEP_CONNECTION, MOST_CONNECTIONS, shared_client
from ramify.models.request_error import of_connection, of_status
from ramify.models.secret import Secret, public_url

_BROKEN: Final = (aiohttp.ClientError, OSError, TimeoutError)


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

    async def open(self, body: bytes) -> ByteStream:
        identity = (Provider.Gemini, self._base_url, self._key.reveal())
        line = await shared_client(identity, self._line, _Line.close)
        try:
            response = await line.send(self._path, body)
        except self._sdk.errors.APIError as error:
            headers: Mapping[str, str] = getattr(error.response, "headers", None) or {}
            failure = of_status(error.code, error.details, headers, error)
        except _BROKEN as error:
            failure = of_connection(error)
        else:
            return AiohttpByteStream(response)
        raise failure.without(self._key)

    def _line(self) -> "_Line":
        return _Line(self._sdk, self._base_url, self._key)


class _Line:
    """Google's client, and the connections that we lend it."""

    def __init__(self, sdk: Any, base_url: str | None, key: Secret) -> None:
        self._connections = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=MOST_CONNECTIONS, keepalive_timeout=KEEP_CONNECTION
            ),
            timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_IN),
            trust_env=bool(getproxies()),  # which asks in a thread, on each request
        )
        self._client = sdk.Client(
            api_key=key.reveal(),
            vertexai=False,
            http_options=sdk.types.HttpOptions(
                base_url=base_url,
                aiohttp_client=self._connections,
            ),
        )
        self._templates: dict[str, Any] = {}  # requests without a body, by path

    async def send(self, path: str, body: bytes) -> aiohttp.ClientResponse:
        # There is no public way to send a body as it is; the SDK's own resources go this way, too.
        api = self._client._api_client
        if path not in self._templates:
            self._templates[path] = api._build_request("post", path, {}, None)
        template = self._templates[path]
        request = replace(template, headers=dict(template.headers), data=body)
        response = await api._async_request_once(request, True, implicit_retry=False)  # noqa: FBT003
        return response.response_stream

    async def close(self) -> None:
        await self._connections.close()
        self._client.close()


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
