"""Where in a text the hunks of a patch go: each in one place, or in none.

Lines are first compared as they are, then without their ends, then with any amount of white space
inside of them, and last with less context. Where the hunk says that it goes, if it does, counts for
the first two; the others must leave no choice. The white space that lines begin with is never
ignored: what is added would not be in line with what is there.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from treefold.toolbox.patching.hunk import Hunk
from treefold.toolbox.patching.rows import bare

Key = Callable[[bytes], bytes]

_INNER_SPACE: Final = re.compile(rb"(?<=\S)\s+")


@dataclass(frozen=True, slots=True)
class Placed:
    """A hunk, perhaps with less context, and how many lines are before it."""

    hunk: Hunk
    start: int
    is_exact: bool

    @property
    def end(self) -> int:
        """How many lines there are up to the end of it."""
        return self.start + len(self.hunk.old)

    @property
    def core(self) -> tuple[int, int]:
        """Where the lines that it changes begin and end."""
        return self.start + self.hunk.lead, self.end - self.hunk.trail


@dataclass(frozen=True, slots=True)
class Misfit:
    """A hunk that has no place, and the reason."""

    hunk: Hunk
    reason: str


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to compare lines, and how much of a hunk is compared."""

    key: Key
    context: int | None = None  # lines of it before and after, if not all
    heeds_numbers: bool = False


def _as_it_is(row: bytes) -> bytes:
    return row


def _loosely(row: bytes) -> bytes:
    return _INNER_SPACE.sub(b" ", row).rstrip()


_WAYS: Final = (
    _Way(_as_it_is, heeds_numbers=True),
    _Way(bare, heeds_numbers=True),
    _Way(_loosely),
    _Way(_loosely, context=2),
    _Way(_loosely, context=1),
)


def place_exactly(rows: Sequence[bytes], hunks: Sequence[Hunk]) -> list[Placed] | None:
    """Return where all the hunks go as they are, or None if one of them does not."""
    found = _place(rows, hunks, _WAYS[:1])
    placed = [p for p in found if isinstance(p, Placed) and p.is_exact]
    return placed if len(placed) == len(hunks) else None


def place_hunks(rows: Sequence[bytes], hunks: Sequence[Hunk]) -> tuple[list[Placed], list[Misfit]]:
    """Return where the hunks go, and those that go nowhere."""
    found = _place(rows, hunks, _WAYS)
    return (
        [place for place in found if isinstance(place, Placed)],
        [place for place in found if isinstance(place, Misfit)],
    )


class _Index:
    """The lines of a text, found by what they are compared by."""

    def __init__(self, rows: Sequence[bytes], key: Key) -> None:
        self._keys = [key(row) for row in rows]

    @cached_property
    def _places(self) -> dict[bytes, list[int]]:
        """Where each line is; of use only for hunks that are not where they say."""
        places: dict[bytes, list[int]] = {}
        for place, key in enumerate(self._keys):
            places.setdefault(key, []).append(place)
        return places

    def has(self, wanted: list[bytes], start: int) -> bool:
        """Whether the lines *wanted* are there."""
        return start >= 0 and self._keys[start : start + len(wanted)] == wanted

    def find(self, wanted: list[bytes]) -> list[int]:
        """Return where the lines *wanted* are: two places at most, as more make no difference."""
        found: list[int] = []
        places, before = min(
            ((self._places.get(key, []), number) for number, key in enumerate(wanted)),
            key=lambda choice: len(choice[0]),
        )
        for place in places:
            if self.has(wanted, place - before):
                found.append(place - before)
                if len(found) == 2:
                    break
        return found


def _place(
    rows: Sequence[bytes], hunks: Sequence[Hunk], ways: Sequence[_Way]
) -> list[Placed | Misfit]:
    indexes: dict[Key, _Index] = {}
    found: list[Placed | Misfit] = []
    taken: list[tuple[tuple[int, int], int]] = []  # by which hunk
    drift = 0  # by which the last hunk was not where it says
    for hunk in hunks:
        place = _find(rows, hunk, drift, ways, indexes)
        if isinstance(place, Placed):
            core = place.core
            rivals = [number for other, number in taken if _collide(core, other)]
            if rivals:
                place = Misfit(hunk, f"it changes what hunk {rivals[0]} changes, too")
            else:
                taken.append((core, hunk.number))
                if hunk.at is not None:
                    drift = place.start - (hunk.lead - place.hunk.lead) - hunk.at
        found.append(place)
    return found


def _find(
    rows: Sequence[bytes],
    hunk: Hunk,
    drift: int,
    ways: Sequence[_Way],
    indexes: dict[Key, _Index],
) -> Placed | Misfit:
    if not hunk.is_whole:
        return Misfit(hunk, "it has lines that begin with neither '+' nor '-' nor a space")
    if not rows and not hunk.old:
        return Placed(hunk, 0, is_exact=True)
    if hunk.at is None:
        if not hunk.old:
            return Misfit(hunk, "its header does not say where it goes")
        return _search(rows, hunk, (), ways, indexes)
    if not hunk.old:
        start = hunk.at + drift
        if 0 <= start <= len(rows):
            return Placed(hunk, start, is_exact=False)
        return Misfit(hunk, f"it goes after line {start}, and there are only {len(rows)}")
    return _search(rows, hunk, (hunk.at + drift, hunk.at), ways, indexes)


def _search(
    rows: Sequence[bytes],
    hunk: Hunk,
    stated: tuple[int, ...],
    ways: Sequence[_Way],
    indexes: dict[Key, _Index],
) -> Placed | Misfit:
    for way in ways:
        part = _with_context(hunk, way.context)
        if way.key not in indexes:
            indexes[way.key] = _Index(rows, way.key)
        index = indexes[way.key]
        wanted = [way.key(row) for row in part.old]
        is_exact = way.key is _as_it_is
        places = [place for place in stated if way.heeds_numbers and index.has(wanted, place)]
        places = places[:1] or index.find(wanted)
        if len(places) == 1:
            return Placed(part, places[0], is_exact)
        if places:
            return Misfit(hunk, "there are several places where it could go")
    return Misfit(hunk, "the lines that it wants to find are not there")


def _with_context(hunk: Hunk, most: int | None) -> Hunk:
    if most is None:
        return hunk
    return hunk.without_context(max(0, hunk.lead - most), max(0, hunk.trail - most))


def _collide(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two stretches have a line in common, or are the same place between two lines."""
    return one == other or (one[0] < other[1] and other[0] < one[1])


def clipped(placed: Sequence[Placed]) -> list[Placed]:
    """Return the hunks in order, without the context that two of them share."""
    ordered = sorted(placed, key=lambda place: place.core)
    found: list[Placed] = []
    reached = 0
    for number, place in enumerate(ordered):
        following = ordered[number + 1].core[0] if number + 1 < len(ordered) else place.end
        first = max(0, reached - place.start)
        last = max(0, place.end - max(following, place.core[1]))
        found.append(
            replace(place, hunk=place.hunk.without_context(first, last), start=place.start + first)
        )
        reached = found[-1].end
    return found
