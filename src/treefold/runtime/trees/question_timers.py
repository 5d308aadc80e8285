"""Expires and escalates questions, and ends sleeps, at the times that are in the journal.

The process that runs the call that asks keeps its times; for a parked tree, see ``Driver``.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from treefold.core.events import QuestionEscalated
from treefold.core.fact import replace
from treefold.core.question import Question
from treefold.runtime.loops.alarms import Alarm, Alarms
from treefold.runtime.loops.loop_handle import LoopHandle

_AGAIN: Final = 1.0  # seconds until a question is expired again, if that has not happened


class Board(Protocol):
    """The part of the question board that is needed here."""

    tell: Callable[[Question], None] | None

    def find(self, id: str) -> Question | None: ...
    def update(self, question: Question, event: type[QuestionEscalated]) -> None: ...
    def expire(self, id: str) -> None: ...


class QuestionTimers:
    """The times of the open questions of one runtime; used on its loop.

    Args:
        expire: lets a question expire, unless a person has answered it, perhaps elsewhere.
        now: returns the time by the clock of the journal.

    Attributes:
        alarms: call functions at such times.
    """

    def __init__(
        self, board: Board, expire: Callable[[Question], None], now: Callable[[], float]
    ) -> None:
        self._board = board
        self._expire = expire
        self.alarms = Alarms(now)
        self._set_alarms: dict[str, Alarm] = {}  # by the id of the question

    def watch(self, question: Question, loop_handle: LoopHandle) -> None:
        """Do what has to be done with *question* when it is due."""
        if question.changes_at is not None:
            self._set(question.id, question.changes_at, loop_handle)

    def _set(self, id: str, at: float, loop_handle: LoopHandle) -> None:
        due = partial(self._note_due, id, loop_handle)
        self._set_alarms[id] = self.alarms.set(loop_handle.loop, at, due)

    def forget(self, id: str) -> None:
        """Do nothing more about a question that is not open here any more."""
        if (alarm := self._set_alarms.pop(id, None)) is not None:
            alarm.stop()

    def _note_due(self, id: str, loop_handle: LoopHandle) -> None:
        if (question := self._board.find(id)) is None:
            return
        now = self.alarms.now()
        if question.expires is not None and question.expires <= now:
            if not question.asks_people:
                self._board.expire(id)
                return
            self._expire(question)
            if self._board.find(id) is not None:
                self._set(id, now + _AGAIN, loop_handle)
            return
        if question.escalations and question.escalations[0].at <= now:
            first, *rest = question.escalations
            question = replace(question, to=first.to, escalations=tuple(rest), notified=False)
            self._board.update(question, QuestionEscalated)
            if self._board.tell is not None:
                self._board.tell(question)
        self.watch(question, loop_handle)
