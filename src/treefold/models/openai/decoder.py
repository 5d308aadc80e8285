"""The stream of an OpenAI-compatible server, and all the ways in which servers bend it."""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, cast
from uuid import uuid4

from treefold.core.exchange import Finish
from treefold.core.model_events import (
    ModelEvent,
    Noticed,
    TextDelta,
    TextWasThinking,
    ThinkingDelta,
)
from treefold.core.usage import TokenUsage
from treefold.models.decoder import (
    UNNAMED,
    Decoder,
    RefusedError,
    Response,
    StreamFailedError,
    count,
    status_of,
)
from treefold.models.json_text import objects_in, to_json
from treefold.models.openai.streamed_text import NewText, Thoughts
from treefold.models.openai.text_calls import TextCalls
from treefold.models.openai.tool_calls import ToolCalls, settled
from treefold.models.profiles import Profile
from treefold.models.sse import DONE, BrokenStreamError

REASONING_FIELDS = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"  # OpenRouter's, with the signatures of those behind it
_BROKEN = {"error", "insufficient_system_resource"}
_REFUSED = "content_filter"
_FINISHES = {"length": Finish.MAX_TOKENS, "max_tokens": Finish.MAX_TOKENS}


_BY_TEXT = (
    "the server sent calls of functions as text, which are taken for calls; start it with a chat"
    " template for tools, or set calls_in_text=False in the profile to have the text as it is"
)


class OpenAIDecoder(Decoder):
    """Reads one streamed chat completion."""

    forgives_junk: ClassVar[bool] = True

    def __init__(
        self,
        profile: Profile,
        names: Collection[str] = (),
        *,
        lenient: bool = False,
        in_text: bool = False,
        noticed: set[str] | None = None,
    ) -> None:
        super().__init__()
        self._names = names
        self._in_text = in_text and bool(names)  # whether calls may come as text
        self._text_calls = TextCalls(names if self._in_text else ())
        self._called = ""  # the text that is calls
        self._noticed = set[str]() if noticed is None else noticed  # that need not be said again
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
        self._add_text(self._thoughts.end(), found)
        if self._is_complete and (said := self._thoughts.mistaken()):
            self._add_text([("text", said)], found)
        if self._is_complete and self._text_calls.are_complete and not self._is_refused:
            self._call_by_text(found)
        else:
            self._release_text(found)

    def _call_by_text(self, found: list[ModelEvent]) -> None:
        """Take the text, which is nothing but calls, for those calls."""
        self._called = self._text_calls.held
        for index, (name, arguments) in enumerate(self._text_calls.calls):
            function = {"name": name, "arguments": arguments}
            found.append(self._calls.feed({"index": index, "function": function}))
        if _BY_TEXT not in self._noticed:
            self._noticed.add(_BY_TEXT)
            found.append(Noticed(_BY_TEXT))

    def _release_text(self, found: list[ModelEvent]) -> None:
        if held := self._text_calls.release():
            found.append(TextDelta(held))

    @property
    def _is_complete(self) -> bool:
        return bool(self.is_done or self._finish)

    @property
    def _is_refused(self) -> bool:
        return self._finish == _REFUSED or bool(self._refusal)

    def _take(self, chunk: dict[str, Any], found: list[ModelEvent]) -> None:
        if chunk is DONE:
            self.is_done = True
            return
        if chunk.get("error") or chunk.get("object") == "error":
            raise _failure(chunk.get("error") or chunk)
        for choice in objects_in(chunk.get("choices")):
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
            self._take_parts(objects_in(content), found)
        self._details += objects_in(delta.get(_DETAILS))
        if (refusal := delta.get("refusal")) and isinstance(refusal, str):
            self._refusal.append(refusal)
        calls = objects_in(delta.get("tool_calls"))
        if isinstance(legacy := delta.get("function_call"), dict):
            calls.append({"index": 0, "function": legacy})
        if calls:  # the server does recognize calls: its text is text
            self._release_text(found)
            found += map(self._calls.feed, calls)

    def _take_parts(self, parts: list[dict[str, Any]], found: list[ModelEvent]) -> None:
        """Take in content that came as a list, as Mistral's does when it thinks."""
        for part in parts:
            match part:
                case {"type": "thinking", "thinking": thoughts}:
                    texts = [str(thought.get("text") or "") for thought in objects_in(thoughts)]
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
            self._add_text(self._thoughts.feed(text), found)

    def _add_text(self, pieces: Sequence[tuple[str, str]], found: list[ModelEvent]) -> None:
        for kind, text in pieces:
            if kind == "text":
                if said := self._text_calls.feed(text) if self._in_text else text:
                    found.append(TextDelta(said))
            elif kind == "thinking":
                found.append(ThinkingDelta(text))
            else:
                self._release_text(found)
                found.append(TextWasThinking())
                self._text_calls = TextCalls(self._names if self._in_text else ())

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
        if not self._begun or not self._is_complete:
            raise BrokenStreamError("the stream ended before the response was complete")
        if self._finish in _BROKEN:
            raise BrokenStreamError(f"the server gave up ({self._finish})")
        if self._is_refused:
            reason = "refusal" if self._refusal else self._finish
            raise RefusedError(reason, "".join([*self._content, *self._refusal]))
        content = "".join(self._content).removesuffix(self._called)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if self._reasoning:
            message[self._reasoning_field] = "".join(self._reasoning)
        if self._details:
            message[_DETAILS] = self._details
        if self._calls.calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = self._settled_calls()
        finish = Finish.TOOL_USE if self._calls.calls else Finish.ANSWERED
        return Response(to_json(message), _FINISHES.get(self._finish, finish), self._finish)


def _failure(error: Any) -> StreamFailedError:
    if not isinstance(error, dict):
        return StreamFailedError("", str(error))
    fields = cast("dict[str, Any]", error)
    code = fields.get("code")
    kinds = [kind for kind in (fields.get("type"), code) if isinstance(kind, str)]
    message = str(fields.get("message") or fields)
    return StreamFailedError(" ".join(kinds), message, status_of(code))
