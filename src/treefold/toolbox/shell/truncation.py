"""Text of any length, kept within bounds by leaving out its middle."""

from collections.abc import Callable
from typing import Final

_BYTES_PER_CHARACTER: Final = 4  # the most that UTF-8 takes


def cut_middle(text: str, limit: int) -> str:
    """Return *text*, or its beginning and end with a notice of how much was left out between.

    Example:
        >>> print(cut_middle("beginning, middle and end", 12))
        beginn
        [... 13 characters left out ...]
        nd end
    """
    if len(text) <= limit:
        return text
    middle = (limit + 1) // 2
    return _joined(text[:middle], text[middle:], 0, limit)


def _joined(head: str, tail: str, lost: int, limit: int) -> str:
    """Return the beginning of *head* and the end of *tail*, between which *lost* are missing."""
    first, last = head[: (limit + 1) // 2], tail[max(0, len(tail) - limit // 2) :]
    left_out = lost + len(head) + len(tail) - len(first) - len(last)
    return f"{first}\n[... {left_out:,} characters left out ...]\n{last}"


class BoundedBytes:
    """The first and the last bytes of a stream of any length, enough for *limit* characters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._room = max(limit, 1) * _BYTES_PER_CHARACTER  # for each end
        self._head = bytearray()
        self._tail = bytearray()
        self._lost = 0

    def feed(self, chunk: bytes) -> None:
        """Take in what came next."""
        room = self._room - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room else chunk
        if len(self._tail) > 2 * self._room:  # seldom, so that a byte is moved about once
            excess = len(self._tail) - self._room
            del self._tail[:excess]
            self._lost += excess

    def text(self, clean: Callable[[str], str]) -> str:
        """Return it as text, each end cleaned by *clean*, cut to the limit in the middle."""
        if not self._lost:
            whole = bytes(self._head + self._tail).decode(errors="replace")
            return cut_middle(clean(whole), self._limit)
        head = clean(self._head.decode(errors="replace"))
        tail = clean(self._tail.decode(errors="replace"))
        return _joined(head, tail, self._lost, self._limit)
