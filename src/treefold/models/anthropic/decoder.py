"""The stream of Anthropic's messages, block by block.

Each block is kept as it was announced, with what its deltas added: what is unknown here is sent
back all the same.
"""

from typing import Any, Final, cast
from uuid import uuid4

from treefold.core.exchange import Finish
from treefold.core.model_events import ModelEvent, TextDelta, ThinkingDelta, ToolUseDelta
from treefold.core.usage import TokenUsage
from treefold.models.decoder import (
    UNUSABLE,
    Decoder,
    RefusedError,
    Response,
    StreamFailedError,
    count,
)
from treefold.models.json_text import (
    SurrogateJoiner,
    join_surrogates,
    objects_in,
    parse_json_object,
    to_json,
)
from treefold.models.sse import BrokenStreamError

_FINISHES: Final = {
    "end_turn": Finish.ANSWERED,
    "stop_sequence": Finish.ANSWERED,
    "tool_use": Finish.TOOL_USE,
    "pause_turn": Finish.PAUSED,
    "max_tokens": Finish.MAX_TOKENS,
    "model_context_window_exceeded": Finish.MAX_TOKENS,
}
_INPUT: Final = "\x00input\x00"  # where the arguments go; no JSON text holds it unescaped


class _Block:
    """One content block, with the pieces that came after its announcement."""

    def __init__(self, index: int, announced: dict[str, Any]) -> None:
        self.index = index
        self.fields = announced
        self.kind = str(announced.get("type"))
        self.citations: list[Any] = []
        self._pieces: dict[str, list[str]] = {}
        self._characters = SurrogateJoiner()

    def add(self, field: str, piece: str) -> str:
        """Add *piece* to *field*; return what can be shown of it."""
        self._pieces.setdefault(field, []).append(piece)
        return self._characters.feed(piece)

    def text(self, field: str) -> str:
        return "".join([str(self.fields.get(field) or ""), *self._pieces.get(field, ())])

    def delta(self, arguments: str) -> ToolUseDelta:
        """Return what *arguments* add to a call."""
        id, name = self.fields.get("id"), self.fields.get("name")
        return ToolUseDelta(self.index, str(id), str(name), arguments)

    def as_json(self) -> str | None:
        """Return the block as it is sent back; None if it was cut off and cannot be."""
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
            arguments = to_json({UNUSABLE: arguments})
        before, after = to_json(fields | {"input": _INPUT}).split(to_json(_INPUT))
        return before + arguments + after


class AnthropicDecoder(Decoder):
    """Reads one streamed message."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        self._ids: set[str] = set()  # of calls
        self._stop_reason = ""
        self._usage: dict[str, Any] = {}

    def _take(self, chunk: dict[str, Any], found: list[ModelEvent]) -> None:
        if chunk.get("type") == "content_block_delta":  # the usual case
            self._take_delta(self._block(chunk.get("index")), chunk.get("delta"), found)
            return
        match chunk:
            case {"type": "content_block_start", "index": int(index), "content_block": {**block}}:
                self._begin(index, block, found)
            case {"type": "message_start", "message": {**message}}:
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
                pass  # ping, and what is yet to be invented

    def _begin(self, index: int, fields: dict[str, Any], found: list[ModelEvent]) -> None:
        block = self._blocks[index] = _Block(index, fields)
        if block.kind == "tool_use":
            if not all(isinstance(fields.get(key), str) for key in ("id", "name")):
                raise BrokenStreamError(f"a call without a name or an id: {fields!r:.200}")
            if fields["id"] in self._ids:  # each call needs a result of its own
                fields["id"] = f"toolu_{uuid4().hex[:24]}"
            self._ids.add(fields["id"])
            block.index = self._calls
            self._calls += 1
            found.append(block.delta(""))
        elif block.kind == "text" and fields.get("text"):
            found.append(TextDelta(str(fields["text"])))

    def _block(self, index: Any) -> _Block:
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None:
            raise BrokenStreamError(f"content block {index} was never begun")
        return block

    def _take_delta(self, block: _Block, delta: Any, found: list[ModelEvent]) -> None:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                if shown := block.add("text", text):
                    found.append(TextDelta(shown))
            case {"type": "thinking_delta", "thinking": str(text)}:
                if shown := block.add("thinking", text):
                    found.append(ThinkingDelta(shown))
            case {"type": "signature_delta", "signature": str(text)}:
                block.add("signature", text)
            case {"type": "input_json_delta", "partial_json": str(text)}:
                block.add("input", text)
                if block.kind == "tool_use":
                    found.append(block.delta(text))
            case {"type": "citations_delta", "citation": citation}:
                block.citations.append(citation)
            case _:
                pass

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):  # each count is a total so far
            fields = cast("dict[str, Any]", usage)
            self._usage |= {key: value for key, value in fields.items() if value is not None}

    @property
    def usage(self) -> TokenUsage:
        usage = self._usage
        thinking = count(usage, "output_tokens_details", "thinking_tokens")
        hour = count(usage, "cache_creation", "ephemeral_1h_input_tokens")
        return TokenUsage(
            input=count(usage, "input_tokens"),
            cache_read=count(usage, "cache_read_input_tokens"),
            cache_write=max(0, count(usage, "cache_creation_input_tokens") - hour),
            cache_write_1h=hour,
            reasoning=thinking,
            output=max(0, count(usage, "output_tokens") - thinking),
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
