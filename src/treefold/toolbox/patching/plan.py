"""The plan for a patch: the hunks that can be applied, as a patch for git, and the others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from treefold.toolbox.patching.hunk import Hunk, PatchLine, line_end_of, split_rows, strip_line_end
from treefold.toolbox.patching.placement import (
    PlacedHunk,
    RejectedHunk,
    place_exactly,
    place_hunks,
    trim_shared_context,
)

PATCHED_NAME = "text"  # of the file in the patch for git


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    r"""A text, the hunks that are placed in it, and those that were rejected.

    Attributes:
        before: the text to patch; may have a line end added to its last line.
        placed: the hunks that can be applied, in order.
        rejected: the others.
        has_bare_cr: whether each ``\n`` in *before* stands for a ``\r``.
        extra_end: the line end to remove after the patch is applied.
    """

    before: bytes
    placed: tuple[PlacedHunk, ...]
    rejected: tuple[RejectedHunk, ...] = ()
    has_bare_cr: bool = False
    extra_end: bytes = b""

    @property
    def patch(self) -> bytes:
        """The patch with the placed hunks."""
        return write_patch(self.placed)

    def apply(self) -> bytes:
        """Return the patched text without the help of git."""
        rows = split_rows(self.before)
        for placed_hunk in reversed(self.placed):
            rows[placed_hunk.start : placed_hunk.end] = placed_hunk.hunk.new
        return self.finish(b"".join(rows))

    def finish(self, after: bytes) -> bytes:
        """Return the patched text *after* with its original kind of line ends and file end."""
        after = after.removesuffix(self.extra_end)
        return after.replace(b"\n", b"\r") if self.has_bare_cr else after


def make_plan(body: bytes, hunks: Sequence[Hunk]) -> Plan:
    """Place each hunk; unless all match exactly, all are compared less strictly."""
    exact = place_exactly(split_rows(body), hunks)
    if exact is not None:
        return Plan(before=body, placed=tuple(trim_shared_context(exact)))
    has_bare_cr = b"\r" in body and b"\n" not in body
    if has_bare_cr:
        body = body.replace(b"\r", b"\n")
    had_newline = not body or body.endswith(b"\n")
    rows = split_rows(body)
    end = line_end_of(rows[-1 if had_newline else 0]) if rows and not body.endswith(b"\r") else b""
    end = end or b"\n"
    if not had_newline:
        rows[-1] += end
    placed, rejected = place_hunks(rows, hunks)
    fitted = tuple(trim_shared_context([fit_to_text(placed_hunk, rows) for placed_hunk in placed]))
    ends_with_newline = _ends_with_newline(len(rows), placed, had_newline=had_newline)
    return Plan(
        before=b"".join(rows),
        placed=fitted,
        rejected=tuple(rejected),
        has_bare_cr=has_bare_cr,
        extra_end=b"" if ends_with_newline else end,
    )


def _ends_with_newline(total: int, placed: Sequence[PlacedHunk], *, had_newline: bool) -> bool:
    """Whether the patched text ends with a newline: as before, unless the patch changes that."""
    for placed_hunk in placed:
        old, new = placed_hunk.hunk.old, placed_hunk.hunk.new
        if placed_hunk.end == total and new:
            before, after = (rows[-1].endswith(b"\n") for rows in (old or new, new))
            if before != after or not old:
                return after
    return had_newline


def fit_to_text(placed_hunk: PlacedHunk, rows: Sequence[bytes]) -> PlacedHunk:
    """Return the hunk with the exact lines of the text, and their line ends on added lines."""
    nearest = rows[placed_hunk.start : placed_hunk.start + 1] or rows[-1:]
    end = line_end_of(nearest[0]) if nearest else b"\n"
    at = placed_hunk.start
    lines: list[PatchLine] = []
    for line in placed_hunk.hunk.lines:
        text = line.text
        if line.sign != "+":
            text = rows[at]
            end = line_end_of(text)
            at += 1
        elif not (placed_hunk.is_exact and line_end_of(text)):
            text = strip_line_end(text) + end
        lines.append(PatchLine(line.sign, text))
    return replace(placed_hunk, hunk=replace(placed_hunk.hunk, lines=tuple(lines)))


def write_patch(placed: Sequence[PlacedHunk]) -> bytes:
    """Return a patch for the file ``PATCHED_NAME`` with the hunks, which are in order."""
    old_name, new_name = f"a/{PATCHED_NAME}", f"b/{PATCHED_NAME}"
    parts = [f"diff --git {old_name} {new_name}\n--- {old_name}\n+++ {new_name}\n".encode()]
    line_offset = 0
    for placed_hunk in placed:
        old, new = len(placed_hunk.hunk.old), len(placed_hunk.hunk.new)
        old_start = placed_hunk.start + bool(old)
        # git searches from the new line number on, even if no line is left there.
        new_start = placed_hunk.start + line_offset + 1
        parts.append(f"@@ -{old_start},{old} +{new_start},{new} @@\n".encode())
        for line in placed_hunk.hunk.lines:
            parts += [line.sign.encode(), line.text]
            if not line.text.endswith(b"\n"):
                parts.append(b"\n\\ No newline at end of file\n")
        line_offset += new - old
    return b"".join(parts)
