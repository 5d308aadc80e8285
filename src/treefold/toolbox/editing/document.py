"""The text of a file as bytes, in the encoding of the file.

The text stays encoded, and only the part that is shown is decoded: bytes that an edit does not
touch never change, even invalid ones, and a large file takes its own size in memory and not four
times that.
"""

import codecs
import re
from dataclasses import dataclass, replace
from typing import Final

from treefold.core.errors import InvalidArgumentsError
from treefold.toolbox.editing.file_error import FileError, short_repr


@dataclass(frozen=True, slots=True)
class FileEncoding:
    """How the text of a file is encoded: a byte order mark, if any, and a codec."""

    name: str
    bom: bytes
    body_codec: str  # of a document's body, in which line ends are single bytes
    file_codec: str | None = None  # of the file, if it is another


UTF_8: Final = FileEncoding("UTF-8", b"", "utf-8")
LATIN_1: Final = FileEncoding("Latin-1", b"", "latin-1")
_WITH_BOM: Final = (
    FileEncoding("UTF-8 with a byte order mark", codecs.BOM_UTF8, "utf-8"),
    FileEncoding("UTF-16", codecs.BOM_UTF16_LE, "utf-8", "utf-16-le"),
    FileEncoding("UTF-16", codecs.BOM_UTF16_BE, "utf-8", "utf-16-be"),
)
_UNPRINTABLE: Final = re.compile(rb"[\x00-\x06\x0e-\x19\x1c-\x1f\x7f]")
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a file, without its byte order mark."""

    body: bytes
    encoding: FileEncoding = UTF_8

    @property
    def raw(self) -> bytes:
        """The bytes of the file."""
        encoding = self.encoding
        if encoding.file_codec:
            text = self.body.decode(encoding.body_codec, "surrogatepass")
            return encoding.bom + text.encode(encoding.file_codec, "surrogatepass")
        return encoding.bom + self.body if encoding.bom else self.body

    def with_body(self, body: bytes) -> "Document":
        """Return a document with another text in the same encoding."""
        return replace(self, body=body)

    def decode(self, part: bytes) -> str:
        """Return a part of the body as text."""
        return part.decode(self.encoding.body_codec, "replace")

    def encode(self, text: str, argument: str) -> bytes:
        """Return *text* encoded as the body is; *argument* names it in errors.

        Raises:
            InvalidArgumentsError: the encoding cannot represent it.
        """
        if "\0" in text:
            raise InvalidArgumentsError(f"{argument} contains a NUL character; remove it")
        try:
            return text.encode(self.encoding.body_codec)
        except UnicodeEncodeError as error:
            character = text[error.start]
            if "\ud800" <= character <= "\udfff":
                remedy = "it is half of a surrogate pair; write the whole character"
            else:
                remedy = "remove it, or write the whole file with 'create', which makes it UTF-8"
            raise InvalidArgumentsError(
                f"{argument} contains {character!a}, which a file in {self.encoding.name} cannot"
                f" contain: {remedy}"
            ) from None


def read_document(raw: bytes, path: str) -> Document:
    """Return the text in *raw*, the contents of the file *path*.

    Raises:
        FileError: it is binary.
    """
    for encoding in _WITH_BOM:
        if raw.startswith(encoding.bom):
            body = _read_body(raw[len(encoding.bom) :], encoding)
            break
    else:
        encoding, body = UTF_8, raw
    if body is None or not _is_utf_8(body):
        encoding, body = LATIN_1, raw
    unprintable = _UNPRINTABLE.search(body) if encoding is LATIN_1 else b"\0" in body
    if unprintable:
        raise FileError(
            f"{short_repr(path)} is a binary file of {len(raw):,} bytes, which cannot be shown or"
            " edited as text"
        )
    return Document(body, encoding)


def _read_body(rest: bytes, encoding: FileEncoding) -> bytes | None:
    if encoding.file_codec is None:
        return rest
    try:
        text = rest.decode(encoding.file_codec, "surrogatepass")
    except UnicodeDecodeError:
        return None  # truncated in the middle of a character
    return text.encode(encoding.body_codec, "surrogatepass")


def _is_utf_8(body: bytes) -> bool:
    """Whether *body* is UTF-8; it is decoded in chunks, without a copy of all of it.

    Surrogates are accepted, so that the rest of a file that contains some can be edited.
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
