"""JSON as servers and models write it: parsing that never raises, encoding that can be sent.

All JSON of the models package passes through here, so that no caller forgets that it may be
nested a thousand levels deep, not be JSON at all, contain a NaN, which other parsers would reject,
or hold half of a surrogate pair, which cannot be encoded as UTF-8.
"""

import json
import re
from typing import Any, Final, NoReturn, cast


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_strict = json.JSONDecoder(parse_constant=_reject)
_tolerant = json.JSONDecoder(parse_constant=lambda _: None)
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

_FRAME: Final = 4  # characters of punctuation for a value in a list or object

_END_OF_STRING: Final = re.compile(r'["\\]')
_BRACE: Final = re.compile(r'[{}"]')
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)', re.DOTALL)
_END: Final = "\0"  # JSON never contains it unescaped

_TYPE_NAMES: Final[dict[type, str]] = {
    list: "a list",
    str: "a string",
    bool: "true or false",
    type(None): "null",
}


def parse_json(text: str) -> Any:
    """Return the value of *text*, with None for NaN and infinities; None if it is not JSON."""
    try:
        return _tolerant.decode(text)
    except (ValueError, RecursionError):
        return None


def parse_json_object(text: str) -> dict[str, Any] | None:
    """Return the object in *text*; None if it is not one that every JSON parser accepts."""
    try:
        value = _strict.decode(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def json_object_error(text: str) -> str:
    """Return the reason why ``parse_json_object`` returns None for *text*."""
    try:
        value: object = _strict.decode(text)
    except ValueError as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    return f"an object is needed, not {_TYPE_NAMES.get(type(value), 'a number')}"


def to_json(value: Any) -> str:
    """Return *value* as JSON text without spaces that can be encoded as UTF-8.

    Raises:
        ValueError, TypeError: it has no JSON form.
    """
    text = _encoder.encode(value)
    return text if text.isascii() else join_surrogates(text)


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects in *value* if it is a list; otherwise an empty list."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def join_surrogates(text: str) -> str:
    """Return *text* with surrogate pairs joined and unpaired surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class SurrogateJoiner:
    """Joins surrogate pairs in streamed text.

    JSON may escape a character as two surrogates, and a server may send them in two chunks: the
    first is held back until the second arrives.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Return *text* after what was held back, without a first half at its end."""
        if not self._held and (not text or text.isascii()):
            return text
        text = self._held + text
        self._held = ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return join_surrogates(text)

    def end(self) -> str:
        """Return U+FFFD for a first half that is still held back."""
        held, self._held = self._held, ""
        return "\ufffd" if held else ""


class ObjectScanner:
    """Finds the end of a JSON object that arrives in pieces; each piece is scanned once.

    It only counts the braces outside strings: what it finds still has to be parsed.

    Attributes:
        is_complete: whether the object has ended.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self._depth = 0
        self._in_string = self._escaped = False

    def feed(self, text: str, at: int = 0) -> int:
        """Scan *text* from *at* on and return where the object, or the text, ends."""
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
                    self.is_complete = True
                    return at
        return len(text)


def count_chars(value: Any, enough: int) -> int:
    """Return how many characters *value* has as JSON, about; those beyond *enough* are not counted.

    It is not written for that, which would take longer, and its depth does not matter.
    """
    found, left = 0, [value]
    while left and found <= enough:
        one = left.pop()
        if isinstance(one, str):
            found += len(one)
        elif isinstance(one, dict):
            fields = cast("dict[str, Any]", one)
            found += sum(map(len, fields)) + _FRAME * len(fields)
            left += fields.values()
        elif isinstance(one, list):
            items = cast("list[Any]", one)
            found += _FRAME * len(items)
            left += items
        elif isinstance(one, int):
            found += one.bit_length() // 3
    return found


class ValueCounter:
    """Counts the values in JSON that arrives in pieces; each piece is scanned once."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open = ""  # how a string begins that has not ended yet

    def feed(self, text: str) -> int:
        """Return the number of values in lists and objects that *text* begins."""
        text = self._open + text
        # A string that has not ended takes the end with it.
        bare = _STRING.sub("", text + _END)
        self._open = ""
        if not bare.endswith(_END):
            is_escaping = (len(text) - len(text.rstrip("\\"))) % 2
            self._open = '"\\' if is_escaping else '"'
        return bare.count(",") + bare.count("[") + bare.count("{")
