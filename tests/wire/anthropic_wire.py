"""What Anthropic streams for a message."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from wire.replies import Reply, Step, compact, failure, stream

MODEL = "claude-wire-1"
USAGE: dict[str, Any] = {
    "input_tokens": 11,
    "cache_creation_input_tokens": 5,
    "cache_read_input_tokens": 3,
    "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 7,
    "service_tier": "standard",
    "inference_geo": "not_available",
}
PING = b'event: ping\ndata: {"type": "ping"}\n\n'

ERRORS: dict[str, tuple[int, str]] = {
    # type: status, message
    "invalid_request_error": (400, "messages: Field required"),
    "authentication_error": (401, "invalid x-api-key"),
    "billing_error": (402, "There is a problem with your billing or payment information."),
    "permission_error": (403, "Your API key does not have permission to use this resource."),
    "not_found_error": (404, f"model: {MODEL}"),
    "request_too_large": (413, "Request exceeds the maximum size"),
    "rate_limit_error": (429, "This request would exceed your organization's rate limit."),
    "api_error": (500, "Internal server error"),
    "timeout_error": (504, "Request timed out"),
    "overloaded_error": (529, "Overloaded"),
}
CREDIT = (
    "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to "
    "upgrade or purchase credits."
)
"""The message of the invalid_request_error that means that there is no money."""


@dataclass(frozen=True)
class Text:
    """A block of text; a block that is not closed gets no content_block_stop."""

    deltas: Sequence[str | Step]
    closed: bool = True


@dataclass(frozen=True)
class Thinking:
    """A block of thinking, signed unless *signature* is empty."""

    deltas: Sequence[str | Step]
    signature: str = "c2lnbmVk"
    closed: bool = True


@dataclass(frozen=True)
class Redacted:
    """A block of thinking nobody may read, which comes whole."""

    data: str
    closed: bool = True


@dataclass(frozen=True)
class ToolUse:
    """A call of a tool, its input in fragments of JSON: none of them when it takes nothing."""

    id: str
    name: str
    fragments: Sequence[str | Step] = ()
    closed: bool = True


@dataclass(frozen=True)
class Raw:
    """A block that comes as it is, with deltas as they are."""

    block: Mapping[str, Any]
    deltas: Sequence[Mapping[str, Any] | Step] = field(default_factory=tuple)
    closed: bool = True


Block: TypeAlias = Text | Thinking | Redacted | ToolUse | Raw


def message(
    *blocks: Block | Step,
    stop_reason: str | None = "end_turn",
    usage: Mapping[str, Any] = USAGE,
    stop_sequence: str | None = None,
    closed: bool = True,
) -> Reply:
    """Return the stream of a message, with steps between blocks or between deltas as they are.

    Without *stop_reason* there is no message_delta, and not *closed* there is no message_stop.
    """
    steps: list[Step] = [message_start(usage)]
    index = 0
    for block in blocks:
        if isinstance(block, Block):
            first, *others = _block(index, block)
            steps += [first, *([PING] if index == 0 else []), *others]
            index += 1
        else:
            steps.append(block)
    if stop_reason is not None:
        steps.append(message_delta(stop_reason, usage, stop_sequence))
    if closed:
        steps.append(event({"type": "message_stop"}))
    headers = {"request-id": "req_wire"}
    return stream(*steps, content_type="text/event-stream; charset=utf-8", headers=headers)


def message_start(usage: Mapping[str, Any] = USAGE) -> bytes:
    """Return the first event, which knows all tokens but those of the output."""
    told = {
        "model": MODEL,
        "id": "msg_wire",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "usage": {**usage, "output_tokens": 1},
    }
    return event({"type": "message_start", "message": told})


def message_delta(
    stop_reason: str, usage: Mapping[str, Any] = USAGE, stop_sequence: str | None = None
) -> bytes:
    """Return the last event but one, with the totals of the tokens."""
    delta = {"stop_reason": stop_reason, "stop_sequence": stop_sequence, "stop_details": None}
    total = {name: count for name, count in usage.items() if name.endswith("_tokens")}
    return event({"type": "message_delta", "delta": delta, "usage": total})


def event(value: Mapping[str, Any]) -> bytes:
    """Return one event, filled up with spaces as the provider does."""
    data = compact(value)
    padding = " " * (-len(data) % 16)
    return f"event: {value['type']}\ndata: {data[:-1]}{padding}}}\n\n".encode()


def error_body(type: str, message: str | None = None, **details: Any) -> dict[str, Any]:
    """Return the body of an error; *details* are what only some errors have."""
    told: dict[str, Any] = {"type": type, "message": message or ERRORS[type][1]}
    if details:
        told["details"] = details
    return {"type": "error", "error": told, "request_id": "req_wire"}


def error(
    type: str,
    message: str | None = None,
    headers: Mapping[str, str] | None = None,
    **details: Any,
) -> Reply:
    """Return an error of one of the types in `ERRORS`, with its status."""
    told = {"request-id": "req_wire", **(headers or {})}
    return failure(ERRORS[type][0], error_body(type, message, **details), told)


def error_event(type: str, message: str | None = None) -> bytes:
    """Return an error in the middle of a stream."""
    told = {"details": None, "type": type, "message": message or ERRORS[type][1]}
    return event({"type": "error", "error": told, "request_id": "req_wire"})


def _block(index: int, block: Block) -> Iterator[Step]:
    opening, deltas = _content(block)
    yield event({"type": "content_block_start", "index": index, "content_block": opening})
    for delta in deltas:
        if isinstance(delta, Mapping):
            yield event({"type": "content_block_delta", "index": index, "delta": delta})
        else:
            yield delta
    if block.closed:
        yield event({"type": "content_block_stop", "index": index})


def _content(block: Block) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any] | Step]]:
    match block:
        case Text(deltas):
            return {"type": "text", "text": ""}, _deltas("text_delta", "text", deltas)
        case Thinking(deltas, signature):
            said = _deltas("thinking_delta", "thinking", deltas)
            signed = _deltas("signature_delta", "signature", [signature] if signature else [])
            return {"type": "thinking", "thinking": "", "signature": ""}, [*said, *signed]
        case Redacted(data):
            return {"type": "redacted_thinking", "data": data}, []
        case ToolUse(key, name, fragments):
            opening = {"type": "tool_use", "id": key, "name": name, "input": {}}
            parts = _deltas("input_json_delta", "partial_json", ["", *fragments])
            return {**opening, "caller": {"type": "direct"}}, parts
        case Raw(opening, deltas):
            return opening, deltas


def _deltas(type: str, name: str, values: Sequence[str | Step]) -> list[dict[str, Any] | Step]:
    return [{"type": type, name: v} if isinstance(v, str) else v for v in values]
