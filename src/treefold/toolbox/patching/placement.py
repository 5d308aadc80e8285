"""Find where the hunks of a patch apply to a text; a hunk without a unique place is rejected.

Lines are compared exactly, then without their ends, then with any amount of white space inside
them, and last with less context. The first two rules prefer the line that the header states; the
others require that only one place matches. Leading white space is never ignored: the added lines
would have the wrong indentation.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from treefold.toolbox.patching.hunk import Hunk, strip_line_end

Key = Callable[[bytes], bytes]

_INNER_SPACE: Final = re.compile(rb"(?<=\S)\s+")


@dataclass(frozen=True, slots=True)
class PlacedHunk:
    """A hunk, perhaps with less context, and the number of lines before it."""

    hunk: Hunk
    start: int
    is_exact: bool

    @property
    def end(self) -> int:
        """The number of lines up to its end."""
        return self.start + len(self.hunk.old)

    @property
    def changed_range(self) -> tuple[int, int]:
        """The range of lines that it changes, without context."""
        return self.start + self.hunk.leading_context, self.end - self.hunk.trailing_context


@dataclass(frozen=True, slots=True)
class RejectedHunk:
    """A hunk that cannot be placed, and the reason."""

    hunk: Hunk
    reason: str


@dataclass(frozen=True, slots=True)
class _MatchRule:
    """How lines are compared, and how much context of a hunk is compared."""

    key: Key
    context: int | None = None  # number of lines before and after; None for all
    uses_line_numbers: bool = False


def _exact(row: bytes) -> bytes:
    return row


def _collapse_space(row: bytes) -> bytes:
    return _INNER_SPACE.sub(b" ", row).rstrip()


_MATCH_RULES: Final = (
    _MatchRule(_exact, uses_line_numbers=True),
    _MatchRule(strip_line_end, uses_line_numbers=True),
    _MatchRule(_collapse_space),
    _MatchRule(_collapse_space, context=2),
    _MatchRule(_collapse_space, context=1),
)


def place_exactly(rows: Sequence[bytes], hunks: Sequence[Hunk]) -> list[PlacedHunk] | None:
    """Return all hunks, placed by exact comparison; None if one of them does not match so."""
    found = _place_all(rows, hunks, _MATCH_RULES[:1])
    placed = [p for p in found if isinstance(p, PlacedHunk) and p.is_exact]
    return placed if len(placed) == len(hunks) else None


def place_hunks(
    rows: Sequence[bytes], hunks: Sequence[Hunk]
) -> tuple[list[PlacedHunk], list[RejectedHunk]]:
    """Return the hunks that can be placed, and those that cannot."""
    found = _place_all(rows, hunks, _MATCH_RULES)
    return (
        [hunk for hunk in found if isinstance(hunk, PlacedHunk)],
        [hunk for hunk in found if isinstance(hunk, RejectedHunk)],
    )


class _Index:
    """An index of the lines of a text, by the key that they are compared by."""

    def __init__(self, rows: Sequence[bytes], key: Key) -> None:
        self._keys = [key(row) for row in rows]

    @cached_property
    def _starts_by_key(self) -> dict[bytes, list[int]]:
        """The positions of each line; computed only for hunks that are not where they say."""
        starts: dict[bytes, list[int]] = {}
        for start, key in enumerate(self._keys):
            starts.setdefault(key, []).append(start)
        return starts

    def has(self, wanted: list[bytes], start: int) -> bool:
        """Whether the lines *wanted* are at *start*."""
        return start >= 0 and self._keys[start : start + len(wanted)] == wanted

    def find(self, wanted: list[bytes]) -> list[int]:
        """Return where the lines *wanted* are; at most two positions, which is enough to reject."""
        found: list[int] = []
        starts, before = min(
            ((self._starts_by_key.get(key, []), number) for number, key in enumerate(wanted)),
            key=lambda choice: len(choice[0]),
        )
        for start in starts:
            if self.has(wanted, start - before):
                found.append(start - before)
                if len(found) == 2:
                    break
        return found


def _place_all(
    rows: Sequence[bytes], hunks: Sequence[Hunk], rules: Sequence[_MatchRule]
) -> list[PlacedHunk | RejectedHunk]:
    indexes: dict[Key, _Index] = {}
    found: list[PlacedHunk | RejectedHunk] = []
    taken: list[tuple[tuple[int, int], int]] = []  # changed ranges and the hunks' numbers
    offset = 0  # between where the last hunk matched and where its header says
    for hunk in hunks:
        result = _locate(rows, hunk, offset, rules, indexes)
        if isinstance(result, PlacedHunk):
            changed = result.changed_range
            conflicts = [number for other, number in taken if _overlap(changed, other)]
            if conflicts:
                result = RejectedHunk(hunk, f"it changes the same lines as hunk {conflicts[0]}")
            else:
                taken.append((changed, hunk.number))
                if hunk.stated_start is not None:
                    trimmed = hunk.leading_context - result.hunk.leading_context
                    offset = result.start - trimmed - hunk.stated_start
        found.append(result)
    return found


def _locate(
    rows: Sequence[bytes],
    hunk: Hunk,
    offset: int,
    rules: Sequence[_MatchRule],
    indexes: dict[Key, _Index],
) -> PlacedHunk | RejectedHunk:
    if not hunk.is_well_formed:
        return RejectedHunk(hunk, "it has lines that begin with neither '+' nor '-' nor a space")
    if not rows and not hunk.old:
        return PlacedHunk(hunk, 0, is_exact=True)
    if hunk.stated_start is None:
        if not hunk.old:
            return RejectedHunk(hunk, "its header has no line number, and it has no lines to find")
        return _search(rows, hunk, (), rules, indexes)
    if not hunk.old:
        start = hunk.stated_start + offset
        if 0 <= start <= len(rows):
            return PlacedHunk(hunk, start, is_exact=False)
        return RejectedHunk(
            hunk, f"it adds lines after line {start}, but the file has only {len(rows)}"
        )
    return _search(rows, hunk, (hunk.stated_start + offset, hunk.stated_start), rules, indexes)


def _search(
    rows: Sequence[bytes],
    hunk: Hunk,
    stated: tuple[int, ...],
    rules: Sequence[_MatchRule],
    indexes: dict[Key, _Index],
) -> PlacedHunk | RejectedHunk:
    for rule in rules:
        part = _with_context(hunk, rule.context)
        if rule.key not in indexes:
            indexes[rule.key] = _Index(rows, rule.key)
        index = indexes[rule.key]
        wanted = [rule.key(row) for row in part.old]
        is_exact = rule.key is _exact
        starts = [start for start in stated if rule.uses_line_numbers and index.has(wanted, start)]
        starts = starts[:1] or index.find(wanted)
        if len(starts) == 1:
            return PlacedHunk(part, starts[0], is_exact)
        if starts:
            return RejectedHunk(hunk, "it matches in several places")
    return RejectedHunk(hunk, "the lines that it expects are not in the file")


def _with_context(hunk: Hunk, most: int | None) -> Hunk:
    if most is None:
        return hunk
    return hunk.without_context(
        max(0, hunk.leading_context - most), max(0, hunk.trailing_context - most)
    )


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two ranges share a line, or are the same position between two lines."""
    return one == other or (one[0] < other[1] and other[0] < one[1])


def trim_shared_context(placed: Sequence[PlacedHunk]) -> list[PlacedHunk]:
    """Return the hunks in order of position, without the context that two of them share."""
    ordered = sorted(placed, key=lambda each: each.changed_range)
    found: list[PlacedHunk] = []
    covered = 0
    for number, each in enumerate(ordered):
        following = ordered[number + 1].changed_range[0] if number + 1 < len(ordered) else each.end
        first = max(0, covered - each.start)
        last = max(0, each.end - max(following, each.changed_range[1]))
        hunk = each.hunk.without_context(first, last)
        found.append(replace(each, hunk=hunk, start=each.start + first))
        covered = found[-1].end
    return found
