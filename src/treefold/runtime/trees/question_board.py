"""The board: the open questions of a runtime."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from treefold.core.errors import TooLargeError, UnknownQuestionError
from treefold.core.events import Event, QuestionAsked, QuestionSettled
from treefold.core.lazy_dataclass import lazy_dataclass
from treefold.core.question import Answer, Question, QuestionKey, QuestionKind
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.trees.run_log import log_question, questions_command
from treefold.runtime.trees.tree import Tree

log = logging.getLogger(__name__)

GRACE: Final = 1.0  # seconds in which a program may begin to read the questions
_MOST_WARNINGS: Final = 10  # at once; there may be thousands of questions


@lazy_dataclass(frozen=True)
class OpenQuestion:
    """A question, and the callback that takes the answer."""

    question: Question
    publish: Callable[[Event], object]
    loop_handle: LoopHandle
    settle: Callable[[Answer], None]


class QuestionBoard:
    """The open questions of one runtime; they are asked, settled and closed on its loop.

    Args:
        asked: is called with each new question; a replay answers it.

    Attributes:
        is_read: whether the program reads the questions, and so answers them itself.
    """

    def __init__(self, asked: Callable[[Question], None] | None = None) -> None:
        self._asked = asked
        self.is_read = asked is not None
        self._unread: list[tuple[Tree, Question]] = []  # which are logged a moment later
        self._open: dict[str, OpenQuestion] = {}
        self._old: dict[int, list[Question]] = {}  # of earlier processes, by node
        self._shown = 0  # how many questions were opened that are not in a journal
        self.outage: asyncio.Future[None] | None = None  # done when the journal can be written

    def take_over(
        self,
        question: Question,
        publish: Callable[[Event], object],
        loop_handle: LoopHandle,
        settle: Callable[[Answer], None],
    ) -> None:
        """Add a question of an earlier process, which its node may ask again."""
        self._old.setdefault(question.node_id, []).append(question)
        self.put(question, publish, loop_handle, settle)

    def put(
        self,
        question: Question,
        publish: Callable[[Event], object],
        loop_handle: LoopHandle,
        settle: Callable[[Answer], None],
    ) -> None:
        """Add a question without publishing it."""
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
        """Open and publish a question; *settle* is called on the loop with the answer.

        If an earlier process has asked a question with the same *key*, that one is reused.
        """
        for old in self._old.get(node_id, ()):
            if old.has_key(kind, key):
                self._old[node_id].remove(old)
                self._open[old.id] = OpenQuestion(old, tree.publish, loop_handle, settle)
                self._log(tree, old, loop_handle)
                return old
        number = len(tree.record_of(node_id).asked or ()) + 1
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
        self._log(tree, question, loop_handle)
        if self._asked is not None:
            self._asked(question)
        return question

    def _log(self, tree: Tree, question: Question, loop_handle: LoopHandle) -> None:
        """Log a new question; one that the program may not read, a moment later as a warning."""
        # A person who has paused a call knows it.
        if self.is_read or question.key == QuestionKey.Hold:
            log_question(tree, tree.record_of(question.node_id), question, logging.INFO)
            return
        self._unread.append((tree, question))
        if len(self._unread) == 1:
            loop_handle.call_later(GRACE, self.warn_of_unread)

    def warn_of_unread(self) -> None:
        """Log the open questions that were not logged yet.

        They are warnings, because without an answer the run never ends, unless the program has
        begun to read the questions.
        """
        unread, self._unread = self._unread, []
        unread = [(tree, question) for tree, question in unread if question.id in self._open]
        level = logging.INFO if self.is_read else logging.WARNING
        for tree, question in unread[:_MOST_WARNINGS]:
            log_question(tree, tree.record_of(question.node_id), question, level)
        if more := unread[_MOST_WARNINGS:]:
            journal = more[0][0].journal
            listed = questions_command(None if journal is None else journal.path)
            log.log(level, "%d more questions wait; list them with: %s", len(more), listed)

    def show(
        self,
        node_id: int,
        tree: Tree,
        loop_handle: LoopHandle,
        text: str,
        choices: Sequence[str],
        settle: Callable[[Answer], None],
    ) -> Question:
        """Open a question of the kind Paused that is not written to the journal."""
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
        """Return the open questions, oldest first."""
        return [waiting.question for waiting in list(self._open.values())]

    def check(self, id: str, text: str, args: Mapping[str, Any] | None) -> LoopHandle:
        """Check an answer to an open question; return the loop on which it is settled."""
        waiting = self._find_open(id)
        waiting.question.checked(text, args)
        return waiting.loop_handle

    def answer(self, id: str, text: str, args: Mapping[str, Any] | None) -> None:
        """Answer a question, from any thread."""
        waiting = self._find_open(id)
        answer = waiting.question.checked(text, args)
        waiting.loop_handle.run_sync(self.settle, id, answer)

    def settle(self, id: str, answer: Answer) -> None:
        """Settle a question with an answer that was checked; runs on its loop.

        Raises:
            UnknownQuestionError: it is not open any more.
        """
        waiting = self._find_open(id)  # raises if it has been answered meanwhile
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
                # Otherwise the next question with the same key would reuse it.
                old.remove(waiting.question)

    def forget_old(self, node_id: int) -> None:
        """Remove the questions of an earlier process that the node has not asked again."""
        for old in self._old.pop(node_id, ()):
            self._open.pop(old.id, None)

    def forget(self, node_id: int) -> None:
        """Remove the questions of a node that this process does not run any more."""
        self._old.pop(node_id, None)
        for id in [id for id, one in self._open.items() if one.question.node_id == node_id]:
            self._open.pop(id, None)

    def _find_open(self, id: str) -> OpenQuestion:
        if (waiting := self._open.get(id)) is not None:
            return waiting
        known = ", ".join(self._open) or "none"
        raise UnknownQuestionError(
            f"no question {id!r} waits for an answer (it may have been answered already);"
            f" open: {known}"
        )
