"""One connection of a client: HTTP/1.1 by hand, read into requests and written from replies."""

import asyncio
import http
import json
import socket
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wire.replies import Close, Cut, Pause, Reply, Stall, Step, Wait

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Request:
    """One request as it was received, the names of its headers in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @cached_property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


class Inbox:
    """What a client has sent on one connection and nobody has read yet."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._kept = bytearray()

    async def request(self) -> Request | None:
        """Return the next request, or None when the client has closed the connection."""
        try:
            method, path, _ = (await self._line()).split(" ", 2)
        except EOFError:
            return None
        headers: dict[str, str] = {}
        while line := await self._line():
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = await self._chunks()
        else:
            body = await self._exactly(int(headers.get("content-length", "0")))
        return Request(method, path, headers, body)

    async def watch(self) -> None:
        """Keep what comes, and raise ConnectionError when the client closes the connection."""
        try:
            while True:
                await self._more()
        except EOFError as error:
            raise ConnectionAbortedError("the client has closed the connection") from error

    async def _more(self) -> None:
        if not (data := await self._reader.read(65536)):
            raise EOFError
        self._kept += data

    async def _line(self) -> str:
        while (end := self._kept.find(b"\r\n")) < 0:
            await self._more()
        line = self._kept[:end].decode("latin-1")
        del self._kept[: end + 2]
        return line

    async def _exactly(self, size: int) -> bytes:
        while len(self._kept) < size:
            await self._more()
        data = bytes(self._kept[:size])
        del self._kept[:size]
        return data

    async def _chunks(self) -> bytes:
        body = b""
        while size := int((await self._line()).partition(";")[0], 16):
            body += await self._exactly(size)
            await self._line()
        while await self._line():
            pass  # trailers
        return body


async def send(reply: Reply, writer: asyncio.StreamWriter) -> bool:
    """Write *reply*, and return whether all of it was written."""
    for step in reply.before:
        if not await take(step, writer):
            return False
    chunked = "content-length" not in reply.headers
    writer.write(_head(reply, chunked=chunked))
    for step in reply.steps:
        await asyncio.sleep(0)  # so that a client in this loop reads what is there already
        if isinstance(step, bytes) and chunked and step:
            writer.write(b"%x\r\n%b\r\n" % (len(step), step))
            await writer.drain()
        elif not await take(step, writer):
            return False
    if chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


async def take(step: Step, writer: asyncio.StreamWriter) -> bool:
    """Do what *step* says, and return whether the connection is still of use."""
    match step:
        case bytes():
            writer.write(step)
            await writer.drain()
        case Pause(seconds):
            await asyncio.sleep(seconds)
        case Wait(event):
            await event.wait()
        case Stall():
            await asyncio.Event().wait()
        case Cut():
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            writer.transport.abort()
            return False
        case Close():
            return False
    return True


def _head(reply: Reply, *, chunked: bool) -> bytes:
    try:
        phrase = http.HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = "Unknown"
    headers = {**reply.headers, **({"transfer-encoding": "chunked"} if chunked else {})}
    lines = [f"HTTP/1.1 {reply.status} {phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
