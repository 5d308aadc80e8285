"""What can be told from a text of whether hunks made it into it.

An agent may have had to change a line a little to make it fit, and a line may be in a text for
other reasons. So lines are compared without regard to white space, unless that is what changes;
those that have neither letters nor digits prove nothing; and only as much is asked as must be true.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ramify.toolbox.patching.hunk import Hunk
from ramify.toolbox.patching.rows import split_rows

_TELLS: Final = re.compile(rb"[^\W_]|[\x80-\xff]")


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A hunk that did not make it, and the line by which that can be told."""

    hunk: Hunk
    line: bytes
    is_missing: bool  # it was to be added; otherwise it was to be removed


def find_shortfalls(before: bytes, after: bytes, hunks: Sequence[Hunk]) -> list[Shortfall]:
    """Return those of *hunks* that somebody who made *after* out of *before* left undone.

    A line that hunks add must be there as often as they add it; one that they remove must be there
    less often than before, by as much as they remove it, if it was there at all.
    """
    evidence = _Evidence(before, after, hunks)
    found = map(evidence.against, hunks)
    return [shortfall for shortfall in found if shortfall is not None]


class _Evidence:
    """How often each line is in the texts, and in the hunks."""

    def __init__(self, before: bytes, after: bytes, hunks: Sequence[Hunk]) -> None:
        added = [row for hunk in hunks for row in hunk.added]
        removed = [row for hunk in hunks for row in hunk.removed]
        self._before = _counted(split_rows(before))
        self._after = _counted(split_rows(after))
        self._as_they_are = {row.rstrip() for row in split_rows(after)}
        self._added, self._removed = _counted(added), _counted(removed)

    def against(self, hunk: Hunk) -> Shortfall | None:
        """Return the first thing, if any, by which a hunk can be seen not to have made it."""
        for row in hunk.added:
            if self._is_missing(row):
                return Shortfall(hunk, row, is_missing=True)
        for row in hunk.removed:
            if self._is_left(row):
                return Shortfall(hunk, row, is_missing=False)
        return None

    def _is_missing(self, row: bytes) -> bool:
        key = _key(row)
        if not _TELLS.search(key):
            return False
        if key in self._removed and row.rstrip() not in self._as_they_are:
            return True  # it was to be indented, perhaps
        return self._after[key] < self._added[key]

    def _is_left(self, row: bytes) -> bool:
        key = _key(row)
        surplus = self._removed[key] - self._added[key]
        if not _TELLS.search(key) or surplus <= 0 or not self._before[key]:
            return False
        return self._after[key] > max(0, self._before[key] - surplus)


def _counted(rows: Iterable[bytes]) -> Counter[bytes]:
    return Counter(map(_key, rows))


def _key(row: bytes) -> bytes:
    return b" ".join(row.split())
