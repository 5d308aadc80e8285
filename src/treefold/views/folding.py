"""Fold a tree into a number of lines: important calls get a line, the others are counted.

Knows states and line counts, and nothing of texts, widths or colours. Calls are chosen in this
order: those with a question, failed, running, ended (the latest first), not started; calls below
one that has ended come last.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from treefold.core.states import NodeState
from treefold.core.views import NodeView
from treefold.views.parallel import LanePlace, places_in

_MOST_MISSES: Final = 20  # candidates that do not fit, before the others are skipped
_ENDED_GROUP, _OPEN_GROUP, _WAITING_GROUP = range(3)  # hidden siblings of a group share a line
_ASKS, _FAILED, _RUNS, _ENDED, _WAITS, _PAST = range(6)  # priorities, the highest first


class CallCounts(NamedTuple):
    """How many calls a tree has, in all and by state.

    ``active`` are running calls that wait for no other call, ``calling`` those that do, ``paused``
    are calls that are paused without a question, ``unbegun`` calls that have not started,
    ``questions`` open questions, and ``interrupted`` open calls whose process has ended.
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


class CallCounter:
    """Counts the calls of a tree; of a later view, only the calls that have changed."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[NodeView, CallCounts]] = {}

    def count(self, view: NodeView) -> CallCounts:
        """Return the counts of *view* and all calls below it."""
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

    def _counted(self, view: NodeView) -> CallCounts:
        state = view.state
        open_below = any(not child.state.final for child in view.children)
        is_interrupted = view.interrupted_at is not None
        own = (
            CallCounts(1, *[0] * 8, interrupted=1)
            if is_interrupted
            else CallCounts(
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
        return CallCounts(*map(sum, zip(own, *below, strict=True))) if below else own


@dataclass(frozen=True, slots=True)
class CallRow:
    """A line for a call.

    Attributes:
        lead: the branches that lead to it.
        place: among the calls that were requested in parallel; None if it was alone.
        hidden: how many calls below it are not shown.
    """

    lead: str
    view: NodeView
    place: LanePlace | None = None
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class MoreRow:
    """A line for calls that are not shown: how many there are in each state."""

    lead: str
    states: Mapping[NodeState, int]


Row = CallRow | MoreRow


def fold(top: NodeView, room: int, counter: CallCounter) -> list[Row]:
    """Return *top* and the calls below it as at most *room* lines."""
    if counter.count(top).calls <= room:
        return list(_rows(top, None, counter))
    return list(_rows(top, _Selection(top, room, counter).shown, counter))[:room]


class _Candidate(NamedTuple):
    """A call whose parent is shown, so that it could be shown, too; the least comes first."""

    priority: int
    order: float
    serial: int  # breaks ties: the call that was made first
    depth: int
    view: NodeView
    parent: NodeView


class _Selection:
    """Selects the calls that are shown, from the top down."""

    def __init__(self, top: NodeView, room: int, counter: CallCounter) -> None:
        self.shown = {top.id}
        self._counter = counter
        self._serial = count()
        self._candidates: list[_Candidate] = []
        self._hidden: Counter[tuple[int, int]] = Counter()  # children, by parent and group
        self._room = room - 1 - _folds(top)
        self._add_children(top, 1)
        misses = 0
        while self._candidates and misses < _MOST_MISSES:
            misses += not self._take(heappop(self._candidates))

    def _take(self, candidate: _Candidate) -> bool:
        """Show the candidate if there is room; return whether there was."""
        view, parent = candidate.view, candidate.parent
        group = parent.id, _group(view)
        # The last hidden call of a group takes over the line that stood for the group.
        saved = self._hidden[group] == 1 and not parent.state.final
        cost = 1 + _folds(view) - saved
        if cost > self._room:
            return False
        self._room -= cost
        self._hidden[group] -= 1
        self.shown.add(view.id)
        self._add_children(view, candidate.depth + 1)
        return True

    def _add_children(self, parent: NodeView, depth: int) -> None:
        for child in parent.children:
            priority = self._priority(child, parent)
            order = 0.0
            if priority == _PAST:
                order = depth
            elif priority == _ENDED and child.ended_at is not None:
                order = -child.ended_at.timestamp()
            self._hidden[parent.id, _group(child)] += 1
            heappush(
                self._candidates,
                _Candidate(priority, order, next(self._serial), depth, child, parent),
            )

    def _priority(self, view: NodeView, parent: NodeView) -> int:
        state = view.state
        if state is NodeState.Error and parent.state is not NodeState.Success:
            return _FAILED
        if parent.state.final:
            return _PAST
        if state.final:
            return _ENDED
        counts = self._counter.count(view)
        if counts.questions:
            return _ASKS
        if state is NodeState.Waiting:
            return _WAITS
        return _FAILED if counts.failed else _RUNS


def _group(view: NodeView) -> int:
    if view.state.final:
        return _ENDED_GROUP
    return _WAITING_GROUP if view.state is NodeState.Waiting else _OPEN_GROUP


def _folds(view: NodeView) -> int:
    """Return how many lines the children of *view* take while all of them are hidden."""
    return 0 if view.state.final else len({_group(child) for child in view.children})


def _rows(top: NodeView, shown: set[int] | None, counter: CallCounter) -> Iterator[Row]:
    """Yield the lines of the calls whose ids are in *shown*; None for all calls."""
    stack: list[tuple[NodeView | Counter[NodeState], str, str, LanePlace | None]]
    stack = [(top, "", "", None)]
    while stack:
        one, lead, below, place = stack.pop()
        if isinstance(one, Counter):
            yield MoreRow(lead, one)
            continue
        items, hidden = (list(one.children), 0) if shown is None else _split(one, shown, counter)
        yield CallRow(lead, one, place, hidden)
        places = places_in(one.children)
        for item in reversed(items):
            last = item is items[-1]
            stack.append((
                item,
                below + ("└─ " if last else "├─ "),
                below + ("   " if last else "│  "),
                None if isinstance(item, Counter) else places.get(item.path),
            ))


def _split(
    view: NodeView, shown: set[int], counter: CallCounter
) -> tuple[list[NodeView | Counter[NodeState]], int]:
    """Return the items below *view*, and how many hidden calls its own line stands for.

    Hidden calls are counted at the position of the first one of their group.
    """
    items: list[NodeView | Counter[NodeState]] = []
    folds: dict[int, Counter[NodeState]] = {}
    hidden = 0
    for child in view.children:
        if child.id in shown:
            items.append(child)
        elif view.state.final:
            hidden += counter.count(child).calls
        else:
            group = _group(child)
            if group not in folds:
                folds[group] = Counter()
                items.append(folds[group])
            folds[group][child.state] += 1
    return items, hidden
