"""One request and the stream of its response, bounded in time and size."""

import asyncio
import math
from collections import deque
from contextlib import suppress
from typing import Final, Protocol

from treefold.core.model import before_attempt
from treefold.models.decoder import Decoder, Response, StreamFailedError
from treefold.models.request_error import TOO_LARGE, TOO_LONG, RequestError, from_stream
from treefold.models.retry import Timers
from treefold.models.sse import BrokenStreamError

_CLOCK_RESOLUTION: Final = 0.001  # seconds by which a timer may fire early
# Bytes that are decoded at once. A fast server fills a buffer of megabytes while one piece of it is
# decoded, and nothing else would run until it is empty.
_PIECE: Final = 16_384
# Seconds to wait for the end of a stream whose response is complete, to keep its connection.
_DRAIN_TIMEOUT: Final = 0.2


class ByteStream(Protocol):
    """The body of one response."""

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end. Raises RequestError."""
        ...

    async def close(self) -> None:
        """Release the connection; it is closed if the body was not read to its end."""
        ...


class Endpoint(Protocol):
    """The server that requests are sent to."""

    @property
    def address(self) -> str:
        """The address of the server, without secrets."""
        ...

    @property
    def key_name(self) -> str:
        """The environment variable that holds the key; empty if the key is not read from one."""
        ...

    async def open(self, body: bytes) -> ByteStream:
        """Send a request and return the body of the response. Raises RequestError."""
        ...

    def scrub(self, error: RequestError) -> RequestError:
        """Return *error* without secrets."""
        ...


class Attempt:
    """One attempt to get a response of at most *max_bytes*. The caller opens and closes it."""

    def __init__(
        self, endpoint: Endpoint, decoder: Decoder, timers: Timers, max_bytes: int | None = None
    ) -> None:
        self._endpoint = endpoint
        self._timers = timers
        self._max_bytes = math.inf if max_bytes is None else max_bytes
        self._received = 0
        self._unread: deque[bytes] = deque()  # received and not returned yet
        self._deadline = math.inf
        self._stream: ByteStream | None = None
        self._first_byte_deadline = math.inf
        self.decoder = decoder

    async def open(self, body: bytes) -> None:
        """Send *body* and wait until the server has accepted it."""
        if (confirm := before_attempt.get()) is not None:
            await confirm()
        now, timers = asyncio.get_running_loop().time(), self._timers
        if timers.first_byte is not None:
            self._first_byte_deadline = now + timers.first_byte
        if timers.total is not None:
            self._deadline = now + timers.total
        try:
            async with self._until(self._first_byte_deadline):
                self._stream = await self._endpoint.open(body)
        except TimeoutError:
            raise self._timed_out() from None

    async def read(self) -> bytes:
        """Return the next bytes, or none when the response is complete."""
        assert self._stream is not None  # open() was called
        if self.decoder.is_done:
            await _drain(self._stream)
            return b""
        if self._unread:
            await asyncio.sleep(0)  # others run between two pieces
            return self._unread.popleft()
        until = self._first_byte_deadline
        if self._received:
            now, idle = asyncio.get_running_loop().time(), self._timers.idle
            until = math.inf if idle is None else now + idle
        try:
            async with self._until(until):
                data = await self._stream.read()
            # Reading does not suspend while data is buffered, so the timeout may not have fired.
            if self._is_past_deadline():
                raise self._timed_out()
            self._received += len(data)
            if self._received > self._max_bytes:
                raise self._too_large()
        except TimeoutError:
            return self._end_with(self._timed_out())
        except RequestError as error:
            return self._end_with(error)
        if len(data) <= _PIECE:
            return data
        self._unread.extend(data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
        return self._unread.popleft()

    def _until(self, when: float) -> asyncio.Timeout:
        """Return a timeout at *when* or at the deadline, whichever is first."""
        until = min(when, self._deadline)
        return asyncio.timeout_at(None if until == math.inf else until)

    def _is_past_deadline(self) -> bool:
        return asyncio.get_running_loop().time() + _CLOCK_RESOLUTION >= self._deadline

    def _timed_out(self) -> RequestError:
        timers = self._timers
        seconds = timers.idle if self._received else timers.first_byte
        if seconds is None or self._is_past_deadline():
            message = f"the response was not complete after {timers.total} s"
            return RequestError(message=message, kind=TOO_LONG, inner=TimeoutError(message))
        what = "the stream was idle for" if self._received else "no response within"
        message = f"{what} {seconds:g} s"
        return RequestError(message=message, inner=TimeoutError(message))

    def _too_large(self) -> RequestError:
        message = f"the response has more than {self._max_bytes:,} bytes"
        return RequestError(message=message, kind=TOO_LARGE)

    def _end_with(self, error: RequestError) -> bytes:
        """Treat *error* as the end of the stream if the response is complete; else raise it."""
        try:
            self.decoder.response()
        except BrokenStreamError:
            raise error from None
        return b""

    def response(self) -> Response:
        """Return the response.

        Raises:
            RequestError: it is incomplete, or reports an error.
            RefusedError: the provider, or the model, refused to answer.
        """
        try:
            return self.decoder.response()
        except (BrokenStreamError, StreamFailedError) as error:
            raise from_stream(error) from error

    async def close(self) -> None:
        """Release the connection."""
        if self._stream is not None:
            await self._stream.close()


async def _drain(stream: ByteStream) -> None:
    """Read what follows the last event, so that the connection can be reused."""
    with suppress(TimeoutError, RequestError):  # then the connection is closed instead
        async with asyncio.timeout(_DRAIN_TIMEOUT):
            while await stream.read():
                pass
