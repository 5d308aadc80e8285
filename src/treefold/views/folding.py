"""Which calls of a tree there is room for: what matters is shown, and the rest is counted.

Knows states and numbers of lines, and nothing of words, widths or colours. What waits for a person
comes first, then what failed, what is under way, what ended last, and what has not begun; what is
below a call that has ended comes last.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from treefold.core.states import NodeState
from treefold.core.views import NodeView

_MISSES: Final = 20  # calls that there is no room for, until no other is tried
_OVER, _UNDER_WAY, _TO_COME = range(3)  # what one line may stand for
_ASKS, _FAILED, _RUNS, _ENDED, _WAITS, _PAST = range(6)  # what is shown first


class Tally(NamedTuple):
    """How many calls there are, one and all below it, and how they stand.

    ``active`` are those under way that wait for no other call, ``calling`` those that do,
    ``paused`` those that stand still without a question, ``questions`` what people are asked, and
    ``interrupted`` the open calls whose process has ended.
    """

    calls: int
    done: int
    failed: int
    canceled: int
    active: int
    paused: int
    unbegun: int
    questions: int
    calling: int = 0
    interrupted: int = 0


class Census:
    """Counts the calls of a tree, and of a later view of it only what has changed."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[NodeView, Tally]] = {}

    def of(self, view: NodeView) -> Tally:
        """Return the tally of *view*."""
        stack = [view]
        while stack:
            one = stack[-1]
            new = [] if self._is_known(one) else [c for c in one.children if not self._is_known(c)]
            if new:
                stack += new
                continue
            if not self._is_known(one):
                self._known[one.id] = one, self._counted(one)
            stack.pop()
        return self._known[view.id][1]

    def _is_known(self, view: NodeView) -> bool:
        known = self._known.get(view.id)
        return known is not None and known[0] is view

    def _counted(self, view: NodeView) -> Tally:
        state = view.state
        open_below = any(not child.state.final for child in view.children)
        is_interrupted = view.interrupted_at is not None
        own = (
            Tally(1, *[0] * 8, interrupted=1)
            if is_interrupted
            else Tally(
                1,
                state is NodeState.Success,
                state is NodeState.Error,
                state is NodeState.Canceled,
                state is NodeState.Running and not open_below,
                state is NodeState.Paused and not view.questions,
                state is NodeState.Waiting,
                len(view.questions),
                state is NodeState.Running and open_below,
            )
        )
        below = [self._known[child.id][1] for child in view.children]
        return Tally(*map(sum, zip(own, *below, strict=True))) if below else own


@dataclass(frozen=True, slots=True)
class CallRow:
    """A line for a call.

    Attributes:
        lead: the branches that lead to it.
        tied: whether it was asked for in parallel with others.
        hidden: how many calls below it are not shown.
    """

    lead: str
    view: NodeView
    tied: bool = False
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class MoreRow:
    """A line for calls that there is no room for, by their states."""

    lead: str
    states: Mapping[NodeState, int]


Row = CallRow | MoreRow


def folded(top: NodeView, room: int, census: Census) -> list[Row]:
    """Return the lines of *top* and all below it, no more than *room*."""
    if census.of(top).calls <= room:
        return list(_rows(top, None, census))
    return list(_rows(top, _Choice(top, room, census).shown, census))[:room]


class _Offer(NamedTuple):
    """A call that could be shown next, as its parent is; the least comes first."""

    urgency: int
    order: float
    serial: int  # of calls that are alike the one that was made first
    depth: int
    view: NodeView
    parent: NodeView


class _Choice:
    """The calls that are shown, found from the top."""

    def __init__(self, top: NodeView, room: int, census: Census) -> None:
        self.shown = {top.id}
        self._census = census
        self._serial = count()
        self._offers: list[_Offer] = []
        self._hidden: Counter[tuple[int, int]] = Counter()  # children, by parent and group
        self._room = room - 1 - _folds(top)
        self._offer_children(top, 1)
        misses = 0
        while self._offers and misses < _MISSES:
            misses += not self._take(heappop(self._offers))

    def _take(self, offer: _Offer) -> bool:
        """Show what is offered if there is room."""
        view, parent = offer.view, offer.parent
        group = parent.id, _group(view)
        saved = self._hidden[group] == 1 and not parent.state.final  # the line that stood for it
        cost = 1 + _folds(view) - saved
        if cost > self._room:
            return False
        self._room -= cost
        self._hidden[group] -= 1
        self.shown.add(view.id)
        self._offer_children(view, offer.depth + 1)
        return True

    def _offer_children(self, parent: NodeView, depth: int) -> None:
        for child in parent.children:
            urgency = self._urgency(child, parent)
            order = 0.0
            if urgency == _PAST:
                order = depth
            elif urgency == _ENDED and child.ended_at is not None:
                order = -child.ended_at.timestamp()
            self._hidden[parent.id, _group(child)] += 1
            heappush(self._offers, _Offer(urgency, order, next(self._serial), depth, child, parent))

    def _urgency(self, view: NodeView, parent: NodeView) -> int:
        state = view.state
        if state is NodeState.Error and parent.state is not NodeState.Success:
            return _FAILED
        if parent.state.final:
            return _PAST
        if state.final:
            return _ENDED
        tally = self._census.of(view)
        if tally.questions:
            return _ASKS
        if state is NodeState.Waiting:
            return _WAITS
        return _FAILED if tally.failed else _RUNS


def _group(view: NodeView) -> int:
    if view.state.final:
        return _OVER
    return _TO_COME if view.state is NodeState.Waiting else _UNDER_WAY


def _folds(view: NodeView) -> int:
    """Return how many lines stand for the children of *view* as long as none is shown."""
    return 0 if view.state.final else len({_group(child) for child in view.children})


def _rows(top: NodeView, shown: set[int] | None, census: Census) -> Iterator[Row]:
    """Yield the lines of all that is *shown*, by id; None stands for everything."""
    stack: list[tuple[NodeView | Counter[NodeState], str, str, bool]] = [(top, "", "", False)]
    while stack:
        one, lead, below, tied = stack.pop()
        if isinstance(one, Counter):
            yield MoreRow(lead, one)
            continue
        items, hidden = (list(one.children), 0) if shown is None else _split(one, shown, census)
        yield CallRow(lead, one, tied, hidden)
        together = Counter(child.sequence for child in one.children)
        for item in reversed(items):
            last = item is items[-1]
            stack.append((
                item,
                below + ("└─ " if last else "├─ "),
                below + ("   " if last else "│  "),
                not isinstance(item, Counter) and together[item.sequence] > 1,
            ))


def _split(
    view: NodeView, shown: set[int], census: Census
) -> tuple[list[NodeView | Counter[NodeState]], int]:
    """Return what to show below *view*, and how many calls its own line has to stand for.

    Calls that are not shown are counted where the first of their kind would be.
    """
    items: list[NodeView | Counter[NodeState]] = []
    folds: dict[int, Counter[NodeState]] = {}
    hidden = 0
    for child in view.children:
        if child.id in shown:
            items.append(child)
        elif view.state.final:
            hidden += census.of(child).calls
        else:
            group = _group(child)
            if group not in folds:
                folds[group] = Counter()
                items.append(folds[group])
            folds[group][child.state] += 1
    return items, hidden
