"""The flame graph of a run, as numbers: where its time, tokens or money went.

Does not draw. A frame lies below the frame of its caller, and within its width.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, Literal

from treefold.core.views import NodeView
from treefold.views.liveness import end_of

By = Literal["time", "tokens", "money"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlameFrame:
    """One call.

    Attributes:
        start: its left edge, as a fraction of the whole graph; *width* likewise.
        value: seconds, tokens or dollars of the call and all calls below it.
        own: the part of *value* that is not of a call below it.
    """

    view: NodeView
    depth: int
    start: float
    width: float
    value: Decimal
    own: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Flame:
    """The flame graph of a call.

    Attributes:
        total: the value of the whole.
        complete: whether every price is known; calls without a price count as 0.
        frames: one for each call, callers first.
    """

    by: By
    total: Decimal
    complete: bool
    frames: list[FlameFrame]


def flame_of(view: NodeView, by: By = "time", *, now: datetime | None = None) -> Flame:
    """Return the flame graph of *view* by time, tokens or money.

    Time is laid out as it passed, up to *now* for open calls. Tokens and money are laid out in the
    order of the calls; what a call spent itself comes after the calls that it made.
    """
    if by == "time":
        frames = list(_frames_by_time(view, now or datetime.now(UTC)))
    else:
        frames = list(_frames_by_amount(view, _tokens if by == "tokens" else _money))
    complete = by != "money" or all(frame.view.cost is not None for frame in frames)
    return Flame(by=by, total=frames[0].value, complete=complete, frames=frames)


_ZERO: Final = Decimal(0)


def _frames_by_time(top: NodeView, now: datetime) -> Iterator[FlameFrame]:
    begin, end = _span(top, now)
    whole = end - begin
    stack = [(top, 0)]
    while stack:
        view, depth = stack.pop()
        spans = [_span(child, now) for child in view.children]
        started, ended = _span(view, now)
        started, ended = _clamp(started, begin, end), _clamp(ended, begin, end)
        yield FlameFrame(
            view=view,
            depth=depth,
            start=(started - begin) / whole if whole else 0.0,
            width=(ended - started) / whole if whole else 0.0,
            value=_seconds(ended - started),
            own=_seconds(ended - started - _covered(spans, started, ended)),
        )
        stack.extend((child, depth + 1) for child in reversed(view.children))


def _span(view: NodeView, now: datetime) -> tuple[float, float]:
    if view.started_at is None:
        at = end_of(view, now).timestamp()
        return at, at
    started = view.started_at.timestamp()
    return started, max(started, end_of(view, now).timestamp())


def _covered(spans: list[tuple[float, float]], begin: float, end: float) -> float:
    """Return the length of the union of *spans* between *begin* and *end*."""
    total, reached = 0.0, begin
    for started, ended in sorted(spans):
        started, ended = max(started, reached), min(ended, end)
        if ended > started:
            total += ended - started
            reached = ended
    return total


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _seconds(value: float) -> Decimal:
    return Decimal(round(value * 1_000_000)) / 1_000_000


def _frames_by_amount(top: NodeView, own: Callable[[NodeView], Decimal]) -> Iterator[FlameFrame]:
    values = _sums(top, own)
    whole = values[top.id]
    stack = [(top, 0, _ZERO)]
    while stack:
        view, depth, start = stack.pop()
        value = values[view.id]
        yield FlameFrame(
            view=view,
            depth=depth,
            start=float(start / whole) if whole else 0.0,
            width=float(value / whole) if whole else 0.0,
            value=value,
            own=own(view),
        )
        below: list[tuple[NodeView, int, Decimal]] = []
        for child in view.children:
            below.append((child, depth + 1, start))
            start += values[child.id]
        stack.extend(reversed(below))


def _sums(top: NodeView, own: Callable[[NodeView], Decimal]) -> dict[int, Decimal]:
    """Return what each call and all calls below it spent, as far as that is known."""
    order, stack = list[NodeView](), [top]
    while stack:
        view = stack.pop()
        order.append(view)
        stack.extend(view.children)
    sums: dict[int, Decimal] = {}
    for view in reversed(order):  # callees before their callers
        sums[view.id] = sum((sums[child.id] for child in view.children), own(view))
    return sums


def _tokens(view: NodeView) -> Decimal:
    return Decimal(view.usage.total)


def _money(view: NodeView) -> Decimal:
    return view.cost or _ZERO
