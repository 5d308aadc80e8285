"""Calls whose questions somebody has answered, and that nobody has told so yet.

An answer is left in the journal until a program takes it: until then the call is as it was.
"""

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Final

from treefold.core.views import NodeView
from treefold.runtime.observer import Observer
from treefold.views.liveness import with_interruption

ANSWERED: Final = "answered; it goes on when its program does"  # words.js has the same


def as_it_stands(observer: Observer, view: NodeView) -> NodeView:
    """Return *view* as it is to be shown.

    Only questions that nobody has answered wait, and what an ended process left open is
    interrupted.
    """
    view = with_interruption(view, observer.interrupted(), observer.tree_of(view.id))
    return with_answers(view, {question.id for question in observer.questions()})


def with_answers(top: NodeView, waiting: Container[str]) -> NodeView:
    """Return *top*, and all below it, with only those questions whose ids are *waiting*.

    A call that has none left says that it was answered. What is as it was is the same object.
    """
    calls = [(top, -1)]  # those that are open, and the place of whoever made each
    for place, (view, _) in enumerate(calls):  # which grow meanwhile
        calls.extend((child, place) for child in view.children if not child.state.final)
    changed: dict[int, dict[int, NodeView]] = {}  # by the place of the caller, and the id
    for place in reversed(range(len(calls))):
        view, above = calls[place]
        new = _seen(view, waiting, changed.pop(place, {}))
        if new is not view:
            changed.setdefault(above, {})[view.id] = new
    return changed.get(-1, {}).get(top.id, top)


def _seen(view: NodeView, waiting: Container[str], below: Mapping[int, NodeView]) -> NodeView:
    """Return *view* with what has changed *below* it, by the id, and without what is answered."""
    if below:
        view = replace(view, children=tuple(below.get(one.id, one) for one in view.children))
    left = tuple(question for question in view.questions if question.id in waiting)
    if len(left) == len(view.questions):
        return view
    return replace(view, questions=left, status=view.status if left else ANSWERED)
