"""Serialize values as JSON, with long texts stored separately under their hashes, each once.

A text that is sent to a model occurs several times: as an argument, a result, a part of the
transcript and a part of a message, each time whole or inside another text. Recent long texts are
therefore searched for in each text.

Values of builtin types are restored as they were; other objects become the JSON that pydantic
makes of them.
"""

import base64
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from math import isfinite
from typing import Any, Final, cast

from treefold.core.from_file import FromFile
from treefold.core.jsonable import Unserializable, as_json, unserializable
from treefold.core.loaded_module import loaded_module
from treefold.core.long_texts import LONG, LongTexts, Piece, in_form
from treefold.core.truncation import truncated_repr

_TAG: Final = "$"  # the key of a JSON object that encodes a value of another type
_LARGE: Final = 2**63  # larger integers are written in hexadecimal, which has no limit of digits
_REPR: Final = 500  # characters
_CONTAINERS: Final = {list, tuple, set, frozenset}
_STRINGS: Final = frozenset({str})
QUOTED_TAG: Final = f'"{_TAG}"'
_DECODER: Final = json.JSONDecoder()
# By the style of the JSON: 1 for escaped characters, plus 2 for spaces.
_ENCODERS: Final = [
    json.JSONEncoder(ensure_ascii=escapes, separators=separators)
    for separators in ((",", ":"), (", ", ": "))
    for escapes in (False, True)
]
_QUOTED: Final = re.compile(r'"[^"\\]*\\(?:[^"\\]|\\.)*"', re.DOTALL)  # contains an escape
_SPACED: Final = re.compile(r'\{"[^"]*": ')  # the beginning of JSON with spaces

log = logging.getLogger(__name__)


# By tag, the function that restores a value from its JSON; a dict is stored as a list of pairs.
_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "dict": dict,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "bytes": base64.b64decode,
    "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "file": FromFile,
    "int": lambda digits: int(digits, 16),
    "float": float,
}


class ValueEncoder:
    """Converts the values of one conversation to JSON data.

    It remembers recent long texts, to search for them in later ones.

    Args:
        redact: is applied to each text before anything else.

    Attributes:
        texts: the long texts so far, by hash; replaced by ``entry_of`` for each entry.
        unchanged_below: strings with fewer characters are converted to themselves.
    """

    __slots__ = ("_known", "_redact", "texts", "unchanged_below")

    def __init__(self, redact: Callable[[str], str] | None = None) -> None:
        self._redact = redact
        self._known = LongTexts()
        self.texts: dict[str, str] = {}
        self.unchanged_below = LONG if redact is None else 0

    def pack_any(self, value: Any) -> Any:
        """Return *value* as JSON data; an Unserializable if it contains itself or is too deep."""
        try:
            return self.pack(value)
        except RuntimeError:
            # The recursion limit, or another thread changed the value during the iteration.
            return self._other(unserializable(value))

    def pack_arguments(self, args: Mapping[str, Any]) -> Any:
        """Return arguments as JSON data; an argument that is too deep as an Unserializable."""
        given = dict(args)
        try:
            return self._dict(given)
        except RuntimeError:
            return {self.redacted(name): self.pack_any(value) for name, value in given.items()}

    def pack(self, value: Any) -> Any:
        """Return *value* as JSON data."""
        kind = cast("type[Any]", type(value))
        if kind is str:
            return value if len(value) < self.unchanged_below else self._text(value)
        if kind is int and not -_LARGE < value < _LARGE:
            return {_TAG: "int", "v": hex(value)}
        if kind is float and not isfinite(value):
            return {_TAG: "float", "v": repr(value)}
        if kind is int or kind is float:
            return value if self._redact is None else self._redacted_value(value)
        if value is None or kind is bool:
            return value
        if kind is dict:
            return self._dict(value)
        if kind is list:
            return [self.pack(item) for item in value]
        return self._other(value)

    def _dict(self, value: dict[Any, Any]) -> Any:
        if _TAG in value or not _STRINGS.issuperset(map(type, value)):
            return {_TAG: "dict", "v": [[self.pack(k), self.pack(v)] for k, v in value.items()]}
        if self._redact is not None:
            return {self.redacted(key): self.pack(item) for key, item in value.items()}
        return {key: self.pack(item) for key, item in value.items()}

    def _other(self, value: Any) -> Any:
        kind = cast("type[Any]", type(value))
        if kind is tuple:
            return {_TAG: "tuple", "v": [self.pack(item) for item in value]}
        if kind is set or kind is frozenset:
            items = [self.pack(item) for item in value]
            return {_TAG: kind.__name__, "v": sorted(items, key=json.dumps)}
        match value:
            case bytes() | bytearray():
                name = "bytearray" if isinstance(value, bytearray) else "bytes"
                text = base64.b64encode(self._bytes(value)).decode()
                return {_TAG: name, "v": self._apart(text)}
            case FromFile():
                return {_TAG: "file", "v": self.redacted(str(value.path))}
            case Unserializable():
                return {_TAG: "opaque", "type": value.type, "v": self.redacted(value.text)}
            case _:
                plain = self._plain(value)
                return self._other(plain) if isinstance(plain, Unserializable) else self.pack(plain)

    def _plain(self, value: Any) -> Any:
        """Return an object as plain data, or as an Unserializable."""
        return as_json(value)

    def _text(self, text: str) -> Any:
        if self._redact is not None:
            text = self._redacted_text(text)
        if len(text) < LONG:
            return text
        if (pieces := self._known.pieces(text)) is None:
            return self._reference(text)
        return {_TAG: "pieces", "v": [self._piece(piece) for piece in pieces]}

    def _apart(self, text: str) -> Any:
        """Return *text*, or a reference to it if it is long; known texts are not searched in it."""
        return text if len(text) < LONG else self._reference(text)

    def _piece(self, piece: Piece) -> Any:
        if isinstance(piece, tuple):
            hash, text, form_number = piece
            self.texts[hash] = text
            return [hash, form_number]
        return self._apart(piece)

    def _reference(self, text: str) -> Any:
        hash = self._known.hash_of(text)
        if hash is None:
            try:
                hash = blake2b(text.encode(), digest_size=20).hexdigest()
            except UnicodeEncodeError:
                # JSON can escape a lone surrogate, but the table of texts cannot hold it.
                return text
            self._known.add(hash, text)
        self.texts[hash] = text
        return {_TAG: "text", "v": hash}

    def _bytes(self, value: bytes | bytearray) -> bytes | bytearray:
        """Return *value* with the text in it redacted."""
        if self._redact is None:
            return value
        text = self._redacted_text(value.decode(errors="surrogateescape"))
        try:
            return text.encode(errors="surrogateescape")
        except UnicodeEncodeError:
            # Redaction has added a lone surrogate.
            return text.encode(errors="replace")

    def _redacted_text(self, text: str) -> str:
        inside = self._redacted_json(text) or _QUOTED.sub(self._redacted_quote, text)
        # The whole text is redacted, too: a pattern may match only together with its surroundings.
        return self.redacted(inside)

    def _redacted_json(self, text: str) -> str | None:
        """Return JSON with its strings redacted, or None if *text* is not JSON.

        The strings are decoded first, because escapes could hide a secret.
        """
        if text[:1] not in {"{", "["} or (parsed := _parsed_json(text)) is None:
            return None
        style, value = parsed
        return _written(self._redacted_value(value), style)

    def _redacted_quote(self, found: re.Match[str]) -> str:
        """Return a JSON string literal with its content redacted; other quotes unchanged."""
        with suppress(ValueError):
            text = json.loads(found[0])
            redacted = self._redacted_value(text)
            return found[0] if redacted == text else json.dumps(redacted)
        return found[0]

    def _redacted_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redacted_json(value) or self.redacted(value)
        if type(value) in {int, float}:
            text = json.dumps(value)
            redacted = self.redacted(text)
            return value if redacted == text else redacted
        if isinstance(value, list):
            return [self._redacted_value(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {self.redacted(key): self._redacted_value(item) for key, item in items}
        return value

    def redacted(self, text: str) -> str:
        """Return *text* after redaction."""
        if self._redact is None:
            return text
        try:
            return str(self._redact(text))
        except Exception:
            # Foreign code failed; a text that may contain a secret must not be written.
            log.exception("the function for redaction failed; the text is left out")
            return "[redaction failed]"


def has_unserializable(value: Any) -> bool:
    """Whether *value* contains an Unserializable."""
    pending: list[Any] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, Unserializable):
            return True
        if type(one) is dict:
            for pair in cast("dict[Any, Any]", one).items():
                pending.extend(pair)
        elif type(one) in _CONTAINERS:
            pending.extend(one)
    return False


def unpack(value: Any, text_of: Callable[[str], str]) -> Any:
    """Return the value that was packed as *value*; *text_of* returns a long text by its hash."""
    if type(value) is dict:
        items = cast("dict[str, Any]", value).items()
        return _decoded({key: unpack(item, text_of) for key, item in items}, text_of)
    if type(value) is list:
        return [unpack(item, text_of) for item in cast("list[Any]", value)]
    return value


def texts_in(packed: Any) -> Iterator[str]:
    """Yield the hash of every long text that *packed* refers to."""
    if type(packed) is dict:
        data = cast("dict[str, Any]", packed)
        if data.get(_TAG) == "text":
            yield data["v"]
        elif data.get(_TAG) == "pieces":
            for piece in data["v"]:
                yield from [piece[0]] if type(piece) is list else texts_in(piece)
        else:
            for item in data.values():
                yield from texts_in(item)
    elif type(packed) is list:
        for item in cast("list[Any]", packed):
            yield from texts_in(item)


class ValueDecoder:
    """Reads JSON with packed values; *text_of* returns a long text by its hash."""

    def __init__(self, text_of: Callable[[str], str]) -> None:
        self._decoder = json.JSONDecoder(object_hook=lambda data: _decoded(data, text_of))
        # The parser of pydantic takes half the time, but importing it would take longer than that.
        pydantic_core = loaded_module("pydantic_core")
        self._from_json = None if pydantic_core is None else pydantic_core.from_json

    def read(self, text: str) -> Any:
        """Return the value of *text*.

        Raises:
            ValueError: it is not JSON, or contains a value of an unknown kind.
        """
        plain = QUOTED_TAG not in text
        if plain and self._from_json is not None:
            try:
                return self._from_json(text)
            except ValueError:
                # It does not accept lone surrogates; the json module does.
                pass
        value, end = (_DECODER if plain else self._decoder).raw_decode(text)
        if end != len(text):
            raise ValueError("there is more than one value")
        return value


def _decoded(data: dict[str, Any], text_of: Callable[[str], str]) -> Any:
    """Return the value that a JSON object encodes; the values inside it are decoded already."""
    if _TAG not in data:
        return data
    kind, inner = data[_TAG], data["v"]
    if kind == "text":
        return text_of(inner)
    if kind == "pieces":
        return "".join([_piece_text(piece, text_of) for piece in inner])
    if kind == "opaque":
        return Unserializable(data["type"], inner)
    if kind in _CONVERTERS:
        return _built(kind, inner)
    raise ValueError(f"unknown kind of value {kind!r}")


def _built(kind: str, inner: Any) -> Any:
    """Return a value of this *kind*, or something similar if its items are not hashable.

    Objects are plain data here, and dicts and lists cannot be keys or items of sets.
    """
    try:
        return _CONVERTERS[kind](inner)
    except TypeError:
        if type(inner) is not list:
            raise
        items = cast("list[Any]", inner)
        return Unserializable(kind, truncated_repr(items, _REPR)) if kind == "dict" else items


def _piece_text(piece: Any, text_of: Callable[[str], str]) -> str:
    # A reference to a whole text has been replaced by the text already.
    if isinstance(piece, str):
        return piece
    hash, form_number = piece
    return in_form(text_of(hash), form_number)


def digest(value: Any) -> str:
    """Return a digest that identifies *value*, the same in every process."""
    packed = _KeyEncoder().pack_any(value)
    text = json.dumps(packed, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()


class _KeyEncoder(ValueEncoder):
    """Encodes values for a digest.

    It stores no text separately. An Unserializable counts by its type only, because its repr may
    contain an address in memory.
    """

    def _text(self, text: str) -> Any:
        return text

    def _apart(self, text: str) -> Any:
        return text

    def _plain(self, value: Any) -> Any:
        # Unlike text, base64 has a distinct form for all bytes.
        return as_json(value, "base64")

    def _other(self, value: Any) -> Any:
        packed: Any = super()._other(value)
        opaque = isinstance(value, Unserializable)
        return {_TAG: "opaque", "type": value.type, "v": ""} if opaque else packed


def _parsed_json(text: str) -> tuple[int, Any] | None:
    """Return style and value of *text* if it is JSON that can be reproduced exactly."""
    try:
        value = json.loads(text)
        for style in _styles(text):
            if _written(value, style) == text:
                return style, value
    except (ValueError, RecursionError):
        pass
    return None


def _styles(text: str) -> Iterator[int]:
    """Yield the styles that *text* may have, the likeliest first.

    The guess may be wrong, because a string inside may look like another style.
    """
    spaced = 2 if _SPACED.match(text) else 0
    escaped = (1, 0) if "\\u" in text and text.isascii() else (0,)
    for separators in (spaced, 2 - spaced):
        for escapes in escaped:
            yield separators + escapes


def _written(value: Any, style: int) -> str:
    return _ENCODERS[style].encode(value)
