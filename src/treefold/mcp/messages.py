"""Streams of messages for the SDK, one message per line.

Converts between bytes and messages; does not know where the bytes come from or go to.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

LONGEST_LINE: Final = 1 << 26  # bytes of a message
_LONGEST_FIRST_LINE: Final = 1 << 20  # bytes; the first message is only the handshake
_MOST_INVALID_LINES: Final = 100  # before the first message
_LONGEST_JUNK: Final = 120  # bytes


class _Stream:
    """The common part of both directions."""

    def __init__(self) -> None:
        self.is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class MessageReader(_Stream):
    """Reads messages from the chunks that *read* returns; an empty chunk is the end.

    Lines that are not messages are skipped, as programs may print other things.

    Attributes:
        error: why reading was abandoned; empty if the other side ended the stream.
        junk: the beginning of the first line that was not a message.
    """

    def __init__(self, read: Callable[[], Awaitable[bytes]]) -> None:
        super().__init__()
        self.error = ""
        self.junk = ""
        self._read_chunk = read
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []  # of the line that is not complete
        self._size = 0
        self._messages = self._invalid_lines = 0
        self._ended = False

    @property
    def has_messages(self) -> bool:
        """Whether at least one message was read."""
        return self._messages > 0

    async def receive(self) -> SessionMessage:
        """Return the next message."""
        await asyncio.sleep(0)  # let other tasks run between many buffered messages
        while not self.is_closed:
            while self._lines:
                line = self._lines.popleft()
                if line.strip() and (message := self._parse(line)) is not None:
                    return message
            if self._ended:
                raise anyio.EndOfStream
            self._feed(await self._read_chunk())
        raise anyio.ClosedResourceError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    def _feed(self, chunk: bytes) -> None:
        first, *rest = chunk.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if rest:
            self._lines.append(b"".join(self._parts))
            self._lines.extend(rest[:-1])
            self._parts, self._size = [rest[-1]], len(rest[-1])
        if not chunk:
            self._lines.append(b"".join(self._parts))
            self._ended = True
        longest = LONGEST_LINE if self._messages else _LONGEST_FIRST_LINE
        if self._size > longest:
            self._skip(b"".join(self._parts))
            self._abandon(f"it wrote a line of more than {longest:,} bytes")

    def _parse(self, line: bytes) -> SessionMessage | None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self._skip(line)
            if not self._messages and self._invalid_lines >= _MOST_INVALID_LINES:
                self._abandon(f"it wrote {self._invalid_lines} lines that are not MCP messages")
            return None
        self._messages += 1
        return SessionMessage(message)

    def _skip(self, line: bytes) -> None:
        self._invalid_lines += 1
        self.junk = self.junk or line[:_LONGEST_JUNK].decode(errors="replace").strip()

    def _abandon(self, reason: str) -> None:
        self.error = reason
        self._parts, self._size, self._ended = [], 0, True
        self._lines.clear()


class MessageWriter(_Stream):
    """Writes messages with *write*, which raises OSError if the other side is closed."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        super().__init__()
        self._write = write

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message."""
        if self.is_closed:
            raise anyio.ClosedResourceError
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await self._write(text.encode() + b"\n")
        except OSError:
            raise anyio.BrokenResourceError from None
