"""Make a patch that fits a text to the byte, out of hunks whose places are known."""

from collections.abc import Sequence
from dataclasses import replace

from treefold.toolbox.patching.hunk import PatchLine
from treefold.toolbox.patching.placement import Placed
from treefold.toolbox.patching.rows import bare, end_of

NAME = "text"  # of the file that the patch is for


def fit(place: Placed, rows: Sequence[bytes]) -> Placed:
    """Return the hunk with the lines of the text for its own, and such ends for what it adds."""
    nearest = rows[place.start : place.start + 1] or rows[-1:]
    end = end_of(nearest[0]) if nearest else b"\n"
    at = place.start
    lines: list[PatchLine] = []
    for line in place.hunk.lines:
        text = line.text
        if line.sign != "+":
            text = rows[at]
            end = end_of(text)
            at += 1
        elif not (place.is_exact and end_of(text)):
            text = bare(text) + end
        lines.append(PatchLine(line.sign, text))
    return replace(place, hunk=replace(place.hunk, lines=tuple(lines)))


def write_patch(placed: Sequence[Placed]) -> bytes:
    """Return the patch for a file called ``NAME`` that makes all the changes, given in order."""
    parts = [f"diff --git a/{NAME} b/{NAME}\n--- a/{NAME}\n+++ b/{NAME}\n".encode()]
    growth = 0
    for place in placed:
        old, new = len(place.hunk.old), len(place.hunk.new)
        # git looks for the lines from the second number on, even if it leaves none of them.
        header = f"@@ -{place.start + bool(old)},{old} +{place.start + growth + 1},{new} @@\n"
        parts.append(header.encode())
        for line in place.hunk.lines:
            parts += [line.sign.encode(), line.text]
            if not line.text.endswith(b"\n"):
                parts.append(b"\n\\ No newline at end of file\n")
        growth += new - old
    return b"".join(parts)
