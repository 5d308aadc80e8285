"""Where the time of a run went: each call split by what it waited for, and the critical path.

Does not draw. The time of a call is split into kinds:

    queued: it slept, or waited to be started, or for a lease, a slot, a rate or the next attempt.
    model: a request to its model was under way.
    tool: its own code ran, or the code around its requests.
    person: it was paused, or had an open question.
    down: no process ran it; from the last recorded event on, since a death leaves no event.
    calls: a call that it made was open, which has that time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, Literal, NamedTuple, get_args

from treefold.core.phases import PhaseKind
from treefold.core.usage import NO_COST, added
from treefold.core.views import NodeView
from treefold.views.liveness import end_of

Kind = Literal["queued", "model", "tool", "person", "down", "calls"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

Stretch = tuple[float, float]  # from and to, in seconds since the epoch

_SAME: Final = 0.000_01  # seconds; the times of views are rounded to microseconds
# The part of its time for which a call may seem open when the next one begins, and count as ended:
# times are rounded, and clocks of several machines differ.
_OVERLAP: Final = 0.1


class Span(NamedTuple):
    """A stretch of the time of a call, all of one kind."""

    kind: Kind
    start: float
    end: float


class PathStep(NamedTuple):
    """A stretch of the critical path: a call, and none below it, took that time."""

    view: NodeView
    kind: Kind
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Timing:
    """How the time of a call, and of each call below it, was spent.

    Attributes:
        start: when the first of it began, in seconds since the epoch; *end* likewise.
        spans: of each call by its id, in order; together they are its whole time.
        path: the critical path, in order: what the end of the whole had to wait for, at each time.
    """

    start: float
    end: float
    spans: Mapping[int, list[Span]]
    path: list[PathStep]

    @property
    def split(self) -> dict[Kind, float]:
        """The seconds of each kind along the critical path."""
        split = dict.fromkeys(KINDS, 0.0)
        for step in self.path:
            split[step.kind] += step.end - step.start
        return split


def timing_of(top: NodeView, *, now: datetime | None = None) -> Timing:
    """Return how the time of *top* was spent, up to *now* for open calls."""
    at = (now or datetime.now(UTC)).timestamp()
    whole = _bounds(top, at, None)
    spans: dict[int, list[Span]] = {}
    bounds: dict[int, Stretch] = {top.id: whole}
    down_of: dict[int, list[Stretch]] = {top.id: []}
    for view in _walk(top):
        down = _merged([*down_of.pop(view.id), *_phases(view, PhaseKind.Down, at)])
        for child in view.children:
            bounds[child.id] = _bounds(child, at, whole)
            down_of[child.id] = down
        below = _merged(bounds[child.id] for child in view.children)
        spans[view.id] = _split(view, bounds[view.id], down, below, at)
    return Timing(*whole, spans, _critical_path(top, bounds, spans))


def _walk(top: NodeView) -> Iterator[NodeView]:
    """Yield *top* and all calls below it, callers first."""
    stack = [top]
    while stack:
        view = stack.pop()
        yield view
        stack.extend(view.children)


def _bounds(view: NodeView, now: float, whole: Stretch | None) -> Stretch:
    """Return from when to when a call waited or ran, within the *whole*."""
    end = end_of(view, datetime.fromtimestamp(now, UTC)).timestamp()
    start = end if view.started_at is None else view.started_at.timestamp()
    if view.phases and view.phases[0].kind is PhaseKind.Queued:
        _, queued, begun = view.phases[0]
        # The time of a fork begins with the fork, whatever its calls did in the source.
        if view.started_at is None or (begun is not None and abs(begun - start) < _SAME):
            start = min(start, queued)
    if whole is not None:
        start = min(max(start, whole[0]), whole[1])
        end = min(end, whole[1])
    return start, max(start, end)


def _split(
    view: NodeView, bounds: Stretch, down: list[Stretch], below: list[Stretch], now: float
) -> list[Span]:
    """Split the time of a call; of several kinds at once, the first in this list counts."""
    layers: list[tuple[Kind, list[Stretch]]] = [
        ("person", _merged(_phases(view, PhaseKind.Person, now))),
        ("down", down),
        ("queued", _merged(_phases(view, PhaseKind.Queued, now))),
        ("model", _merged(_phases(view, PhaseKind.Model, now))),
        ("calls", below),
        ("tool", [bounds]),
    ]
    left = [bounds] if bounds[1] > bounds[0] else []
    found: list[Span] = []
    for kind, layer in layers:
        if layer and left:
            taken, left = _cut(left, layer)
            found += [Span(kind, start, end) for start, end in taken]
    return _joined(sorted(found, key=lambda span: span.start))


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Join neighbours of one kind."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].kind == span.kind and joined[-1].end == span.start:
            joined[-1] = Span(span.kind, joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


def _phases(view: NodeView, wanted: PhaseKind, now: float) -> list[Stretch]:
    ended = now if view.ended_at is None else view.ended_at.timestamp()
    return [
        (start, ended if end is None else end) for kind, start, end in view.phases if kind is wanted
    ]


def _merged(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Return the union of *stretches*, in order."""
    merged: list[Stretch] = []
    for start, end in sorted(stretches):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _cut(free: list[Stretch], layer: list[Stretch]) -> tuple[list[Stretch], list[Stretch]]:
    """Return the parts of *free* that are in *layer*, and those that are not; all in order."""
    taken: list[Stretch] = []
    left: list[Stretch] = []
    place = 0
    for start, end in free:
        reached = start
        while place < len(layer) and layer[place][1] <= start:
            place += 1
        over = place
        while over < len(layer) and layer[over][0] < end:
            low, high = max(layer[over][0], reached), min(layer[over][1], end)
            if low > reached:
                left.append((reached, low))
            taken.append((low, high))
            reached = high
            over += 1
        if reached < end:
            left.append((reached, end))
    return taken, left


# The critical path


def _critical_path(
    top: NodeView, bounds: Mapping[int, Stretch], spans: Mapping[int, list[Span]]
) -> list[PathStep]:
    """Return the critical path, found backwards from the end.

    A call waited for the one of its calls that ended last; before that one began, for the one that
    had ended last by then, and so on. What is left is the time of the call itself: one that was
    still open when the next began did not delay that, unless code waited for a value that it sent.
    """
    steps: list[PathStep] = []
    stack: list[tuple[NodeView, float, float]] = [(top, *bounds[top.id])]
    while stack:
        view, low, high = stack.pop()
        own: list[Stretch] = []
        at = high
        # The last to end first; of several, the one that began first.
        for child in sorted(view.children, key=lambda child: _last_first(bounds[child.id])):
            begun, ended = bounds[child.id]
            if begun >= at or ended - at > (ended - begun) * _OVERLAP:
                continue
            ended = min(ended, at)
            if ended <= low:
                break
            own.append((ended, at))
            stack.append((child, max(begun, low), ended))
            at = begun
        own.append((low, max(low, at)))
        steps += _own_steps(view, own, spans[view.id])
    steps.sort(key=lambda step: step.start)
    return steps


def _last_first(bounds: Stretch) -> Stretch:
    begun, ended = bounds
    return -ended, begun


def _own_steps(view: NodeView, own: list[Stretch], spans: list[Span]) -> list[PathStep]:
    """Return *own*, stretches of the time of *view* from last to first, by their kinds."""
    stretches = [stretch for stretch in reversed(own) if stretch[1] > stretch[0]]
    found: list[PathStep] = []
    place = 0
    for stretch in stretches:
        while place < len(spans) and spans[place].end <= stretch[0]:
            place += 1
        over = place
        parts: list[Span] = []
        while over < len(spans) and spans[over].start < stretch[1]:
            kind, start, end = spans[over]
            # It did not wait for the calls that were open, so its own code ran.
            own_kind: Kind = "tool" if kind == "calls" else kind
            parts.append(Span(own_kind, max(start, stretch[0]), min(end, stretch[1])))
            over += 1
        found += [PathStep(view, *part) for part in _joined(parts)]
    return found


# Sums


@dataclass(slots=True)
class TimeSpent:
    """What calls took together; their own time, without that of the calls that they made.

    Attributes:
        requests: to a model.
        cost: US dollars; None if a price is not known.
    """

    name: str
    calls: int = 0
    requests: int = 0
    tokens: int = 0
    cost: Decimal | None = NO_COST
    seconds: dict[Kind, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))

    def add(self, view: NodeView, spans: Iterable[Span]) -> None:
        """Add one call."""
        self.calls += 1
        self.requests += sum(phase.kind is PhaseKind.Model for phase in view.phases)
        self.tokens += view.usage.total
        self.cost = added(self.cost, view.cost)
        for kind, start, end in spans:
            self.seconds[kind] += end - start

    @property
    def time(self) -> float:
        """The seconds in which they did or waited for something themselves."""
        return sum(self.seconds[kind] for kind in ("queued", "model", "tool", "person"))


class Totals:
    """What several runs took, by function and by model."""

    def __init__(self) -> None:
        self.runs = 0
        self.calls = 0
        self.seconds = 0.0  # of the runs, one after another
        self.split: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
        self._functions: dict[str, TimeSpent] = {}
        self._models: dict[str, TimeSpent] = {}

    def add(self, top: NodeView, timing: Timing) -> None:
        """Add one run."""
        self.runs += 1
        self.seconds += timing.end - timing.start
        for kind, seconds in timing.split.items():
            self.split[kind] += seconds
        for view in _walk(top):
            self.calls += 1
            spans = timing.spans[view.id]
            self._functions.setdefault(view.fn, TimeSpent(view.fn)).add(view, spans)
            if view.model is not None:
                self._models.setdefault(view.model, TimeSpent(view.model)).add(view, spans)

    @property
    def functions(self) -> list[TimeSpent]:
        """By function, the most time first."""
        return _ranked(self._functions)

    @property
    def models(self) -> list[TimeSpent]:
        """By model, the most time first; the time of agents, as far as it is their own."""
        return _ranked(self._models)


def _ranked(spent: Mapping[str, TimeSpent]) -> list[TimeSpent]:
    return sorted(spent.values(), key=lambda one: (-one.time, -one.tokens, one.name))


def totals_of(top: NodeView, timing: Timing) -> Totals:
    """Return what one run took."""
    totals = Totals()
    totals.add(top, timing)
    return totals
