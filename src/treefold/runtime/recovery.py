"""Resumes trees of a journal in this process, whether it drives all of them or some.

An unfinished tree is resumed from its root: the top-level call is started again, and each call that
it makes again is looked up in the journal. Agents continue after their last response, code runs
from its beginning.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

from treefold.core.address import address
from treefold.core.budget import Budget
from treefold.core.call_request import CallRequest
from treefold.core.errors import ClosedError, HeldBackError, StoreError, UsageError
from treefold.core.question import Answer, Question
from treefold.core.store import nonblocking
from treefold.runtime.backend import Backend, Forking
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of, subtree
from treefold.runtime.durable.crash_trials import CrashTrials
from treefold.runtime.durable.inbox import Inbox
from treefold.runtime.durable.journal_events import JournalEvents
from treefold.runtime.durable.loader import Loader, PastFunction
from treefold.runtime.engine import Engine
from treefold.runtime.graph import reachable
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.loops.threads import finish_in_thread
from treefold.runtime.questions.pauses import gate_while_paused
from treefold.runtime.readiness import accept_import, hold_back, lift, why_held_back
from treefold.runtime.trees.run_log import name_of
from treefold.runtime.unread_nodes import UnreadTrees

log = logging.getLogger(__name__)

_TRIES: Final = 10  # to write all events of a runtime that is being closed
_MOMENT: Final = 0.1  # seconds that the loop may wait for the writer


class Recovery(Backend):  # noqa: PLR0904 - a backend, and what its own parts need of it
    """What the two backends with a journal have in common: it resumes trees, and deletes them.

    Attributes:
        resumed: the ids of trees that were resumed.
        trials: notice that a call has ended its process again and again.
        deleting: the ids of trees that must not be forked any more.
        forking: the ids of trees that must not be deleted now.
    """

    _forks: Forking  # made by each of them, since forks are resumed

    def __init__(self, loader: Loader, engine: Engine) -> None:
        self.loader = loader
        self.journal = loader.journal
        self.store = self._store = loader.store
        self.why_held_back = partial(why_held_back, engine=engine, loader=loader)
        self.inbox = Inbox(self.journal)
        self.unread = UnreadTrees(loader, engine.loaded, engine.find)
        self.held_back = self._held_back = set[int]()
        self.resumed: dict[int, None] = {}
        self.trials = CrashTrials()
        self.deleting: set[int] = set()
        self.forking: list[int] = []
        self._board = engine.services.board
        self._engine = engine

    # Resuming

    def resume(
        self, root: CallNode, *, was_killed: bool, is_fork: bool = False, is_counted: bool = False
    ) -> None:
        """Start the top-level call of a loaded tree again, or hold it back.

        Args:
            was_killed: whether the process that ran it died.
            is_fork: it is a fork made just now.
            is_counted: the runtime's budget has what it spent before.
        """
        if why := self.why_held_back(root):
            hold_back(root, why)
            self._held_back.add(root.id)
            return
        self._held_back.discard(root.id)
        self.resumed[root.id] = None
        self.loader.bind(root)
        request = self.loader.request_of(root.record)
        self.loader.reattach(root, request)
        if not is_fork:
            self.trials.admit(root, request, was_killed=was_killed)
        self._engine.restart(root, request, is_counted=is_counted)
        has_begun = root.record.started_at is not None
        if log.isEnabledFor(logging.INFO) and (is_fork or has_begun):
            log.info("%s is %s", name_of(root.record), "a fork" if is_fork else _progress(root))

    def resume_call(self, node: CallNode, *, was_killed: bool) -> None:
        """Start a loaded call again whose caller other workers run."""
        request = self.loader.request_of(node.record)
        self.loader.reattach(node, request)
        request.gate = gate_while_paused(node, request.gate)
        self.trials.admit(node, request, was_killed=was_killed)
        self._engine.restart_call(node, request)

    def lift_guards(self, root: CallNode, without: Sequence[str]) -> None:
        """Prepare a tree that was held back to be resumed; a person has lifted these guards.

        Raises:
            HeldBackError: this process still lacks something.
            InvalidValueError: it has no guard of one of these names.
        """
        lift(root, without)
        accept_import(root)
        if why := self.why_held_back(root):
            hold_back(root, why)
            raise HeldBackError(root.index, why)

    def invoked_again(self, root: CallNode, request: CallRequest) -> CallNode | None:
        root.loop_handle.run_sync(self._learn, root, request)
        return self._forks.continue_failed(root, request.budget)

    def resume_ended(
        self, node: CallNode, budget: Budget | None, without: Sequence[str]
    ) -> CallNode | None:
        if node.parent is not None:
            raise UsageError(
                f"{node!r} has ended; resume {address(root_of(node).path)}, or fork this"
            )
        return self._forks.continue_failed(node, budget, without)

    def _learn(self, root: CallNode, request: CallRequest) -> bool:
        """Take from *request* what the tree of *root* needs; whether its function was unknown."""
        is_unknown = isinstance(root.function, PastFunction)
        if is_unknown:
            known = self.loader.functions
            self.loader.functions = {**reachable([request.function]), **known}
        return is_unknown

    def take_over(self, question: Question) -> None:
        """Put a question of an earlier process on the board, to be answered in this one."""
        node = self._engine.loaded(question.node_id)
        assert node is not None  # its tree was read

        def settle(_: Answer) -> None:
            self.settled(root_of(node))

        self._board.take_over(question, node.tree.publish, node.loop_handle, settle)

    def settled(self, root: CallNode) -> None:
        """Note that a question was answered that its call has not asked again in this process."""

    def as_written(self, text: str) -> str:
        return self.journal.redacted(text)

    def events(self, node: CallNode) -> JournalEvents:
        return JournalEvents(self._store, node.tree.id, self.journal.changes, writer=self.journal)

    def past_trees(self, loop_handle: LoopHandle) -> list[CallNode]:
        rows = self._store.trees()
        rest = [row for row in rows if row.parked or not row.open]
        past = loop_handle.run_sync(self.unread.list, rest)
        opened = [self._engine.find_readable(row.id) for row in rows if row.open and not row.parked]
        return [*past, *(root for root in opened if root is not None)]

    def forget(self, root: CallNode, nodes: Iterable[CallNode]) -> None:
        """Forget a tree that this process does not run any more, and the questions of *nodes*.

        A remote call in it may run here on its own, and keeps its questions.
        """
        self.trials.forget(root)
        self.resumed.pop(root.id, None)
        for node in nodes:
            self._board.forget(node.id)

    # Closing

    @property
    def is_suspended(self) -> bool:
        """Whether events are not written any more."""
        return self.journal.is_closed

    async def suspend(self) -> None:
        self.trials.close()
        # Events that happen during a write are written by the next one.
        for _ in range(_TRIES):
            # So that the loop does not wait for a lock or the disk.
            await finish_in_thread(self._write_rest)
            all_saved = self.journal.is_saved(self.journal.mark())
            if all_saved or self.journal.failing_since is not None:
                break
        self.journal.stop()

    def _write_rest(self) -> None:
        try:
            self.journal.flush()
        except StoreError as error:
            log.warning("not everything could be written down: %s", error)

    def flush(self) -> None:
        self.journal.flush()

    def flush_briefly(self, loop_handle: LoopHandle) -> None:
        """Block until all events so far are written; on the loop for a short time only.

        Raises:
            StoreError: they cannot be written now.
        """
        self.journal.flush(timeout=_MOMENT if loop_handle.is_current() else None)

    def delete(self, loop_handle: LoopHandle, tree: int) -> None:
        self.deleting.add(tree)
        try:
            if tree in self.forking:
                raise UsageError(f"a fork of node:{tree} is being made; delete that first")
            # This writes any fork of it made just now: the store refuses to delete its source then.
            self.flush_briefly(loop_handle)
            with nonblocking() if loop_handle.is_current() else nullcontext():
                self._store.delete(tree)
        finally:
            self.deleting.discard(tree)
        self.resumed.pop(tree, None)

    def close(self) -> None:
        self.trials.close()
        self.inbox.note_complete()
        try:
            self.journal.close()
        except (StoreError, ClosedError) as error:
            log.warning("not everything could be written down: %s", error)
        finally:  # even after another Ctrl-C
            try:
                self._leave()
            finally:
                self._store.close()

    def _leave(self) -> None:
        """Do the last before the store is closed."""


def _progress(root: CallNode) -> str:
    """Return that *root* is resumed, and how many of its calls are done."""
    calls = subtree(root)[1:]
    done = sum(call.has_ended for call in calls)
    return f"resumed: {done} of {len(calls)} calls below it are done" if calls else "resumed"
