"""Turns a history that may have been truncated or edited into exchanges that any provider accepts.

Unchanged segments keep their exchanges, in the provider's own words, but not what the provider
counted if something before them has changed. The rest becomes new
exchanges in the ``plain`` dialect: each call gets a result, a result without its call becomes text,
and the roles alternate.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from treefold.core.errors import InvalidValueError
from treefold.core.exchange import PLAIN, Exchange, Finish
from treefold.core.fact import replace
from treefold.core.failures import is_failure
from treefold.core.messages import Message, text_of
from treefold.core.transcript import ToolResult, ToolUse
from treefold.core.usage import NO_USAGE
from treefold.models.translation import missing_result, result_text

_LEFT_OUT: Final = "[A message was left out here.]"
_SYSTEM: Final = frozenset({"system", "developer"})  # roles
_INVALID: Final = re.compile(r"[^a-zA-Z0-9_-]")  # characters that no function name has
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Segment:
    """Messages that belong together, the inputs and the response, and their exchanges."""

    messages: tuple[Message, ...]
    exchanges: tuple[Exchange, ...]
    asked: tuple[ToolUse, ...]  # the calls that the response ends with, if they could be parsed
    is_broken: bool = False  # the response has a call that could not be parsed, and is not sent

    @property
    def is_paused(self) -> bool:
        """Whether the provider paused the response, which another request continues."""
        return self.exchanges[-1].finish is Finish.PAUSED

    def joined(self, other: "Segment") -> "Segment":
        """Return this segment and *other*, which follows it, as one."""
        return Segment(
            self.messages + other.messages,
            self.exchanges + other.exchanges,
            other.asked,
            self.is_broken or other.is_broken,
        )


@dataclass(slots=True)
class RepairedHistory:
    """A history: its complete segments, the inputs that are still to be sent, and system texts.

    Attributes:
        segments: what was sent and answered.
        results: the results of calls that have not been sent, by the id of the call.
        texts: the user's texts that have not been sent.
        system: the texts of system messages.
        unsettled: the number of messages from the first that is still to be sent; system messages
            before it do not count.
    """

    segments: list[Segment] = field(default_factory=list[Segment])
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    texts: list[str] = field(default_factory=list[str])
    system: list[str] = field(default_factory=list[str])
    unsettled: int = 0


def repair(messages: Sequence[Message], known: Sequence[Segment]) -> RepairedHistory:
    """Return *messages* as segments and unsent inputs; reuse those *known* segments that match.

    Raises:
        InvalidValueError: an item is not a message.
    """
    repairer = _Repairer(known)
    at = 0
    while at < len(messages):
        segment = repairer.reuse(messages, at)
        if segment is None:
            repairer.add(messages[at])
            at += 1
        else:
            at += len(segment.messages)
    return repairer.repaired


class _Repairer:
    """Builds a RepairedHistory in one pass over the messages."""

    def __init__(self, known: Sequence[Segment]) -> None:
        self.repaired = RepairedHistory()
        self._known = known
        # Indexes of known segments, by the key of their first message.
        self._by_first_message: dict[str, list[int]] = {}
        for index, segment in enumerate(known):
            if segment.messages:
                self._by_first_message.setdefault(_key(segment.messages[0]), []).append(index)
        self._is_edited = False  # whether anything before is not as it was known
        self._last: int | None = None  # index of the last segment, if that was a known one
        self._open: list[Message] = []  # the messages since the last segment
        self._asked: tuple[ToolUse, ...] = ()  # the calls that the last segment ends with

    def reuse(self, messages: Sequence[Message], at: int) -> Segment | None:
        """Add and return the known segment that begins at *at*, if there is one that can follow."""
        if self._open:
            return None
        for index in self._candidates(messages[at]):
            segment = self._known[index]
            if list(segment.messages) == list(messages[at : at + len(segment.messages)]):
                self._is_edited |= index != len(self.repaired.segments)
                kept = _uncounted(segment) if self._is_edited else segment
                self.repaired.segments.append(kept)
                self.repaired.system += _system_texts(segment.messages)
                self._last, self._asked = index, segment.asked
                return segment
        return None

    def _candidates(self, first: Message) -> Iterator[int]:
        """Yield the indexes of segments that may come next: the following one, then any other."""
        after = None if self._last is None else self._last + 1
        if after is not None and after < len(self._known) and self._known[after].messages:
            yield after
        if not self._asked:
            yield from filter(self._answers_nothing, self._by_first_message.get(_key(first), ()))

    def _answers_nothing(self, index: int) -> bool:
        """Return whether a segment can follow any other.

        It must contain no results, not even in its exchanges: so the segment that it originally
        followed had no calls.
        """
        asked = self._known[index - 1].asked if index else ()
        return not asked and self._known[index].messages[0].get("role") == "user"

    def add(self, message: Message) -> None:
        """Add one message that is in no known segment."""
        role, text = _role(message), text_of(message)
        if role in _SYSTEM:
            self.repaired.system += _system_texts([message])
            # It stands between messages that are still to be sent, or before all of them.
            self.repaired.unsettled += bool(self._open)
            return
        self._open.append(message)
        self.repaired.unsettled += 1
        match role:
            case "user":
                if text.strip():
                    self.repaired.texts.append(text)
            case "tool":
                self._add_result(message, text)
            case _:
                self._add_response(text, _calls(message))

    def _add_result(self, message: Message, text: str) -> None:
        id = str(message.get("tool_call_id"))
        if any(call.id == id for call in self._asked):
            self.repaired.results[id] = ToolResult(id, text, is_error=is_failure(text))
        else:
            self.repaired.texts.append(result_text(message.get("name") or "a function", text))

    def _add_response(self, text: str, calls: list[Message]) -> None:
        text = text if text.strip() else ""
        if not text and not calls:
            return
        results = [
            self.repaired.results.get(call.id) or missing_result(call) for call in self._asked
        ]
        sent: list[Message] = [
            {"role": "tool", "content": result.content, "is_error": result.is_error}
            for result in results
        ]
        if not sent and not self.repaired.texts:
            self.repaired.texts.append(_LEFT_OUT)
        if self.repaired.texts:
            sent.append({"role": "user", "content": "\n\n".join(self.repaired.texts)})
        received = {"content": text, "tool_calls": calls}
        exchange = Exchange(
            dialect=PLAIN,
            sent=tuple(json.dumps(one, ensure_ascii=False) for one in sent),
            received=(json.dumps(received, ensure_ascii=False),),
            finish=Finish.TOOL_USE if calls else Finish.ANSWERED,
            usage=NO_USAGE,
        )
        asked = tuple(ToolUse(call["id"], call["function"]["name"]) for call in calls)
        self.repaired.segments.append(Segment(tuple(self._open), (exchange,), asked))
        self.repaired.results, self.repaired.texts, self.repaired.unsettled = {}, [], 0
        self._last, self._open, self._asked = None, [], asked
        self._is_edited = True


def _uncounted(segment: Segment) -> Segment:
    """Return *segment* without usages: the provider has counted another history before it."""
    exchanges = tuple(replace(one, usage=NO_USAGE) for one in segment.exchanges)
    return dataclasses.replace(segment, exchanges=exchanges)


def _key(message: Message) -> str:
    return f"{message.get('role')}:{message.get('content')}:{message.get('tool_call_id')}"


def _system_texts(messages: Sequence[Message]) -> list[str]:
    texts = [text_of(message) for message in messages if message.get("role") in _SYSTEM]
    return [text for text in texts if text.strip()]


def _role(message: Message) -> str:
    role = message.get("role")
    if role not in {"user", "assistant", "tool", *_SYSTEM}:
        raise InvalidValueError(
            f"a message in the history has the role {role!r}; roles are user, assistant, tool and"
            " system"
        )
    return role


def _calls(message: Message) -> list[Message]:
    """Return the calls in a message, each with a unique id and a valid function name."""
    asked: Any = message.get("tool_calls") or []
    calls: dict[str, Message] = {}
    for call in cast("list[Any]", asked if isinstance(asked, list) else [asked]):
        match call:
            case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}}:
                id = id if id and id not in calls else f"{id or 'call'}-{len(calls) + 1}"
                function = {"name": _valid_name(name), "arguments": arguments}
                calls[id] = {"id": id, "type": "function", "function": function}
            case _:
                raise InvalidValueError(
                    "a call in the history is {'id': '...', 'function': {'name': '...',"
                    f" 'arguments': '...'}}}}, which {call!r} is not"
                )
    return list(calls.values())


def _valid_name(name: str) -> str:
    """Return *name* with what some provider would refuse replaced or cut off."""
    name = _INVALID.sub("_", name)[:_LONGEST_NAME]
    return name if name[:1].isalpha() or name.startswith("_") else f"_{name[1:]}"
