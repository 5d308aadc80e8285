"""Messages, one a line, as the SDK's streams want them.

Knows bytes and messages; does not know where the bytes come from or go to.
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
_LONGEST_FIRST: Final = 1 << 20  # bytes before the first, which only greets
_PATIENCE: Final = 100  # lines of something else, before the first message
_SHOWN: Final = 120  # bytes of the first such line


class _Stream:
    """What both directions have in common."""

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


class Incoming(_Stream):
    """Reads messages from what *more* gives, chunk by chunk; an empty chunk is the end.

    Lines that are no message are left out, as programs print all sorts of things.

    Attributes:
        fault: why it was given up, if the other side did not end it.
        junk: the beginning of the first line that was no message.
    """

    def __init__(self, more: Callable[[], Awaitable[bytes]]) -> None:
        super().__init__()
        self.fault = ""
        self.junk = ""
        self._more = more
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []  # of the line that is not complete
        self._size = 0
        self._messages = self._others = 0
        self._ended = False

    @property
    def has_spoken(self) -> bool:
        """Whether a message has come."""
        return self._messages > 0

    async def receive(self) -> SessionMessage:
        """Return the next message."""
        await asyncio.sleep(0)  # a flood of them is no reason to do nothing else
        while not self.is_closed:
            while self._lines:
                line = self._lines.popleft()
                if line.strip() and (message := self._read(line)) is not None:
                    return message
            if self._ended:
                raise anyio.EndOfStream
            self._take(await self._more())
        raise anyio.ClosedResourceError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    def _take(self, chunk: bytes) -> None:
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
        longest = LONGEST_LINE if self._messages else _LONGEST_FIRST
        if self._size > longest:
            self._note(b"".join(self._parts))
            self._give_up(f"it wrote a line of more than {longest:,} bytes")

    def _read(self, line: bytes) -> SessionMessage | None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self._note(line)
            if not self._messages and self._others >= _PATIENCE:
                self._give_up(f"it wrote {self._others} lines that are no MCP messages")
            return None
        self._messages += 1
        return SessionMessage(message)

    def _note(self, line: bytes) -> None:
        self._others += 1
        self.junk = self.junk or line[:_SHOWN].decode(errors="replace").strip()

    def _give_up(self, why: str) -> None:
        self.fault = why
        self._parts, self._size, self._ended = [], 0, True
        self._lines.clear()


class Outgoing(_Stream):
    """Writes messages with *write*, which raises OSError if nobody takes them any more."""

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
