"""What a client and a model have said, and what is still to be sent.

The messages are for people to read and change. As long as nobody changes them, what counts is the
session, which has them in the provider's own words; a changed history begins a new session.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from treefold.chat.history_repair import RepairedHistory, Segment, missing_result, orphan_text, repair
from treefold.chat.typed_messages import plain
from treefold.core.agent_events import ResponseCompleted
from treefold.core.errors import InvalidValueError, OtherProtocolError
from treefold.core.exchange import Exchange
from treefold.core.function import Function
from treefold.core.messages import Message, messages_of
from treefold.core.model import Model, ModelSettings, Session
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText
from treefold.models.reading import read_exchanges


class Conversation:
    """One history, and the session that goes on from it."""

    def __init__(self) -> None:
        self.messages: list[Any] = []  # whoever uses the client may change them
        self.rewritten = False  # whether it is more than what was saved and what came after that
        self._last_seen: list[Message] = []  # as they are if nobody does
        self._segments: list[Segment] = []  # what the settled ones of them stand for
        self._settled = 0  # how many those are; the others have not been answered
        self._sent_at: int | None = None  # where what was sent last and not answered begins
        self._prompt = ""  # that was sent there
        self._placeholders: list[ToolUse] = []  # results that were made up for it
        self._session: Session | None = None
        self._opened_with: object = None  # on which that was opened
        self._results: dict[str, ToolResult] = {}  # not sent yet
        self._texts: list[str] = []  # written into the history by hand, and not sent yet
        self._system: list[str] = []  # written into the history by hand

    # What was said

    @property
    def exchanges(self) -> list[Exchange]:
        """All that is complete, in the words that were on the wire."""
        return [exchange for segment in self._segments for exchange in segment.exchanges]

    @property
    def asked(self) -> tuple[ToolUse, ...]:
        """The calls that the model waits for, whether they have results or not."""
        return self._segments[-1].asked if self._segments else ()

    @property
    def waiting(self) -> list[ToolResult]:
        """The results that have not been sent."""
        return list(self._results.values())

    def copied(self) -> "Conversation":
        """Return one that goes on from here by itself."""
        other = Conversation()
        other.messages, other._last_seen = deepcopy(self.messages), deepcopy(self._last_seen)
        other._segments, other._settled = list(self._segments), self._settled
        other._results, other._texts = dict(self._results), list(self._texts)
        other._sent_at, other._placeholders = self._sent_at, self._placeholders
        other._prompt = self._prompt
        other._system, other.rewritten = list(self._system), self.rewritten
        other.take_back()
        return other

    def restore(self, exchanges: Sequence[Exchange], results: Iterable[ToolResult]) -> None:
        """Go on from what was saved; messages that are there already take its index."""
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

    # The session

    def catch_up(self) -> None:
        """Go on from the messages as they are now, if somebody changed them.

        Raises:
            InvalidValueError: something among them is no message.
        """
        if any(type(message) is not dict for message in self.messages):
            self.messages[:] = [one for message in self.messages for one in plain(message)]
        known = self._segments
        if known and known[-1].is_paused:  # and it will not go on
            known = known[:-1]
        if self.messages == self._last_seen and known is self._segments:
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
        """Return a session that goes on from here, the same one as long as the *opened_with* are."""
        if opened_with != self._opened_with:
            self._session, self._opened_with = None, opened_with
        if self._session is None:
            try:
                self._session = self._open(model, system, functions, settings)
            except OtherProtocolError:
                self._adopt(repair(deepcopy(self.messages), ()))
                self._session = self._open(model, system, functions, settings)
        return self._session

    def _open(
        self, model: Model, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> Session:
        whole = "\n\n".join(filter(None, [system, *self._system]))
        session = model.open(whole, functions, settings, exchanges=self.exchanges)
        exchanges = iter(session.exchanges)  # by now all in the provider's words
        self._segments = [
            replace(segment, exchanges=tuple(next(exchanges) for _ in segment.exchanges))
            for segment in self._segments
        ]
        return session

    def _adopt(self, repaired: RepairedHistory) -> None:
        self._segments = repaired.segments
        self._settled = len(self.messages) - repaired.unsettled
        self._results, self._texts = repaired.results, repaired.texts
        self._system = repaired.system
        self.rewritten = True
        self._last_seen = deepcopy(self.messages)

    # What happens

    def begin(self, prompt: str) -> list[UserText | ToolResult]:
        """Return what to send: the results of all calls that were asked for, and *prompt*.

        Raises:
            InvalidValueError: there is nothing to send.
        """
        assert self._session is not None  # it was opened
        texts = [*self._texts, prompt] if prompt else self._texts
        if not self.asked and not texts:
            raise InvalidValueError(
                "there is nothing to go on with: no call waits for its result; say something, by"
                " query('...')"
            )
        self._sent_at, self._prompt = len(self._last_seen), prompt
        self._placeholders = self.answer_rest()
        if prompt:
            self._show([{"role": "user", "content": prompt}])
        given = [self._results[call.id] for call in self.asked]
        waiting = self._session.pending
        if len(waiting) < len(given):  # the calls were another model's, and are only told of
            pairs = zip(self.asked, given, strict=True)
            texts = [*(orphan_text(call.name, result.content) for call, result in pairs), *texts]
            return [*map(UserText, texts)]
        pairs = zip(given, waiting, strict=True)  # a provider may have its own ids
        results = [replace(result, tool_use_id=call.id) for result, call in pairs]
        return [*results, *map(UserText, texts)]

    def answer_rest(self) -> list[ToolUse]:
        """Give each call that has no result one that says so; return those calls."""
        unanswered = [call for call in self.asked if call.id not in self._results]
        for call in unanswered:
            self.add_result(missing_result(call))
        return unanswered

    def take_back(self, *, keep_prompt: bool = False) -> None:
        """Forget what was sent last, if it was not answered, but for results that were given.

        With *keep_prompt* it stays in the history, and is sent with the next prompt.
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
        for call in self._placeholders:
            self._results.pop(call.id, None)
        self._sent_at = None

    def abandon(self) -> None:
        """Go on without the session, which waits for something that will not come."""
        self._session = None
        self.take_back()

    def add_result(self, result: ToolResult, name: str | None = None) -> None:
        """Keep the result of a call until it is sent; one that nobody asked for is only shown."""
        calls = {call.id: call for call in self.asked}
        if (call := calls.get(result.tool_use_id)) is None:
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
        """Show that a call of the last response is made with *args* instead of the model's own.

        The session keeps the words of the model, in which the provider has signed them.
        """
        written = json.dumps(dict(args), default=str, ensure_ascii=False)
        last = self._segments[-1]
        shown = deepcopy(last.messages)
        for messages in (shown, self._last_seen, self.messages):
            _replace_arguments(messages, id, written)
        self._segments[-1] = replace(last, messages=shown)

    def complete(self, response: ResponseCompleted) -> None:
        """Write down an exchange."""
        assert self._session is not None  # it is its
        self._add_exchange(response.parts, response.exchange, tuple(self._session.pending))

    def recover(
        self, exchanges: Sequence[Exchange], said: Sequence[Sequence[TranscriptPart]]
    ) -> None:
        """Write down what an earlier process has *said* after this."""
        for exchange, parts in zip(exchanges, said, strict=True):
            asked = tuple(part for part in parts if isinstance(part, ToolUse))
            self._add_exchange(parts, exchange, asked)
        self._session = None

    def _add_exchange(
        self, parts: Sequence[TranscriptPart], exchange: Exchange, asked: tuple[ToolUse, ...]
    ) -> None:
        new = messages_of(parts, self.asked)
        shown = self._last_seen[self._settled :]
        sent = [message for message in new if message["role"] != "assistant"]
        if new[: len(sent)] == sent and _merged(sent) == _merged(shown):
            # Some protocols join texts that follow each other.
            new = [*shown, *new[len(sent) :]]
        if new[: len(shown)] == shown:
            self.messages += deepcopy(new[len(shown) :])
        elif self.messages == self._last_seen:
            self.messages[self._settled :] = deepcopy(new)
        else:  # somebody is changing them
            self.messages += deepcopy([m for m in new if m["role"] == "assistant"])
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
        segment = Segment(tuple(messages), (exchange,), asked)
        if self._segments and self._segments[-1].is_paused:  # the two are one response
            segment = self._segments.pop().joined(segment)
        self._segments.append(segment)
        self._last_seen += messages
        self._settled = len(self._last_seen)
        if show:
            self.messages += deepcopy(messages)

    def _show(self, messages: list[Message]) -> None:
        self._last_seen += messages
        self.messages += deepcopy(messages)


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Return *messages* with those of the user that follow each other as one."""
    found: list[Message] = []
    for message in messages:
        last = found[-1] if found else {"role": None}
        if message["role"] == last["role"] == "user":
            found[-1] = last | {"content": f"{last['content']}\n\n{message['content']}"}
        else:
            found.append(message)
    return found


def _replace_arguments(messages: Sequence[Any], id: str, arguments: str) -> None:
    """Show *arguments* in the newest call with this id."""
    for message in reversed(messages):
        if not isinstance(message, dict):  # put there by hand
            continue
        for call in cast("Message", message).get("tool_calls") or ():
            match call:
                case {"id": str(known), "function": {"arguments": _}} if known == id:
                    call["function"]["arguments"] = arguments
                    return
                case _:
                    pass


def _replace_result(messages: Sequence[Any], result: ToolResult) -> None:
    """Show *result* in index of an earlier one of the same call."""
    for message in reversed(messages):
        match message:
            case {"role": "tool", "tool_call_id": result.tool_use_id}:
                message["content"] = result.content
                return
            case _:
                pass
