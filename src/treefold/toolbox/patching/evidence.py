"""What can be told from a text of whether hunks made it into it, and nothing else did.

An agent may have had to change a line a little to make it fit, and a line may be in a text for
other reasons. So lines are compared without regard to white space, unless that is what changes;
those that have neither letters nor digits prove nothing; and only as much is asked as must be true.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from treefold.toolbox.patching.hunk import Hunk
from treefold.toolbox.patching.rows import split_rows

_TELLS: Final = re.compile(rb"[^\W_]|[\x80-\xff]")
_STANDS_FOR: Final = 3  # lines that a line which is not there may look like instead


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A hunk that did not make it, and the line by which that can be told."""

    hunk: Hunk
    line: bytes
    is_missing: bool  # it was to be added; otherwise it was to be removed


def find_shortfalls(before: bytes, after: bytes, hunks: Sequence[Hunk]) -> list[Shortfall]:
    """Return those of *hunks* that somebody who made *after* out of *before* left undone.

    A line that hunks add must be there as often as they add it; one that they remove must be there
    less often than before, by as much as they remove it, if it was there at all. A hunk of whose
    lines none is there more or less often than before must be there as a whole.
    """
    evidence = _Evidence(before, after, hunks)
    found = map(evidence.against, hunks)
    return [shortfall for shortfall in found if shortfall is not None]


def find_strays(before: bytes, after: bytes, hunks: Sequence[Hunk]) -> list[bytes]:
    """Return the lines that are gone or new in *after*, although none of *hunks* asks for it.

    If a hunk wants to remove a line that is not there, a few others may go in its place; and if it
    wants to find one that is not there, a few may come.
    """
    old, new = (Counter(row.rstrip() for row in split_rows(text)) for text in (before, after))
    there = _counted(old.elements())
    removed = _counted(row for hunk in hunks for row in hunk.removed)
    wanted = _counted(row for hunk in hunks for row in hunk.old)
    added = _counted(row for hunk in hunks for row in hunk.added)
    lost = _telling(_counted((old - new).elements()) - removed)
    gained = _telling(_counted((new - old).elements()) - added)
    too_many_lost = len(lost) > _STANDS_FOR * (removed - there).total()
    too_many_gained = len(gained) > _STANDS_FOR * (wanted - there).total()
    return lost * too_many_lost + gained * too_many_gained


class _Evidence:
    """How often each line is in the texts, and in the hunks."""

    def __init__(self, before: bytes, after: bytes, hunks: Sequence[Hunk]) -> None:
        added = [row for hunk in hunks for row in hunk.added]
        removed = [row for hunk in hunks for row in hunk.removed]
        self._rows = split_rows(after)
        self._before = _counted(split_rows(before))
        self._after = _counted(self._rows)
        self._as_they_are = {row.rstrip() for row in self._rows}
        self._added, self._removed = _counted(added), _counted(removed)

    def against(self, hunk: Hunk) -> Shortfall | None:
        """Return the first thing, if any, by which a hunk can be seen not to have made it."""
        for row in hunk.added:
            if self._is_missing(row):
                return Shortfall(hunk, row, is_missing=True)
        for row in hunk.removed:
            if self._is_left(row):
                return Shortfall(hunk, row, is_missing=False)
        telling = [row for row in hunk.added if _TELLS.search(row)]
        if telling and self._is_untouched(hunk):
            return Shortfall(hunk, telling[0], is_missing=True)
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

    def _is_untouched(self, hunk: Hunk) -> bool:
        """Whether nothing has become of it, and nothing had before."""
        changed = (_key(row) for row in (*hunk.added, *hunk.removed))
        return all(self._before[key] == self._after[key] for key in changed) and not self._has([
            _key(row) for row in hunk.new
        ])

    def _has(self, wanted: list[bytes]) -> bool:
        """Whether these lines are in the text, one after the other."""
        return any(
            key == wanted[0] and self._keys[start : start + len(wanted)] == wanted
            for start, key in enumerate(self._keys)
        )

    @cached_property
    def _keys(self) -> list[bytes]:
        return [_key(row) for row in self._rows]


def _telling(keys: Counter[bytes]) -> list[bytes]:
    return [key for key in keys.elements() if _TELLS.search(key)]


def _counted(rows: Iterable[bytes]) -> Counter[bytes]:
    return Counter(map(_key, rows))


def _key(row: bytes) -> bytes:
    return b" ".join(row.split())
