"""Edits of text held as bytes: the new text, and which of its lines changed.

The text to find and the text to insert may have any line ends: a match ignores the kind of line
end, and inserted lines get the line ends of the lines around them.
"""

import re
from dataclasses import dataclass
from typing import Final

from treefold.core.errors import InvalidArgumentsError
from treefold.toolbox.editing.lines import (
    common_ends,
    count_lines,
    ends_with_line_end,
    line_end_near,
    line_start,
    normalize_line_ends,
    original_offset,
)

_MAX_LISTED: Final = 20  # line numbers in a message
_MAX_MATCHES: Final = 1000
_WITH_LINE_NUMBERS: Final = re.compile(rb"(?:[ ]*\d+\t[^\n]*(?:\n|\Z))+")
_MAX_HINT_BYTES: Final = 1 << 20  # the largest text that is searched for a similar one


@dataclass(frozen=True, slots=True)
class EditResult:
    """The text after an edit, and the range of lines that it touched; empty if last < first."""

    body: bytes
    first: int
    last: int


def replace_once(body: bytes, old: bytes, new: bytes) -> EditResult:
    """Replace *old*, which must occur exactly once, by *new*.

    Raises:
        InvalidArgumentsError: it does not, or there is nothing to change.
    """
    old, new = normalize_line_ends(old), normalize_line_ends(new)
    normalized = normalize_line_ends(body)
    if not old:
        raise InvalidArgumentsError("old_str is empty; use 'insert' to add text at a line")
    if old == new:
        raise InvalidArgumentsError("old_str and new_str are the same; nothing was changed")
    at = _find_unique(normalized, old)
    head, tail = common_ends(old, new)
    start = original_offset(body, normalized, at + head)
    end = original_offset(body, normalized, at + len(old) - tail)
    first = normalized.count(b"\n", 0, at) + 1
    result = _splice(body, start, end, new[head : len(new) - tail])
    return EditResult(result, first, first + count_lines(new) - 1)


def insert_after(body: bytes, line: int, text: bytes) -> EditResult:
    """Insert *text* as separate lines after a line; 0 inserts at the top.

    Raises:
        InvalidArgumentsError: there is no such line.
    """
    total = count_lines(body)
    if not 0 <= line <= total:
        raise InvalidArgumentsError(
            f"insert_line must be from 0, the top, to {total}, the number of lines in the file; got"
            f" {line}"
        )
    text = normalize_line_ends(text)
    at = line_start(body, line + 1)
    if body and not text.endswith(b"\n"):
        text += b"\n"
    last = line + count_lines(text)
    if at == len(body) and not ends_with_line_end(body):
        # The file had no line end at its end, and keeps it that way.
        bare = text.removesuffix(b"\n")
        text = b"\n" + (text if ends_with_line_end(bare) else bare)
    return EditResult(_splice(body, at, at, text), line + 1, last)


def _splice(body: bytes, start: int, end: int, added: bytes) -> bytes:
    r"""Return *body* with *added* in place of a range; never joins ``\r`` and ``\n`` to one end."""
    after_cr, before_lf = body[:start].endswith(b"\r"), body[end : end + 1] == b"\n"
    if not added and after_cr and before_lf:
        end, added = end + 1, b"\n"
    line_end = line_end_near(body, start)
    if (after_cr and line_end == b"\n") or (before_lf and line_end == b"\r"):
        line_end = b"\r\n"
    return b"".join((body[:start], added.replace(b"\n", line_end), body[end:]))


def _find_unique(normalized: bytes, old: bytes) -> int:
    found: list[int] = []
    at = normalized.find(old)
    while at >= 0 and len(found) < _MAX_MATCHES:
        found.append(at)
        at = normalized.find(old, at + 1)
    if len(found) == 1:
        return found[0]
    if not found:
        raise InvalidArgumentsError(
            f"old_str is not in the file{_hint(normalized, old)}; it must match exactly, spaces and"
            " indentation included. Nothing was changed"
        )
    times = f"{len(found)} times" if at < 0 else f"more than {_MAX_MATCHES} times"
    numbers = [normalized.count(b"\n", 0, offset) + 1 for offset in found[: _MAX_LISTED + 1]]
    lines = ", ".join(map(str, numbers[:_MAX_LISTED])) + ", …" * (len(numbers) > _MAX_LISTED)
    raise InvalidArgumentsError(
        f"old_str is in the file {times}, at lines {lines}; add the lines around the one that you"
        " mean, so that it is there once. Nothing was changed"
    )


def _hint(normalized: bytes, old: bytes) -> str:
    """Return the likely reason why *old* was not found, if it is easy to see."""
    if _WITH_LINE_NUMBERS.fullmatch(old):
        return ": leave out the line numbers and tabs that 'view' puts before the lines"
    wanted = [line.split() for line in old.strip().split(b"\n")]
    if len(normalized) > _MAX_HINT_BYTES or not wanted[0]:
        return ""
    lines = [line.split() for line in normalized.split(b"\n")]
    for number in range(len(lines) - len(wanted) + 1):
        if lines[number] == wanted[0] and lines[number : number + len(wanted)] == wanted:
            return f", but something that differs in white space only is at line {number + 1}"
    return ""
