"""Decodes the stream of Anthropic's messages, block by block.

Each block is kept as it was announced, with what its deltas added, so that blocks of an unknown
type are sent back as well.
"""

from typing import Any, Final, cast
from uuid import uuid4

from treefold.core.exchange import Finish
from treefold.core.model_events import ModelEvent, TextDelta, ThinkingDelta, ToolUseDelta
from treefold.core.usage import TokenUsage
from treefold.models.decoder import (
    INVALID_ARGS_KEY,
    Decoder,
    RefusedError,
    Response,
    StreamFailedError,
    token_counts,
)
from treefold.models.json_text import (
    SurrogateJoiner,
    join_surrogates,
    objects_in,
    parse_json_object,
    to_json,
)
from treefold.models.profiles import Profile
from treefold.models.sse import BrokenStreamError

_FINISHES: Final = {
    "end_turn": Finish.ANSWERED,
    "stop_sequence": Finish.ANSWERED,
    "tool_use": Finish.TOOL_USE,
    "pause_turn": Finish.PAUSED,
    "max_tokens": Finish.MAX_TOKENS,
    "model_context_window_exceeded": Finish.MAX_TOKENS,
}
# Placeholder for the arguments of a call; JSON text never contains it unescaped.
_INPUT: Final = "\x00input\x00"


class _Block:
    """One content block: the fields it was announced with, and the pieces that followed.

    Attributes:
        place: of the block in the message.
        index: the number of the call that it is, or its place.
    """

    def __init__(self, place: int, announced: dict[str, Any]) -> None:
        self.place = self.index = place
        self.fields = announced
        self.kind = str(announced.get("type"))
        self.citations: list[Any] = []
        self._pieces: dict[str, list[str]] = {}
        self._joiner = SurrogateJoiner()

    def add(self, field: str, piece: str) -> str:
        """Add *piece* to *field* and return the part of it that can be shown."""
        self._pieces.setdefault(field, []).append(piece)
        return self._joiner.feed(piece)

    def text(self, field: str) -> str:
        return "".join([str(self.fields.get(field) or ""), *self._pieces.get(field, ())])

    def delta(self, arguments: str) -> ToolUseDelta:
        """Return the event for a fragment of a call's arguments."""
        id, name = self.fields.get("id"), self.fields.get("name")
        return ToolUseDelta(self.index, str(id), str(name), arguments)

    def as_json(self) -> str | None:
        """Return the block as it is sent back; None if it was cut off and cannot be sent."""
        if self.kind == "thinking" and not self.text("signature"):
            return None
        if self.kind == "text" and not self.text("text").strip():
            return None
        fields = self.fields | {
            field: self.text(field) for field in self._pieces if field != "input"
        }
        if self.citations:
            fields["citations"] = [*objects_in(fields.get("citations")), *self.citations]
        arguments = join_surrogates("".join(self._pieces.get("input", ()))).strip()
        if not arguments:
            return to_json(fields)
        if parse_json_object(arguments) is None:
            arguments = to_json({INVALID_ARGS_KEY: arguments})
        before, after = to_json(fields | {"input": _INPUT}).split(to_json(_INPUT))
        return before + arguments + after


class AnthropicDecoder(Decoder):
    """Decodes one streamed message."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        self._call_ids: set[str] = set()
        self._stop_reason = ""
        self._usage: dict[str, Any] = {}

    def _handle(self, chunk: dict[str, Any], events: list[ModelEvent]) -> None:
        if chunk.get("type") == "content_block_delta":  # the usual case
            self._handle_delta(self._block(chunk.get("index")), chunk.get("delta"), events)
            return
        match chunk:
            case {"type": "content_block_start", "index": int(index), "content_block": {**block}}:
                self._begin(index, block, events)
            case {"type": "message_start", "message": {**message}}:
                self._identify(message.get("id"), message.get("model"))
                self._count(message.get("usage"))
            case {"type": "message_delta", "delta": {**delta}}:
                self._stop_reason = str(delta.get("stop_reason") or self._stop_reason)
                self._count(chunk.get("usage"))
            case {"type": "message_stop"}:
                self.is_done = True
            case {"type": "error", "error": {**error}}:
                kind, message = str(error.get("type") or ""), error.get("message")
                raise StreamFailedError(kind, str(message or kind))
            case _:
                pass  # ping, and event types of the future

    def _begin(self, index: int, fields: dict[str, Any], events: list[ModelEvent]) -> None:
        block = self._blocks[index] = _Block(index, fields)
        self._count_data(fields)
        if block.kind == "tool_use":
            if not all(isinstance(fields.get(key), str) for key in ("id", "name")):
                raise BrokenStreamError(f"a call without a name or an id: {fields!r:.200}")
            # Each call needs a result of its own, and so an id of its own.
            if fields["id"] in self._call_ids:
                fields["id"] = f"toolu_{uuid4().hex[:24]}"
            self._call_ids.add(fields["id"])
            block.index = self._calls
            self._calls += 1
            self._check_calls(self._calls)
            events.append(block.delta(""))
        elif block.kind == "text" and fields.get("text"):
            events.append(TextDelta(str(fields["text"])))

    def _block(self, index: Any) -> _Block:
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None:
            raise BrokenStreamError(f"content block {index} was never started")
        return block

    def _handle_delta(self, block: _Block, delta: Any, events: list[ModelEvent]) -> None:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                self._chars += len(text)
                if shown := block.add("text", text):
                    events.append(TextDelta(shown))
            case {"type": "thinking_delta", "thinking": str(text)}:
                self._chars += len(text)
                if shown := block.add("thinking", text):
                    events.append(ThinkingDelta(shown))
            case {"type": "signature_delta", "signature": str(text)}:
                self._count_data(text)
                block.add("signature", text)
            case {"type": "input_json_delta", "partial_json": str(text)}:
                self._count_json(block.place, text)
                block.add("input", text)
                if block.kind == "tool_use":
                    events.append(block.delta(text))
            case {"type": "citations_delta", "citation": citation}:
                self._count_data(citation)
                block.citations.append(citation)
            case _:
                pass

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):  # counts are cumulative
            fields = cast("dict[str, Any]", usage)
            self._usage |= {key: value for key, value in fields.items() if value is not None}

    @property
    def usage(self) -> TokenUsage:
        sent, cached, written, hour, received, thinking = token_counts(
            self._usage,
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "cache_creation.ephemeral_1h_input_tokens",
            "output_tokens",
            "output_tokens_details.thinking_tokens",
        )
        return TokenUsage(
            input=sent,
            cache_read=cached,
            cache_write=max(0, written - hour),
            cache_write_1h=hour,
            reasoning=thinking,
            output=max(0, received - thinking),
        )

    def _response(self) -> Response:
        if not self._stop_reason:
            raise BrokenStreamError("the stream ended without a stop reason")
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        if self._stop_reason == "refusal":
            raise RefusedError("refusal", "".join(block.text("text") for block in blocks))
        kept = [text for block in blocks if (text := block.as_json()) is not None]
        message = f'{{"role":"assistant","content":[{",".join(kept)}]}}' if kept else None
        finish = _FINISHES.get(self._stop_reason, Finish.ANSWERED)
        if self._calls and finish in {Finish.ANSWERED, Finish.PAUSED}:
            finish = Finish.TOOL_USE
        return Response(message, finish, self._stop_reason)
