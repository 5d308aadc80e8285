"""Parse one hunk: as far as its line counts say, or its lines go if the counts are wrong."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from treefold.toolbox.patching.hunk import Hunk, PatchLine, Sign, strip_line_end

_RANGE: Final = re.compile(
    rb"@@+ *-(\d{1,9})(?: *, *(\d{1,9}))? +\+(\d{1,9})(?: *, *(\d{1,9}))? *@@"
)
_SIGNS: Final[dict[bytes, Sign]] = {b" ": " ", b"-": "-", b"+": "+"}
_SIGNATURE: Final = re.compile(rb"-- ?\r?\n")  # at the end of a patch sent by mail
_NO_NEWLINE_MARK: Final = b"\\ "  # as in: No newline at end of file


class _Range(NamedTuple):
    start: int  # the first old line, or the one before if there are none
    old: int  # number of lines
    new: int


def is_hunk_header(row: bytes) -> bool:
    """Whether *row* starts a hunk, with or without line numbers."""
    return row.startswith(b"@@") and not row.startswith(b"@@@")


def is_name_pair(rows: Sequence[bytes], at: int) -> bool:
    """Whether the two names of a file are at *at*, and not a removed and an added line."""
    return (
        at + 2 < len(rows)
        and rows[at].startswith(b"--- ")
        and rows[at + 1].startswith(b"+++ ")
        and is_hunk_header(rows[at + 2])
    )


def parse_hunk(rows: Sequence[bytes], at: int, number: int) -> tuple[Hunk, int]:
    """Return the hunk whose header is at *at*, and the index after its last line."""
    stated = _parse_range(rows[at])
    end = _end_by_counts(rows, at + 1, stated) if stated else None
    is_well_formed = True
    if end is None:
        end = _end_by_lines(rows, at + 1)
        rest = _next_header(rows, end)
        if _is_incomplete(rows[at + 1 : end], stated) and any(map(_is_change, rows[end:rest])):
            end, is_well_formed = rest, False
    lines = _lines(rows[at + 1 : end])
    hunk = Hunk(
        number=number,
        header=strip_line_end(rows[at]).decode(errors="replace"),
        stated_start=_stated_start(stated, lines),
        lines=lines,
        is_well_formed=is_well_formed,
    )
    return hunk, end


def _parse_range(row: bytes) -> _Range | None:
    match = _RANGE.match(row)
    if match is None:
        return None
    old, new = (1 if match[group] is None else int(match[group]) for group in (2, 4))
    return _Range(int(match[1]), old, new)


def _stated_start(stated: _Range | None, lines: Sequence[PatchLine]) -> int | None:
    """Return how many lines precede the hunk, if its header is credible."""
    if stated is None:
        return None
    if any(line.sign != "+" for line in lines):
        return max(0, stated.start - 1)
    # Without old lines, nothing in the file can confirm the position of a contradictory header.
    return None if stated.old else stated.start


def _end_by_counts(rows: Sequence[bytes], at: int, stated: _Range) -> int | None:
    """Return the end of the hunk according to its counts; None if they are wrong."""
    old, new = stated.old, stated.new
    while at < len(rows) and (old > 0 or new > 0):
        sign = _sign(rows[at])
        if sign is None:
            return None
        old -= sign in {" ", "-"}
        new -= sign in {" ", "+"}
        at += 1
    while at < len(rows) and rows[at].startswith(_NO_NEWLINE_MARK):
        at += 1
    return at if old == new == 0 and not _continues(rows, at) else None


def _continues(rows: Sequence[bytes], at: int) -> bool:
    if at == len(rows) or is_name_pair(rows, at) or _SIGNATURE.fullmatch(rows[at]):
        return False
    return rows[at][:1] in _SIGNS


def _end_by_lines(rows: Sequence[bytes], start: int) -> int:
    """Return the end of the lines that can belong to a hunk, without trailing blank lines."""
    at = start
    while at < len(rows) and _sign(rows[at]) is not None and not is_name_pair(rows, at):
        if _SIGNATURE.fullmatch(rows[at]) and at + 2 >= len(rows):
            break
        at += 1
    while at > start and not strip_line_end(rows[at - 1]):
        at -= 1
    return at


def _next_header(rows: Sequence[bytes], at: int) -> int:
    while at < len(rows) and not (
        is_hunk_header(rows[at]) or is_name_pair(rows, at) or rows[at].startswith(b"diff --git ")
    ):
        at += 1
    return at


def _is_incomplete(rows: Sequence[bytes], stated: _Range | None) -> bool:
    """Whether the header announces more lines, or does not say how many there are."""
    signs = [_sign(row) for row in rows]
    context, removed, added = (signs.count(sign) for sign in " -+")
    return stated is None or context + removed < stated.old or context + added < stated.new


def _is_change(row: bytes) -> bool:
    return row.startswith((b"+", b"-"))


def _sign(row: bytes) -> Sign | str | None:
    r"""Return the first character of a line of a hunk; None if it cannot belong to a hunk."""
    if not strip_line_end(row):
        return " "  # a blank context line whose space was stripped
    return "\\" if row.startswith(_NO_NEWLINE_MARK) else _SIGNS.get(row[:1])


def _lines(rows: Sequence[bytes]) -> tuple[PatchLine, ...]:
    lines: list[PatchLine] = []
    for row in rows:
        if row.startswith(_NO_NEWLINE_MARK):
            if lines:
                lines[-1] = PatchLine(lines[-1].sign, lines[-1].text.removesuffix(b"\n"))
            continue
        sign = _SIGNS.get(row[:1])
        text = row[1:] if sign else row
        lines.append(PatchLine(sign or " ", text if text.endswith(b"\n") else text + b"\n"))
    return tuple(lines)
