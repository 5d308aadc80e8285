"""A history that somebody may have cut or changed, as exchanges that every provider takes.

What is as it was is kept in the provider's own words. The rest is written anew: each call gets a
result, a result without its call becomes text, and the roles take turns.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from treefold.core.errors import InvalidValueError
from treefold.core.exchange import PLAIN, Exchange, Finish
from treefold.core.failures import failed, is_failure
from treefold.core.messages import Message, text_of
from treefold.core.transcript import ToolResult, ToolUse
from treefold.core.usage import TokenUsage

_LEFT_OUT: Final = "[A message was left out here.]"
_ORPHAN: Final = "[The result of an earlier call of {name}: {content}]"
_NO_RESULT: Final = "There is no result: the call was not made, or it was interrupted."
_INVALID: Final = re.compile(r"[^a-zA-Z0-9_-]")  # what no name of a function has
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Segment:
    """Messages that belong together: what was sent, and what came back."""

    messages: tuple[Message, ...]
    exchanges: tuple[Exchange, ...]
    asked: tuple[ToolUse, ...]  # the calls that it ends with

    @property
    def is_paused(self) -> bool:
        """Whether the model has more to say."""
        return self.exchanges[-1].finish is Finish.PAUSED

    def joined(self, other: "Segment") -> "Segment":
        """Return the two as one."""
        return Segment(
            self.messages + other.messages, self.exchanges + other.exchanges, other.asked
        )


@dataclass(slots=True)
class RepairedHistory:
    """A history: what is complete, what is still to be sent, and what belongs to the system."""

    segments: list[Segment] = field(default_factory=list[Segment])
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    texts: list[str] = field(default_factory=list[str])
    system: list[str] = field(default_factory=list[str])
    unsettled: int = 0  # how many messages belong to none of the segments


def repair(messages: Sequence[Message], known: Sequence[Segment]) -> RepairedHistory:
    """Return *messages* as a history; *known* are segments of them that may be as they were.

    Raises:
        InvalidValueError: something among them is no message.
    """
    repairer = _Repairer(known)
    at = 0
    while at < len(messages):
        segment = repairer.unchanged(messages, at)
        if segment is None:
            repairer.take(messages[at])
            at += 1
        else:
            at += len(segment.messages)
    return repairer.end()


def missing_result(call: ToolUse) -> ToolResult:
    """Return the result of a call that has none."""
    return ToolResult(call.id, failed(call.name, call.fault or _NO_RESULT), is_error=True)


def orphan_text(name: str, content: str) -> str:
    """Return what is said of a result whose call is not there."""
    return _ORPHAN.format(name=name, content=content)


class _Repairer:
    """Goes through a history once."""

    def __init__(self, known: Sequence[Segment]) -> None:
        self.repaired = RepairedHistory()
        self._known = known
        self._by_first_message: dict[str, list[int]] = {}  # of segments, by what they begin with
        for index, segment in enumerate(known):
            if segment.messages:
                self._by_first_message.setdefault(_key(segment.messages[0]), []).append(index)
        self._last: int | None = None  # the index of the segment that was taken last
        self._open: list[Message] = []  # since then
        self._asked: tuple[ToolUse, ...] = ()

    def unchanged(self, messages: Sequence[Message], at: int) -> Segment | None:
        """Take the segment that begins here, if it is as it was and follows on what is before."""
        if self._open:
            return None
        for index in self._candidates(messages[at]):
            segment = self._known[index]
            if list(segment.messages) == list(messages[at : at + len(segment.messages)]):
                self.repaired.segments.append(segment)
                self._last, self._asked = index, segment.asked
                return segment
        return None

    def _candidates(self, first: Message) -> Iterator[int]:
        """Yield the places of segments that may stand here: the next one, then any other."""
        after = None if self._last is None else self._last + 1
        if after is not None and after < len(self._known) and self._known[after].messages:
            yield after
        if not self._asked:
            yield from filter(self._answers_nothing, self._by_first_message.get(_key(first), ()))

    def _answers_nothing(self, index: int) -> bool:
        """Whether a segment can stand anywhere, there being no results in it, not even unseen."""
        asked = self._known[index - 1].asked if index else ()
        return not asked and self._known[index].messages[0].get("role") == "user"

    def take(self, message: Message) -> None:
        """Take one message, whatever is before it."""
        role, text = _role(message), text_of(message)
        if role in {"system", "developer"}:
            if text.strip():
                self.repaired.system.append(text)
            return
        self._open.append(message)
        match role:
            case "user":
                if text.strip():
                    self.repaired.texts.append(text)
            case "tool":
                self._add_result(message, text)
            case _:
                self._add_response(text, _calls(message))

    def end(self) -> RepairedHistory:
        """Return what came of it."""
        self.repaired.unsettled = len(self._open)
        return self.repaired

    def _add_result(self, message: Message, text: str) -> None:
        id = str(message.get("tool_call_id"))
        if any(call.id == id for call in self._asked):
            self.repaired.results[id] = ToolResult(id, text, is_error=is_failure(text))
        else:
            self.repaired.texts.append(orphan_text(message.get("name") or "a function", text))

    def _add_response(self, text: str, calls: list[Message]) -> None:
        text = text if text.strip() else ""
        if not text and not calls:
            return
        results = [self.repaired.results.get(call.id) or missing_result(call) for call in self._asked]
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
            usage=TokenUsage(),
        )
        asked = tuple(ToolUse(call["id"], call["function"]["name"]) for call in calls)
        self.repaired.segments.append(Segment(tuple(self._open), (exchange,), asked))
        self.repaired.results, self.repaired.texts = {}, []
        self._last, self._open, self._asked = None, [], asked


def _key(message: Message) -> str:
    return f"{message.get('role')}:{message.get('content')}:{message.get('tool_call_id')}"


def _role(message: Message) -> str:
    role = message.get("role")
    if role not in {"user", "assistant", "tool", "system", "developer"}:
        raise InvalidValueError(
            f"a message in the history has the role {role!r}; roles are user, assistant, tool and"
            " system"
        )
    return role


def _calls(message: Message) -> list[Message]:
    """Return the calls that a message asks for, each with an id of its own and a usable name."""
    asked: Any = message.get("tool_calls") or []
    calls: dict[str, Message] = {}
    for call in cast("list[Any]", asked if isinstance(asked, list) else [asked]):
        match call:
            case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}}:
                id = id if id and id not in calls else f"{id or 'call'}-{len(calls) + 1}"
                function = {"name": _usable(name), "arguments": arguments}
                calls[id] = {"id": id, "type": "function", "function": function}
            case _:
                raise InvalidValueError(
                    "a call in the history is {'id': '...', 'function': {'name': '...',"
                    f" 'arguments': '...'}}}}, which {call!r} is not"
                )
    return list(calls.values())


def _usable(name: str) -> str:
    """Return *name* as every provider takes it."""
    name = _INVALID.sub("_", name)[:_LONGEST_NAME]
    return name if name[:1].isalpha() or name.startswith("_") else f"_{name[1:]}"
