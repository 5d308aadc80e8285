"""What of a patch can be applied as it stands, and what cannot."""

from collections.abc import Sequence
from dataclasses import dataclass

from treefold.toolbox.patching.fitting import fit, write_patch
from treefold.toolbox.patching.hunk import Hunk
from treefold.toolbox.patching.placement import (
    Misfit,
    Placed,
    clipped,
    place_exactly,
    place_hunks,
)
from treefold.toolbox.patching.rows import end_of, split_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    r"""A text, the hunks that have a place in it, and those that have none.

    Attributes:
        before: the text that the patch is made for: what was given, or that with every line ended.
        placed: the hunks that have a place, in order.
        misfits: the others.
        has_bare_cr: whether each ``\n`` in it stands for a ``\r``.
        surplus: what is too much at its end, once the patch is applied.
    """

    before: bytes
    placed: tuple[Placed, ...]
    misfits: tuple[Misfit, ...] = ()
    has_bare_cr: bool = False
    surplus: bytes = b""

    @property
    def patch(self) -> bytes:
        """The patch that makes the changes that have a place."""
        return write_patch(self.placed)

    def made_here(self) -> bytes:
        """Return the text with these changes, for want of a git that makes them."""
        rows = split_rows(self.before)
        for place in reversed(self.placed):
            rows[place.start : place.end] = place.hunk.new
        return self.restored(b"".join(rows))

    def restored(self, after: bytes) -> bytes:
        """Return what was made of the text, with its end and its line ends as they should be."""
        after = after.removesuffix(self.surplus)
        return after.replace(b"\n", b"\r") if self.has_bare_cr else after


def make_plan(body: bytes, hunks: Sequence[Hunk]) -> Plan:
    """Find a place for each hunk; only if one has none exactly, less is asked of all of them."""
    exact = place_exactly(split_rows(body), hunks)
    if exact is not None:
        return Plan(before=body, placed=tuple(clipped(exact)))
    has_bare_cr = b"\r" in body and b"\n" not in body
    if has_bare_cr:
        body = body.replace(b"\r", b"\n")
    was_ended = not body or body.endswith(b"\n")
    rows = split_rows(body)
    end = end_of(rows[-1 if was_ended else 0]) if rows and not body.endswith(b"\r") else b""
    end = end or b"\n"
    if not was_ended:
        rows[-1] += end
    placed, misfits = place_hunks(rows, hunks)
    fitted = tuple(clipped([fit(place, rows) for place in placed]))
    ends_with_line_end = _ends_with_newline(len(rows), placed, was_ended=was_ended)
    return Plan(
        before=b"".join(rows),
        placed=fitted,
        misfits=tuple(misfits),
        has_bare_cr=has_bare_cr,
        surplus=b"" if ends_with_line_end else end,
    )


def _ends_with_newline(total: int, placed: Sequence[Placed], *, was_ended: bool) -> bool:
    """Whether the last line is ended after the patch: as it was, unless the patch changes that."""
    for place in placed:
        old, new = place.hunk.old, place.hunk.new
        if place.end == total and new:
            before, after = (rows[-1].endswith(b"\n") for rows in (old or new, new))
            if before != after or not old:
                return after
    return was_ended
