"""How an agent is to settle the hunks that have no place in a file."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from treefold.toolbox.editing.lines import count_lines
from treefold.toolbox.patching.hunk import Hunk

MUCH_LARGER: Final = 3  # times as many lines as the hunks have
MUCH_AFFECTED: Final = 30  # percent of the lines
LONGEST_ANSWER: Final = 50_000  # bytes that a model can be asked to write at once


class Settling(Enum):
    """What the agent does."""

    EDIT = "edit"  # it edits a working copy, change by change
    REWRITE = "rewrite"  # it gives all of the new file


def choose_settling(body: bytes, hunks: Sequence[Hunk]) -> Settling:
    r"""Return how *hunks*, all that is left of a patch, are best settled in the text *body*.

    - A text of more than 50,000 bytes is edited: no model gives that back in one answer.
    - If more than 30 % of its lines are affected, it is rewritten. The lines affected by a hunk are
      those that it removes or those that it adds, whichever are more.
    - If it is much larger than the hunks, it is edited: if it has at least 3 times as many lines as
      they have, with their context and without their headers.
    - Otherwise it is rewritten: the model then writes little more than it has to read.

    Example:
        >>> from treefold.toolbox.patching.hunk import Hunk, PatchLine
        >>> lines = (PatchLine(" ", b"a\n"), PatchLine("-", b"b\n"), PatchLine("+", b"c\n"))
        >>> hunk = Hunk(number=1, header="@@", at=None, lines=lines)
        >>> choose_settling(b"x\n" * 9, [hunk])
        <Settling.EDIT: 'edit'>
        >>> choose_settling(b"x\n" * 3, [hunk])
        <Settling.REWRITE: 'rewrite'>
    """
    if len(body) > LONGEST_ANSWER:
        return Settling.EDIT
    total = count_lines(body)
    affected = sum(hunk.affected for hunk in hunks)
    if 100 * affected > MUCH_AFFECTED * total:
        return Settling.REWRITE
    size = sum(len(hunk.lines) for hunk in hunks)
    return Settling.EDIT if total >= MUCH_LARGER * size else Settling.REWRITE
