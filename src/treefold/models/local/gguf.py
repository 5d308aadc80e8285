"""Reads the metadata of a GGUF file that is needed before the model is loaded."""

import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from treefold.core.errors import InvalidValueError

MAGIC = b"GGUF"
_NUMBERS: dict[int, str] = dict(
    zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True)
)
_TEXT, _LIST = 8, 9
_MAX_TEXT = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class GgufMetadata:
    """Metadata of a model; a field is None if the file does not have it."""

    trained_context: int | None = None  # tokens
    chat_template: str | None = None


def read_metadata(path: Path) -> GgufMetadata:
    """Return the metadata of the file at *path*.

    Raises:
        InvalidValueError: the file cannot be read, or is not a GGUF file.
    """
    try:
        found = path.stat()
        return _read(path, found.st_size, found.st_mtime_ns)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidValueError(f"{path} cannot be read: {reason}; give a GGUF file") from error


# The vocabulary of a model is a list of 150,000 texts, which takes a third of a second to skip.
@lru_cache(maxsize=16)
def _read(path: Path, _size: int, _modified: int) -> GgufMetadata:
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise InvalidValueError(f"{path} is not a GGUF file; llama.cpp runs only those")
        return _metadata(file)


def _metadata(file: BinaryIO) -> GgufMetadata:
    context: int | None = None
    template: str | None = None
    try:
        _version, _tensors, pairs = struct.unpack("<IQQ", file.read(20))
        for _ in range(pairs):
            key = _text(file)
            value = _value(file, _number(file, "I"))
            if isinstance(value, int) and key.endswith(".context_length"):
                context = value
            elif isinstance(value, str) and key == "tokenizer.chat_template":
                template = value
    except (struct.error, KeyError):  # truncated or damaged: llama.cpp reports it better
        pass
    return GgufMetadata(context, template)


def _value(file: BinaryIO, kind: int) -> int | float | str | None:
    """Return the next number or text, or skip a list."""
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        inner = _number(file, "I")
        if inner == _LIST:
            raise struct.error("a list of lists")
        for _ in range(_number(file, "Q")):
            _value(file, inner)
    else:
        return _number(file, _NUMBERS[kind])
    return None


def _text(file: BinaryIO) -> str:
    length = _number(file, "Q")
    if length > _MAX_TEXT:
        raise struct.error(f"a text of {length} bytes")
    return file.read(length).decode(errors="replace")


def _number(file: BinaryIO, form: str) -> int:
    return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]
