"""Edits of text: from old bytes to new ones, and which lines are new.

What is looked for and what is put in may have any line ends: a match is one whatever the line ends
of the file are, and what is new gets those of the lines around it.
"""

import re
from dataclasses import dataclass
from typing import Final

from treefold.core.errors import InvalidArgumentsError
from treefold.toolbox.editing.difference import common_ends
from treefold.toolbox.editing.lines import (
    count_lines,
    end_near,
    flattened,
    is_ended,
    place_in,
    start_of,
)

_MOST_TOLD: Final = 20  # line numbers in a message
_MOST_SOUGHT: Final = 1000
_NUMBERED: Final = re.compile(rb"(?:[ ]*\d+\t[^\n]*(?:\n|\Z))+")
_HINTED: Final = 1 << 20  # bytes of text in which something similar is looked for


@dataclass(frozen=True, slots=True)
class Edited:
    """The text after an edit, and the lines that it touched; none if *last* is before *first*."""

    body: bytes
    first: int
    last: int


def replace_once(body: bytes, old: bytes, new: bytes) -> Edited:
    """Put *new* in place of *old*, which must be there exactly once.

    Raises:
        InvalidArgumentsError: it is not, or there is nothing to change.
    """
    old, new, flat = flattened(old), flattened(new), flattened(body)
    if not old:
        raise InvalidArgumentsError("old_str is empty; use 'insert' to add text at a line")
    if old == new:
        raise InvalidArgumentsError("old_str and new_str are the same; nothing was changed")
    at = _only_place(flat, old)
    head, tail = common_ends(old, new)
    start = place_in(body, flat, at + head)
    end = place_in(body, flat, at + len(old) - tail)
    first = flat.count(b"\n", 0, at) + 1
    result = _spliced(body, start, end, new[head : len(new) - tail])
    return Edited(result, first, first + count_lines(new) - 1)


def insert_after(body: bytes, line: int, text: bytes) -> Edited:
    """Put *text* after a line, or before all for 0, as lines of its own.

    Raises:
        InvalidArgumentsError: there is no such line.
    """
    total = count_lines(body)
    if not 0 <= line <= total:
        raise InvalidArgumentsError(
            f"insert_line is {line}, and the file has {total} lines; give the line to insert after,"
            f" from 0, which is the top, to {total}"
        )
    text = flattened(text)
    at = start_of(body, line + 1)
    if body and not text.endswith(b"\n"):
        text += b"\n"
    last = line + count_lines(text)
    if at == len(body) and not is_ended(body):
        bare = text.removesuffix(b"\n")  # so that there is still no line end at the end
        text = b"\n" + (text if is_ended(bare) else bare)
    return Edited(_spliced(body, at, at, text), line + 1, last)


def _spliced(body: bytes, start: int, end: int, added: bytes) -> bytes:
    r"""Return *body* with *added* in a stretch of it; a ``\r`` and a ``\n`` never become one."""
    after_cr, before_lf = body[:start].endswith(b"\r"), body[end : end + 1] == b"\n"
    if not added and after_cr and before_lf:
        end, added = end + 1, b"\n"
    line_end = end_near(body, start)
    if (after_cr and line_end == b"\n") or (before_lf and line_end == b"\r"):
        line_end = b"\r\n"
    return b"".join((body[:start], added.replace(b"\n", line_end), body[end:]))


def _only_place(flat: bytes, old: bytes) -> int:
    found: list[int] = []
    at = flat.find(old)
    while at >= 0 and len(found) < _MOST_SOUGHT:
        found.append(at)
        at = flat.find(old, at + 1)
    if len(found) == 1:
        return found[0]
    if not found:
        raise InvalidArgumentsError(
            f"old_str is not in the file{_hint(flat, old)}; it must match exactly, spaces and"
            " indentation included. Nothing was changed"
        )
    times = f"{len(found)} times" if at < 0 else f"more than {_MOST_SOUGHT} times"
    numbers = [flat.count(b"\n", 0, place) + 1 for place in found[: _MOST_TOLD + 1]]
    lines = ", ".join(map(str, numbers[:_MOST_TOLD])) + ", …" * (len(numbers) > _MOST_TOLD)
    raise InvalidArgumentsError(
        f"old_str is in the file {times}, at lines {lines}; add the lines around the one that you"
        " mean, so that it is there once. Nothing was changed"
    )


def _hint(flat: bytes, old: bytes) -> str:
    """Return what may have gone wrong, if that is easy to see."""
    if _NUMBERED.fullmatch(old):
        return ": leave out the line numbers and tabs that 'view' puts before the lines"
    wanted = [line.split() for line in old.strip().split(b"\n")]
    if len(flat) > _HINTED or not wanted[0]:
        return ""
    lines = [line.split() for line in flat.split(b"\n")]
    for number in range(len(lines) - len(wanted) + 1):
        if lines[number] == wanted[0] and lines[number : number + len(wanted)] == wanted:
            return f", but something that differs in white space only is at line {number + 1}"
    return ""
