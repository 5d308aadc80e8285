"""Names and attributes of spans by OpenTelemetry's semantic conventions for generative AI.

Pure functions of events. Knows nothing of spans, nor of OpenTelemetry's packages, whose constants
are those of an older version of the conventions.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from treefold.core.agent_events import RequestRetried, ResponseCompleted
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
from treefold.core.truncation import truncate
from treefold.core.usage import TokenUsage

Attributes = dict[str, str | bool | int | float | Sequence[str]]

# The version of the conventions, as their repository identifies it.
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai/1.42.0"

_LONGEST_NAME: Final = 200  # characters; names that models make up may have any length
_LONGEST_TEXT: Final = 20_000  # characters; a server refuses a whole batch for one text too long

_PROVIDERS: Final = {
    Provider.OpenAI: "openai",
    Provider.Anthropic: "anthropic",
    Provider.Gemini: "gcp.gemini",
    Provider.Local: "local",
}
_PORTS: Final = {"http": 80, "https": 443}
_FINISH_REASONS: Final = {
    Finish.ANSWERED: "stop",
    Finish.TOOL_USE: "tool_call",
    Finish.MAX_TOKENS: "length",
    Finish.PAUSED: "pause",
}


def agent_name(requested: CallRequested) -> str:
    """Return the name of an agent."""
    return _name(requested.function)


def span_name(requested: CallRequested) -> str:
    """Return the name of the span of a call."""
    function = _name(requested.function)
    if requested.is_agent:
        return f"invoke_agent {function}"
    return function if requested.tool_use_id is None else f"execute_tool {function}"


def call_attributes(requested: CallRequested) -> Attributes:
    """Return the attributes that a call has from its start."""
    found: Attributes = {}
    function = _name(requested.function)
    if requested.is_agent:
        found |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": function}
    else:
        # Also for code that no model has called: viewers show no kind for a span without operation.
        found |= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": function,
            "gen_ai.tool.type": "function",
        }
    if requested.description:
        what = "agent" if requested.is_agent else "tool"
        found[f"gen_ai.{what}.description"] = _name(requested.description)
    if requested.tool_use_id is not None:
        found["gen_ai.tool.call.id"] = _name(requested.tool_use_id)
    return found


def model_attributes(name: str, address: str = "") -> Attributes:
    """Return the provider and model of a model name, and the server if the model has an address."""
    return _model(name) | (_server(address) if address else {})


def _model(name: str) -> Attributes:
    kind, _, rest = name.partition(":")
    try:
        provider = Provider(kind)
    except ValueError:  # a model class of the program
        return {"gen_ai.provider.name": "unknown", "gen_ai.request.model": _name(name)}
    model = rest.partition("@http")[0]
    if provider is Provider.Local:  # without its folder, which may be private
        model = rest.replace("\\", "/").rpartition("/")[2] or "local"
    return {"gen_ai.provider.name": _PROVIDERS[provider], "gen_ai.request.model": _name(model)}


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
    """Return the token counts; cached and reasoning tokens are included in the two totals."""
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


def response_attributes(response: ResponseCompleted) -> Attributes:
    """Return what the provider says of a response, and when it began."""
    found: Attributes = {}
    exchange = response.exchange
    if exchange.response_id:
        found["gen_ai.response.id"] = _name(exchange.response_id)
    if exchange.response_model:
        found["gen_ai.response.model"] = _name(exchange.response_model)
    if response.first_chunk is not None:
        found["gen_ai.response.time_to_first_chunk"] = response.first_chunk
    return found


def finish_reason(finish: Finish) -> str:
    """Return why a model stopped, by the conventions."""
    return _FINISH_REASONS[finish]


def retry_attributes(retry: RequestRetried) -> Attributes:
    """Return the attributes of a failed attempt."""
    return {
        "error.type": error_type(retry.failure),
        "treefold.retry.attempt": retry.attempt,
        "treefold.retry.wait": retry.wait,
    }


def error_type(failure: Failure) -> str:
    """Return the type of a failure: the name of the exception, or the HTTP status."""
    return _name(failure.type.removeprefix("HTTP ")) or "_OTHER"


# Texts


def input_messages(parts: Iterable[TranscriptPart]) -> str:
    """Return the messages to a model, as JSON."""
    messages: list[dict[str, Any]] = []
    for part in parts:
        role = _role(part)
        # Each tool result is a separate message: viewers show one result per message.
        if not messages or messages[-1]["role"] != role or role == "tool":
            messages.append({"role": role, "parts": []})
        messages[-1]["parts"] += _part(part)
    return _json(messages)


def output_messages(parts: Iterable[TranscriptPart], finish: Finish) -> str:
    """Return the message of a model, as JSON, from what its response added to the transcript."""
    shown = [found for part in parts if _role(part) == "assistant" for found in _part(part)]
    return _json([{"role": "assistant", "parts": shown, "finish_reason": finish_reason(finish)}])


def instructions(system: str) -> str:
    """Return the system prompt, as JSON."""
    return _json([{"type": "text", "content": text(system)}])


def value(given: Any) -> str:
    """Return arguments or a result as JSON, or its repr if it has no JSON form."""
    try:
        return text(_json(given))
    except (TypeError, ValueError, RecursionError):
        return text(repr(given))


def text(content: str) -> str:
    """Return *content* as a text that every exporter can send."""
    return _without_surrogates(truncate(content, _LONGEST_TEXT))


def _name(given: str) -> str:
    return _without_surrogates(truncate(given, _LONGEST_NAME))


def _without_surrogates(content: str) -> str:
    # Lone surrogates cannot be encoded, and would make an exporter drop the whole batch.
    return content if content.isascii() else content.encode("utf-8", "replace").decode()


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
    encoded = value(dict(args))
    try:
        return json.loads(encoded)
    except (ValueError, RecursionError):  # it was cut
        return encoded


def _json(data: Any) -> str:
    encoded = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=repr)
    return _without_surrogates(encoded)
