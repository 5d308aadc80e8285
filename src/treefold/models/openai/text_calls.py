"""Calls that a server hands out as text, because its template does not recognize them.

Text is held back only while all of it may still be calls. It is scanned once, as it comes in: an
object that cannot be a call of an offered function, or anything else between such objects, ends
that at once. What a model writes is not trusted: the text that is held back is bounded.
"""

import re
from collections.abc import Collection
from typing import Any, Final, cast

from treefold.models.json_text import parse_json_object, to_json

LONGEST: Final = 1 << 20  # characters that are held back
MOST: Final = 128  # calls in one response
_LONGEST_HEAD: Final = 256  # characters by which an object must have named its function

_FENCES: Final = ("```json", "```tool_calls", "```tool_call", "```tool_code")
_TAGS: Final = ("<tool_call>", "</tool_call>")
_FENCE: Final = rf"(?:{'|'.join(_FENCES)}|```)(?=[\s{{\[<])"
_BEFORE: Final = re.compile(rf"(?:\s|<tool_call>|{_FENCE}|\[)*+")
_AFTER: Final = re.compile(rf"(?:\s|</?tool_call>|{_FENCE}|[\[\],;])*+")
_END_OF_STRING: Final = re.compile(r'["\\]')
_BRACE: Final = re.compile(r'[{}"]')
_DOUBLED: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|\{\{|\}\}', re.DOTALL)

_NAMES: Final = frozenset({"name", "function"})
_ARGUMENTS: Final = frozenset({"arguments", "parameters"})
_OTHERS: Final = frozenset({"type", "id"})
_FIRST: Final = _NAMES | _ARGUMENTS | {"type"}


class TextCalls:
    """Finds out whether the text of a response is nothing but calls.

    Attributes:
        calls: name and arguments, as JSON text, of each call so far.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names  # of the functions that were offered
        self._may_be = True
        self._held: list[str] = []
        self._size = 0
        self._left = ""  # the beginning of a tag or a fence
        self._object: _Object | None = None  # that has begun and not ended
        self.calls: list[tuple[str, str]] = []

    def feed(self, text: str) -> str:
        """Return the text that can be given out now: nothing while all may be calls."""
        if not self._may_be:
            return text
        self._held.append(text)
        self._size += len(text)
        if self._size > LONGEST or not self._scan(text):
            return self.release()
        return ""

    @property
    def held(self) -> str:
        """The text that is held back."""
        return "".join(self._held)

    def release(self) -> str:
        """Return what was held back; all of the response is text."""
        held, self._held = self.held, []
        self._may_be = False
        self.calls = []
        return held

    @property
    def are_complete(self) -> bool:
        """Whether the text so far is nothing but calls, each of them whole."""
        ended = self._object is None and self._left in {"", "```"}
        return self._may_be and bool(self.calls) and ended

    def _scan(self, text: str) -> bool:
        """Take in *text*; return whether all may still be calls."""
        at = 0
        while at < len(text):
            if self._object is None:
                text, at = self._left + text[at:], 0
                self._left = ""
                at = (_AFTER if self.calls else _BEFORE).match(text).end()  # pyright: ignore[reportOptionalMemberAccess]
                if at == len(text):
                    return True
                if text[at] != "{":
                    self._left = text[at:]
                    return any(mark.startswith(self._left) for mark in (*_FENCES, *_TAGS))
                self._object = _Object(self._names)
            at = self._object.feed(text, at)
            if not self._object.may_be_call:
                return False
            if self._object.is_whole:
                call = _call(self._object.value, self._names)
                if call is None or len(self.calls) == MOST:
                    return False
                self.calls.append(call)
                self._object = None
        return True


class _Object:
    """A JSON object, as far as it has come in."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._pieces: list[str] = []
        self._head: str | None = ""  # None: it is known to begin as a call does
        self._depth = 0
        self._in_string = self._escaped = False
        self.may_be_call = True
        self.is_whole = False

    def feed(self, text: str, start: int) -> int:
        """Take in *text* from *start* on; return where the object, or the text, ends."""
        end = self._end(text, start)
        piece = text[start:end]
        self._pieces.append(piece)
        if self._head is not None:
            self._look_at_head(piece)
        return end

    @property
    def value(self) -> dict[str, Any] | None:
        """The object, with its braces written once or twice; None if it is not JSON."""
        text = "".join(self._pieces)
        value = parse_json_object(text)
        if value is None and text[1:].lstrip().startswith("{"):
            value = parse_json_object(text[1:-1]) or parse_json_object(_DOUBLED.sub(_halved, text))
        return value

    def _end(self, text: str, at: int) -> int:
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            mark = (_END_OF_STRING if self._in_string else _BRACE).search(text, at)
            if mark is None:
                break
            at = mark.end()
            if mark[0] == "\\":
                self._escaped = True
            elif mark[0] == '"':
                self._in_string = not self._in_string
            else:
                self._depth += 1 if mark[0] == "{" else -1
                if self._depth == 0:
                    self.is_whole = True
                    return at
        return len(text)

    def _look_at_head(self, piece: str) -> None:
        assert self._head is not None
        self._head += piece[: _LONGEST_HEAD - len(self._head)]
        verdict = _begins_call(self._head, self._names)
        if verdict is None and len(self._head) < _LONGEST_HEAD:
            return
        self.may_be_call = bool(verdict)
        self._head = None


def _begins_call(head: str, names: Collection[str]) -> bool | None:
    """Whether an object that begins with *head* may be a call; None if that cannot be told yet."""
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
    """Return the name and the arguments of the call that *value* is, if it is one."""
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


def _halved(mark: re.Match[str]) -> str:
    return mark[0] if mark[0].startswith('"') else mark[0][0]
