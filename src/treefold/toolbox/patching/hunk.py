r"""A hunk of a unified diff, and lines as diffs have them.

Such a line is called a row here: only ``\n`` ends it, and its end belongs to it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final, Literal

Sign = Literal[" ", "-", "+"]
_ROW: Final = re.compile(rb"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class PatchLine:
    """One line of a hunk; its text includes the line end, unless the patch says it has none."""

    sign: Sign
    text: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """Consecutive lines of a file: context, lines to remove and lines to add.

    Attributes:
        number: its position in the patch, from 1.
        header: the line with ``@@``, as written.
        stated_start: how many lines precede it according to its header; None if it does not say.
        lines: all lines, in order.
        is_well_formed: False if some lines are not marked as context, removed or added.
    """

    number: int
    header: str
    stated_start: int | None
    lines: tuple[PatchLine, ...]
    is_well_formed: bool = True

    @property
    def old(self) -> list[bytes]:
        """The lines to find in the file: context and removed lines."""
        return [line.text for line in self.lines if line.sign != "+"]

    @property
    def new(self) -> list[bytes]:
        """The lines that replace them: context and added lines."""
        return [line.text for line in self.lines if line.sign != "-"]

    @property
    def removed(self) -> list[bytes]:
        """The lines to remove."""
        return [line.text for line in self.lines if line.sign == "-"]

    @property
    def added(self) -> list[bytes]:
        """The lines to add."""
        return [line.text for line in self.lines if line.sign == "+"]

    @property
    def affected_lines(self) -> int:
        """How many lines it changes; a replaced line counts once."""
        return max(len(self.removed), len(self.added))

    @property
    def leading_context(self) -> int:
        """The number of context lines before the first change."""
        return _context(self.lines)

    @property
    def trailing_context(self) -> int:
        """The number of context lines after the last change."""
        return _context(reversed(self.lines))

    def without_context(self, first: int, last: int) -> "Hunk":
        """Return the hunk without that many of its first and last lines."""
        return replace(self, lines=self.lines[first : len(self.lines) - last])


def _context(lines: Iterable[PatchLine]) -> int:
    return sum(1 for _ in takewhile(lambda line: line.sign == " ", lines))


def split_rows(body: bytes) -> list[bytes]:
    r"""Return the lines of *body* with their ends; the last may have none.

    Example:
        >>> split_rows(b"a\r\n\nb")
        [b'a\r\n', b'\n', b'b']
    """
    return _ROW.findall(body)


def strip_line_end(row: bytes) -> bytes:
    r"""Return a line without its end, and without any ``\r`` before that."""
    return row.rstrip(b"\r\n")


def line_end_of(row: bytes) -> bytes:
    """Return the end of a line; empty if it has none."""
    if row.endswith(b"\r\n"):
        return b"\r\n"
    return b"\n" if row.endswith(b"\n") else b""
