r"""Lines of text held as bytes, in which ``\n``, ``\r\n`` and ``\r`` may be mixed."""

import re
from itertools import islice
from typing import Final

LINE_END: Final = re.compile(rb"\r\n|\r|\n")


def flattened(body: bytes) -> bytes:
    r"""Return *body* with ``\n`` for every line end."""
    return body.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in body else body


def count_lines(body: bytes) -> int:
    r"""Return how many lines *body* has; a last one need not be ended.

    Example:
        >>> count_lines(b""), count_lines(b"a\r\n"), count_lines(b"a\rb")
        (0, 1, 2)
    """
    ends = body.count(b"\n") + body.count(b"\r") - body.count(b"\r\n")
    return ends + (not is_ended(body))


def is_ended(body: bytes) -> bool:
    """Whether nothing follows the last line end."""
    return not body or body.endswith((b"\n", b"\r"))


def start_of(body: bytes, line: int) -> int:
    """Return where a line begins, counted from 1; the end of *body* if it has no such line."""
    if line <= 1:
        return 0
    end = next(islice(LINE_END.finditer(body), line - 2, None), None)
    return end.end() if end else len(body)


def place_in(body: bytes, flat: bytes, offset: int) -> int:
    """Return where in *body* that is which is at *offset* in *flat*, its flattened form."""
    if len(flat) == len(body):
        return offset
    line_start = flat.rfind(b"\n", 0, offset) + 1
    line = flat.count(b"\n", 0, offset) + 1
    return start_of(body, line) + offset - line_start


def end_near(body: bytes, offset: int) -> bytes:
    r"""Return the line end that is used at *offset*: the next one, or the last; else ``\n``."""
    if following := LINE_END.search(body, offset):
        return following.group()
    last = max(body.rfind(b"\n", 0, offset), body.rfind(b"\r", 0, offset))
    if last < 0:
        return b"\n"
    return b"\r\n" if body[last - 1 : last + 1] == b"\r\n" else body[last : last + 1]
