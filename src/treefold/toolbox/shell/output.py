"""The output of programs as text for a model: without control characters, and of bounded length."""

import re
from collections.abc import Callable
from typing import Final

from treefold.core.truncation import join_ends, truncate_middle

_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\x1b[]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|\x1b[ -/]*[0-~]"
)
_LINE_ENDS: Final = re.compile(r"\r+\n?")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAX_UTF_8_BYTES: Final = 4  # of one character


def plain_text(text: str) -> str:
    r"""Return *text* without terminal escape sequences and control characters.

    A carriage return ends a line, so that no text is overwritten.

    Example:
        >>> plain_text("\x1b[31mred\x1b[0m\r\n10%\r20%\n")
        'red\n10%\n20%\n'
    """
    return _CONTROLS.sub("", _LINE_ENDS.sub("\n", _ESCAPES.sub("", text)))


class BoundedBytes:
    """The first and last bytes of a stream of any length, enough for *limit* characters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._capacity = max(limit, 1) * _MAX_UTF_8_BYTES  # of each end
        self._head = bytearray()
        self._tail = bytearray()
        self._lost = 0

    def feed(self, chunk: bytes) -> None:
        """Append *chunk*."""
        room = self._capacity - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room else chunk
        # Trimmed only at twice the capacity, so that each byte is moved about once.
        if len(self._tail) > 2 * self._capacity:
            excess = len(self._tail) - self._capacity
            del self._tail[:excess]
            self._lost += excess

    def text(self, clean: Callable[[str], str]) -> str:
        """Return it as text, cleaned by *clean* and truncated to the limit in the middle."""
        if not self._lost:
            whole = bytes(self._head + self._tail).decode(errors="replace")
            return truncate_middle(clean(whole), self._limit)
        head = clean(self._head.decode(errors="replace"))
        tail = clean(self._tail.decode(errors="replace"))
        return join_ends(head, tail, self._lost, self._limit)
