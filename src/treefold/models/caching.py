"""How long a provider should cache an agent's prompt: decided once for each run, from past runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from treefold.core.function import Function
from treefold.core.model import Caching

RUNS: Final = 5  # past runs that count
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class PastRun:
    """A completed run of the same agent: the times of its calls in seconds, in order.

    Example:
        >>> from treefold.models import PastRun
        >>> PastRun([0.0, 12.5]).call_times
        [0.0, 12.5]
    """

    call_times: Sequence[float]


def caching_policy(functions: Iterable[Function], past: Sequence[PastRun] = ()) -> Caching:
    """Return how long to cache the prompt of an agent that has these functions.

    Without functions there is one request, and nothing to cache. With leaf functions only, the next
    request follows soon. Otherwise a call may take long, so the last five completed runs decide:
    an hour, if they made more than one call on average, less than an hour apart.

    Example:
        >>> from treefold import registries, tool
        >>> from treefold.models import caching_policy
        >>> with registries():
        ...     @tool
        ...     async def look() -> str: ...
        >>> caching_policy([]), caching_policy([look])
        (<Caching.NONE: 'none'>, <Caching.MINUTES: '5m'>)
    """
    functions = list(functions)
    if not functions:
        return Caching.NONE
    if not depends_on_past(functions):
        return Caching.MINUTES
    recent = past[-RUNS:]
    calls = sum(len(run.call_times) for run in recent)
    gaps = [later - earlier for run in recent for earlier, later in pairwise(run.call_times)]
    if calls > len(recent) and gaps and sum(gaps) / len(gaps) < _HOUR:
        return Caching.HOUR
    return Caching.NONE


def depends_on_past(functions: Iterable[Function]) -> bool:
    """Whether the past runs of an agent that has these functions decide about its caching."""
    return not all(map(_is_leaf, functions))


def _is_leaf(function: Function) -> bool:
    """Whether its calls, nested ones included, use no model and wait for no person."""
    seen: set[int] = set()
    pending = [function]
    while pending:
        one = pending.pop()
        if one.is_agent or one.asks_people:
            return False
        if id(one) not in seen:
            seen.add(id(one))
            pending.extend(one.uses)
    return True
