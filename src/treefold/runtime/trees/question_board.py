"""The board: the open questions of a runtime, and the calls that sleep.

A sleep is a question to no person, which expires.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from treefold.core.errors import InvalidValueError, TooLargeError, UnknownQuestionError
from treefold.core.events import (
    Event,
    QuestionAsked,
    QuestionEscalated,
    QuestionNotified,
    QuestionSettled,
)
from treefold.core.fact import Fact, replace
from treefold.core.question import (
    Answer,
    Question,
    QuestionKey,
    QuestionKind,
    unknown_question,
)
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.trees.question_timers import QuestionTimers
from treefold.runtime.trees.run_log import log_question, questions_command
from treefold.runtime.trees.tree import Tree

log = logging.getLogger(__name__)

GRACE: Final = 1.0  # seconds in which a program may begin to read the questions
_MOST_WARNINGS: Final = 10  # at once; there may be thousands of questions


class OpenQuestion(Fact, frozen=True):
    """A question, the callback that takes the answer, and one that raises if it is not valid."""

    question: Question
    publish: Callable[[Event], object]
    loop_handle: LoopHandle
    settle: Callable[[Answer], None]
    check: Callable[[str], object] | None = None

    def checked(self, text: Any, args: Mapping[str, Any] | None) -> Answer:
        """Return an answer to it.

        Raises:
            InvalidValueError: it is not valid.
        """
        answer = self.question.checked(text, args)
        if self.check is not None:
            try:
                self.check(answer.text)
            except InvalidValueError as error:
                fault = f"that does not answer the question: {error}"
                raise InvalidValueError(fault) from None
        return answer


class QuestionBoard:
    """The open questions of one runtime; they are asked, settled and closed on its loop.

    Args:
        asked: is called with each new question; a replay answers it.
        expire: lets a question expire, unless a person has answered it elsewhere; it may call
            ``expire``, which is the default.
        now: returns the time by the clock of the journal.

    Attributes:
        is_read: whether the program reads the questions, and so answers them itself.
        timers: let questions expire.
        tell: is called with each question of which people have to be told, if anything is.
        telling: the ids of questions of which people are just being told.
    """

    def __init__(
        self,
        asked: Callable[[Question], None] | None = None,
        *,
        expire: Callable[[Question], None] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._asked = asked
        self.is_read = asked is not None
        self._unread: list[tuple[Tree, Question]] = []  # which are logged a moment later
        self._open: dict[str, OpenQuestion] = {}
        self._old: dict[int, list[Question]] = {}  # of earlier processes, by node
        self._shown = 0  # how many questions were opened that are not in a journal
        self.timers = QuestionTimers(self, expire or self._expire_here, now)
        self.tell: Callable[[Question], None] | None = None
        self.telling: Container[str] = ()
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
        self._put(question, publish, loop_handle, settle)

    def _put(
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
        question: Question,
        tree: Tree,
        loop_handle: LoopHandle,
        settle: Callable[[Answer], None],
        check: Callable[[str], object] | None = None,
    ) -> Question:
        """Open and publish a question, which gets an id; *settle* is called with the answer.

        If an earlier process has asked a question with the same key, that one is reused. *check*
        raises InvalidValueError if an answer is not valid.
        """
        node_id = question.node_id
        old = self._take_old(question, tree)
        if old is None:
            number = len(tree.record_of(node_id).asked or ()) + 1
            question = replace(question, id=f"{node_id}-{number}")
        elif check is not None and (old.form, old.choices) != (question.form, question.choices):
            # The program asks for something else than the process before it.
            asked_for = {"form": question.form, "choices": question.choices}
            question = replace(old, default=question.default, **asked_for)
        else:
            question = old
        self._open[question.id] = OpenQuestion(question, tree.publish, loop_handle, settle, check)
        if question is not old:
            try:
                tree.publish(QuestionAsked(node_id, tree.now(), question))
            except (TooLargeError, InvalidValueError):
                del self._open[question.id]
                raise
        self._log(tree, question, loop_handle)
        if self._asked is not None:
            self._asked(question)
        else:
            self.timers.watch(question, loop_handle)
            self.tell_people(question)
        return question

    def _take_old(self, question: Question, tree: Tree) -> Question | None:
        """Return the open question of an earlier process that is the same as *question*."""
        old = self._old.get(question.node_id, [])
        if not question.asks_people:
            # Sleeps are not taken over: they are in the record of their call.
            known = tree.record_of(question.node_id).questions or {}
            old = [one for one in known.values() if one.id not in self._open]
        for one in old:
            if one.has_key(question.kind, question.key):
                if one in self._old.get(question.node_id, ()):
                    self._old[question.node_id].remove(one)
                return one
        return None

    def tell_people(self, question: Question) -> None:
        """Let people be told of a question, unless they were."""
        # A person who has paused a call knows it.
        is_new = question.asks_people and question.key != QuestionKey.Hold
        is_known = question.notified or question.id in self.telling
        if self.tell is not None and is_new and not is_known:
            self.tell(question)

    def update(
        self, question: Question, event: type[QuestionEscalated] | type[QuestionNotified]
    ) -> None:
        """Replace an open question, and publish what has happened to it."""
        waiting = self._open[question.id]
        waiting.publish(event(question.node_id, self.timers.alarms.now(), question))
        self._open[question.id] = replace(waiting, question=question)
        if waiting.question in (old := self._old.get(question.node_id, [])):
            old[old.index(waiting.question)] = question

    def _expire_here(self, question: Question) -> None:
        self.expire(question.id)

    def expire(self, id: str) -> None:
        """Settle a question that no person has answered in time; runs on its loop.

        Raises:
            UnknownQuestionError: it is not open any more.
        """
        if (waiting := self._open.get(id)) is None:
            raise self._unknown(id)
        self.settle(id, Answer(waiting.question.default or "", expired=True))

    def _log(self, tree: Tree, question: Question, loop_handle: LoopHandle) -> None:
        """Log a new question; one that the program may not read, a moment later as a warning."""
        # A person who has paused a call knows it.
        if self.is_read or question.key == QuestionKey.Hold or not question.asks_people:
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
        self._put(question, tree.show, loop_handle, settle)
        tree.show(QuestionAsked(node_id, tree.now(), question))
        return question

    def find(self, id: str) -> Question | None:
        """Return the open question, or the sleep, with this id."""
        return None if (waiting := self._open.get(id)) is None else waiting.question

    def questions(self) -> list[Question]:
        """Return the open questions to people, oldest first."""
        found = [waiting.question for waiting in list(self._open.values())]
        return [question for question in found if question.asks_people]

    def check(self, id: str, text: Any, args: Mapping[str, Any] | None) -> LoopHandle:
        """Check an answer to an open question; return the loop on which it is settled."""
        waiting = self._find_open(id)
        waiting.checked(text, args)
        return waiting.loop_handle

    def answer(self, id: str, text: Any, args: Mapping[str, Any] | None, token: str = "") -> None:
        """Answer a question, from any thread; *token* is that of the command to do so."""
        waiting = self._find_open(id)
        answer = replace(waiting.checked(text, args), token=token)
        waiting.loop_handle.run_sync(self.settle, id, answer)

    def settle(self, id: str, answer: Answer) -> None:
        """Settle a question with an answer that was checked; runs on its loop.

        Raises:
            UnknownQuestionError: it is not open any more.
        """
        if (waiting := self._open.get(id)) is None:  # it has been answered meanwhile
            raise self._unknown(id)
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
            waiting.publish(QuestionSettled(node_id, self.timers.alarms.now(), id, answer))
            self._forget(id)
            if (old := self._old.get(node_id)) and waiting.question in old:
                # Otherwise the next question with the same key would reuse it.
                old.remove(waiting.question)

    def forget_old(self, node_id: int) -> None:
        """Remove the questions of an earlier process that the node has not asked again."""
        for old in self._old.pop(node_id, ()):
            self._forget(old.id)

    def forget(self, node_id: int) -> None:
        """Remove the questions of a node that this process does not run any more."""
        self._old.pop(node_id, None)
        for id in [id for id, one in self._open.items() if one.question.node_id == node_id]:
            self._forget(id)

    def _forget(self, id: str) -> None:
        self._open.pop(id, None)
        self.timers.forget(id)

    def _find_open(self, id: str) -> OpenQuestion:
        waiting = self._open.get(id)
        if waiting is None or not waiting.question.asks_people:
            raise self._unknown(id)
        return waiting

    def _unknown(self, id: str) -> UnknownQuestionError:
        return unknown_question(id, [question.id for question in self.questions()])
