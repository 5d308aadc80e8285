"""Verify that a text contains the changes of hunks, and no others.

An agent may have had to adapt a line a little, and a line may be in a text for other reasons. So
lines are compared without regard to white space, unless that is what a hunk changes; lines without
letters or digits are not significant; and only conditions that must hold are checked.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from treefold.toolbox.patching.hunk import Hunk, split_rows

_SIGNIFICANT: Final = re.compile(rb"[^\W_]|[\x80-\xff]")
_MAX_SUBSTITUTES: Final = 3  # lines that may stand for one that a hunk expects and the text lacks


@dataclass(frozen=True, slots=True)
class MissedHunk:
    """A hunk that was not applied, and the line that proves it."""

    hunk: Hunk
    line: bytes
    is_missing: bool  # whether it was not added; otherwise it was not removed


def find_missed_hunks(before: bytes, after: bytes, hunks: Sequence[Hunk]) -> list[MissedHunk]:
    """Return those of *hunks* that were not applied in the change from *before* to *after*.

    A line that hunks add must occur at least as often as they add it. One that they remove must
    occur less often than before, by as much as they remove it, if it occurred at all. If no changed
    line of a hunk occurs more or less often than before, the new lines of the hunk must occur as a
    whole.
    """
    counts = _LineCounts(before, after, hunks)
    found = map(counts.find_missed, hunks)
    return [missed for missed in found if missed is not None]


def find_unrequested_changes(before: bytes, after: bytes, hunks: Sequence[Hunk]) -> list[bytes]:
    """Return the lines that were removed or added in *after* though none of *hunks* does so.

    If a hunk removes a line that *before* does not have, a few others may be removed instead; and
    if it expects one that *before* does not have, a few may be added.
    """
    old, new = (Counter(row.rstrip() for row in split_rows(text)) for text in (before, after))
    before_counts = _count(old.elements())
    removed = _count(row for hunk in hunks for row in hunk.removed)
    wanted = _count(row for hunk in hunks for row in hunk.old)
    added = _count(row for hunk in hunks for row in hunk.added)
    removed_lines = _significant(_count((old - new).elements()) - removed)
    added_lines = _significant(_count((new - old).elements()) - added)
    too_many_removed = len(removed_lines) > _MAX_SUBSTITUTES * (removed - before_counts).total()
    too_many_added = len(added_lines) > _MAX_SUBSTITUTES * (wanted - before_counts).total()
    return removed_lines * too_many_removed + added_lines * too_many_added


class _LineCounts:
    """How often each line occurs in the texts and in the hunks."""

    def __init__(self, before: bytes, after: bytes, hunks: Sequence[Hunk]) -> None:
        added = [row for hunk in hunks for row in hunk.added]
        removed = [row for hunk in hunks for row in hunk.removed]
        self._rows = split_rows(after)
        self._before = _count(split_rows(before))
        self._after = _count(self._rows)
        self._exact_rows = {row.rstrip() for row in self._rows}
        self._added, self._removed = _count(added), _count(removed)

    def find_missed(self, hunk: Hunk) -> MissedHunk | None:
        """Return the first proof that a hunk was not applied, if any."""
        for row in hunk.added:
            if self._is_missing(row):
                return MissedHunk(hunk, row, is_missing=True)
        for row in hunk.removed:
            if self._is_still_there(row):
                return MissedHunk(hunk, row, is_missing=False)
        significant = [row for row in hunk.added if _SIGNIFICANT.search(row)]
        if significant and self._is_untouched(hunk):
            return MissedHunk(hunk, significant[0], is_missing=True)
        return None

    def _is_missing(self, row: bytes) -> bool:
        key = _key(row)
        if not _SIGNIFICANT.search(key):
            return False
        if key in self._removed and row.rstrip() not in self._exact_rows:
            return True  # the hunk changes only its white space, such as the indentation
        return self._after[key] < self._added[key]

    def _is_still_there(self, row: bytes) -> bool:
        key = _key(row)
        to_remove = self._removed[key] - self._added[key]
        if not _SIGNIFICANT.search(key) or to_remove <= 0 or not self._before[key]:
            return False
        return self._after[key] > max(0, self._before[key] - to_remove)

    def _is_untouched(self, hunk: Hunk) -> bool:
        """Whether its lines did not change, and it had not been applied before."""
        changed = (_key(row) for row in (*hunk.added, *hunk.removed))
        return all(self._before[key] == self._after[key] for key in changed) and not self._has([
            _key(row) for row in hunk.new
        ])

    def _has(self, wanted: list[bytes]) -> bool:
        """Whether the text contains these lines consecutively."""
        return any(
            key == wanted[0] and self._keys[start : start + len(wanted)] == wanted
            for start, key in enumerate(self._keys)
        )

    @cached_property
    def _keys(self) -> list[bytes]:
        return [_key(row) for row in self._rows]


def _significant(keys: Counter[bytes]) -> list[bytes]:
    return [key for key in keys.elements() if _SIGNIFICANT.search(key)]


def _count(rows: Iterable[bytes]) -> Counter[bytes]:
    return Counter(map(_key, rows))


def _key(row: bytes) -> bytes:
    return b" ".join(row.split())
