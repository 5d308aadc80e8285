"""Recognizes calls that a server sends as text because its chat template does not parse them.

Text is held back only while all of it may still consist of calls. It is scanned once, as it
arrives: an object that cannot be a call of an offered function, or anything else between such
objects, releases the text at once. The text held back is bounded, because a model may write
anything.
"""

import re
from collections.abc import Collection
from typing import Any, Final, cast

from treefold.models.json_text import ObjectScanner, parse_json_object, to_json

MAX_HELD: Final = 1 << 20  # characters held back
_MAX_HEAD: Final = 256  # characters within which an object must name its function

_FENCES: Final = ("```json", "```tool_calls", "```tool_call", "```tool_code")
_TAGS: Final = ("<tool_call>", "</tool_call>")
_FENCE: Final = rf"(?:{'|'.join(_FENCES)}|```)(?=[\s{{\[<])"
_BEFORE: Final = re.compile(rf"(?:\s|<tool_call>|{_FENCE}|\[)*+")
_AFTER: Final = re.compile(rf"(?:\s|</?tool_call>|{_FENCE}|[\[\],;])*+")
_DOUBLED: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|\{\{|\}\}', re.DOTALL)

_NAMES: Final = frozenset({"name", "function"})
_ARGUMENTS: Final = frozenset({"arguments", "parameters"})
_OTHERS: Final = frozenset({"type", "id"})
_FIRST: Final = _NAMES | _ARGUMENTS | {"type"}


class TextCalls:
    """Decides whether the text of a response consists of calls only.

    Attributes:
        may_be_calls: whether all of the text so far may be calls; otherwise nothing is held back.
        calls: the name and the arguments, as JSON text, of each call so far.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names  # of the functions offered
        self.may_be_calls = True
        self._held: list[str] = []
        self._size = 0
        self._left = ""  # the beginning of a tag or a fence
        self._object: _PartialObject | None = None  # begun and not ended
        self.calls: list[tuple[str, str]] = []

    def feed(self, text: str) -> str:
        """Return the text that can be emitted now: none while all of it may be calls."""
        if not self.may_be_calls:
            return text
        self._held.append(text)
        self._size += len(text)
        if self._size > MAX_HELD or not self._scan(text):
            return self.release()
        return ""

    @property
    def held(self) -> str:
        """The text held back."""
        return "".join(self._held)

    def release(self) -> str:
        """Return the text held back; the response is text and holds no calls."""
        held, self._held = self.held, []
        self.may_be_calls = False
        self.calls = []
        return held

    @property
    def are_complete(self) -> bool:
        """Whether the text so far consists of complete calls only."""
        ended = self._object is None and self._left in {"", "```"}
        return self.may_be_calls and bool(self.calls) and ended

    def _scan(self, text: str) -> bool:
        """Scan *text* and return whether all of the text may still be calls."""
        at = 0
        if self._left:
            text, self._left = self._left + text, ""
        while at < len(text):
            if self._object is None:
                at = (_AFTER if self.calls else _BEFORE).match(text, at).end()  # pyright: ignore[reportOptionalMemberAccess]
                if at == len(text):
                    return True
                if text[at] != "{":
                    self._left = text[at:]
                    return any(mark.startswith(self._left) for mark in (*_FENCES, *_TAGS))
                self._object = _PartialObject(self._names)
            at = self._object.feed(text, at)
            if not self._object.may_be_call:
                return False
            if self._object.is_complete:
                call = _call(self._object.value, self._names)
                if call is None:
                    return False
                self.calls.append(call)
                self._object = None
        return True


class _PartialObject:
    """A JSON object, as far as it has been received."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._pieces: list[str] = []
        self._head: str | None = ""  # None once it is known whether it begins as a call does
        self._scanner = ObjectScanner()
        self.may_be_call = True

    def feed(self, text: str, start: int) -> int:
        """Scan *text* from *start* on and return where the object, or the text, ends."""
        end = self._scanner.feed(text, start)
        piece = text[start:end]
        self._pieces.append(piece)
        if self._head is not None:
            self._check_head(piece)
        return end

    @property
    def is_complete(self) -> bool:
        """Whether the object has ended."""
        return self._scanner.is_complete

    @property
    def value(self) -> dict[str, Any] | None:
        """The object, whose braces may be doubled; None if it is not JSON."""
        text = "".join(self._pieces)
        value = parse_json_object(text)
        if value is None and text[1:].lstrip().startswith("{"):
            value = parse_json_object(text[1:-1]) or parse_json_object(
                _DOUBLED.sub(_undoubled, text)
            )
        return value

    def _check_head(self, piece: str) -> None:
        assert self._head is not None
        self._head += piece[: _MAX_HEAD - len(self._head)]
        verdict = _begins_call(self._head, self._names)
        if verdict is None and len(self._head) < _MAX_HEAD:
            return
        self.may_be_call = bool(verdict)
        self._head = None


def _begins_call(head: str, names: Collection[str]) -> bool | None:
    """Whether an object that begins with *head* may be a call; None if it is too early to say."""
    text = head.lstrip("{ \t\r\n")
    if not text:
        return None
    key, closed, rest = text[1:].partition('"')
    if text[0] != '"' or not closed:
        return None if text[0] == '"' and any(k.startswith(key) for k in _FIRST) else False
    if key not in _NAMES:
        return key in _FIRST
    value = rest.lstrip().removeprefix(":").lstrip()
    if not value:
        return None
    if value[0] != '"':
        return value[0] == "{" and key == "function"
    name, closed, _ = value[1:].partition('"')
    if closed:
        return name in names
    return None if any(known.startswith(name) for known in names) else False


def _call(value: dict[str, Any] | None, names: Collection[str]) -> tuple[str, str] | None:
    """Return the name and the arguments of the call in *value*; None if it is not a call."""
    if value is None:
        return None
    inner = value.get("function")
    if isinstance(inner, dict) and value.keys() <= {"function", *_OTHERS}:
        value = cast("dict[str, Any]", inner)
    keys = value.keys() - _OTHERS
    named, given = keys & _NAMES, keys & _ARGUMENTS
    if not (len(named) == len(given) == 1 and len(keys) == 2):
        return None
    name, arguments = value[named.pop()], value[given.pop()]
    if not isinstance(name, str) or name not in names:
        return None
    if isinstance(arguments, str):
        return name, arguments
    return (name, to_json(arguments or {})) if isinstance(arguments, dict | None) else None


def _undoubled(mark: re.Match[str]) -> str:
    return mark[0] if mark[0].startswith('"') else mark[0][0]
