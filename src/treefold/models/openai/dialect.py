"""The messages of OpenAI's chat completions, as compatible servers accept them."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from treefold.core.failures import is_failure
from treefold.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from treefold.models.call_ids import CallIds
from treefold.models.dialect import Dialect, make_tool_use
from treefold.models.json_text import parse_json, to_json
from treefold.models.openai.decoder import REASONING_FIELDS, OpenAIDecoder
from treefold.models.openai.streamed_text import ThinkTagParser
from treefold.models.profiles import Profile

# The key around the result of a call that failed, for which the protocol has no flag.
_ERROR_KEY: Final = "tool_error"


class OpenAIDialect(Dialect):
    """Chat completions."""

    name: ClassVar[str] = "openai-chat"
    call_ids: ClassVar[CallIds] = CallIds(longest=64)
    may_lack_functions: ClassVar[bool] = True

    def leading_message(self, system: str) -> str:
        return to_json({"role": "system", "content": system}) if system else ""

    def fields(self, system: str) -> dict[str, Any]:
        settings, profile = self.settings, self.profile
        fields: dict[str, Any] = {"model": self.model, "stream": True}
        if profile.stream_usage:
            fields["stream_options"] = {"include_usage": True}
        max_tokens = settings.max_tokens or profile.max_tokens
        if max_tokens is not None:
            fields[profile.max_tokens_field] = max_tokens
        fields |= self.sampling
        if self.functions:
            fields["tools"] = [function.to_openai_format() for function in self.functions.values()]
            if not settings.call_functions:
                fields["tool_choice"] = "none"
        if settings.response_schema is not None:
            fields["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "response", "schema": settings.response_schema},
            }
        return fields

    def write(
        self, results: Sequence[tuple[ToolUse, ToolResult]], texts: Sequence[UserText]
    ) -> list[str]:
        messages: list[str] = []
        for call, result in results:
            content = result.content
            if result.is_error and not is_failure(content):  # a failure is marked already
                content = to_json({_ERROR_KEY: content})
            message = {"role": "tool", "tool_call_id": call.id, "content": content}
            messages.append(to_json(message))
        if texts:
            text = "\n\n".join([text.text for text in texts])
            messages.append(to_json({"role": "user", "content": text}))
        return messages

    def write_response(self, text: str, calls: Sequence[ToolUse]) -> str:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": to_json(dict(call.args))},
                }
                for call in calls
            ]
        return to_json(message)

    def read(self, message: str, position: int, pending: Sequence[ToolUse]) -> list[TranscriptPart]:
        return message_parts(parse_json(message), self.profile)

    def read_response(self, message: str, position: int) -> tuple[list[TranscriptPart], str]:
        fields = parse_json(message)
        parts = message_parts(fields, self.profile)
        if self.profile.replays_thinking or fields.get("role") != "assistant":
            return parts, message
        # A response with calls is the middle of a train of thought, so its thinking is kept.
        if fields.get("tool_calls"):
            return parts, message
        text = "".join([part.text for part in parts if isinstance(part, ModelText)])
        for field in REASONING_FIELDS:
            fields.pop(field, None)
        return parts, to_json(fields | {"content": text})

    def decoder(self) -> OpenAIDecoder:
        settings = self.settings
        return OpenAIDecoder(
            self.profile,
            self.functions,
            lenient=settings.allow_lenient_tool_json,
            in_text=bool(self.profile.calls_in_text) and settings.call_functions,
            noticed=self.noticed,
        )


def message_parts(message: Any, profile: Profile) -> list[TranscriptPart]:
    """Return the parts of a message of a model with *profile*; none if it has another form."""
    match message:
        case {"role": "user", "content": str(text)}:
            return [UserText(text)]
        case {"role": "tool", "tool_call_id": str(id), "content": str(content)}:
            return [_result(id, content)]
        case {"role": "assistant", **fields}:
            return _response_parts(fields, profile)
        case _:
            return []


def _response_parts(fields: dict[str, Any], profile: Profile) -> list[TranscriptPart]:
    parts: list[TranscriptPart] = [
        ThinkingPart(fields[field]) for field in REASONING_FIELDS if fields.get(field)
    ]
    if content := fields.get("content"):
        if not isinstance(content, str):
            raise TypeError(f"the content of a response must be a string, got {content!r}")
        parts += _text_parts(content, profile)
    for call in fields.get("tool_calls") or ():
        function = call["function"]
        parts.append(make_tool_use(call["id"], function["name"], parse_json(function["arguments"])))
    return parts


def _result(id: str, content: str) -> ToolResult:
    match parse_json(content) if content.startswith(f'{{"{_ERROR_KEY}"') else None:
        case {"tool_error": str(failure)}:
            return ToolResult(id, failure, is_error=True)
        case _:
            return ToolResult(id, content, is_error=is_failure(content))


def _text_parts(content: str, profile: Profile) -> list[TranscriptPart]:
    """Separate thinking from the answer in a complete text."""
    opening, closing = profile.think_tags
    closes = closing in content  # without a closing tag it was not thinking
    if not closes and opening not in content:
        return [ModelText(content)]
    parser = ThinkTagParser(opening, closing, thinks_first=profile.thinks_first and closes)
    thinking, text = "", ""
    for kind, piece in [*parser.feed(content), *parser.end()]:
        if kind == "text":
            text += piece
        elif kind == "thinking":
            thinking += piece
        else:
            thinking, text = text.strip(), ""
    parts: list[TranscriptPart] = [ThinkingPart(thinking)] if thinking else []
    return [*parts, ModelText(text)] if text else parts
