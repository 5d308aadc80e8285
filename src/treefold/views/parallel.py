"""Which calls were requested in parallel, and the mark that says so."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from treefold.core.views import NodeView


class LanePlace(NamedTuple):
    """The position of a call among those that were requested together, and how many they are.

    Example:
        >>> print(LanePlace(2, 4))
        ∥2/4
    """

    position: int
    of: int

    def __str__(self) -> str:
        return f"∥{self.position}/{self.of}"


def places_in(calls: Iterable[NodeView]) -> Mapping[str, LanePlace]:
    """Return the places of those of *calls*, siblings, that are not alone, by path."""
    calls = tuple(calls)
    counts = Counter(call.sequence for call in calls)
    if len(counts) == len(calls):
        return {}
    seen: Counter[int] = Counter()
    found: dict[str, LanePlace] = {}
    for call in calls:
        if (count := counts[call.sequence]) > 1:
            seen[call.sequence] += 1
            found[call.path] = LanePlace(seen[call.sequence], count)
    return found


def numbered(path: str, place: LanePlace | None) -> str:
    """Return the path of a call, with its *place* if it was requested in parallel with others."""
    return path if place is None else f"{path} {place}"
