"""Read saved conversations of any provider, without a model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from treefold.core.errors import InvalidValueError
from treefold.core.exchange import PLAIN, Exchange
from treefold.core.messages import messages_of
from treefold.core.model import ModelSettings
from treefold.core.provider import Provider
from treefold.core.transcript import ModelText, ToolResult, ToolUse, TranscriptPart, UserText
from treefold.models.anthropic.dialect import AnthropicDialect
from treefold.models.dialect import Dialect
from treefold.models.gemini.dialect import GeminiDialect
from treefold.models.json_text import to_json
from treefold.models.openai.dialect import OpenAIDialect
from treefold.models.profiles import profile_of
from treefold.models.translation import to_dialect

_DIALECTS: Final[dict[str, tuple[type[Dialect], Provider]]] = {
    OpenAIDialect.name: (OpenAIDialect, Provider.OpenAI),
    AnthropicDialect.name: (AnthropicDialect, Provider.Anthropic),
    GeminiDialect.name: (GeminiDialect, Provider.Gemini),
    PLAIN: (OpenAIDialect, Provider.OpenAI),
}


def read_exchanges(exchanges: Sequence[Exchange]) -> list[list[TranscriptPart]]:
    """Return the transcript parts that each of *exchanges* added.

    Raises:
        InvalidValueError: an exchange has an unknown dialect.
    """
    readers: dict[str, Dialect] = {}
    found: list[list[TranscriptPart]] = []
    pending: list[ToolUse] = []
    position = 0
    for exchange in exchanges:
        if exchange.dialect not in readers:
            readers[exchange.dialect] = _reader(exchange.dialect)
        reader = readers[exchange.dialect]
        exchange = to_dialect(exchange, reader, pending)
        parts: list[TranscriptPart] = []
        for message in (*exchange.sent, *exchange.received):
            parts += reader.read(message, position, pending)
            position += 1
        found.append(parts)
        pending = [part for part in parts if isinstance(part, ToolUse)]
    return found


def to_plain(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return *exchanges* as plain ones, which any model can continue; thinking is left out.

    Raises:
        InvalidValueError: an exchange has an unknown dialect.
    """
    found: list[Exchange] = []
    for exchange, parts in zip(exchanges, read_exchanges(exchanges), strict=True):
        sent: list[dict[str, Any]] = []
        text: list[str] = []
        calls: list[ToolUse] = []
        for part in parts:
            match part:
                case UserText():
                    sent.append({"role": "user", "content": part.text})
                case ToolResult():
                    result = {"content": part.content, "is_error": part.is_error}
                    sent.append({"role": "tool"} | result)
                case ModelText():
                    text.append(part.text)
                case ToolUse():
                    calls.append(part)
                case _:
                    pass
        [message] = messages_of([ModelText("".join(text)), *calls])
        received = {"content": message["content"], "tool_calls": message.get("tool_calls", [])}
        found.append(
            replace(
                exchange,
                dialect=PLAIN,
                sent=tuple(to_json(message) for message in sent),
                received=(to_json(received),),
            )
        )
    return found


def _reader(dialect: str) -> Dialect:
    if dialect not in _DIALECTS:
        known = ", ".join(_DIALECTS)
        raise InvalidValueError(
            f"the conversation was saved with the unknown dialect {dialect!r}; known are {known}"
        )
    kind, provider = _DIALECTS[dialect]
    return kind("", profile_of(provider, ""), "", (), ModelSettings())
