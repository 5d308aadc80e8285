"""The runs and the open questions of a journal, as data."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from treefold.core.errors import StoreError
from treefold.core.question import Question
from treefold.runtime.observer import Observer
from treefold.views import data
from treefold.views.text import printable


class Listing:
    """Lists them as they are now; what a question is about is looked up once. For any thread."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._lock = threading.Lock()
        self._places: dict[str, dict[str, Any]] = {}  # by the id of the question

    def trees(self, questions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return all runs, newest last; *questions* are those that wait."""
        asked = Counter(question["tree"] for question in questions)
        interrupted = self._observer.interrupted()
        return [
            data.tree(tree, asked[tree.id], interrupted=tree.id in interrupted)
            for tree in self._observer.trees()
        ]

    def questions(self) -> list[dict[str, Any]]:
        """Return all that waits for a person, oldest first, and where in which run it does."""
        with self._lock:
            questions = self._observer.questions()
            known = self._places
            self._places = {one.id: known.get(one.id) or self._place(one) for one in questions}
            return [data.question(one) | self._places[one.id] for one in questions]

    def _place(self, question: Question) -> dict[str, Any]:
        place = {"tree": self._observer.tree_of(question.node_id), "path": "", "fn": ""}
        with suppress(StoreError):  # a run that cannot be read is no reason to show no other
            view = self._observer.get_view(question.node_id)
            place |= {"path": view.path, "fn": printable(view.fn)}
        return place
