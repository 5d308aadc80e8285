"""Restore the white space and line ends of a text that a model has rewritten."""

import re
from collections.abc import Collection
from difflib import SequenceMatcher
from typing import Final

from treefold.toolbox.editing.lines import LINE_END, ends_with_line_end, normalize_line_ends
from treefold.toolbox.patching.hunk import split_rows

_FENCE: Final = re.compile(rb"`{3}|~{3}")
_FENCED: Final = re.compile(rb"\s*(`{3,}|~{3,})[^\n]*\n(.*\n)?\1\s*", re.DOTALL)


def restore_whitespace(old: bytes, new: bytes, added: Collection[bytes]) -> bytes:
    r"""Return *new*, a rewritten version of *old*, without accidental changes of white space.

    Lines get back their ends and trailing white space. A Markdown code block around the text is
    removed, unless *old* had it. Lines in *added* are kept as they are.

    Example:
        >>> restore_whitespace(b"a  \r\nb\r\n", b"```\na\nB\n```\n", [b"B\n"])
        b'a  \r\nB\r\n'
    """
    fenced = _FENCED.fullmatch(normalize_line_ends(new))
    if fenced and not any(_FENCE.match(row) for row in (*split_rows(old)[:1], *added)):
        new = fenced[2] or b""
    return restore_line_ends(
        old, _restore_trailing_space(old, new, {row.rstrip(b"\r\n") for row in added})
    )


def _restore_trailing_space(old: bytes, new: bytes, exact: Collection[bytes]) -> bytes:
    old_rows, new_rows = _ended_rows(old), _ended_rows(new)
    codes = matcher([row.rstrip() for row in old_rows], [row.rstrip() for row in new_rows])
    made = list(new_rows)
    for old_at, new_at, size in codes.get_matching_blocks():
        for number in range(size):
            if new_rows[new_at + number].removesuffix(b"\n") not in exact:
                made[new_at + number] = old_rows[old_at + number]
    return b"".join(made)


def restore_line_ends(old: bytes, new: bytes) -> bytes:
    r"""Return *new* with the line ends of *old*; new lines get that of a neighbour.

    Example:
        >>> restore_line_ends(b"a\r\nb\r\nc", b"a\nb\nB\nc\n")
        b'a\r\nb\r\nB\r\nc'
    """
    if not old:
        return new
    ends: list[bytes] = LINE_END.findall(old) or [b"\n"]
    old_rows, new_rows = _ended_rows(old), _ended_rows(new)
    made: list[bytes] = []
    for kind, first, last, start, stop in matcher(old_rows, new_rows).get_opcodes():
        for number in range(start, stop):
            at = first + number - start if kind == "equal" else last - 1
            made += [new_rows[number].removesuffix(b"\n"), ends[max(0, min(at, len(ends) - 1))]]
    return b"".join(made if ends_with_line_end(old) else made[:-1])


def _ended_rows(text: bytes) -> list[bytes]:
    return split_rows(normalize_line_ends(text) + b"\n" * (not ends_with_line_end(text)))


def count_changes(old: bytes, new: bytes) -> tuple[int, int]:
    r"""Return how many lines were added and how many were removed.

    Example:
        >>> count_changes(b"a\nb\nc\n", b"a\nB\nc\nd\n")
        (2, 1)
    """
    old_rows, new_rows = split_rows(old), split_rows(new)
    # Remove the common end and then the common start, which need no comparison.
    for _ in range(2):
        old_rows.reverse()
        new_rows.reverse()
        same = next(
            (
                number
                for number, (a, b) in enumerate(zip(old_rows, new_rows, strict=False))
                if a != b
            ),
            min(len(old_rows), len(new_rows)),
        )
        del old_rows[:same], new_rows[:same]
    codes = matcher(old_rows, new_rows).get_opcodes()
    changes = [code for code in codes if code[0] != "equal"]
    return sum(code[4] - code[3] for code in changes), sum(code[2] - code[1] for code in changes)


def matcher(old: list[bytes], new: list[bytes]) -> SequenceMatcher[bytes]:
    """Return a matcher of the two; for very long ones its result is approximate."""
    return SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > 10_000)
