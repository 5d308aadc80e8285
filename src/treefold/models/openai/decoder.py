"""Decodes the stream of an OpenAI-compatible server, and the many variations of the format."""

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
    http_status,
    token_counts,
)
from treefold.models.json_text import ValueCounter, objects_in, to_json
from treefold.models.openai.streamed_text import DeltaText, ThinkTagParser
from treefold.models.openai.text_calls import TextCalls
from treefold.models.openai.tool_calls import ToolCalls, final_arguments
from treefold.models.profiles import VALUE_CHARS, Profile
from treefold.models.sse import DONE, BrokenStreamError

REASONING_FIELDS = ("reasoning_content", "reasoning")
# Used by OpenRouter; holds the signatures of the providers behind it.
_DETAILS = "reasoning_details"
_BROKEN = {"error", "insufficient_system_resource"}
_REFUSED = "content_filter"
_FINISHES = {"length": Finish.MAX_TOKENS, "max_tokens": Finish.MAX_TOKENS}

TEXT_CALLS_NOTICE = (
    "the server sent function calls as text, and they are treated as calls; start it with a chat"
    " template for tools, or set calls_in_text=False in the profile to keep them as text"
)


class OpenAIDecoder(Decoder):
    """Decodes one streamed chat completion.

    Args:
        profile: how the model behaves on the wire.
        names: the functions that the model was offered.
        lenient: whether to repair arguments that are not valid JSON.
        in_text: whether a response that consists of calls written as text is treated as calls.
        noticed: notices of the session so far; each is given once.
    """

    skips_invalid_events: ClassVar[bool] = True

    def __init__(
        self,
        profile: Profile,
        names: Collection[str] = (),
        *,
        lenient: bool = False,
        in_text: bool = False,
        noticed: set[str] | None = None,
    ) -> None:
        super().__init__(profile)
        self._names = names
        # None: calls are not looked for in the text.
        self._text_calls = TextCalls(names) if in_text and names else None
        self._called = ""  # text that turned out to be calls
        self._noticed = set[str]() if noticed is None else noticed
        self._cumulative = profile.cumulative
        self._text_delta = DeltaText(cumulative=profile.cumulative)
        self._thinking_delta: DeltaText | None = None  # created when the model thinks
        self._tags = profile.think_tags
        self._tag_parser = ThinkTagParser(*self._tags, thinks_first=profile.thinks_first)
        self._calls = ToolCalls(names, self._count_data)
        self._lenient = lenient
        self._content: list[str] = []  # thinking tags included
        self._reasoning: list[str] = []
        self._reasoning_field = REASONING_FIELDS[0]
        self._details: list[Any] = []
        self._refusal: list[str] = []
        self._begun = False
        self._finish = ""
        self._usage: dict[str, Any] = {}

    def _flush(self, events: list[ModelEvent]) -> None:
        if self._thinking_delta is not None:
            self._add_thinking(self._thinking_delta.end(), events)
        if text := self._text_delta.end():
            self._add_content(text, events)
        self._emit_text(self._tag_parser.end(), events)
        is_complete = self.is_done or self._finish
        if is_complete and (answer := self._tag_parser.unclosed()):
            self._emit_text([("text", answer)], events)
        if self._text_calls is None:
            return
        if is_complete and self._text_calls.are_complete and not self._is_refused:
            self._treat_text_as_calls(self._text_calls, events)
        else:
            self._release_text(events)

    def _treat_text_as_calls(self, found: TextCalls, events: list[ModelEvent]) -> None:
        """Replace the text, which consists of calls only, by those calls."""
        self._check_calls(len(found.calls))
        self._called = found.held
        for index, (name, arguments) in enumerate(found.calls):
            function = {"name": name, "arguments": arguments}
            events.append(self._calls.feed({"index": index, "function": function}))
            # Its characters were counted as text.
            self._chars += VALUE_CHARS * ValueCounter().feed(arguments)
        if TEXT_CALLS_NOTICE not in self._noticed:
            self._noticed.add(TEXT_CALLS_NOTICE)
            events.append(Noticed(TEXT_CALLS_NOTICE))

    def _release_text(self, events: list[ModelEvent]) -> None:
        found = self._text_calls
        if found is not None and found.may_be_calls and (held := found.release()):
            events.append(TextDelta(held))

    @property
    def _is_refused(self) -> bool:
        return self._finish == _REFUSED or bool(self._refusal)

    def _handle(self, chunk: dict[str, Any], events: list[ModelEvent]) -> None:
        if chunk is DONE:
            self.is_done = True
            return
        if chunk.get("error") or chunk.get("object") == "error":
            raise _failure(chunk.get("error") or chunk)
        self._identify(chunk.get("id"), chunk.get("model"))
        for choice in objects_in(chunk.get("choices")):
            self._begun = True
            if choice.get("index"):  # requests ask for one choice
                continue
            delta = choice.get("delta") or choice.get("message")
            if isinstance(delta, dict):
                self._handle_delta(cast("dict[str, Any]", delta), events)
            if finish := choice.get("finish_reason"):
                self._finish = str(finish)
        usage = chunk.get("usage")
        if usage and isinstance(usage, dict):
            self._usage = cast("dict[str, Any]", usage)

    def _handle_delta(self, delta: dict[str, Any], events: list[ModelEvent]) -> None:
        for field in REASONING_FIELDS:
            if (thought := delta.get(field)) and isinstance(thought, str):
                self._reasoning_field = field
                self._handle_thought(thought, events)
                break  # some servers send the same text in both fields
        content = delta.get("content")
        if isinstance(content, str):
            self._add_content(self._text_delta.feed(content), events)
        elif isinstance(content, list):
            self._handle_parts(objects_in(content), events)
        if details := delta.get(_DETAILS):
            self._count_data(details)
            self._details += objects_in(details)
        if (refusal := delta.get("refusal")) and isinstance(refusal, str):
            self._chars += len(refusal)
            self._refusal.append(refusal)
        calls = objects_in(sent) if (sent := delta.get("tool_calls")) else []
        if isinstance(legacy := delta.get("function_call"), dict):
            calls.append({"index": 0, "function": legacy})
        if calls:
            self._handle_calls(calls, events)

    def _handle_calls(self, calls: list[dict[str, Any]], events: list[ModelEvent]) -> None:
        # The server recognizes calls itself, so its text holds none.
        self._release_text(events)
        for call in calls:
            event = self._calls.feed(call)
            events.append(event)
            if event.arguments:
                self._count_json(event.index, event.arguments)
            self._check_calls(len(self._calls.calls))

    def _handle_thought(self, thought: str, events: list[ModelEvent]) -> None:
        # The server separates thinking itself, so the text does not begin with thinking.
        if not self._content:
            self._tag_parser = ThinkTagParser(*self._tags)
        if self._thinking_delta is None:
            self._thinking_delta = DeltaText(cumulative=self._cumulative)
        self._add_thinking(self._thinking_delta.feed(thought), events)

    def _handle_parts(self, parts: list[dict[str, Any]], events: list[ModelEvent]) -> None:
        """Decode content that is a list of parts, as Mistral sends it while thinking."""
        for part in parts:
            match part:
                case {"type": "thinking", "thinking": thoughts}:
                    texts = [str(thought.get("text") or "") for thought in objects_in(thoughts)]
                    self._add_thinking("".join(texts), events)
                case {"text": str(text)}:
                    self._add_content(self._text_delta.feed(text), events)
                case _:
                    pass

    def _add_thinking(self, text: str, events: list[ModelEvent]) -> None:
        if text:
            self._chars += len(text)
            self._reasoning.append(text)
            events.append(ThinkingDelta(text))

    def _add_content(self, text: str, events: list[ModelEvent]) -> None:
        if text:
            self._chars += len(text)
            self._content.append(text)
            self._emit_text(self._tag_parser.feed(text), events)

    def _emit_text(self, pieces: Sequence[tuple[str, str]], events: list[ModelEvent]) -> None:
        for kind, text in pieces:
            if kind == "text":
                shown = text if self._text_calls is None else self._text_calls.feed(text)
                if shown:
                    events.append(TextDelta(shown))
            elif kind == "thinking":
                events.append(ThinkingDelta(text))
            else:
                self._release_text(events)
                events.append(TextWasThinking())
                if self._text_calls is not None:
                    self._text_calls = TextCalls(self._names)

    def _final_calls(self) -> list[dict[str, Any]]:
        by_id: dict[str, dict[str, Any]] = {}
        for call in self._calls.calls:
            arguments = final_arguments(call, lenient=self._lenient)
            function = {"name": call.name or UNNAMED, "arguments": arguments}
            id = call.id if call.id and call.id not in by_id else f"call_{uuid4().hex[:24]}"
            by_id[id] = {"id": id, "type": "function", "function": function, **call.others}
        return list(by_id.values())

    @property
    def usage(self) -> TokenUsage:
        sent, cached, hit, written, received, reasoning = token_counts(
            self._usage,
            "prompt_tokens",
            "prompt_tokens_details.cached_tokens",
            "prompt_cache_hit_tokens",
            "prompt_tokens_details.cache_write_tokens",
            "completion_tokens",
            "completion_tokens_details.reasoning_tokens",
        )
        cached = cached or hit
        return TokenUsage(
            input=max(0, sent - cached - written),
            cache_read=cached,
            cache_write=written,
            reasoning=reasoning,
            output=max(0, received - reasoning),
        )

    def _response(self) -> Response:
        if not self._begun or not (self.is_done or self._finish):
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
            message["tool_calls"] = self._final_calls()
        finish = Finish.TOOL_USE if self._calls.calls else Finish.ANSWERED
        return Response(to_json(message), _FINISHES.get(self._finish, finish), self._finish)


def _failure(error: Any) -> StreamFailedError:
    if not isinstance(error, dict):
        return StreamFailedError("", str(error))
    fields = cast("dict[str, Any]", error)
    code = fields.get("code")
    kinds = [kind for kind in (fields.get("type"), code) if isinstance(kind, str)]
    message = str(fields.get("message") or fields)
    return StreamFailedError(" ".join(kinds), message, http_status(code))
