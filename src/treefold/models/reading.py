"""Read saved conversations of any provider, without a model."""

from collections.abc import Sequence
from typing import Final

from treefold.core.errors import InvalidValueError
from treefold.core.exchange import PLAIN, Exchange
from treefold.core.fact import replace
from treefold.core.model import ModelSettings
from treefold.core.provider import Provider
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart
from treefold.models.anthropic.dialect import AnthropicDialect
from treefold.models.dialect import Dialect
from treefold.models.gemini.dialect import GeminiDialect
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
        # Where another provider's model took over the calls, they may have other ids.
        ids = iter([call.id for call in pending])
        parts = [
            replace(part, tool_use_id=next(ids, part.tool_use_id))
            if isinstance(part, ToolResult)
            else part
            for part in parts
        ]
        found.append(parts)
        pending = [part for part in parts if isinstance(part, ToolUse)]
    return found


def _reader(dialect: str) -> Dialect:
    if dialect not in _DIALECTS:
        known = ", ".join(_DIALECTS)
        raise InvalidValueError(
            f"the conversation was saved with the unknown dialect {dialect!r}; known are {known}"
        )
    kind, provider = _DIALECTS[dialect]
    return kind("", profile_of(provider, ""), "", (), ModelSettings())
