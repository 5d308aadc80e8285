"""Read one hunk: up to where its counts say, or where its lines end if those are wrong."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from treefold.toolbox.patching.hunk import Hunk, PatchLine, Sign
from treefold.toolbox.patching.rows import bare

_NUMBERS: Final = re.compile(
    rb"@@+ *-(\d{1,9})(?: *, *(\d{1,9}))? +\+(\d{1,9})(?: *, *(\d{1,9}))? *@@"
)
_SIGNS: Final[dict[bytes, Sign]] = {b" ": " ", b"-": "-", b"+": "+"}
_SIGNATURE: Final = re.compile(rb"-- ?\r?\n")  # with which the patch of a mail ends
_REMARK: Final = b"\\ "  # that the line before it has no end


class _Numbers(NamedTuple):
    start: int  # the first line, or the one before if there are none
    old: int
    new: int


def is_hunk_header(row: bytes) -> bool:
    """Whether a hunk begins here, with or without numbers."""
    return row.startswith(b"@@") and not row.startswith(b"@@@")


def is_name_pair(rows: Sequence[bytes], at: int) -> bool:
    """Whether the two names of a file are here, and not a line removed and another added."""
    return (
        at + 2 < len(rows)
        and rows[at].startswith(b"--- ")
        and rows[at + 1].startswith(b"+++ ")
        and is_hunk_header(rows[at + 2])
    )


def read_hunk(rows: Sequence[bytes], at: int, number: int) -> tuple[Hunk, int]:
    """Return the hunk whose header is at *at*, and where it ends."""
    numbers = _numbers(rows[at])
    end = _end_by_counts(rows, at + 1, numbers) if numbers else None
    is_whole = True
    if end is None:
        end = _end_by_lines(rows, at + 1)
        rest = _next_header(rows, end)
        if _is_short(rows[at + 1 : end], numbers) and any(map(_is_change, rows[end:rest])):
            end, is_whole = rest, False
    lines = _lines(rows[at + 1 : end])
    hunk = Hunk(
        number=number,
        header=bare(rows[at]).decode(errors="replace"),
        at=_place(numbers, lines),
        lines=lines,
        is_whole=is_whole,
    )
    return hunk, end


def _numbers(row: bytes) -> _Numbers | None:
    told = _NUMBERS.match(row)
    if told is None:
        return None
    old, new = (1 if told[group] is None else int(told[group]) for group in (2, 4))
    return _Numbers(int(told[1]), old, new)


def _place(numbers: _Numbers | None, lines: Sequence[PatchLine]) -> int | None:
    """Return how many lines are before the hunk, if its header can be believed."""
    if numbers is None:
        return None
    if any(line.sign != "+" for line in lines):
        return max(0, numbers.start - 1)
    return None if numbers.old else numbers.start  # nothing in the file could bear it out


def _end_by_counts(rows: Sequence[bytes], at: int, numbers: _Numbers) -> int | None:
    """Return where the hunk ends if its counts are right, else None."""
    old, new = numbers.old, numbers.new
    while at < len(rows) and (old > 0 or new > 0):
        sign = _sign(rows[at])
        if sign is None:
            return None
        old -= sign in {" ", "-"}
        new -= sign in {" ", "+"}
        at += 1
    while at < len(rows) and rows[at].startswith(_REMARK):
        at += 1
    return at if old == new == 0 and not _goes_on(rows, at) else None


def _goes_on(rows: Sequence[bytes], at: int) -> bool:
    if at == len(rows) or is_name_pair(rows, at) or _SIGNATURE.fullmatch(rows[at]):
        return False
    return rows[at][:1] in _SIGNS


def _end_by_lines(rows: Sequence[bytes], start: int) -> int:
    """Return where the lines that a hunk can have end; blank ones at the end are not its own."""
    at = start
    while at < len(rows) and _sign(rows[at]) is not None and not is_name_pair(rows, at):
        if _SIGNATURE.fullmatch(rows[at]) and at + 2 >= len(rows):
            break
        at += 1
    while at > start and not bare(rows[at - 1]):
        at -= 1
    return at


def _next_header(rows: Sequence[bytes], at: int) -> int:
    while at < len(rows) and not (
        is_hunk_header(rows[at]) or is_name_pair(rows, at) or rows[at].startswith(b"diff --git ")
    ):
        at += 1
    return at


def _is_short(rows: Sequence[bytes], numbers: _Numbers | None) -> bool:
    """Whether there should be more, or nobody says how many there should be."""
    signs = [_sign(row) for row in rows]
    context, removed, added = (signs.count(sign) for sign in " -+")
    return numbers is None or context + removed < numbers.old or context + added < numbers.new


def _is_change(row: bytes) -> bool:
    return row.startswith((b"+", b"-"))


def _sign(row: bytes) -> Sign | str | None:
    r"""Return what a line of a hunk begins with; "\\" for a remark, None if it is no such line."""
    if not bare(row):
        return " "  # its space was lost
    return "\\" if row.startswith(_REMARK) else _SIGNS.get(row[:1])


def _lines(rows: Sequence[bytes]) -> tuple[PatchLine, ...]:
    lines: list[PatchLine] = []
    for row in rows:
        if row.startswith(_REMARK):
            if lines:
                lines[-1] = PatchLine(lines[-1].sign, lines[-1].text.removesuffix(b"\n"))
            continue
        sign = _SIGNS.get(row[:1])
        text = row[1:] if sign else row
        lines.append(PatchLine(sign or " ", text if text.endswith(b"\n") else text + b"\n"))
    return tuple(lines)
