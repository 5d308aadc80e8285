r"""Text held as bytes: its lines, whose ends ``\n``, ``\r\n`` and ``\r`` may be mixed."""

import re
from collections.abc import Callable
from itertools import islice
from typing import Final

LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_CHUNK: Final = 1 << 16


def normalize_line_ends(body: bytes) -> bytes:
    r"""Return *body* with every line end replaced by ``\n``."""
    return body.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in body else body


def count_lines(body: bytes) -> int:
    r"""Return how many lines *body* has; the last one need not have a line end.

    Example:
        >>> count_lines(b""), count_lines(b"a\r\n"), count_lines(b"a\rb")
        (0, 1, 2)
    """
    ends = body.count(b"\n") + body.count(b"\r") - body.count(b"\r\n")
    return ends + (not ends_with_line_end(body))


def ends_with_line_end(body: bytes) -> bool:
    """Whether *body* is empty or ends with a line end."""
    return not body or body.endswith((b"\n", b"\r"))


def line_start(body: bytes, line: int) -> int:
    """Return the offset of a line, counted from 1; the end of *body* if it has no such line."""
    if line <= 1:
        return 0
    end = next(islice(LINE_END.finditer(body), line - 2, None), None)
    return end.end() if end else len(body)


def original_offset(body: bytes, normalized: bytes, offset: int) -> int:
    """Return the offset in *body* of *offset* in *normalized*, the same text normalized."""
    if len(normalized) == len(body):
        return offset
    column = offset - (normalized.rfind(b"\n", 0, offset) + 1)
    line = normalized.count(b"\n", 0, offset) + 1
    return line_start(body, line) + column


def line_end_near(body: bytes, offset: int) -> bytes:
    r"""Return the line end in use at *offset*: the next one, else the last, else ``\n``."""
    if following := LINE_END.search(body, offset):
        return following.group()
    last = max(body.rfind(b"\n", 0, offset), body.rfind(b"\r", 0, offset))
    if last < 0:
        return b"\n"
    return b"\r\n" if body[last - 1 : last + 1] == b"\r\n" else body[last : last + 1]


def common_ends(old: bytes, new: bytes) -> tuple[int, int]:
    """Return the length of the common prefix, and of the common suffix of the rest.

    Example:
        >>> common_ends(b"a red cat", b"a blue cat")
        (2, 4)
    """
    shorter = min(len(old), len(new))
    head = _common_length(shorter, lambda a, b: old[a:b] == new[a:b])
    n, m = len(old), len(new)
    tail = _common_length(shorter - head, lambda a, b: old[n - b : n - a] == new[m - b : m - a])
    return head, tail


def _common_length(length: int, same: Callable[[int, int], bool]) -> int:
    """Return the length of the common part: by large steps, then by bisection."""
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
