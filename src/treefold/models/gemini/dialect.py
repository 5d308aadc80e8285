"""The format of Gemini's contents."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from treefold.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from treefold.models.dialect import Dialect, make_tool_use
from treefold.models.gemini.decoder import GeminiDecoder
from treefold.models.json_text import parse_json, to_json
from treefold.models.profiles import Thinking


class GeminiDialect(Dialect):
    """Contents whose parts are kept as they were received."""

    name: ClassVar[str] = "gemini-content"
    messages_key: ClassVar[str] = "contents"

    def fields(self, system: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"generationConfig": self._generation_config()}
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
            mode = "AUTO" if self.settings.call_functions else "NONE"
            fields["toolConfig"] = {"functionCallingConfig": {"mode": mode}}
        return fields

    def _generation_config(self) -> dict[str, Any]:
        settings, profile = self.settings, self.profile
        config: dict[str, Any] = {}
        if profile.thinking is not Thinking.UNASKED:
            config["thinkingConfig"] = {"includeThoughts": False} | self._budget()
        options = {
            "maxOutputTokens": settings.max_tokens or profile.max_tokens,
            "temperature": self.sampling.get("temperature"),
            "topP": self.sampling.get("top_p"),
        }
        config |= {name: value for name, value in options.items() if value is not None}
        if settings.response_schema is not None:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = settings.response_schema
        return config

    def _budget(self) -> dict[str, Any]:
        if self.profile.thinking is not Thinking.BUDGET:
            return {}
        if self.settings.thinking is None and self.profile.thinking_budget is None:
            return {}
        budget, max_tokens = self.thinking, self.settings.max_tokens
        # Thinking is part of max_tokens.
        if self.settings.thinking is None and max_tokens is not None:
            budget = min(budget, max_tokens * 3 // 4)
        return {"thinkingBudget": max(budget, self.profile.least_thinking)}

    def write(
        self, results: Sequence[tuple[ToolUse, ToolResult]], texts: Sequence[UserText]
    ) -> list[str]:
        parts: list[dict[str, Any]] = []
        for call, result in results:
            content = {"error" if result.is_error else "result": result.content}
            response: dict[str, Any] = {"name": call.name, "response": content}
            if not _is_synthetic(call.id):
                response = {"id": call.id} | response
            parts.append({"functionResponse": response})
        parts += [{"text": text.text} for text in texts]
        return [to_json({"role": "user", "parts": parts})] if parts else []

    def write_response(self, text: str, calls: Sequence[ToolUse]) -> str:
        parts: list[dict[str, Any]] = [{"text": text}] if text else []
        for number, call in enumerate(calls):
            fields: dict[str, Any] = {"name": call.name, "args": dict(call.args)}
            if not _is_synthetic(call.id):
                fields = {"id": call.id} | fields
            part: dict[str, Any] = {"functionCall": fields}
            if number == 0 and self.profile.thinking is Thinking.ADAPTIVE:
                part["thoughtSignature"] = _UNSIGNED
            parts.append(part)
        return to_json({"role": "model", "parts": parts})

    def read(self, message: str, position: int, pending: Sequence[ToolUse]) -> list[TranscriptPart]:
        match parse_json(message):
            case {"role": "user", "parts": [*parts]}:
                calls = iter(pending)
                return [_sent_part(part, calls) for part in parts]
            case {"role": "model", "parts": [*parts]}:
                return _received_parts(parts, position)
            case _:
                return []

    def read_response(self, message: str, position: int) -> tuple[list[TranscriptPart], str]:
        return self.read(message, position, ()), _without_summaries(message)

    def decoder(self) -> GeminiDecoder:
        return GeminiDecoder(self.profile)


_SYNTHETIC = "treefold-call-"
# Since Gemini 3, the first call of a response must be signed, and Google documents this for calls
# that no Gemini has made.
_UNSIGNED = "skip_thought_signature_validator"


def _without_summaries(message: str) -> str:
    """Return a response without the summaries of its thinking, which the model cannot use."""
    if '"thought":true' not in message and '{"thoughtSignature"' not in message:
        return message
    content = parse_json(message)
    parts = [
        {"text": ""} | part if part.keys() == {"thoughtSignature"} else part
        for part in content["parts"]
        if not part.get("thought") or "thoughtSignature" in part
    ]
    return to_json(content | {"parts": parts}) if parts else message


def _synthetic_id(position: int, index: int) -> str:
    """Return an id for a call without one: the same whenever the history is read."""
    return f"{_SYNTHETIC}{position}-{index}"


def _is_synthetic(id: str) -> bool:
    return id.startswith(_SYNTHETIC)


def _sent_part(part: Any, calls: Iterator[ToolUse]) -> TranscriptPart:
    match part:
        case {"functionResponse": {"response": {"error": str(failure)}}}:
            return ToolResult(next(calls).id, failure, is_error=True)
        case {"functionResponse": {"response": {"result": str(content)}}}:
            return ToolResult(next(calls).id, content)
        case _:
            return UserText(part.get("text", ""))


def _received_parts(parts: list[Any], position: int) -> list[TranscriptPart]:
    found: list[TranscriptPart] = []
    ids: set[str] = set()
    for index, part in enumerate(parts):
        match part:
            case {"functionCall": {"name": str(name), **call}}:
                id = call.get("id")
                if not isinstance(id, str) or not id or id in ids:
                    id = _synthetic_id(position, index)
                ids.add(id)
                found.append(make_tool_use(id, name, call.get("args") or {}))
            case {"thought": True, "text": str(text)}:
                found.append(ThinkingPart(text, part.get("thoughtSignature")))
            case {"text": str(text)} if text:
                found.append(ModelText(text))
            case {"thoughtSignature": str(signature)}:
                found.append(ThinkingPart("", signature, redacted=True))
            case _:
                pass  # a part that is kept, but has no counterpart in a transcript
    return found
