"""Open calls whose process has ended: they are interrupted, and their clocks have stopped."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from treefold.core.views import NodeView

INTERRUPTED: Final = "interrupted"
WHEN_RESUMED: Final = "interrupted; it resumes when its program is started again"  # as in words.js


def state_of(view: NodeView) -> str:
    """Return the word for the state of a call."""
    return view.state.value if view.interrupted_at is None else INTERRUPTED


def end_of(view: NodeView, now: datetime) -> datetime:
    """Return up to when a call is timed: its end, the last event of its tree, or *now*."""
    return view.ended_at or view.interrupted_at or now


def with_interruption(top: NodeView, trees: Mapping[int, float], tree: int) -> NodeView:
    """Return *top* as interrupted, with all that is open below it, if its *tree* is in *trees*.

    These are the interrupted trees with the times of their last events. A call that has asked a
    question still waits for the answer, and is returned as it is.
    """
    return top if tree not in trees else _stopped(top, datetime.fromtimestamp(trees[tree], UTC))


def _stopped(top: NodeView, at: datetime) -> NodeView:
    # Without recursion: trees may be deeper than Python's stack.
    views = [top]
    for view in views:  # which grows meanwhile
        views.extend(child for child in view.children if not child.state.final)
    changed: dict[int, NodeView] = {}
    for view in reversed(views):
        if view.state.final:
            continue
        children = tuple(changed.get(child.id, child) for child in view.children)
        new = replace(view, children=children)
        if not view.questions:
            new = replace(new, interrupted_at=at, status=WHEN_RESUMED)
        changed[view.id] = new
    return changed.get(top.id, top)
