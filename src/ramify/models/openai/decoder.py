"""The stream of an OpenAI-compatible server, and all the ways in which servers bend it."""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, cast
from uuid import uuid4

from ramify.core.exchange import Finish
from ramify.core.model_events import ModelEvent, TextDelta, TextWasThinking, ThinkingDelta
from ramify.core.usage import TokenUsage
from ramify.models.decoder import (
    UNNAMED,
    Decoder,
    RefusedError,
    Response,
    StreamFailedError,
    count,
)
from ramify.models.json_text import compact, objects
from ramify.models.openai.streamed_text import NewText, Thoughts
from ramify.models.openai.tool_calls import ToolCalls, settled
from ramify.models.profiles import Profile
from ramify.models.sse import DONE, BrokenStreamError

REASONING_FIELDS = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"  # OpenRouter's, with the signatures of those behind it
_BROKEN = {"error", "insufficient_system_resource"}
_FINISHES = {"length": Finish.MAX_TOKENS, "max_tokens": Finish.MAX_TOKENS}


class OpenAIDecoder(Decoder):
    """Reads one streamed chat completion."""

    forgives_junk: ClassVar[bool] = True

    def __init__(
        self, profile: Profile, names: Collection[str] = (), *, lenient: bool = False
    ) -> None:
        super().__init__()
        self._new_text = NewText(cumulative=profile.cumulative)
        self._new_thought = NewText(cumulative=profile.cumulative)
        self._tags = profile.think_tags
        self._thoughts = Thoughts(*self._tags, thinks_first=profile.thinks_first)
        self._calls = ToolCalls(names)
        self._lenient = lenient
        self._content: list[str] = []  # with its tags
        self._reasoning: list[str] = []
        self._reasoning_field = REASONING_FIELDS[0]
        self._details: list[Any] = []
        self._refusal: list[str] = []
        self._begun = False
        self._finish = ""
        self._usage: dict[str, Any] = {}

    def _flush(self, found: list[ModelEvent]) -> None:
        self._muse(self._new_thought.end(), found)
        self._say(self._new_text.end(), found)
        _add_text(self._thoughts.end(), found)
        if (self.is_done or self._finish) and (said := self._thoughts.mistaken()):
            found.append(TextDelta(said))

    def _take(self, chunk: dict[str, Any], found: list[ModelEvent]) -> None:
        if chunk is DONE:
            self.is_done = True
            return
        if chunk.get("error") or chunk.get("object") == "error":
            raise _failure(chunk.get("error") or chunk)
        for choice in objects(chunk.get("choices")):
            self._begun = True
            if not choice.get("index"):  # only one was asked for
                self._take_choice(choice, found)
        usage = chunk.get("usage")
        if usage and isinstance(usage, dict):
            self._usage = cast("dict[str, Any]", usage)

    def _take_choice(self, choice: dict[str, Any], found: list[ModelEvent]) -> None:
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            self._take_delta(cast("dict[str, Any]", delta), found)
        if finish := choice.get("finish_reason"):
            self._finish = str(finish)

    def _take_delta(self, delta: dict[str, Any], found: list[ModelEvent]) -> None:
        for field in REASONING_FIELDS:
            if (thought := delta.get(field)) and isinstance(thought, str):
                self._reasoning_field = field
                if not self._content:  # the server tells thinking apart: the text begins as text
                    self._thoughts = Thoughts(*self._tags)
                self._muse(self._new_thought.feed(thought), found)
                break  # some send both, and the same in both
        content = delta.get("content")
        if isinstance(content, str):
            self._say(self._new_text.feed(content), found)
        elif isinstance(content, list):
            self._take_parts(objects(content), found)
        self._details += objects(delta.get(_DETAILS))
        if (refusal := delta.get("refusal")) and isinstance(refusal, str):
            self._refusal.append(refusal)
        found += map(self._calls.feed, objects(delta.get("tool_calls")))
        if isinstance(legacy := delta.get("function_call"), dict):
            found.append(self._calls.feed({"index": 0, "function": legacy}))

    def _take_parts(self, parts: list[dict[str, Any]], found: list[ModelEvent]) -> None:
        """Take in content that came as a list, as Mistral's does when it thinks."""
        for part in parts:
            match part:
                case {"type": "thinking", "thinking": thoughts}:
                    texts = [str(thought.get("text") or "") for thought in objects(thoughts)]
                    self._muse("".join(texts), found)
                case {"text": str(text)}:
                    self._say(self._new_text.feed(text), found)
                case _:
                    pass

    def _muse(self, text: str, found: list[ModelEvent]) -> None:
        if text:
            self._reasoning.append(text)
            found.append(ThinkingDelta(text))

    def _say(self, text: str, found: list[ModelEvent]) -> None:
        if text:
            self._content.append(text)
            _add_text(self._thoughts.feed(text), found)

    def _settled_calls(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for call in self._calls.calls:
            arguments = settled(call, lenient=self._lenient)
            function = {"name": call.name or UNNAMED, "arguments": arguments}
            id = call.id if call.id and call.id not in found else f"call_{uuid4().hex[:24]}"
            found[id] = {"id": id, "type": "function", "function": function, **call.others}
        return list(found.values())

    @property
    def usage(self) -> TokenUsage:
        usage = self._usage
        cached = count(usage, "prompt_tokens_details", "cached_tokens")
        cached = cached or count(usage, "prompt_cache_hit_tokens")
        written = count(usage, "prompt_tokens_details", "cache_write_tokens")
        reasoning = count(usage, "completion_tokens_details", "reasoning_tokens")
        return TokenUsage(
            input=max(0, count(usage, "prompt_tokens") - cached - written),
            cache_read=cached,
            cache_write=written,
            reasoning=reasoning,
            output=max(0, count(usage, "completion_tokens") - reasoning),
        )

    def _response(self) -> Response:
        if not self._begun or not (self.is_done or self._finish):
            raise BrokenStreamError("the stream ended before the response was complete")
        if self._finish in _BROKEN:
            raise BrokenStreamError(f"the server gave up ({self._finish})")
        if self._finish == "content_filter" or self._refusal:
            reason = "refusal" if self._refusal else self._finish
            raise RefusedError(reason, "".join([*self._content, *self._refusal]))
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content)}
        if self._reasoning:
            message[self._reasoning_field] = "".join(self._reasoning)
        if self._details:
            message[_DETAILS] = self._details
        if self._calls.calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = self._settled_calls()
        finish = Finish.TOOL_USE if self._calls.calls else Finish.ANSWERED
        return Response(compact(message), _FINISHES.get(self._finish, finish), self._finish)


def _add_text(pieces: Sequence[tuple[str, str]], found: list[ModelEvent]) -> None:
    for kind, text in pieces:
        if kind == "text":
            found.append(TextDelta(text))
        elif kind == "thinking":
            found.append(ThinkingDelta(text))
        else:
            found.append(TextWasThinking())


def _failure(error: Any) -> StreamFailedError:
    if not isinstance(error, dict):
        return StreamFailedError("", str(error))
    fields = cast("dict[str, Any]", error)
    code = fields.get("code")
    kinds = [kind for kind in (fields.get("type"), code) if isinstance(kind, str)]
    status = int(str(code)) if str(code).isdecimal() else None
    return StreamFailedError(" ".join(kinds), str(fields.get("message") or fields), status)
