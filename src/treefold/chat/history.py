"""The history of a client's conversation, and the inputs that are still to be sent.

``messages`` is for people to read and edit. While it is unedited, requests are made by the session,
which has the same history in the provider's own words; an edited history begins a new session.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from treefold.chat.history_repair import RepairedHistory, Segment, repair
from treefold.chat.typed_messages import plain
from treefold.core.agent_events import ResponseCompleted
from treefold.core.errors import InvalidValueError
from treefold.core.exchange import Exchange
from treefold.core.function import Function
from treefold.core.messages import Message, messages_of
from treefold.core.model import Model, ModelSettings, Session
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText
from treefold.core.window import Window
from treefold.models.reading import read_exchanges
from treefold.models.reopening import reopen
from treefold.models.translation import missing_result


class ChatHistory:
    """A history of messages, and the session that continues it.

    Attributes:
        messages: the history; the program that uses the client may edit it at any time.
        rewritten: whether the history was edited since it was last saved, so that it has to be
            saved whole.
    """

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.rewritten = False
        # The messages as this class left them: where they differ now, the program edited them.
        self._last_seen: list[Message] = []
        # The first `_settled` messages were sent and answered; their exchanges are the segments.
        self._segments: list[Segment] = []
        self._settled = 0
        # The request under way: the index of its first message, its prompt, and the calls that had
        # no result and got a failed one for it.
        self._sent_at: int | None = None
        self._prompt = ""
        self._without_result: list[ToolUse] = []
        self._session: Session | None = None
        self._opened_with: object = None  # the options of that session
        # Inputs for the next request: results, and user texts that were written into the history.
        self._results: dict[str, ToolResult] = {}
        self._texts: list[str] = []
        self._system: list[str] = []  # system texts that were written into the history

    # History

    @property
    def exchanges(self) -> list[Exchange]:
        """The completed exchanges, as they were on the wire."""
        return [exchange for segment in self._segments for exchange in segment.exchanges]

    @property
    def asked(self) -> tuple[ToolUse, ...]:
        """The calls of the last response that could be parsed, with or without results."""
        return self._segments[-1].asked if self._segments else ()

    @property
    def waiting(self) -> list[ToolResult]:
        """The results that have not been sent."""
        return list(self._results.values())

    def copied(self) -> "ChatHistory":
        """Return an independent copy, for a fork; a request under way is not in it."""
        other = ChatHistory()
        other.messages, other._last_seen = deepcopy(self.messages), deepcopy(self._last_seen)
        other._segments, other._settled = list(self._segments), self._settled
        other._results, other._texts = dict(self._results), list(self._texts)
        other._sent_at, other._without_result = self._sent_at, self._without_result
        other._prompt = self._prompt
        other._system, other.rewritten = list(self._system), self.rewritten
        other.take_back()
        return other

    def restore(self, exchanges: Sequence[Exchange], results: Iterable[ToolResult]) -> None:
        """Load a saved conversation; messages that were set before replace its history."""
        said = read_exchanges(exchanges)
        given = self.messages.copy()
        self.messages.clear()
        for exchange, parts in zip(exchanges, said, strict=True):
            asked = tuple(part for part in parts if isinstance(part, ToolUse))
            self._settle(messages_of(parts, self.asked), exchange, asked)
        for result in results:
            self.add_result(result)
        if given:
            self.messages[:] = given

    # Session

    def catch_up(self) -> None:
        """If the messages were edited, rebuild the segments from them and drop the session.

        Raises:
            InvalidValueError: an item is not a message.
        """
        if any(type(message) is not dict for message in self.messages):
            self.messages[:] = [one for message in self.messages for one in plain(message)]
        # If a response was paused, the turn that would have continued it has ended.
        known = [one for one in self._segments if not one.is_paused and not one.is_broken]
        if self.messages == self._last_seen and len(known) == len(self._segments):
            return
        self._adopt(repair(deepcopy(self.messages), known))
        self._session = None

    def open(
        self,
        model: Model,
        system: str,
        functions: Sequence[Function],
        settings: ModelSettings,
        opened_with: object,
    ) -> Session:
        """Return a session that continues this history.

        It is the session of the last time while *opened_with*, which stands for the other
        arguments, is equal and the history was not edited.
        """
        if opened_with != self._opened_with:
            self._session, self._opened_with = None, opened_with
        if self._session is None:
            whole = "\n\n".join(filter(None, [system, *self._system]))
            window = Window(self.exchanges, self.asked)
            self._session = reopen(model, whole, functions, settings, window)
        return self._session

    def _adopt(self, repaired: RepairedHistory) -> None:
        self._segments = repaired.segments
        self._settled = len(self.messages) - repaired.unsettled
        self._results, self._texts = repaired.results, repaired.texts
        self._system = repaired.system
        self.rewritten = True
        self._last_seen = deepcopy(self.messages)

    # Requests and results

    def begin(self, prompt: str) -> list[UserText | ToolResult]:
        """Return the inputs of a request: the result of each call that was asked for, and *prompt*.

        Raises:
            InvalidValueError: there is nothing to send.
        """
        texts = [*self._texts, prompt] if prompt else self._texts
        if not self.asked and not texts:
            raise InvalidValueError(
                "there is nothing to send: no call waits for its result; send a prompt with"
                " query('...')"
            )
        self._sent_at, self._prompt = len(self._last_seen), prompt
        self._without_result = self.answer_rest()
        if prompt:
            self._show([{"role": "user", "content": prompt}])
        results = [self._results[call.id] for call in self.asked]
        return [*results, *map(UserText, texts)]

    def answer_rest(self) -> list[ToolUse]:
        """Add a failed result to each call that has none; return those calls."""
        unanswered = [call for call in self.asked if call.id not in self._results]
        for call in unanswered:
            self.add_result(missing_result(call))
        return unanswered

    def take_back(self, *, keep_prompt: bool = False) -> None:
        """Undo the last request if it was not answered; results that were given are kept.

        With *keep_prompt*, its prompt stays in the history and is sent with the next one.
        """
        if self._sent_at is None:
            return
        if keep_prompt:
            self._texts = [*self._texts, self._prompt] if self._prompt else self._texts
            self._sent_at = None
            return
        if self.messages == self._last_seen:
            del self.messages[self._sent_at :]
        del self._last_seen[self._sent_at :]
        for call in self._without_result:
            self._results.pop(call.id, None)
        self._sent_at = None

    def abandon(self) -> None:
        """Drop the session, which waits for a response that will not come, and its request."""
        self._session = None
        self.take_back()

    def add_result(
        self, result: ToolResult, name: str | None = None, *, is_revised: bool = False
    ) -> None:
        """Keep the result of a call until it is sent; *is_revised* replaces the newest one.

        If the last response has no such call, the result is only added to the messages.
        """
        calls = {call.id: call for call in self.asked}
        if (call := calls.get(result.tool_use_id)) is None and is_revised:
            _replace_result(self.messages, result)
            return
        if call is None:
            shown = {"role": "tool", "tool_call_id": result.tool_use_id, "name": name}
            self.messages.append(shown | {"content": result.content})
            return
        is_new = result.tool_use_id not in self._results
        self._results[result.tool_use_id] = result
        if is_new:
            self._show(messages_of([result], [call]))
        else:
            _replace_result(self._last_seen, result)
            _replace_result(self.messages, result)

    def revise_call(self, id: str, args: Mapping[str, Any]) -> None:
        """Show *args* instead of the model's arguments in a call of the last response.

        The session keeps the arguments that the model wrote, because the provider signed them.
        """
        written = json.dumps(dict(args), default=str, ensure_ascii=False)
        last = self._segments[-1]
        shown = deepcopy(last.messages)
        for messages in (shown, self._last_seen, self.messages):
            _replace_arguments(messages, id, written)
        self._segments[-1] = replace(last, messages=shown)

    def complete(self, response: ResponseCompleted) -> None:
        """Add the exchange of *response* to the history."""
        assert self._session is not None  # it made the response
        self._add_exchange(response.parts, response.exchange, tuple(self._session.pending))

    def recover(
        self, exchanges: Sequence[Exchange], said: Sequence[Sequence[TranscriptPart]]
    ) -> None:
        """Add exchanges of an earlier process; *said* has the parts of each."""
        for exchange, parts in zip(exchanges, said, strict=True):
            asked = tuple(part for part in parts if isinstance(part, ToolUse))
            self._add_exchange(parts, exchange, asked)
        self._session = None

    def _add_exchange(
        self, parts: Sequence[TranscriptPart], exchange: Exchange, asked: tuple[ToolUse, ...]
    ) -> None:
        new = messages_of(parts, self.asked)
        shown = self._last_seen[self._settled :]
        if new[: len(shown)] != shown:
            # What was sent can be a repaired form of what the program wrote; the history is not
            # changed by that. Some protocols join consecutive texts, too.
            new = [*shown, *(message for message in new if message["role"] == "assistant")]
        self.messages += deepcopy(new[len(shown) :])
        del self._last_seen[self._settled :]
        self._results, self._texts, self._sent_at = {}, [], None
        self._settle(new, exchange, asked, show=False)

    def _settle(
        self,
        messages: list[Message],
        exchange: Exchange,
        asked: tuple[ToolUse, ...],
        *,
        show: bool = True,
    ) -> None:
        parsed = tuple(call for call in asked if call.fault is None)
        segment = Segment(tuple(messages), (exchange,), parsed, len(parsed) < len(asked))
        if self._segments and self._segments[-1].is_paused:
            # This exchange continues the response.
            segment = self._segments.pop().joined(segment)
        self._segments.append(segment)
        self._last_seen += messages
        self._settled = len(self._last_seen)
        if show:
            self.messages += deepcopy(messages)

    def _show(self, messages: list[Message]) -> None:
        self._last_seen += messages
        self.messages += deepcopy(messages)


def _replace_arguments(messages: Sequence[Any], id: str, arguments: str) -> None:
    """Set the *arguments* of the newest call with this id."""
    for message in reversed(messages):
        if not isinstance(message, dict):  # an object that the program added
            continue
        for call in cast("Message", message).get("tool_calls") or ():
            match call:
                case {"id": str(known), "function": {"arguments": _}} if known == id:
                    call["function"]["arguments"] = arguments
                    return
                case _:
                    pass


def _replace_result(messages: Sequence[Any], result: ToolResult) -> None:
    """Replace the content of an earlier result of the same call."""
    for message in reversed(messages):
        match message:
            case {"role": "tool", "tool_call_id": result.tool_use_id}:
                message["content"] = result.content
                return
            case _:
                pass
