"""Read saved conversations of any provider, without a model to go on with them."""

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
from treefold.models.translation import translated

_DIALECTS: Final[dict[str, tuple[type[Dialect], Provider]]] = {
    OpenAIDialect.name: (OpenAIDialect, Provider.OpenAI),
    AnthropicDialect.name: (AnthropicDialect, Provider.Anthropic),
    GeminiDialect.name: (GeminiDialect, Provider.Gemini),
    PLAIN: (OpenAIDialect, Provider.OpenAI),
}


def read_exchanges(exchanges: Sequence[Exchange]) -> list[list[TranscriptPart]]:
    """Return what each of *exchanges* added to the transcript.

    Raises:
        InvalidValueError: one is in a protocol that nobody here speaks.
    """
    readers: dict[str, Dialect] = {}
    found: list[list[TranscriptPart]] = []
    asked: list[ToolUse] = []
    at = 0
    for exchange in exchanges:
        if exchange.dialect not in readers:
            readers[exchange.dialect] = _reader(exchange.dialect)
        reader = readers[exchange.dialect]
        exchange = translated(exchange, reader, asked)
        parts: list[TranscriptPart] = []
        for message in (*exchange.sent, *exchange.received):
            parts += reader.read(message, at, asked)
            at += 1
        found.append(parts)
        asked = [part for part in parts if isinstance(part, ToolUse)]
    return found


def made_plain(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return *exchanges* so that any model can go on with them; thinking is left out.

    Raises:
        InvalidValueError: one is in a protocol that nobody here speaks.
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
        [said] = messages_of([ModelText("".join(text)), *calls])
        received = {"content": said["content"], "tool_calls": said.get("tool_calls", [])}
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
        raise InvalidValueError(f"the conversation was saved as {dialect!r}, which is not known")
    kind, provider = _DIALECTS[dialect]
    return kind("", profile_of(provider, ""), "", (), ModelSettings())
