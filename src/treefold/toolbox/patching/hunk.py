"""A hunk of a unified diff: some lines as they are, and as they are to be."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

Sign = Literal[" ", "-", "+"]


@dataclass(frozen=True, slots=True)
class PatchLine:
    """One line of a hunk; its text has its end with it, unless the patch says that it has none."""

    sign: Sign
    text: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """Lines to be found, some of them to be removed, and lines to be added.

    Attributes:
        number: its place in the patch, from 1.
        header: the line with ``@@``, as it was written.
        at: how many lines the patch says are before it; None if it does not say.
        lines: all of them, in order.
        is_whole: False if some lines are not marked as context, removed or added.
    """

    number: int
    header: str
    at: int | None
    lines: tuple[PatchLine, ...]
    is_whole: bool = True

    @property
    def old(self) -> list[bytes]:
        """What is to be found."""
        return [line.text for line in self.lines if line.sign != "+"]

    @property
    def new(self) -> list[bytes]:
        """What it is to become."""
        return [line.text for line in self.lines if line.sign != "-"]

    @property
    def removed(self) -> list[bytes]:
        """The lines that are to go."""
        return [line.text for line in self.lines if line.sign == "-"]

    @property
    def added(self) -> list[bytes]:
        """The lines that are to come."""
        return [line.text for line in self.lines if line.sign == "+"]

    @property
    def affected(self) -> int:
        """How many lines it changes: one that is replaced counts once."""
        return max(len(self.removed), len(self.added))

    @property
    def lead(self) -> int:
        """How many lines of context are before the first change."""
        return _context(self.lines)

    @property
    def trail(self) -> int:
        """How many lines of context are after the last change."""
        return _context(reversed(self.lines))

    def without_context(self, first: int, last: int) -> "Hunk":
        """Return it without that many of its first and last lines."""
        return replace(self, lines=self.lines[first : len(self.lines) - last])


def _context(lines: Iterable[PatchLine]) -> int:
    return sum(1 for _ in takewhile(lambda line: line.sign == " ", lines))
