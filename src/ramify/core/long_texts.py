"""Long texts that were met of late, found again inside others.

What a tool returned comes again in a prompt, in a message on the wire, in an answer: plainly, or as
JSON writes it inside a text, or inside a text inside a text. The other text is then kept as pieces.
"""

from collections.abc import Callable, Iterator
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final

LONG: Final = 256  # characters; below that a reference saves nothing
_REMEMBERED: Final = 4

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
        self._latest: list[tuple[str, str]] = []  # hash and text

    def add(self, hash: str, text: str) -> None:
        """Remember a text, and forget the oldest."""
        self._latest = [(hash, text), *(one for one in self._latest if one[0] != hash)]
        del self._latest[_REMEMBERED:]

    def hash_of(self, text: str) -> str | None:
        """Return the hash of a text that is remembered."""
        return next((hash for hash, known in self._latest if known == text), None)

    def pieces(self, text: str) -> list[Piece] | None:
        """Return *text* as pieces if some text is in it that is remembered."""
        for hash, known in self._latest:
            if len(known) > len(text):
                continue
            for how, needle in _forms(known):
                if needle in text:
                    return list(self._joined(text.split(needle), (hash, known, how)))
        return None

    def _joined(self, parts: list[str], link: Piece) -> Iterator[Piece]:
        for number, part in enumerate(parts):
            if number:
                yield link
            more = self.pieces(part) if len(part) >= LONG else None
            yield from more or ([part] if part else [])


def _forms(text: str) -> Iterator[tuple[int, str]]:
    """Yield the ways in which *text* may be written inside another, each once."""
    seen: set[str] = set()
    for how, write in enumerate(_WRITERS):
        form = write(text)
        if form not in seen:
            seen.add(form)
            yield how, form
        if how == 1 and form == text and text.isascii():
            return  # it has nothing that JSON would write otherwise


def written_in(text: str, how: int) -> str:
    """Return *text* as it is written inside another."""
    return _WRITERS[how](text)
