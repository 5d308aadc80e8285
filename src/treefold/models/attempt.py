"""One request and the stream of its response, bounded in time and size."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from treefold.models.decoder import Decoder, Response, StreamFailedError
from treefold.models.request_error import TOO_LARGE, TOO_LONG, RequestError, of_stream
from treefold.models.retry import Timers
from treefold.models.sse import BrokenStreamError

_RESOLUTION: Final = 0.001  # seconds by which a timer may fire early
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
        """The environment variable that its key is read from; empty if it is not."""
        ...

    async def open(self, body: bytes) -> ByteStream:
        """Send a request and return the body of the answer. Raises RequestError."""
        ...

    def clean(self, error: RequestError) -> RequestError:
        """Return *error* without secrets."""
        ...


class Attempt:
    """One try at getting a response of at most *max_bytes*. Its owner begins and closes it."""

    def __init__(
        self, endpoint: Endpoint, decoder: Decoder, timers: Timers, max_bytes: int | None = None
    ) -> None:
        self._endpoint = endpoint
        self._timers = timers
        self._max_bytes = math.inf if max_bytes is None else max_bytes
        self._received = 0
        self._deadline = math.inf
        self._stream: ByteStream | None = None
        self._due = math.inf  # when the first bytes have to be there
        self.decoder = decoder

    async def open(self, body: bytes) -> None:
        """Send *body* and wait until the server has accepted it."""
        now, timers = asyncio.get_running_loop().time(), self._timers
        self._due = math.inf if timers.first_byte is None else now + timers.first_byte
        self._deadline = math.inf if timers.total is None else now + timers.total
        async with self._in_time():
            self._stream = await self._endpoint.open(body)

    async def first(self) -> bytes:
        """Return the first bytes of the answer."""
        assert self._stream is not None  # it was opened
        async with self._in_time():
            return self._counted(await self._stream.read())

    @asynccontextmanager
    async def _in_time(self) -> AsyncGenerator[None, None]:
        """Raise RequestError unless the first bytes come in time."""
        try:
            async with self._until(self._due):
                yield
        except TimeoutError:
            raise self._timed_out("no answer in {:g} s", self._timers.first_byte) from None

    async def read(self) -> bytes:
        """Return the next bytes, or none when there is nothing more to wait for."""
        assert self._stream is not None  # it was opened
        if self.decoder.is_done:
            await _drain(self._stream)
            return b""
        try:
            async with self._at_most(self._timers.idle):
                return self._counted(await self._stream.read())
        except TimeoutError:
            idle = self._timers.idle
            return self._over(self._timed_out("the stream stood still for {:g} s", idle))
        except RequestError as error:
            return self._over(error)

    def _at_most(self, seconds: float | None) -> asyncio.Timeout:
        """Return a timeout after *seconds* or at the deadline, whichever is first."""
        now = asyncio.get_running_loop().time()
        return self._until(math.inf if seconds is None else now + seconds)

    def _until(self, when: float) -> asyncio.Timeout:
        until = min(when, self._deadline)
        return asyncio.timeout_at(None if until == math.inf else until)

    def _timed_out(self, message: str, seconds: float | None) -> RequestError:
        if seconds is not None and not self._is_late():
            late = message.format(seconds)
            return RequestError(message=late, inner=TimeoutError(late))
        late = f"the answer was not complete after {self._timers.total} s"
        return RequestError(message=late, kind=TOO_LONG, inner=TimeoutError(late))

    def _is_late(self) -> bool:
        return asyncio.get_running_loop().time() + _RESOLUTION >= self._deadline

    def _counted(self, data: bytes) -> bytes:
        # Reading does not suspend while data is buffered, so that no timeout would fire.
        if self._is_late():
            raise self._timed_out("", None)
        self._received += len(data)
        if self._received > self._max_bytes:
            raise RequestError(
                message=f"the answer has more than {self._max_bytes:,} bytes", kind=TOO_LARGE
            )
        return data

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
