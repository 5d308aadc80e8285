"""One request and the stream of its response, with an eye on the clock."""

import asyncio
from contextlib import suppress
from typing import Final, Protocol

from ramify.models.decoder import Decoder, Response, StreamFailedError
from ramify.models.request_error import RequestError, of_stream
from ramify.models.retry import Timers
from ramify.models.sse import BrokenStreamError

_LINGER: Final = 0.2  # seconds to wait for the end of a stream that is over, to keep its connection


class ByteStream(Protocol):
    """The body of one answer."""

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end. Raises RequestError."""
        ...

    async def close(self) -> None:
        """Let the connection go; it is cut if there is more to come."""
        ...


class Endpoint(Protocol):
    """Where requests go."""

    @property
    def address(self) -> str:
        """Where that is, without secrets."""
        ...

    @property
    def key_name(self) -> str:
        """The environment variable that may hold its key."""
        ...

    async def open(self, body: bytes) -> ByteStream:
        """Send a request and return the body of the answer. Raises RequestError."""
        ...

    def clean(self, error: RequestError) -> RequestError:
        """Return *error* without secrets."""
        ...


class Attempt:
    """One try at getting a response. Whoever begins it closes it."""

    def __init__(self, endpoint: Endpoint, decoder: Decoder, timers: Timers) -> None:
        self._endpoint = endpoint
        self._timers = timers
        self._stream: ByteStream | None = None
        self.decoder = decoder

    async def begin(self, body: bytes) -> bytes:
        """Send *body* and return the first bytes of the answer."""
        try:
            async with asyncio.timeout(self._timers.first_byte):
                self._stream = await self._endpoint.open(body)
                return await self._stream.read()
        except TimeoutError:
            raise RequestError(message=f"no answer in {self._timers.first_byte:g} s") from None

    async def read(self) -> bytes:
        """Return the next bytes, or none when there is nothing more to wait for."""
        assert self._stream is not None  # it was begun
        if self.decoder.is_done:
            await _drain(self._stream)
            return b""
        try:
            async with asyncio.timeout(self._timers.idle):
                return await self._stream.read()
        except TimeoutError:
            still = f"the stream stood still for {self._timers.idle:g} s"
            return self._over(RequestError(message=still))
        except RequestError as error:
            return self._over(error)

    def _over(self, error: RequestError) -> bytes:
        """Take *error* for the end of a response that is complete all the same."""
        try:
            self.decoder.response()
        except BrokenStreamError:
            raise error from None
        return b""

    def response(self) -> Response:
        """Return the response.

        Raises:
            RequestError: it is not complete, or is a failure.
            RefusedError: there will be none.
        """
        try:
            return self.decoder.response()
        except (BrokenStreamError, StreamFailedError) as error:
            raise of_stream(error) from error

    async def close(self) -> None:
        """Let the connection go."""
        if self._stream is not None:
            await self._stream.close()


async def _drain(stream: ByteStream) -> None:
    """Read what follows the last event, so that the connection can be used again."""
    with suppress(TimeoutError, RequestError):  # it is cut instead
        async with asyncio.timeout(_LINGER):
            while await stream.read():
                pass
