"""Long texts that were met of late, found again inside others.

What a tool returned comes again in a prompt, in a message on the wire, in an answer: plainly, or as
JSON writes it inside a text, or inside a text inside a text. The other text is then kept as pieces.
"""

from collections.abc import Callable, Iterator
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final

LONG: Final = 256  # characters; below that a reference saves nothing
_REMEMBERED: Final = 4
_KEPT: Final = 100_000  # characters; of longer texts the forms are made each time

_WRITERS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: text,
    lambda text: encode_basestring(text)[1:-1],
    lambda text: encode_basestring_ascii(text)[1:-1],
    lambda text: encode_basestring(encode_basestring(text)[1:-1])[1:-1],
    lambda text: encode_basestring_ascii(encode_basestring_ascii(text)[1:-1])[1:-1],
)

Piece = str | tuple[str, str, int]  # itself, or a long text: its hash, it, and how it is written


class LongTexts:
    """Those of one conversation, the latest first."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: list[_LongText] = []

    def add(self, hash: str, text: str) -> None:
        """Remember a text, and forget the oldest."""
        others = (one for one in self._latest if one.hash != hash)
        self._latest = [_LongText(hash, text), *others]
        del self._latest[_REMEMBERED:]

    def hash_of(self, text: str) -> str | None:
        """Return the hash of a text that is remembered."""
        return next((known.hash for known in self._latest if known.text == text), None)

    def pieces(self, text: str) -> list[Piece] | None:
        """Return *text* as pieces if some text is in it that is remembered."""
        for known in self._latest:
            if len(known.text) >= len(text):  # it is not inside this one
                continue
            for how, needle in known.forms():
                if len(parts := text.split(needle)) > 1:
                    return list(self._joined(parts, (known.hash, known.text, how)))
        return None

    def _joined(self, parts: list[str], link: Piece) -> Iterator[Piece]:
        for number, part in enumerate(parts):
            if number:
                yield link
            more = self.pieces(part) if len(part) >= LONG else None
            yield from more or ([part] if part else [])


class _LongText:
    """One that is remembered, and how it may be written."""

    __slots__ = ("_as_json", "hash", "text")

    def __init__(self, hash: str, text: str) -> None:
        self.hash = hash
        self.text = text
        self._as_json: list[tuple[int, str]] | None = None

    def forms(self) -> Iterator[tuple[int, str]]:
        """Yield the ways in which it may be written inside another text, each once."""
        yield 0, self.text
        if (forms := self._as_json) is None:  # most are found as they are
            forms = list(_json_forms(self.text))
            if len(self.text) <= _KEPT:
                self._as_json = forms
        yield from forms


def _json_forms(text: str) -> Iterator[tuple[int, str]]:
    seen = {text}
    for how, write in enumerate(_WRITERS[1:], 1):
        form = write(text)
        if form not in seen:
            seen.add(form)
            yield how, form
        elif how == 1 and text.isascii():
            return  # it has nothing that JSON would write otherwise


def written_in(text: str, how: int) -> str:
    """Return *text* as it is written inside another."""
    return _WRITERS[how](text)
