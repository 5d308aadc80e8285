"""``Driver``: the backend of a runtime whose journal no other process writes.

All open trees are resumed when it starts, but for those in which everything waits for a person, or
sleeps. These are parked: nothing of them is read until one answers, somebody looks at them, or the
time has come.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from treefold.core.call_request import CallRequest
from treefold.core.commands import ExpireQuestion, write_command
from treefold.core.errors import ClosedError, StoreError, UnknownNodeError, UsageError
from treefold.core.question import Question, asking_node, unknown_question
from treefold.core.store import TreeRow, nonblocking
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.stage import Stage
from treefold.runtime.calls.walk import root_of
from treefold.runtime.deps import give_deps
from treefold.runtime.durable.inbox import Execute
from treefold.runtime.durable.loader import Loader, PastFunction
from treefold.runtime.engine import Engine
from treefold.runtime.forks import Forks
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.readiness import hold_back
from treefold.runtime.recovery import Recovery
from treefold.runtime.trees.question_board import GRACE
from treefold.runtime.trees.run_log import questions_command

log = logging.getLogger(__name__)

_POLL_INTERVAL: Final = 0.1  # seconds between two polls of the inbox
_SOME: Final = 20  # questions that are looked at to tell whether any wait
_MOMENT: Final = 0.1  # seconds until timers that could not be read are read again


class Driver(Recovery):
    """Resumes the trees in a journal, answers their questions, and executes commands of observers.

    Args:
        execute: executes the command of an observer.
        was_killed: whether the process of the last driver died.
    """

    def __init__(
        self, loader: Loader, execute: Execute, engine: Engine, *, was_killed: bool
    ) -> None:
        super().__init__(loader, engine)
        self.forks = self._forks = Forks(self, engine)
        self._execute = execute
        self._was_killed = was_killed
        self._newest = 0  # the highest id of a tree of an earlier process
        self._due: set[int] = set()  # trees to resume as soon as the store can be read
        self._timers_until = 0.0  # the timers of parked trees until then have been noted
        self._poll_timer: asyncio.TimerHandle | None = None

    def start(self, loop_handle: LoopHandle) -> None:
        self.journal.loop = loop_handle.loop
        self._newest, _ = self._store.highest()
        known = self.loader.functions
        rows = self._store.to_resume(known)
        # Without its function nothing of a tree is done, so these are over at once.
        for row in sorted(rows, key=lambda row: row.function in known):
            self._resume_or_leave(row)
        if self._board.tell is not None:
            # People are told of the questions that earlier processes asked and did not tell.
            for question in self._store.questions(answered=True):
                self._board.tell_people(question)
        self.trials.begin()
        loop_handle.call_later(GRACE, self._log_parked)
        self._wake_due(loop_handle)
        self._poll(loop_handle)

    def _resume_or_leave(self, row: TreeRow) -> None:
        try:
            root = self._load(row.id)
            options = root.record.requested.options
            if row.function in self.loader.functions:
                self._resume(root)
            elif options is not None and options.passing:
                root.cancel_on_loop("its process ended, and nobody else can go on with it")
            else:
                hold_back(root, self.why_held_back(root))
        except StoreError as error:
            log.warning("run %d stays as it is: %s", row.number, error)

    def _poll(self, loop_handle: LoopHandle) -> None:
        """Execute the commands of observers, and schedule the next poll."""
        if self.is_suspended:  # the effects would not be recorded
            return
        try:
            for tree in tuple(self._due):
                self._wake(tree)
            self.inbox.process(self._execute)
        except (StoreError, ClosedError) as error:
            log.debug("the inbox cannot be read: %s", error)
        again = partial(self._poll, loop_handle)
        self._poll_timer = loop_handle.loop.call_later(_POLL_INTERVAL, again)

    def close(self) -> None:
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        super().close()

    def _leave(self) -> None:
        with suppress(StoreError, ClosedError):  # the next driver executes them again
            self.inbox.delete_executed()

    # Parked trees and their timers

    def _load(self, tree: int) -> CallNode:
        """Return the top-level call of a tree, which is read if need be."""
        if (known := self._engine.loaded(tree)) is not None:
            return known
        root = self._engine.load(tree)
        self.found(root, 0)
        return root

    def found(self, root: CallNode, place: int) -> None:
        """Put the open questions of a tree that was read on the board, to be answered here."""
        if not root.has_ended:
            for question in self._store.pending(root.id):
                if self._board.find(question.id) is None:
                    self.take_over(question)

    def settled(self, root: CallNode) -> None:
        # Its answer wakes a parked tree.
        if self._is_dormant(root):
            self._wake(root.id)

    def _is_dormant(self, root: CallNode) -> bool:
        """Whether the tree of *root* was left by an earlier process, and can be resumed."""
        if root.id in self.held_back:
            return False
        return root.stage is Stage.Requested and not isinstance(root.function, PastFunction)

    def _wake(self, tree: int) -> None:
        """Resume a parked tree after an answer, or later if it cannot be read now.

        This does not wait for the store: a resumed call waits for it before it has any effect.
        """
        try:
            if self._is_dormant(root := self._load(tree)):
                self._resume(root)
        except StoreError as error:
            if tree not in self._due:
                log.warning("node:%d does not go on yet: %s", tree, error)
            self._due.add(tree)
        else:
            self._due.discard(tree)

    def _resume(self, root: CallNode) -> None:
        self._due.discard(root.id)
        self.resume(root, was_killed=self._was_killed)

    def note_end(self, node: CallNode) -> None:
        self._board.forget_old(node.id)
        if node.parent is not None and self._is_dormant(root_of(node)):
            # Its caller can continue, so the tree is not parked any more.
            node.loop_handle.loop.call_soon(self._wake, node.tree.id)

    def _wake_due(self, loop_handle: LoopHandle) -> None:
        """Wake the parked trees whose time has come, and set an alarm for the next one.

        Trees that run in this process have alarms of their own, and are left alone.
        """
        if self.is_suspended:
            return
        now = self.loader.source.now()
        try:
            due = self._store.timers(after=self._timers_until, until=now)
            following = self._store.timers(after=now, limit=1)
        except (StoreError, ClosedError) as error:
            log.debug("the timers cannot be read: %s", error)
            following = [(now + _MOMENT, 0)]
        else:
            self._timers_until = now
            for _, tree in due:
                self._wake(tree)
        if following:
            again = partial(self._wake_due, loop_handle)
            self._board.timers.alarms.set(loop_handle.loop, following[0][0], again)

    def _log_parked(self) -> None:
        """Log that trees wait for a person, in one message: there may be thousands."""
        try:
            asked = self._store.questions(limit=_SOME)
        except (StoreError, ClosedError):  # it is closed, or the next one who reads it is told
            return
        # Of the others, the program is warned when they ask.
        waiting = {one.node_id for one in asked if self._engine.loaded(one.node_id) is None}
        if not waiting:
            return
        level = logging.INFO if self._board.is_read else logging.WARNING
        what = "runs of %s wait" if len(waiting) > 1 else "a run of %s waits"
        name, listed = self._store.name, questions_command(self.journal.path)
        log.log(level, f"{what} for a person; list the questions with: %s", name, listed)

    # Recorded calls

    def resume_with(self, root: CallNode, request: CallRequest) -> None:
        if root.stage is not Stage.Requested:
            return
        is_unknown = self._learn(root, request)
        if is_unknown or (request.deps is not None and root.id in self.held_back):
            self._resume(root)

    def _learn(self, root: CallNode, request: CallRequest) -> bool:
        is_unknown = super()._learn(root, request)
        if request.deps is not None:
            give_deps(root, self._engine.services, request.deps)
        return is_unknown

    def resume_held_back(self, root: CallNode, without: Sequence[str]) -> None:
        if root.id not in self.held_back and not self._is_dormant(root):
            raise UsageError(f"run {root.index} is running, bound by its guards: stop it first")
        self.lift_guards(root, without)
        self._resume(root)

    def recovered(self) -> list[int]:
        parked = [
            row.id
            for row in self._store.trees(open=True)
            if row.parked and row.id <= self._newest and row.id not in self.held_back
            if row.function in self.loader.functions
        ]
        return sorted({*parked, *self.resumed})

    def find_question(self, id: str) -> None:
        """Read the tree in which the question with this id was asked, if that is not done yet."""
        node = asking_node(id)
        if node is not None and self._board.find(id) is None:
            with suppress(UnknownNodeError):
                self._engine.find(node)

    def questions(self) -> list[Question]:
        known = {question.id: question for question in self._board.questions()}
        try:
            stored = self._store.questions()
        except StoreError:
            # That is one of the questions then.
            if self.journal.failing_since is None:
                raise
            stored = []
        # One that was settled just now may still be in the store, and one that was just asked not.
        listed = [
            known.pop(one.id, one)
            for one in stored
            if one.id in known or self._engine.loaded(one.node_id) is None
        ]
        return [*listed, *known.values()]

    def answer(self, id: str, text: Any, args: Mapping[str, Any] | None) -> None:
        self.find_question(id)
        if self._board.find(id) is None:
            raise unknown_question(id, [question.id for question in self.questions()])
        loop_handle = self._board.check(id, text, args)
        if self.journal.failing_since is not None or self.is_suspended:
            # Other processes cannot answer either, so no claim is needed.
            self._board.answer(id, text, args)
            return
        if not (on_loop := loop_handle.is_current()):
            # The question has to be in the store to be claimed.
            self.journal.flush()
        with self.inbox.claim(id, on_loop=on_loop):
            self._board.answer(id, text, args)

    def expire(self, question: Question) -> None:
        """Let a question expire: the store decides, where that is posted like an answer."""
        body = write_command(ExpireQuestion(question.id))
        try:
            with nonblocking():
                self._store.post(body, question=question.id)
        except (StoreError, ClosedError) as error:
            log.debug("question %s does not expire yet: %s", question.id, error)
