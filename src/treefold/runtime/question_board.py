"""The questions that wait for a person."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treefold.core.errors import TooLargeError, UnknownQuestionError
from treefold.core.events import Event, QuestionAsked, QuestionSettled
from treefold.core.question import Answer, Question, QuestionKey, QuestionKind
from treefold.runtime.loop_handle import LoopHandle
from treefold.runtime.tree import Tree


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question, and what to do with the answer."""

    question: Question
    publish: Callable[[Event], None]
    loop_handle: LoopHandle
    settle: Callable[[Answer], None]


class QuestionBoard:
    """Knows every question of one runtime; they are asked, settled and withdrawn on its loop."""

    def __init__(self) -> None:
        self._open: dict[str, OpenQuestion] = {}
        self._old: dict[int, list[Question]] = {}  # of earlier processes, by node
        self._shown = 0  # how many questions are not in any journal
        self.trouble: asyncio.Future[None] | None = None  # done when the journal can be written

    def take_over(
        self,
        question: Question,
        publish: Callable[[Event], None],
        loop_handle: LoopHandle,
        settle: Callable[[Answer], None],
    ) -> None:
        """Take in a question that an earlier process has asked, until its node asks it again."""
        self._old.setdefault(question.node_id, []).append(question)
        self.put(question, publish, loop_handle, settle)

    def put(
        self,
        question: Question,
        publish: Callable[[Event], None],
        loop_handle: LoopHandle,
        settle: Callable[[Answer], None],
    ) -> None:
        """Lay down a question that whoever looks knows of already."""
        self._open[question.id] = OpenQuestion(question, publish, loop_handle, settle)

    def ask(
        self,
        node_id: int,
        tree: Tree,
        loop_handle: LoopHandle,
        kind: QuestionKind,
        text: str,
        choices: Sequence[str],
        settle: Callable[[Answer], None],
        key: str,
    ) -> Question:
        """Open a question; *settle* is called on the loop when somebody has answered it.

        One that an earlier process has asked, and that has the same *key*, is not asked again.
        """
        for old in self._old.get(node_id, ()):
            if old.has_key(kind, key):
                self._old[node_id].remove(old)
                self._open[old.id] = OpenQuestion(old, tree.publish, loop_handle, settle)
                return old
        number = tree.asked[node_id] = tree.asked.get(node_id, 0) + 1
        question = Question(
            id=f"{node_id}-{number}",
            node_id=node_id,
            kind=kind,
            text=text,
            choices=tuple(choices),
            key=key,
        )
        self._open[question.id] = OpenQuestion(question, tree.publish, loop_handle, settle)
        try:
            tree.publish(QuestionAsked(node_id, time.time(), question))
        except TooLargeError:
            del self._open[question.id]
            raise
        return question

    def show(
        self,
        node_id: int,
        tree: Tree,
        loop_handle: LoopHandle,
        text: str,
        choices: Sequence[str],
        settle: Callable[[Answer], None],
    ) -> Question:
        """Open a question of the kind Paused that is in this process only."""
        self._shown += 1
        question = Question(
            id=f"journal-{self._shown}",
            node_id=node_id,
            kind=QuestionKind.Paused,
            text=text,
            choices=tuple(choices),
            key=QuestionKey.Journal,
        )
        self.put(question, tree.show, loop_handle, settle)
        tree.show(QuestionAsked(node_id, time.time(), question))
        return question

    def questions(self) -> list[Question]:
        """Return what waits to be answered, oldest first."""
        return [waiting.question for waiting in list(self._open.values())]

    def check(self, id: str, text: str, args: Mapping[str, Any] | None) -> LoopHandle:
        """See that this answers a question that is open; return where that is settled."""
        waiting = self._waiting(id)
        waiting.question.checked(text, args)
        return waiting.loop_handle

    def answer(self, id: str, text: str, args: Mapping[str, Any] | None) -> None:
        """Answer a question, from any thread."""
        waiting = self._waiting(id)
        answer = waiting.question.checked(text, args)
        waiting.loop_handle.run_sync(self._settle, id, answer)

    def _settle(self, id: str, answer: Answer) -> None:
        waiting = self._waiting(id)  # or somebody else was quicker
        self.close(id, answer)
        waiting.settle(answer)

    def close(self, id: str, answer: Answer | None = None) -> None:
        """Remove a question, if it is still open.

        Raises:
            TooLargeError: the answer does not fit into the journal; the question stays.
        """
        waiting = self._open.get(id)
        if waiting is not None:
            node_id = waiting.question.node_id
            waiting.publish(QuestionSettled(node_id, time.time(), id, answer))
            self._open.pop(id, None)
            if (old := self._old.get(node_id)) and waiting.question in old:
                old.remove(waiting.question)  # or it would be taken for the next of its kind

    def forget_old(self, node_id: int) -> None:
        """Remove what an earlier process asked and the node has not asked again."""
        for old in self._old.pop(node_id, ()):
            self._open.pop(old.id, None)

    def _waiting(self, id: str) -> OpenQuestion:
        if (waiting := self._open.get(id)) is not None:
            return waiting
        known = ", ".join(self._open) or "none"
        raise UnknownQuestionError(
            f"no question {id!r} waits for an answer (it may have been answered already);"
            f" open: {known}"
        )
