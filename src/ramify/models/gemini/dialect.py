"""Gemini's contents."""

from collections.abc import Sequence
from typing import Any, ClassVar

from ramify.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from ramify.models.decoder import compact
from ramify.models.dialect import Dialect, failed, failure_in, loaded, readable
from ramify.models.gemini.decoder import GeminiDecoder
from ramify.models.profiles import Thinking


class GeminiDialect(Dialect):
    """Contents, with parts kept as they came."""

    name: ClassVar[str] = "gemini-content"
    messages_key: ClassVar[str] = "contents"

    def fields(self, system: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"generationConfig": self._generation()}
        if system:
            fields["systemInstruction"] = {"parts": [{"text": system}]}
        if self.functions:
            declarations = [
                {
                    "name": function.name,
                    "description": function.description,
                    "parametersJsonSchema": function.input_schema,
                }
                for function in self.functions.values()
            ]
            fields["tools"] = [{"functionDeclarations": declarations}]
            fields["toolConfig"] = {"functionCallingConfig": {"mode": "AUTO"}}
        return fields

    def _generation(self) -> dict[str, Any]:
        settings, profile = self.settings, self.profile
        thinking: dict[str, Any] = {"includeThoughts": False}
        budget = profile.thinking_budget if settings.thinking is None else settings.thinking
        if profile.thinking is Thinking.BUDGET and budget is not None:
            thinking["thinkingBudget"] = budget
        config: dict[str, Any] = {"thinkingConfig": thinking}
        wished = {
            "maxOutputTokens": settings.max_tokens or profile.max_tokens,
            "temperature": settings.temperature,
            "topP": settings.top_p,
        }
        config |= {name: value for name, value in wished.items() if value is not None}
        if settings.response_schema is not None:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = settings.response_schema
        return config

    def write(
        self, results: Sequence[tuple[ToolUse, ToolResult]], texts: Sequence[UserText]
    ) -> list[str]:
        parts: list[dict[str, Any]] = []
        for call, result in results:
            content = failed(result.content) if result.is_error else {"result": result.content}
            response: dict[str, Any] = {"name": call.name, "response": content}
            if not _is_made_up(call.id):
                response = {"id": call.id} | response
            parts.append({"functionResponse": response})
        parts += [{"text": text.text} for text in texts]
        return [compact({"role": "user", "parts": parts})] if parts else []

    def read(self, message: str, position: int, asked: Sequence[ToolUse]) -> list[TranscriptPart]:
        match loaded(message):
            case {"role": "user", "parts": [*parts]}:
                calls = iter(asked)
                return [_sent(part, calls) for part in parts]
            case {"role": "model", "parts": [*parts]}:
                found = [_received(part, position, place) for place, part in enumerate(parts)]
                return [part for part in found if part is not None]
            case _:
                return []

    def replayed(self, message: str) -> str:
        if '"thought":true' not in message:
            return message
        content = loaded(message)  # summaries, unasked: they are no thinking to go on from
        parts = [p for p in content["parts"] if not p.get("thought") or "thoughtSignature" in p]
        return compact(content | {"parts": parts}) if parts else message

    def decoder(self) -> GeminiDecoder:
        return GeminiDecoder()


_MADE_UP = "ramify-call-"


def _made_up(position: int, place: int) -> str:
    """Return an id for a call that came without one: the same whenever the history is read."""
    return f"{_MADE_UP}{position}-{place}"


def _is_made_up(id: str) -> bool:
    return id.startswith(_MADE_UP)


def _sent(part: Any, calls: Any) -> TranscriptPart:
    match part:
        case {"functionResponse": {"response": response}}:
            failure = failure_in(response)
            content = response.get("result", "") if failure is None else failure
            return ToolResult(next(calls).id, content, failure is not None)
        case _:
            return UserText(part.get("text", ""))


def _received(part: Any, position: int, place: int) -> TranscriptPart | None:
    signature = part.get("thoughtSignature")
    match part:
        case {"functionCall": {"name": str(name), **call}}:
            return readable(call.get("id") or _made_up(position, place), name, call.get("args", {}))
        case {"thought": True, "text": str(text)}:
            return ThinkingPart(text, signature)
        case {"text": str(text)} if text:
            return ModelText(text)
        case _:
            return ThinkingPart("", signature, redacted=True) if signature else None
