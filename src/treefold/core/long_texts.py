"""Recent long texts, so that they can be found inside other texts.

The result of a tool occurs again in a prompt, in a message of the provider's protocol and in an
answer: as it is, escaped as in a JSON string, or escaped twice. The text that contains it is then
stored as pieces, some of which refer to the long text.
"""

from collections.abc import Callable, Iterator
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final, NamedTuple

LONG: Final = 256  # characters; a reference to a shorter text saves nothing
_REMEMBERED: Final = 4
_BEGINNING: Final = 200  # characters

# The forms, by their numbers: as it is, escaped once and twice, each with and without non-ASCII.
_FORMS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: text,
    lambda text: encode_basestring(text)[1:-1],
    lambda text: encode_basestring_ascii(text)[1:-1],
    lambda text: encode_basestring(encode_basestring(text)[1:-1])[1:-1],
    lambda text: encode_basestring_ascii(encode_basestring_ascii(text)[1:-1])[1:-1],
)

Piece = str | tuple[str, str, int]  # a text, or hash, text and form number of a long text


class LongTexts:
    """The recent long texts of one conversation, the latest first."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: list[_LongText] = []

    def add(self, hash: str, text: str) -> None:
        """Remember *text*, and forget the oldest."""
        others = (one for one in self._latest if one.hash != hash)
        self._latest = [_LongText(hash, text), *others]
        del self._latest[_REMEMBERED:]

    def hash_of(self, text: str) -> str | None:
        """Return the hash of *text* if it is remembered."""
        return next((known.hash for known in self._latest if known.text == text), None)

    def pieces(self, text: str) -> list[Piece] | None:
        """Return *text* as pieces if it contains a remembered text, otherwise None."""
        for known in self._latest:
            if len(known.text) >= len(text):
                continue
            for form_number, needle in known.forms_in(text):
                if len(parts := text.split(needle)) > 1:
                    return list(self._joined(parts, (known.hash, known.text, form_number)))
        return None

    def _joined(self, parts: list[str], link: Piece) -> Iterator[Piece]:
        for number, part in enumerate(parts):
            if number:
                yield link
            more = self.pieces(part) if len(part) >= LONG else None
            yield from more or ([part] if part else [])


class _LongText(NamedTuple):
    """A remembered text."""

    hash: str
    text: str

    def forms_in(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield number and text of each distinct form that *text* may contain."""
        yield 0, self.text
        seen, beginning = {self.text}, self.text[:_BEGINNING]
        for form_number, write in enumerate(_FORMS[1:], 1):
            # Writing a form takes much longer than looking for its beginning.
            if write(beginning) in text and (form := write(self.text)) not in seen:
                seen.add(form)
                yield form_number, form


def in_form(text: str, form_number: int) -> str:
    """Return *text* in the form with this number."""
    return _FORMS[form_number](text)
