"""Calls that come in fragments, as OpenAI-compatible servers send them, put together.

Servers leave out ids and indexes, send them late, put every call on index 0, cut names in two or
repeat them, and send arguments as text or as an object. What settles which call a fragment belongs
to is, in this order: its id, its index, and whether the call before it is already whole.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, cast

from ramify.core.model_events import ToolUseDelta
from ramify.models.characters import whole
from ramify.models.decoder import UNUSABLE, compact
from ramify.models.openai.lenient_json import repaired

_KNOWN = {"index", "id", "type", "function", "name", "arguments"}


@dataclass(slots=True)
class Call:
    """A call as far as it is known."""

    place: int  # among the calls of the response
    index: int | None  # what the server says
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    others: dict[str, Any] = field(default_factory=dict[str, Any])  # fields we have no word for
    size: int = 0

    @property
    def arguments(self) -> str:
        """The JSON text so far."""
        return "".join(self.pieces)

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are all there, going by what they look like."""
        return bool(self.name and self.pieces) and _parsed(self.arguments) is not None


class ToolCalls:
    """The calls of one response."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names  # of the functions that were offered
        self.calls: list[Call] = []

    def feed(self, fragment: dict[str, Any]) -> ToolUseDelta:
        """Take in one entry of ``delta.tool_calls``."""
        raw = fragment.get("function")
        function = cast("dict[str, Any]", raw) if isinstance(raw, dict) else fragment
        id, name = _text(fragment.get("id")), _text(function.get("name"))
        index = fragment.get("index")
        call = self._find(index if isinstance(index, int) else None, id, name)
        call.id = call.id or id
        if name:
            call.name = self._joined_name(call.name, name)
        call.others |= {key: fragment[key] for key in fragment.keys() - _KNOWN}
        arguments = _arguments(function.get("arguments"))
        if len(arguments) == call.size and arguments == call.arguments and call.is_whole:
            arguments = ""  # sent again
        call.pieces.append(arguments)
        call.size += len(arguments)
        return ToolUseDelta(call.place, call.id, call.name, arguments)

    def _find(self, index: int | None, id: str, name: str) -> Call:
        call = self._latest(index, id, name)
        if call is None or self._begins_another(call, id, name):
            call = Call(len(self.calls), index)
            self.calls.append(call)
        return call

    def _latest(self, index: int | None, id: str, name: str) -> Call | None:
        """Return the call that the fragment belongs to, unless it begins another."""
        for call in reversed(self.calls):
            if id and call.id == id and (index in {None, call.index} or not name):
                return call
        for call in reversed(self.calls):
            if index is None or call.index == index:
                return call
        return None

    def _begins_another(self, call: Call, id: str, name: str) -> bool:
        if id and call.id:
            return id != call.id
        if not name or not call.name:
            return False
        if call.is_whole:  # and here comes a name again
            return not id or not call.id
        return bool(call.size) and name != call.name

    def _joined_name(self, known: str, piece: str) -> str:
        if any(name.startswith(known + piece) for name in self._names):
            return known + piece
        if piece.startswith(known):  # all of it again, or all of it so far
            return piece
        if known in self._names:
            return known
        return known + piece


def settled(call: Call, *, lenient: bool = False) -> str:
    """Return the arguments of *call* as they go into the history, which every server must read.

    What is not a JSON object is kept inside one, and so becomes a fault of the call.
    """
    text = whole(call.arguments)
    if call.name:
        args = _parsed(text) if text.strip() else {}
        if args is None and lenient:
            args = repaired(text)
        if args is not None:
            return text if text.lstrip().startswith("{") and _parsed(text) else compact(args)
    return compact({UNUSABLE: text})


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
        if isinstance(value, str):  # JSON in a JSON string
            value = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
