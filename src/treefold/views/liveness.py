"""Adjust views of open calls to facts that their events do not have yet.

An open call whose process has ended is interrupted, and its clock has stopped. An answer stays in
the journal until a process picks it up: until then the call still has its question.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from treefold.core.fact import replace
from treefold.core.frames import INTERRUPTED
from treefold.core.question import Question
from treefold.core.views import NodeView

# Statuses; format.js has the same.
WHEN_RESUMED: Final = "interrupted; it resumes when its program is started again"
ANSWERED: Final = "answered; it resumes when its program runs"


class ReadJournal(Protocol):
    """The part of an observer that is needed here."""

    def interrupted(self, tree: int, /) -> Mapping[int, float]: ...

    def tree_of(self, node: int, /) -> int: ...

    def questions(self, *, node: int) -> Sequence[Question]: ...


def state_of(view: NodeView) -> str:
    """Return the name of the state of a call."""
    return view.state.value if view.interrupted_at is None else INTERRUPTED


def end_of(view: NodeView, now: datetime) -> datetime:
    """Return up to when a call is timed: its end, the last event of its tree, or *now*."""
    return view.ended_at or view.interrupted_at or now


def up_to_date(journal: ReadJournal, view: NodeView) -> NodeView:
    """Return *view* with its interrupted calls, and without questions that are answered."""
    tree = journal.tree_of(view.id)
    view = with_interruption(view, journal.interrupted(tree), tree)
    asked = open_questions(journal, view)
    return with_answers(view, {one.id for questions in asked.values() for one in questions})


def open_questions(journal: ReadJournal, top: NodeView) -> dict[int, Sequence[Question]]:
    """Return what a call and those below it ask and nobody has answered, by their ids."""
    views = [top]
    for view in views:  # the list grows meanwhile
        views.extend(view.children)
    return {view.id: journal.questions(node=view.id) for view in views if view.questions}


def with_interruption(top: NodeView, trees: Mapping[int, float], tree: int) -> NodeView:
    """Return *top* with all its open calls as interrupted, if its *tree* is in *trees*.

    *trees* are the interrupted trees, with the times of their last events. A call that has asked a
    question still waits for the answer, and is not changed.
    """
    if tree not in trees:
        return top
    at = datetime.fromtimestamp(trees[tree], UTC)

    def interrupt(view: NodeView) -> NodeView:
        if view.questions:
            return view
        status = view.status if view.held_back else WHEN_RESUMED
        return replace(view, interrupted_at=at, status=status)

    return _map_open_calls(top, interrupt)


def with_answers(top: NodeView, open_questions: Container[str]) -> NodeView:
    """Return *top* with only those questions whose ids are in *open_questions*.

    The status of a call that has none left says that it was answered.
    """

    def remove_answered(view: NodeView) -> NodeView:
        left = tuple(question for question in view.questions if question.id in open_questions)
        if len(left) == len(view.questions):
            return view
        return replace(view, questions=left, status=view.status if left else ANSWERED)

    return _map_open_calls(top, remove_answered)


def _map_open_calls(top: NodeView, change: Callable[[NodeView], NodeView]) -> NodeView:
    """Return *top* with *change* applied to every open call; unchanged views are not copied."""
    # Without recursion: trees may be deeper than Python's stack.
    views = [] if top.state.final else [top]
    for view in views:  # the list grows meanwhile
        views.extend(child for child in view.children if not child.state.final)
    changed: dict[int, NodeView] = {}
    for view in reversed(views):  # callees before their callers
        new = view
        if any(child.id in changed for child in view.children):
            children = tuple(changed.get(child.id, child) for child in view.children)
            new = replace(view, children=children)
        new = change(new)
        if new is not view:
            changed[view.id] = new
    return changed.get(top.id, top)
