"""Encode values of any size and type as JSON data that any program can read.

The value cannot be restored from it; ``core.value_codec`` has a form that can be.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from treefold.core.jsonable import Unserializable, as_json
from treefold.core.truncation import truncated_repr

_MAX_DEPTH: Final = 60  # of nested containers
_DECIMAL_LIMIT: Final = 10**1000  # Python refuses to convert much larger integers to decimals
_MAX_SAFE_INTEGER: Final = 2**53 - 1  # JavaScript rounds larger integers
_LONGEST_REPR: Final = 500


def as_data(value: Any, limit: int | None = None) -> Any:
    """Return *value* as JSON data with about *limit* characters of text; None for no limit.

    A value without a JSON form becomes ``{"$repr": "..."}``, a text that is cut
    ``{"$text": "...", "length": N}``, and omitted items of a list or an object ``{"$more": N}``.

    Example:
        >>> as_data({"n": (1, 2.5), "text": "abcdef", "odd": {1: b"x"}}, limit=12)
        {'n': [1, 2.5], 'text': {'$text': 'ab', 'length': 6}, '$more': 1}
        >>> as_data([object, float("inf"), b"x"])
        [{'$repr': "<class 'object'>"}, {'$repr': 'inf'}, {'$repr': "b'x'"}]
    """
    return _Encoder(math.inf if limit is None else limit).encode(value, 0)


def encodable(text: str) -> str:
    """Return *text* with lone surrogates, which cannot be encoded, as escape sequences."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


@dataclass(slots=True)
class _Encoder:
    left: float  # characters that still fit

    def encode(self, value: Any, depth: int) -> Any:
        kind = cast("type[Any]", type(value))
        self.left -= 1
        if value is None or kind is bool:
            return value
        if kind is str:
            return self._text(value)
        if kind is int:
            if -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER:
                return value
            return self._repr(
                str(value) if -_DECIMAL_LIMIT < value < _DECIMAL_LIMIT else hex(value)
            )
        if kind is float:
            return value if math.isfinite(value) else self._repr(str(value))
        if depth > _MAX_DEPTH:
            return self._repr("…")
        if kind is dict:
            return self._object(value, depth)
        if kind is list or kind is tuple:
            return self._list(value, len(value), depth)
        if kind is set or kind is frozenset:
            return self._list(sorted(value, key=truncated_repr), len(value), depth)
        return self._other(value, depth)

    def _text(self, text: str) -> Any:
        room = max(0, int(min(self.left, len(text))))
        self.left -= room
        shown = encodable(text[:room])
        return shown if room == len(text) else {"$text": shown, "length": len(text)}

    def _object(self, items: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for done, (key, value) in enumerate(items.items()):
            if self.left <= 0:
                shown["$more"] = len(items) - done
                break
            name = encodable(key if type(key) is str else truncated_repr(key))
            self.left -= len(name)
            shown[name] = self.encode(value, depth + 1)
        return shown

    def _list(self, items: Iterable[Any], length: int, depth: int) -> list[Any]:
        shown: list[Any] = []
        for done, value in enumerate(items):
            if self.left <= 0:
                shown.append({"$more": length - done})
                break
            shown.append(self.encode(value, depth + 1))
        return shown

    def _other(self, value: Any, depth: int) -> Any:
        try:
            plain = value if isinstance(value, bytes | Unserializable) else as_json(value)
        except Exception:  # noqa: BLE001 - foreign code must not hide the rest
            plain = value
        if type(plain) in {str, int, float, bool, dict, list, type(None)}:
            return self.encode(plain, depth + 1)
        return self._repr(truncated_repr(value, _LONGEST_REPR))

    def _repr(self, text: str) -> dict[str, str]:
        self.left -= len(text)
        return {"$repr": encodable(text)}
