"""A model provider on loopback that costs next to nothing: canned answers, in a process of its own.

While a conversation has fewer tool results than the number in the address, it asks for one more
call; then it answers in as many chunks as the address says. ``/10/20/v1/...``: 10 calls, 20 chunks.
"""

import asyncio
import json
import sys
from functools import cache
from typing import Any

_MARKS = {
    "openai": b'"tool_call_id"',
    "anthropic": b'"tool_result"',
    "gemini": b'"functionResponse"',
}


def _sse(*values: Any) -> bytes:
    return b"".join(f"data: {json.dumps(value)}\n\n".encode() for value in values)


def _openai(call: int | None, chunks: int) -> bytes:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1_700_000_000,
                "model": "bench", "choices": [choice]}  # fmt: skip

    usage = {"prompt_tokens": 100, "completion_tokens": 20}
    end = chunk({}, "stop" if call is None else "tool_calls")
    if call is None:
        values = [chunk({"content": f"word{n} "}) for n in range(chunks)]
    else:
        text = json.dumps({"a": call, "b": 1})
        first = {"index": 0, "id": f"call_{call}", "function": {"name": "add", "arguments": ""}}
        rest = [
            {"index": 0, "function": {"arguments": text[n : n + 4]}} for n in range(0, len(text), 4)
        ]
        values = [chunk({"tool_calls": [part]}) for part in [first, *rest]]
    return _sse(*values, end, end | {"choices": [], "usage": usage}) + b"data: [DONE]\n\n"


def _anthropic(call: int | None, chunks: int) -> bytes:
    usage = {"input_tokens": 100, "output_tokens": 20}
    if call is None:
        block: dict[str, Any] = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": f"word{n} "} for n in range(chunks)]
    else:
        block = {"type": "tool_use", "id": f"toolu_{call}", "name": "add", "input": {}}
        text = json.dumps({"a": call, "b": 1})
        pieces = [text[n : n + 4] for n in range(0, len(text), 4)]
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    stop = {"stop_reason": "end_turn" if call is None else "tool_use"}
    return _sse(
        {"type": "message_start", "message": {"role": "assistant", "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *[{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas],
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": usage},
        {"type": "message_stop"},
    )


def _gemini(call: int | None, chunks: int) -> bytes:
    def chunk(part: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
        return {"candidates": [candidate | ({"finishReason": finish} if finish else {})]}

    if call is not None:
        return _sse(chunk({"functionCall": {"name": "add", "args": {"a": call, "b": 1}}}, "STOP"))
    words = [chunk({"text": f"word{n} "}) for n in range(chunks)]
    return _sse(*words, chunk({"text": ""}, "STOP"))


_SAY = {"openai": _openai, "anthropic": _anthropic, "gemini": _gemini}


@cache
def _answer(protocol: str, call: int | None, chunks: int) -> bytes:
    events = _SAY[protocol](call, chunks).split(b"\n\n")[:-1]  # each is written by itself
    chunked = [f"{len(event) + 2:x}\r\n".encode() + event + b"\n\n\r\n" for event in events]
    head = (
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    return head.encode() + b"".join(chunked) + b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    """Answers one request after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).decode().lower()
        size = int(head.partition("content-length:")[2].partition("\r\n")[0])
        if len(self._received) < end + 4 + size:
            return
        body = bytes(self._received[end + 4 : end + 4 + size])
        del self._received[: end + 4 + size]
        path = head.split(" ", 2)[1]
        _, calls, chunks, *_ = path.split("/")
        protocol = "openai" if "chat" in path else "anthropic" if "messages" in path else "gemini"
        done = body.count(_MARKS[protocol])
        self._transport.write(_answer(protocol, done if done < int(calls) else None, int(chunks)))


async def main() -> None:
    """Serve until the standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=2000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
