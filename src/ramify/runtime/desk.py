"""The questions that wait for a person."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ramify.core.errors import UnknownQuestionError
from ramify.core.events import Event, QuestionAsked, QuestionSettled
from ramify.core.question import Answer, Question, QuestionKind
from ramify.runtime.home import Home
from ramify.runtime.tree import Tree


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question, and what to do with the answer."""

    question: Question
    publish: Callable[[Event], None]
    home: Home
    settle: Callable[[Answer], None]


class Desk:
    """Knows every question of one runtime; they are asked, settled and withdrawn on its loop."""

    def __init__(self) -> None:
        self._open: dict[str, OpenQuestion] = {}
        self._old: dict[int, list[Question]] = {}  # of earlier processes, by node
        self.troubles = 0  # how often the journal could not be written
        self.trouble: asyncio.Future[None] | None = None  # done when the journal can be written

    def take_over(
        self,
        question: Question,
        publish: Callable[[Event], None],
        home: Home,
        settle: Callable[[Answer], None],
    ) -> None:
        """Take in a question that an earlier process has asked, until its node asks it again."""
        self._old.setdefault(question.node_id, []).append(question)
        self.put(question, publish, home, settle)

    def put(
        self,
        question: Question,
        publish: Callable[[Event], None],
        home: Home,
        settle: Callable[[Answer], None],
    ) -> None:
        """Lay down a question that whoever looks knows of already."""
        self._open[question.id] = OpenQuestion(question, publish, home, settle)

    def ask(
        self,
        node_id: int,
        tree: Tree,
        home: Home,
        kind: QuestionKind,
        text: str,
        choices: Sequence[str],
        settle: Callable[[Answer], None],
    ) -> Question:
        """Open a question; *settle* is called on the loop when somebody has answered it.

        One that an earlier process has asked, and that is the same, is not asked again.
        """
        for old in self._old.get(node_id, ()):
            if (old.kind, old.text) == (kind, tree.as_written(text)):
                self._old[node_id].remove(old)
                self._open[old.id] = OpenQuestion(old, tree.publish, home, settle)
                return old
        number = tree.asked[node_id] = tree.asked.get(node_id, 0) + 1
        question = Question(
            id=f"{node_id}-{number}", node_id=node_id, kind=kind, text=text, choices=tuple(choices)
        )
        self._open[question.id] = OpenQuestion(question, tree.publish, home, settle)
        tree.publish(QuestionAsked(node_id, time.time(), question))
        return question

    def questions(self) -> list[Question]:
        """Return what waits to be answered, oldest first."""
        return [waiting.question for waiting in list(self._open.values())]

    def answer(self, id: str, text: str, args: Mapping[str, Any] | None) -> None:
        """Answer a question, from any thread."""
        waiting = self._open.get(id)
        if waiting is None:
            raise self._unknown(id)
        answer = waiting.question.checked(text, args)
        waiting.home.call(self._settle, id, answer)

    def _settle(self, id: str, answer: Answer) -> None:
        waiting = self._open.get(id)
        if waiting is None:  # somebody else was quicker
            raise self._unknown(id)
        self.close(id, answer)
        waiting.settle(answer)

    def close(self, id: str, answer: Answer | None = None) -> None:
        """Take a question from the desk, if it still lies there."""
        waiting = self._open.pop(id, None)
        if waiting is not None:
            node_id = waiting.question.node_id
            if (old := self._old.get(node_id)) and waiting.question in old:
                old.remove(waiting.question)  # or it would be taken for the next of its kind
            waiting.publish(QuestionSettled(node_id, time.time(), id, answer))

    def forget_old(self, node_id: int) -> None:
        """Take from the desk what an earlier process has asked and the node has not asked again."""
        for old in self._old.pop(node_id, ()):
            self._open.pop(old.id, None)

    def _unknown(self, id: str) -> UnknownQuestionError:
        known = ", ".join(self._open) or "none"
        return UnknownQuestionError(f"no question {id!r} waits for an answer; open: {known}")
