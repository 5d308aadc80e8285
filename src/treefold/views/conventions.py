"""What a run is called in OpenTelemetry's conventions for generative AI.

Pure data: names and attributes of spans from what events say. Knows nothing of spans themselves,
nor of OpenTelemetry's packages, which have constants for an older state of the conventions.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from treefold.core.agent_events import RequestRetried
from treefold.core.events import CallRequested, Failure
from treefold.core.exchange import Finish
from treefold.core.provider import Provider
from treefold.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from treefold.core.usage import TokenUsage
from treefold.views.text import cut

Attributes = dict[str, str | bool | int | float | Sequence[str]]

_LONGEST_NAME: Final = 200  # characters; what a model calls a thing may have any length
_LONGEST_TEXT: Final = 20_000  # what is too long for a server makes it refuse all that came with it

_PROVIDERS: Final = {
    Provider.OpenAI: "openai",
    Provider.Anthropic: "anthropic",
    Provider.Gemini: "gcp.gemini",
    Provider.Local: "local",
}
_PORTS: Final = {"http": 80, "https": 443}
_REASONS: Final = {
    Finish.ANSWERED: "stop",
    Finish.TOOL_USE: "tool_call",
    Finish.MAX_TOKENS: "length",
    Finish.PAUSED: "pause",
}


def agent_name(requested: CallRequested) -> str:
    """Return what an agent is called."""
    return _name(requested.function)


def name_of(requested: CallRequested) -> str:
    """Return what the span of a call is called."""
    function = _name(requested.function)
    if requested.is_agent:
        return f"invoke_agent {function}"
    return function if requested.tool_use_id is None else f"execute_tool {function}"


def attributes_of(requested: CallRequested) -> Attributes:
    """Return what is known of a call when it was asked for."""
    found: Attributes = {}
    function = _name(requested.function)
    if requested.is_agent:
        found |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": function}
    else:
        # Code that no model has called, too: a viewer shows no kind for a span without operation.
        found |= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": function,
            "gen_ai.tool.type": "function",
        }
    if requested.tool_use_id is not None:
        found["gen_ai.tool.call.id"] = _name(requested.tool_use_id)
    return found


def model_attributes(name: str) -> Attributes:
    """Return who is asked, by the name that a model has here: ``provider:model@address``."""
    kind, _, rest = name.partition(":")
    try:
        provider = Provider(kind)
    except ValueError:  # somebody's own
        return {"gen_ai.provider.name": "unknown", "gen_ai.request.model": _name(name)}
    model, at, address = rest.partition("@http")
    if provider is Provider.Local:  # which folder it is in is nobody's business
        model = rest.replace("\\", "/").rpartition("/")[2] or "local"
    found: Attributes = {
        "gen_ai.provider.name": _PROVIDERS[provider],
        "gen_ai.request.model": _name(model),
    }
    return found | (_server(f"http{address}") if at else {})


def _server(address: str) -> Attributes:
    try:
        url = urlsplit(address)
        host, port = url.hostname, url.port
    except ValueError:
        return {}
    if host is None:
        return {}
    return {"server.address": _name(host), "server.port": port or _PORTS.get(url.scheme, 80)}


def usage_attributes(usage: TokenUsage) -> Attributes:
    """Return what requests took; what was cached or thought is part of the two sums."""
    written = usage.cache_write + usage.cache_write_1h
    counts = {
        "gen_ai.usage.input_tokens": usage.input + usage.cache_read + written,
        "gen_ai.usage.output_tokens": usage.output + usage.reasoning,
    }
    parts = {
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_write.input_tokens": written,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    return {**counts, **{name: count for name, count in parts.items() if count}}


def reason_of(finish: Finish) -> str:
    """Return why a model stopped."""
    return _REASONS[finish]


def retry_attributes(retry: RequestRetried) -> Attributes:
    """Return what is known of an attempt that failed."""
    return {
        "error.type": error_type(retry.failure),
        "treefold.retry.attempt": retry.attempt,
        "treefold.retry.wait": retry.wait,
    }


def error_type(failure: Failure) -> str:
    """Return the kind of a failure: the name of an exception, or the status of a response."""
    return _name(failure.type.removeprefix("HTTP ")) or "_OTHER"


# What was said


def input_messages(parts: Iterable[TranscriptPart]) -> str:
    """Return what a model was told."""
    messages: list[dict[str, Any]] = []
    for part in parts:
        role = _role(part)
        # Each result is a message of its own: viewers show one result for a message.
        if not messages or messages[-1]["role"] != role or role == "tool":
            messages.append({"role": role, "parts": []})
        messages[-1]["parts"] += _part(part)
    return _json(messages)


def output_messages(parts: Iterable[TranscriptPart], finish: Finish) -> str:
    """Return what a model answered, from all that its response added to the conversation."""
    said = [found for part in parts if _role(part) == "assistant" for found in _part(part)]
    return _json([{"role": "assistant", "parts": said, "finish_reason": reason_of(finish)}])


def instructions(system: str) -> str:
    """Return what a model is told before everything else."""
    return _json([{"type": "text", "content": text(system)}])


def value(given: Any) -> str:
    """Return arguments or a result as JSON, or as Python writes it if it has no such form."""
    try:
        return text(_json(given))
    except (TypeError, ValueError, RecursionError):
        return text(repr(given))


def text(said: str) -> str:
    """Return a text that every exporter can send."""
    return _whole(cut(said, _LONGEST_TEXT))


def _name(given: str) -> str:
    return _whole(cut(given, _LONGEST_NAME))


def _whole(said: str) -> str:
    """Return *said* without halves of characters, which cannot be encoded."""
    return said if said.isascii() else said.encode("utf-8", "replace").decode()


def _role(part: TranscriptPart) -> str:
    match part:
        case UserText():
            return "user"
        case ToolResult():
            return "tool"
        case _:
            return "assistant"


def _part(part: TranscriptPart) -> list[dict[str, Any]]:
    match part:
        case UserText() | ModelText():
            return [{"type": "text", "content": text(part.text)}]
        case ThinkingPart(redacted=False):
            return [{"type": "reasoning", "content": text(part.text)}]
        case ToolUse():
            named = {"id": _name(part.id), "name": _name(part.name)}
            return [{"type": "tool_call", **named, "arguments": _arguments(part.args)}]
        case ToolResult():
            named = {"id": _name(part.tool_use_id), "response": text(part.content)}
            return [{"type": "tool_call_response", **named}]
        case _:
            return []


def _arguments(args: Mapping[str, Any]) -> Any:
    written = value(dict(args))
    try:
        return json.loads(written)
    except (ValueError, RecursionError):  # it was cut
        return written


def _json(data: Any) -> str:
    return _whole(json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=repr))
