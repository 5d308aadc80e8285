"""Where two texts differ."""

from collections.abc import Callable
from typing import Final

_CHUNK: Final = 1 << 16


def common_ends(old: bytes, new: bytes) -> tuple[int, int]:
    """Return how many bytes the two have in common at the beginning, and of the rest at the end.

    Example:
        >>> common_ends(b"a red cat", b"a blue cat")
        (2, 4)
    """
    shorter = min(len(old), len(new))
    head = _common(shorter, lambda a, b: old[a:b] == new[a:b])
    n, m = len(old), len(new)
    tail = _common(shorter - head, lambda a, b: old[n - b : n - a] == new[m - b : m - a])
    return head, tail


def _common(length: int, same: Callable[[int, int], bool]) -> int:
    """Return up to where all is the same: by large steps, and by halves in the one that is not."""
    start = 0
    while start < length and same(start, min(start + _CHUNK, length)):
        start = min(start + _CHUNK, length)
    step = min(_CHUNK, length - start)
    while step:
        if start + step <= length and same(start, start + step):
            start += step
        else:
            step //= 2
    return start
