"""Assembles calls from the fragments that OpenAI-compatible servers stream.

Servers leave out ids and indexes, send them late, put every call on index 0, split names or repeat
them, and send arguments as text or as an object. A fragment is assigned to a call by, in this
order: its id, its index, and whether the previous call is already complete.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, cast

from treefold.core.model_events import ToolUseDelta
from treefold.models.decoder import INVALID_ARGS_KEY
from treefold.models.json_text import (
    ObjectScanner,
    join_surrogates,
    parse_json,
    parse_json_object,
    to_json,
)
from treefold.models.openai.lenient_json import repair_json

_MAX_INDEX_DIGITS = 9  # a longer index is treated as missing
_MAX_NAME = 256  # characters; no function has such a name
_KNOWN_FIELDS = {"index", "id", "type", "function", "name", "arguments"}


@dataclass(slots=True)
class PartialCall:
    """A call as far as it has been received.

    Attributes:
        position: among the calls of the response.
        index: as the server numbers it.
        pieces: of the arguments.
        size: characters in the pieces.
        others: fields that are not known here; they are sent back.
    """

    position: int
    index: int | None
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    size: int = 0
    others: dict[str, Any] = field(default_factory=dict[str, Any])
    _scanner: ObjectScanner = field(default_factory=ObjectScanner)
    _scanned: int = 0  # pieces
    _is_object: bool | None = None  # None while it has not ended

    @property
    def arguments(self) -> str:
        """The JSON text so far."""
        return "".join(self.pieces)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments so far are a JSON object."""
        # A server that repeats the name has this asked with each of its fragments: each piece is
        # scanned once, and nothing is parsed before it may be an object.
        if self._is_object is not False and self._scanned < len(self.pieces):
            for piece in self.pieces[self._scanned :]:
                self._scanner.feed(piece)
            self._scanned = len(self.pieces)
            if self._scanner.is_complete:
                self._is_object = parse_json_object(self.arguments) is not None
        return bool(self.name) and self._is_object is True


class ToolCalls:
    """The calls of one response.

    Args:
        names: of the functions offered.
        count: is called with whatever else than names and arguments is kept of a call.
    """

    def __init__(self, names: Collection[str], count: Callable[[Any], None]) -> None:
        self._names = names
        self._count = count
        self._by_id: dict[str, PartialCall] = {}  # the latest with each id
        self._by_index: dict[int, PartialCall] = {}
        self.calls: list[PartialCall] = []

    def feed(self, fragment: dict[str, Any]) -> ToolUseDelta:
        """Add one entry of ``delta.tool_calls`` and return its event."""
        raw = fragment.get("function")
        function = cast("dict[str, Any]", raw) if isinstance(raw, dict) else fragment
        id, name = _text(fragment.get("id")), _text(function.get("name"))
        call = self._find(_index(fragment.get("index")), id, name)
        if id and not call.id:
            self._count(id)
            call.id = id
            self._by_id[id] = call
        if name and len(call.name) < _MAX_NAME:
            call.name = self._joined_name(call.name, name)[:_MAX_NAME]
        if others := fragment.keys() - _KNOWN_FIELDS:
            new = {key: fragment[key] for key in others}
            self._count(new)
            call.others |= new
        arguments = _arguments(function.get("arguments"))
        if len(arguments) == call.size and arguments == call.arguments and call.is_complete:
            arguments = ""  # the server repeats them
        if arguments:
            call.pieces.append(arguments)
            call.size += len(arguments)
        return ToolUseDelta(call.position, call.id, call.name, arguments)

    def _find(self, index: int | None, id: str, name: str) -> PartialCall:
        call = self._latest(index, id, name)
        if call is None or _begins_another(call, id, name):
            call = PartialCall(len(self.calls), index)
            self.calls.append(call)
            if index is not None:
                self._by_index[index] = call
        return call

    def _latest(self, index: int | None, id: str, name: str) -> PartialCall | None:
        """Return the call that the fragment continues, unless it begins another."""
        known = self._by_id.get(id)
        if known is not None and (index is None or index == known.index or not name):
            return known
        if index is not None:
            return self._by_index.get(index)
        return self.calls[-1] if self.calls else None

    def _joined_name(self, known: str, piece: str) -> str:
        if any(name.startswith(known + piece) for name in self._names):
            return known + piece
        if piece.startswith(known):  # the server repeats the name so far
            return piece
        if known in self._names:
            return known
        return known + piece


def _begins_another(call: PartialCall, id: str, name: str) -> bool:
    if id and call.id:
        return id != call.id
    if not name or not call.name or not call.size:
        return False
    return name != call.name or call.is_complete


def final_arguments(call: PartialCall, *, lenient: bool = False) -> str:
    """Return the arguments of *call* for the history, as JSON that every server can parse.

    Text that is not a JSON object is kept inside one, and becomes the ``fault`` of the call.
    """
    text = join_surrogates(call.arguments).strip()
    if not call.name:
        return to_json({INVALID_ARGS_KEY: text})
    if not text:
        return "{}"
    if parse_json_object(text) is not None:
        return text
    inner = parse_json(text)
    # Some models encode the object twice, as JSON in a JSON string.
    args = parse_json_object(inner) if isinstance(inner, str) else None
    if args is None and lenient:
        args = repair_json(text)
    return to_json({INVALID_ARGS_KEY: text} if args is None else args)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MAX_INDEX_DIGITS:
        return int(value)
    return value if isinstance(value, int) else None


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(value)
