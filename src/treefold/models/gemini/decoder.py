"""Decodes the stream of Gemini's content, part by part.

Parts are kept as they were received, signatures and unknown fields included; only plain text that
was split for streaming is joined again.
"""

from typing import Any, Final, cast

from treefold.core.exchange import Finish
from treefold.core.model_events import ModelEvent, TextDelta, ThinkingDelta, ToolUseDelta
from treefold.core.usage import TokenUsage
from treefold.models.decoder import (
    Decoder,
    RefusedError,
    Response,
    StreamFailedError,
    http_status,
    token_counts,
)
from treefold.models.json_text import SurrogateJoiner, objects_in, to_json
from treefold.models.profiles import Profile
from treefold.models.sse import BrokenStreamError

_CUT_OFF: Final = {"MAX_TOKENS", "CONTINUATION"}
_REFUSED: Final = {
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII",
    "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
}  # fmt: skip
# The model wrote something that the server could not parse: a retry helps.
_MALFORMED: Final = {
    "MALFORMED_FUNCTION_CALL",
    "MALFORMED_RESPONSE",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
    "OTHER",
}

_THOUGHT: Final = {"text", "thought"}  # the fields of a piece of thinking


class GeminiDecoder(Decoder):
    """Decodes one streamed response."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._parts: list[dict[str, Any]] = []
        self._plain: list[str] = []  # pieces of a text part that is not complete yet
        self._joiner = SurrogateJoiner()
        self._calls = 0
        self._finish = ""
        self._message = ""
        self._blocked = ""
        self._usage: dict[str, Any] = {}

    def _handle(self, chunk: dict[str, Any], events: list[ModelEvent]) -> None:
        if isinstance(error := chunk.get("error"), dict):
            raise _failure(cast("dict[str, Any]", error))
        self._identify(chunk.get("responseId"), chunk.get("modelVersion"))
        for candidate in objects_in(chunk.get("candidates"))[:1]:
            self._handle_candidate(candidate, events)
        match chunk.get("promptFeedback"):
            case {"blockReason": reason}:
                self._blocked = str(reason)
            case _:
                pass
        if isinstance(usage := chunk.get("usageMetadata"), dict):
            self._usage = cast("dict[str, Any]", usage)

    def _handle_candidate(self, candidate: dict[str, Any], events: list[ModelEvent]) -> None:
        if isinstance(content := candidate.get("content"), dict):
            for part in objects_in(cast("dict[str, Any]", content).get("parts")):
                self._handle_part(part, events)
        if finish := candidate.get("finishReason"):
            self._finish = str(finish)
            self._message = str(candidate.get("finishMessage") or "")

    def _handle_part(self, part: dict[str, Any], events: list[ModelEvent]) -> None:
        text = part.get("text")
        shown = ""
        if isinstance(text, str):
            self._chars += len(text)
            shown = self._joiner.feed(text)
        if shown:
            events.append(ThinkingDelta(shown) if part.get("thought") else TextDelta(shown))
        if part.keys() == {"text"}:
            self._plain.append(text if isinstance(text, str) else "")
            return
        self._join_plain()
        self._parts.append(part)
        if part.keys() == _THOUGHT and part["thought"] is True and isinstance(text, str):
            self._chars += 1  # the usual case
            return
        data = part.copy()
        if isinstance(text, str):  # which is counted already
            del data["text"]
        if isinstance(call := part.get("functionCall"), dict):
            fields = cast("dict[str, Any]", call)
            data["functionCall"] = {**fields, "args": None}  # they are counted as such
            self._handle_call(fields, events)
        self._count_data(data)

    def _handle_call(self, fields: dict[str, Any], events: list[ModelEvent]) -> None:
        if not isinstance(fields.get("name"), str):
            raise BrokenStreamError(f"a call without a name: {fields!r:.200}")
        arguments = to_json(fields.get("args") or {})
        self._count_json(self._calls, arguments)
        events.append(
            ToolUseDelta(
                self._calls, str(fields.get("id") or ""), str(fields.get("name")), arguments
            )
        )
        self._calls += 1
        self._check_calls(self._calls)

    def _join_plain(self) -> None:
        if text := "".join(self._plain):
            self._parts.append({"text": text})
        self._plain.clear()

    @property
    def usage(self) -> TokenUsage:
        prompt, by_tools, cached, thinking, received = token_counts(
            self._usage,
            "promptTokenCount",
            "toolUsePromptTokenCount",
            "cachedContentTokenCount",
            "thoughtsTokenCount",
            "candidatesTokenCount",
        )
        return TokenUsage(
            input=max(0, prompt + by_tools - cached),
            cache_read=cached,
            reasoning=thinking,
            output=received,
        )

    def _response(self) -> Response:
        self._join_plain()
        if self._blocked:
            raise RefusedError(self._blocked, "")
        if not self._finish:
            raise BrokenStreamError("the stream ended without a finish reason")
        if self._finish in _MALFORMED:
            raise BrokenStreamError(f"the model's response was unusable: {self._explained()}")
        if self._finish in _REFUSED:
            text = "".join(str(part.get("text") or "") for part in self._parts)
            raise RefusedError(self._explained(), text)
        finish = Finish.TOOL_USE if self._calls else Finish.ANSWERED
        if self._finish in _CUT_OFF:
            finish = Finish.MAX_TOKENS
        content = {"role": "model", "parts": self._parts}
        return Response(to_json(content) if self._parts else None, finish, self._finish)

    def _explained(self) -> str:
        return f"{self._finish}: {self._message}" if self._message else self._finish


def _failure(error: dict[str, Any]) -> StreamFailedError:
    kind, message = str(error.get("status") or ""), str(error.get("message"))
    return StreamFailedError(kind, message, http_status(error.get("code")))
