"""What a server sends for one request: a status, headers, and steps in order."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Pause:
    """Send nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Wait:
    """Send nothing until the event is set."""

    event: asyncio.Event


@dataclass(frozen=True)
class Stall:
    """Keep the connection and send nothing until the client goes or the server closes."""


@dataclass(frozen=True)
class Cut:
    """Reset the connection."""


@dataclass(frozen=True)
class Close:
    """End the connection in order, however much of the reply is missing."""


Step: TypeAlias = bytes | Pause | Wait | Stall | Cut | Close


@dataclass(frozen=True)
class Reply:
    """One response: its body is chunked, a chunk for each step of bytes, unless it says its length.

    The steps in *before* come ahead of the status line.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    steps: tuple[Step, ...] = ()
    before: tuple[Step, ...] = ()

    @property
    def body(self) -> bytes:
        """All the bytes of the body, whatever happens between them."""
        return b"".join(step for step in self.steps if isinstance(step, bytes))


def compact(value: Any) -> str:
    """Return *value* as JSON without spaces, every character as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def stream(
    *steps: Step,
    content_type: str = "text/event-stream",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Return a reply of status 200 that streams *steps*."""
    return Reply(200, {"content-type": content_type, **(headers or {})}, steps)


def failure(
    status: int, body: Mapping[str, Any] | str, headers: Mapping[str, str] | None = None
) -> Reply:
    """Return a reply of *status* in one piece: a mapping is sent as JSON, a string as it is."""
    kind = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
    data = (body if isinstance(body, str) else compact(body)).encode()
    length = {"content-type": kind, "content-length": str(len(data))}
    return Reply(status, {**length, **(headers or {})}, (data,))


def then(reply: Reply, *steps: Step) -> Reply:
    """Return *reply* with more steps at its end."""
    return replace(reply, steps=(*reply.steps, *steps))


def with_length(reply: Reply) -> Reply:
    """Return *reply* with its length in the headers, and so without an end of its own.

    A client that has the last byte then knows that nothing follows, so its connection can be used
    again at once. The end of a chunked body is a packet of its own, which may be late.
    """
    return replace(reply, headers={**reply.headers, "content-length": str(len(reply.body))})


def in_pieces(reply: Reply, size: int) -> Reply:
    """Return *reply* with the same bytes, *size* at a time across all of its steps."""
    return replace(reply, steps=tuple(_pieces(reply.steps, size)))


def cut_after(reply: Reply, n_bytes: int) -> Reply:
    """Return *reply* with the connection reset after so many bytes of its body."""
    return replace(reply, steps=(*_head(reply.steps, n_bytes), Cut()))


def closed_after(reply: Reply, n_bytes: int) -> Reply:
    """Return *reply* with the connection ended in order after so many bytes of its body."""
    return replace(reply, steps=(*_head(reply.steps, n_bytes), Close()))


def stalled_after(reply: Reply, n_bytes: int) -> Reply:
    """Return *reply* with nothing more sent after so many bytes of its body."""
    return replace(reply, steps=(*_head(reply.steps, n_bytes), Stall()))


def slow_first_byte(reply: Reply, seconds: float) -> Reply:
    """Return *reply* with even its status line so many seconds late."""
    return replace(reply, before=(Pause(seconds), *reply.before))


def _pieces(steps: Iterable[Step], size: int) -> Iterator[Step]:
    kept = b""
    for step in steps:
        if not isinstance(step, bytes):
            if kept:
                yield kept
            kept = b""
            yield step
            continue
        kept += step
        while len(kept) >= size:
            yield kept[:size]
            kept = kept[size:]
    if kept:
        yield kept


def _head(steps: Iterable[Step], n_bytes: int) -> Iterator[Step]:
    left = n_bytes
    for step in steps:
        if left <= 0:
            return
        if isinstance(step, bytes):
            yield step[:left]
            left -= len(step)
        else:
            yield step
