"""What becomes of a text that somebody has written anew, without regard to its white space."""

import re
from collections.abc import Collection
from difflib import SequenceMatcher
from typing import Final

from treefold.toolbox.editing.lines import LINE_END, ends_with_line_end, normalize_line_ends
from treefold.toolbox.patching.rows import split_rows

_FENCE: Final = re.compile(rb"`{3}|~{3}")
_FENCED: Final = re.compile(rb"\s*(`{3,}|~{3,})[^\n]*\n(.*\n)?\1\s*", re.DOTALL)


def as_it_was(old: bytes, new: bytes, added: Collection[bytes]) -> bytes:
    r"""Return *new*, the whole of *old* written anew, without what is changed by the writing alone.

    Lines have the ends that they had, and the blanks before those. A Markdown block around it all
    goes, unless it was there. *added* are lines that are right as they are.

    Example:
        >>> as_it_was(b"a  \r\nb\r\n", b"```\na\nB\n```\n", [b"B\n"])
        b'a  \r\nB\r\n'
    """
    fenced = _FENCED.fullmatch(normalize_line_ends(new))
    if fenced and not any(_FENCE.match(row) for row in (*split_rows(old)[:1], *added)):
        new = fenced[2] or b""
    return with_line_ends_of(old, _with_blanks_of(old, new, {row.rstrip(b"\r\n") for row in added}))


def _with_blanks_of(old: bytes, new: bytes, right: Collection[bytes]) -> bytes:
    ours, theirs = _ended_rows(old), _ended_rows(new)
    codes = matching([row.rstrip() for row in ours], [row.rstrip() for row in theirs])
    made = list(theirs)
    for ours_at, theirs_at, size in codes.get_matching_blocks():
        for number in range(size):
            if theirs[theirs_at + number].removesuffix(b"\n") not in right:
                made[theirs_at + number] = ours[ours_at + number]
    return b"".join(made)


def with_line_ends_of(old: bytes, new: bytes) -> bytes:
    r"""Return *new* with the line ends that *old* has: each line its own, and new ones likewise.

    Example:
        >>> with_line_ends_of(b"a\r\nb\r\nc", b"a\nb\nB\nc\n")
        b'a\r\nb\r\nB\r\nc'
    """
    if not old:
        return new
    ends: list[bytes] = LINE_END.findall(old) or [b"\n"]
    ours, theirs = _ended_rows(old), _ended_rows(new)
    made: list[bytes] = []
    for kind, first, last, start, stop in matching(ours, theirs).get_opcodes():
        for number in range(start, stop):
            at = first + number - start if kind == "equal" else last - 1
            made += [theirs[number].removesuffix(b"\n"), ends[max(0, min(at, len(ends) - 1))]]
    return b"".join(made if ends_with_line_end(old) else made[:-1])


def _ended_rows(text: bytes) -> list[bytes]:
    return split_rows(normalize_line_ends(text) + b"\n" * (not ends_with_line_end(text)))


def count_changes(old: bytes, new: bytes) -> tuple[int, int]:
    r"""Return how many lines were added and how many removed.

    Example:
        >>> count_changes(b"a\nb\nc\n", b"a\nB\nc\nd\n")
        (2, 1)
    """
    ours, theirs = split_rows(old), split_rows(new)
    for _ in range(2):  # what is the same at the end and at the start need not be looked into
        ours.reverse()
        theirs.reverse()
        same = next(
            (number for number, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        del ours[:same], theirs[:same]
    codes = matching(ours, theirs).get_opcodes()
    changes = [code for code in codes if code[0] != "equal"]
    return sum(code[4] - code[3] for code in changes), sum(code[2] - code[1] for code in changes)


def matching(old: list[bytes], new: list[bytes]) -> SequenceMatcher[bytes]:
    """Return what the two have in common; for very long ones not quite all of it."""
    return SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > 10_000)
