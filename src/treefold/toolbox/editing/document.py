"""Text as bytes, in the encoding that its file has.

The text is kept as bytes and only what is shown is decoded: what an edit does not touch stays as it
was, whatever it is, and a large file costs its size and not four times that.
"""

import codecs
import re
from dataclasses import dataclass, replace
from typing import Final

from treefold.core.errors import InvalidArgumentsError
from treefold.toolbox.editing.file_error import FileError, shortened


@dataclass(frozen=True, slots=True)
class Encoding:
    """How text is stored: a mark at the beginning, if any, and what follows."""

    name: str
    mark: bytes
    held: str  # the codec of a document's body, in which line ends are single bytes
    stored: str | None = None  # the codec of the file, if it is another


UTF_8: Final = Encoding("UTF-8", b"", "utf-8")
LATIN_1: Final = Encoding("Latin-1", b"", "latin-1")
_MARKED: Final = (
    Encoding("UTF-8 with a byte order mark", codecs.BOM_UTF8, "utf-8"),
    Encoding("UTF-16", codecs.BOM_UTF16_LE, "utf-8", "utf-16-le"),
    Encoding("UTF-16", codecs.BOM_UTF16_BE, "utf-8", "utf-16-be"),
)
_UNPRINTABLE: Final = re.compile(rb"[\x00-\x06\x0e-\x19\x1c-\x1f\x7f]")
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a file, without the mark that says how it is encoded."""

    body: bytes
    encoding: Encoding = UTF_8

    @property
    def raw(self) -> bytes:
        """The bytes of the file."""
        encoding = self.encoding
        if encoding.stored:
            text = self.body.decode(encoding.held, "surrogatepass")
            return encoding.mark + text.encode(encoding.stored, "surrogatepass")
        return encoding.mark + self.body if encoding.mark else self.body

    def with_body(self, body: bytes) -> "Document":
        """Return another text in the same encoding."""
        return replace(self, body=body)

    def decode(self, part: bytes) -> str:
        """Return a part of the body as text to show."""
        return part.decode(self.encoding.held, "replace")

    def encode(self, text: str, argument: str) -> bytes:
        """Return *text* as a part of the body.

        Raises:
            InvalidArgumentsError: the encoding has no bytes for it.
        """
        if "\0" in text:
            raise InvalidArgumentsError(f"{argument} holds a NUL character, which no text file has")
        try:
            return text.encode(self.encoding.held)
        except UnicodeEncodeError as error:
            which = text[error.start]
            if "\ud800" <= which <= "\udfff":
                remedy = "it is half a character: write it anew"
            else:
                remedy = "leave it out, or write the whole file with 'create', which makes it UTF-8"
            raise InvalidArgumentsError(
                f"{argument} holds {which!a}, which a file in {self.encoding.name} cannot: {remedy}"
            ) from None


def read_document(raw: bytes, shown: str) -> Document:
    """Return the text that is in *raw*, the contents of the file *shown*.

    Raises:
        FileError: it is no text.
    """
    for encoding in _MARKED:
        if raw.startswith(encoding.mark):
            body = _held(raw[len(encoding.mark) :], encoding)
            break
    else:
        encoding, body = UTF_8, raw
    if body is None or not _is_utf_8(body):
        encoding, body = LATIN_1, raw
    unprintable = _UNPRINTABLE.search(body) if encoding is LATIN_1 else b"\0" in body
    if unprintable:
        raise FileError(
            f"{shortened(shown)} is a binary file of {len(raw):,} bytes, which cannot be shown or"
            " edited as text"
        )
    return Document(body, encoding)


def _held(rest: bytes, encoding: Encoding) -> bytes | None:
    if encoding.stored is None:
        return rest
    try:
        text = rest.decode(encoding.stored, "surrogatepass")
    except UnicodeDecodeError:
        return None  # half a character at the end
    return text.encode(encoding.held, "surrogatepass")


def _is_utf_8(body: bytes) -> bool:
    """Whether *body* can be decoded, found out without a copy of all of it.

    Halves of UTF-16 characters are let pass, so that a file that has them can be edited elsewhere.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    view = memoryview(body)
    try:
        for start in range(0, len(body), _CHUNK):
            decoder.decode(view[start : start + _CHUNK])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
