"""The runs and the open questions of a journal, as data."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from treefold.core.errors import StoreError
from treefold.core.question import Question
from treefold.runtime.observe.observer import Observer
from treefold.views import data
from treefold.views.text import printable


class Listing:
    """Lists them as they are now, from any thread; the call of a question is looked up once."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._lock = threading.Lock()
        self._calls: dict[str, dict[str, Any]] = {}  # by question id

    def trees(self, questions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return all runs, newest last; *questions* are the open ones."""
        counts = Counter(question["tree"] for question in questions)
        interrupted = self._observer.interrupted()
        trees = self._observer.trees()
        numbers = {tree.id: tree.number for tree in trees}
        return [
            data.tree(
                tree,
                counts[tree.id],
                source=numbers.get(tree.source),
                interrupted=tree.id in interrupted,
            )
            for tree in trees
        ]

    def questions(self) -> list[dict[str, Any]]:
        """Return all open questions, oldest first, with the run and the call that asked."""
        with self._lock:
            questions = self._observer.questions()
            known = self._calls
            self._calls = {one.id: known.get(one.id) or self._call(one) for one in questions}
            return [data.question(one) | self._calls[one.id] for one in questions]

    def _call(self, question: Question) -> dict[str, Any]:
        call = {"tree": self._observer.tree_of(question.node_id), "path": "", "fn": ""}
        # A run that cannot be read must not hide the questions of the others.
        with suppress(StoreError):
            view = self._observer.get_view(question.node_id)
            call |= {"path": view.path, "fn": printable(view.fn)}
        return call
