"""Requests to a model over HTTP.

The provider's SDK decides the URL, the headers and the authentication, and its exceptions are kept
in ``RequestError.inner``. The conversation does not pass through it: its typed layer would process
all of it on each request, and build an object for each chunk of the response.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final, Protocol

import aiohttp

from treefold.models.clients import shared_client
from treefold.models.http_pool import HttpPool, Target
from treefold.models.json_text import parse_json
from treefold.models.request_error import RequestError, from_connection, from_response
from treefold.models.secret import Secret

_CONNECTION_ERRORS: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
_FIRST_ERROR_STATUS: Final = 300
_MAX_ERROR_BODY: Final = 65_536  # bytes
# Headers about the encoding of a body that is already decoded.
_ENCODING_HEADERS: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class Sdk(Protocol):
    """What a provider's SDK contributes to requests."""

    @property
    def address(self) -> str:
        """The address of the server, without secrets."""
        ...

    @property
    def identity(self) -> Hashable:
        """Identifies the server: endpoints with equal identities and keys share connections."""
        ...

    def target(self, key: Secret) -> Target:
        """Return the URL and the headers of requests."""
        ...

    def error(
        self, status: int, text: str, body: Any, headers: Mapping[str, str], target: Target
    ) -> Exception:
        """Return the SDK's exception for a failed request; *target* has no credentials."""
        ...


class HttpEndpoint:
    """One server, addressed as the provider's SDK addresses it."""

    def __init__(self, sdk: Sdk, key: Secret, key_name: str) -> None:
        self._sdk = sdk
        self._key = key
        self.key_name = key_name
        self.address = sdk.address

    def scrub(self, error: RequestError) -> RequestError:
        return error.scrubbed(self._key)

    async def open(self, body: bytes) -> "HttpByteStream":
        client = await shared_client((self._sdk.identity, self._key), self._client, _Client.close)
        try:
            response = await client.pool.send(body)
            if response.status < _FIRST_ERROR_STATUS:
                return HttpByteStream(response)
            failure = await self._failure(response, client.target)
        except _CONNECTION_ERRORS as error:
            failure = from_connection(error)
        raise failure

    async def _failure(self, response: aiohttp.ClientResponse, target: Target) -> RequestError:
        """Return the error in a response that is not a success."""
        read = b""
        try:
            while len(read) < _MAX_ERROR_BODY and (piece := await response.content.readany()):
                read += piece
        finally:
            response.close()
        text = self._key.scrub(read[:_MAX_ERROR_BODY].decode("utf-8", "replace"))
        body = parse_json(text) or text
        headers = {
            name.lower(): self._key.scrub(value)
            for name, value in response.headers.items()
            if name.lower() not in _ENCODING_HEADERS
        }
        raised = self._sdk.error(response.status, text, body, headers, target)
        return from_response(response.status, body, headers, raised)

    def _client(self) -> "_Client":
        return _Client(self._sdk.target(self._key))


class _Client:
    """The connections to a target, and the target without credentials."""

    def __init__(self, target: Target) -> None:
        self.target = target.public()
        self.pool = HttpPool(target)

    async def close(self) -> None:
        await self.pool.close()


class HttpByteStream:
    """The body of a response."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except _CONNECTION_ERRORS as error:
            raise from_connection(error) from error

    async def close(self) -> None:
        self._response.release()
