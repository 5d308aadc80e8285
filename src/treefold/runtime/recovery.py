"""Loads and resumes the trees of earlier processes.

An unfinished tree is resumed from its root: the top-level call is started again, and each call that
it makes again is looked up in the journal. Agents continue after their last response, code runs
from its beginning. A tree in which everything waits for a person, or sleeps, is parked until one
answers or the time has come.
"""

import logging
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, Protocol

from treefold.core.call_request import CallRequest
from treefold.core.commands import ExpireQuestion, write_command
from treefold.core.errors import ClosedError, HeldBackError, StoreError, UsageError
from treefold.core.events import Event
from treefold.core.function import Function
from treefold.core.question import Answer, Question
from treefold.core.shared_store import WorkerInfo, is_shared
from treefold.core.store import Store, TreeRow, nonblocking
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.stage import Stage
from treefold.runtime.calls.walk import subtree
from treefold.runtime.deps import give_deps
from treefold.runtime.durable.crash_trials import CrashTrials
from treefold.runtime.durable.histories import history_of
from treefold.runtime.durable.inbox import Inbox
from treefold.runtime.durable.journal_events import JournalEvents
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.runtime.durable.loader import Loader, PastFunction
from treefold.runtime.durable.shared_trees import SharedTrees
from treefold.runtime.durable.tree_source import CountedTrees, TreeSource
from treefold.runtime.durable.worker_settings import WorkerSettings
from treefold.runtime.engine import Engine
from treefold.runtime.graph import reachable
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.loops.threads import finish_in_thread
from treefold.runtime.readiness import accept_import, hold_back, lift, why_held_back
from treefold.runtime.trees.question_board import GRACE
from treefold.runtime.trees.run_log import name_of, questions_command
from treefold.runtime.unread_nodes import FinishedTrees
from treefold.stores.opening import open_store

log = logging.getLogger(__name__)

_TRIES: Final = 10  # to write all events of a runtime that is being closed
_MOMENT: Final = 0.1  # seconds that the loop may wait for the writer


class Closable(Protocol):
    """What has to be closed before the store; see ``Worker``."""

    def close(self) -> None: ...


class Recovery:  # noqa: PLR0904 - resuming, answering, closing and deleting
    """Resumes the trees in a store, answers their questions, and deletes trees."""

    def __init__(self, loader: Loader, engine: Engine, *, was_killed: bool) -> None:
        self.journal = loader.journal
        self.store = loader.store
        self.why_held_back = partial(why_held_back, engine=engine, loader=loader)
        self.inbox = Inbox(self.journal)
        self.finished = FinishedTrees(loader, engine.loaded, engine.find)
        self.parked: set[int] = set()  # trees that wait for a person or a time
        self.recovered: dict[int, None] = {}  # open trees of earlier processes that can be resumed
        self._board = engine.services.board
        self.loader = loader
        self._engine = engine
        self._trials = CrashTrials()
        if is_shared(loader.store):
            # Trees are taken over one by one, at any time.
            self._trials.begin()
        self._was_killed = was_killed  # the last driver of the journal
        self._due: set[int] = set()  # trees to resume as soon as the store can be read
        self.held_back: set[int] = set()  # trees that this process cannot run
        self.deleting: set[int] = set()  # trees that must not be forked any more
        self.forking: list[int] = []  # trees that must not be deleted now
        self._asleep: set[int] = set()  # those that waited for a time at the start
        self._timers_until = 0.0  # the timers of parked trees until then have been noted
        if not is_shared(loader.store):
            self._board.timers.on_expiry = self._expire
        engine.use_journal(loader, self)
        engine.accounts.history_of = partial(history_of, loader.store)

    # Resuming

    def recover(self, loop_handle: LoopHandle) -> None:
        """Resume every open tree that can be, and take over the open questions."""
        self.journal.loop = loop_handle.loop
        opened: list[TreeRow] = []
        unknown: list[TreeRow] = []  # trees whose function this runtime does not have
        for row in self.store.trees():
            if not row.open:
                continue
            if row.function not in self.loader.functions:
                unknown.append(row)
            elif row.parked:
                self.recovered[row.id] = None
                self.parked.add(row.id)
                if row.asleep_until is not None:
                    self._asleep.add(row.id)
            else:
                opened.append(row)
        for question in self.store.questions(answered=True):
            self.take_over(question, loop_handle)
            self._board.tell_people(question)
        for row in [*unknown, *opened]:
            self._resume_or_leave(row)
        self._trials.begin()
        if self.parked:
            loop_handle.call_later(GRACE, self._log_parked)
            self._wake_due(loop_handle)

    def _wake_due(self, loop_handle: LoopHandle) -> None:
        """Wake the parked trees whose time has come, and set an alarm for the next one.

        Trees that run in this process have alarms of their own.
        """
        if self.is_suspended:
            return
        now = time.time()
        try:
            due = self.store.timers(after=self._timers_until, until=now)
            following = self.store.timers(after=now, limit=1)
        except (StoreError, ClosedError) as error:
            log.debug("the timers cannot be read: %s", error)
            following = [(now + _MOMENT, 0)]
        else:
            self._timers_until = now
            for _, tree in due:
                self._wake(tree)
        if following and self.parked:
            again = partial(self._wake_due, loop_handle)
            self._board.timers.alarms.set(loop_handle.loop, following[0][0], again)

    def _expire(self, question: Question) -> None:
        """Let a question expire, unless another process has answered it; on the loop.

        The store decides: the expiry is posted there like an answer.
        """
        body = write_command(ExpireQuestion(question.id))
        try:
            with nonblocking():
                self.store.post(body, question=question.id)
        except (StoreError, ClosedError) as error:
            log.debug("question %s does not expire yet: %s", question.id, error)

    def _log_parked(self) -> None:
        """Log that trees wait for a person, in one message: there may be thousands."""
        level = logging.INFO if self._board.is_read else logging.WARNING
        waiting = self.parked - self._asleep
        if len(waiting) > 1:
            what = f"{len(waiting)} runs of {self.store.name} wait"
        else:
            what = f"a run of {self.store.name} waits"
        listed = questions_command(self.journal.path)
        if waiting:
            log.log(level, "%s for a person; list the questions with: %s", what, listed)

    def _resume_or_leave(self, row: TreeRow) -> None:
        try:
            if row.function in self.loader.functions:
                self.resume_tree(row.id)
            else:
                self._leave(row)
        except StoreError as error:
            log.warning("run %d stays as it is: %s", row.number, error)

    def resume_due(self) -> None:
        """Resume the trees that could not be read when they were to be resumed."""
        for tree in tuple(self._due):
            self._wake(tree)

    def _leave(self, row: TreeRow) -> None:
        """Leave a tree of an unknown function open, or cancel it if no runtime can resume it."""
        root = self._engine.load(row.id)
        options = root.record.requested.options
        if options is not None and options.passing:
            root.cancel_on_loop("its process ended, and nobody else can go on with it")
        else:
            hold_back(root, self.why_held_back(root))

    def take_over(self, question: Question, loop_handle: LoopHandle) -> None:
        """Put a question of an earlier process on the board, to be answered in this one."""

        def publish(event: Event) -> None:
            self._asker(question).tree.publish(event)

        def settle(answer: Answer) -> None:
            tree = self._asker(question).tree.id
            if tree in self.parked:
                self._wake(tree)

        self._board.take_over(question, publish, loop_handle, settle)

    def answer(self, id: str, text: Any, args: Mapping[str, Any] | None) -> None:
        """Answer a question, from any thread, unless another process has answered it already."""
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

    def _asker(self, question: Question) -> CallNode:
        """Return the node that asked, with its tree loaded.

        A parked tree is loaded before its question is settled: read from the store afterwards, it
        would lack an answer that is recorded but not written yet.
        """
        known = self._engine.loaded(question.node_id)
        if known is None:
            tree = self.store.find(node=question.node_id)
            assert tree is not None  # the node is in the store
            self._engine.load(tree)
            known = self._engine.loaded(question.node_id)
            assert known is not None  # it has just been loaded
        return known

    def _wake(self, tree: int) -> None:
        """Resume a parked tree after an answer, or later if it cannot be read now.

        This does not wait for the store: a resumed call waits for it before it has any effect.
        """
        root = self._engine.loaded(tree)
        if tree not in self.parked or (root is not None and root.stage is Stage.Ending):
            return
        try:
            self.resume_tree(tree)
        except StoreError as error:
            if tree not in self._due:
                log.warning("node:%d does not go on yet: %s", tree, error)
            self._due.add(tree)

    def note_end(self, node: CallNode) -> None:
        """Note the end of a call that was open when its tree was loaded."""
        if self._is_run(node):
            self._board.forget_old(node.id)
        if node.parent is None:
            self.parked.discard(node.id)
        elif node.tree.id in self.parked:
            # Its caller can continue, so the tree is not parked any more.
            node.loop_handle.loop.call_soon(self._wake, node.tree.id)

    def resume_tree(
        self,
        tree: int,
        *,
        is_fork: bool = False,
        is_counted: bool = False,
        was_killed: bool | None = None,
    ) -> CallNode:
        """Load a tree and start its top-level call again.

        Args:
            is_fork: it is a fork made just now.
            is_counted: the runtime's budget has what it spent before.
            was_killed: whether the process that ran it died; by default the journal's last driver.
        """
        root = self._engine.load(tree)
        self.parked.discard(tree)
        self._due.discard(tree)
        if why := self.why_held_back(root):
            hold_back(root, why)
            self.held_back.add(tree)
            return root
        self.held_back.discard(tree)
        self.recovered[tree] = None
        self.loader.bind(root)
        request = self.loader.request_of(root.record)
        self.loader.reattach(root, request)
        if not is_fork:
            was_killed = self._was_killed if was_killed is None else was_killed
            self._trials.admit(root, request, was_killed=was_killed)
        self._engine.restart(root, request, is_counted=is_counted)
        has_begun = root.record.started_at is not None
        if log.isEnabledFor(logging.INFO) and (is_fork or has_begun):
            log.info("%s is %s", name_of(root.record), "a fork" if is_fork else _progress(root))
        return root

    def resume_held_back(self, root: CallNode, without: Sequence[str]) -> None:
        """Resume a tree that was held back; a person has lifted the guards of these names.

        Raises:
            HeldBackError: this process still lacks something.
            UsageError: this process runs it.
            InvalidValueError: it has no guard of one of these names.
        """
        if root.id not in self.held_back and root.id not in self.parked:
            raise UsageError(f"run {root.index} is running, bound by its guards: stop it first")
        lift(root, without)
        accept_import(root)
        if why := self.why_held_back(root):
            hold_back(root, why)
            raise HeldBackError(root.index, why)
        self.resume_tree(root.id)

    def resume_call(self, node: CallNode, *, was_killed: bool) -> None:
        """Start a loaded call again whose caller other workers run."""
        request = self.loader.request_of(node.record)
        self.loader.reattach(node, request)
        self._trials.admit(node, request, was_killed=was_killed)
        self._engine.restart_call(node, request)

    def resume_with(self, root: CallNode, request: CallRequest) -> None:
        """Resume a tree that was held back for want of what *request* has: function, dependencies.

        Such a tree was started with a function that is not among those of the runtime, or with
        dependencies of its own.
        """
        if root.stage is not Stage.Requested:
            return
        is_unknown = self.learn(root, request)
        # In a shared store another process may run it, and otherwise it is delivered again.
        if is_shared(self.store):
            return
        if is_unknown or (request.deps is not None and root.id not in self.parked):
            self.resume_tree(root.id)

    def learn(self, root: CallNode, request: CallRequest) -> bool:
        """Take from *request* what the tree of *root* needs; whether its function was unknown."""
        is_unknown = isinstance(root.function, PastFunction)
        if is_unknown:
            known = self.loader.functions
            self.loader.functions = {**reachable([request.function]), **known}
        if request.deps is not None and not is_shared(self.store):
            give_deps(root, self._engine.services, request.deps)
        return is_unknown

    def events(self, tree: int) -> JournalEvents:
        """Return what reads the events of a tree, for streams of events."""
        return JournalEvents(self.store, tree, self.journal.changes, writer=self.journal)

    def forget(self, root: CallNode, nodes: Iterable[CallNode]) -> None:
        """Forget a tree that this process does not run any more, and the questions of *nodes*.

        A remote call in it may run here on its own, and keeps its questions.
        """
        self._trials.forget(root)
        self.recovered.pop(root.id, None)
        for node in nodes:
            self._board.forget(node.id)

    def _is_run(self, node: CallNode) -> bool:
        """Whether no other node of this process runs the same call.

        A remote call that runs here apart from its caller has two: one that runs, and one in the
        tree of the caller that follows it.
        """
        return self._engine.loaded(node.id) in {node, None}

    # Closing

    @property
    def is_suspended(self) -> bool:
        """Whether events are not written any more."""
        return self.journal.is_closed

    async def suspend(self) -> None:
        """Stop writing: open trees will be resumed by the next driver.

        What is left is written in a thread, so that the loop does not wait for a lock or the disk.
        """
        self._trials.close()
        # Events that happen during a write are written by the next one.
        for _ in range(_TRIES):
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

    def flush(self, loop_handle: LoopHandle) -> None:
        """Block until all events so far are written; on the loop for a short time only.

        Raises:
            StoreError: they cannot be written now.
        """
        self.journal.flush(timeout=_MOMENT if loop_handle.is_current() else None)

    def delete(self, loop_handle: LoopHandle, tree: int) -> None:
        """Delete a tree from the store, from any thread.

        Raises:
            UsageError: a fork of it is being made.
            StoreBusyError: this is the loop's thread, and another program has the store locked.
        """
        self.deleting.add(tree)
        try:
            if tree in self.forking:
                raise UsageError(f"a fork of node:{tree} is being made; delete that first")
            # This writes any fork of it made just now: the store refuses to delete its source then.
            self.flush(loop_handle)
            with nonblocking() if loop_handle.is_current() else nullcontext():
                self.store.delete(tree)
        finally:
            self.deleting.discard(tree)
        self.recovered.pop(tree, None)

    def close(self, worker: Closable | None = None) -> None:
        """Write what is left, close the *worker* of a shared store, and close the store."""
        self._trials.close()
        self.inbox.note_complete()
        try:
            self.journal.close()
            if worker is None:
                self.inbox.delete_executed()
        except (StoreError, ClosedError) as error:
            log.warning("not everything could be written down: %s", error)
        finally:  # even after another Ctrl-C
            try:
                if worker is not None:
                    worker.close()
            finally:
                self.store.close()


def open_recovery(
    store: Store | str | os.PathLike[str],
    redact: Callable[[str], str] | None,
    functions: Mapping[str, Function],
    engine: Engine,
    settings: WorkerSettings,
) -> Recovery:
    """Acquire a store as its driver, or join a shared one; return the recovery of what is in it.

    Raises:
        StoreOwnedError: another runtime owns it.
        StoreError: it cannot be opened.
    """
    opened = open_store(store)
    try:
        return _recovery_in(opened, redact, functions, engine, settings)
    except BaseException:
        # A store that the caller has opened stays open.
        if isinstance(store, str | os.PathLike):
            opened.close()
        raise


def _recovery_in(
    store: Store,
    redact: Callable[[str], str] | None,
    functions: Mapping[str, Function],
    engine: Engine,
    settings: WorkerSettings,
) -> Recovery:
    source: TreeSource
    if is_shared(store):
        store.join(_worker_info(settings, functions), lease=settings.lease)
        writer, was_killed = JournalWriter(store, redact), False
        source = SharedTrees(store, writer, queue=min(settings.queues), lease=settings.lease)
    else:
        was_killed = bool(store.acquire())
        writer = JournalWriter(store, redact)
        id, number = store.highest()
        source = CountedTrees(writer, id=id, number=number)
    services = engine.services
    loader = Loader(writer, source, functions, services.guarding, services.on_new_code)
    return Recovery(loader, engine, was_killed=was_killed)


def _worker_info(settings: WorkerSettings, functions: Iterable[str]) -> WorkerInfo:
    """Return what this process tells other processes about itself."""
    return WorkerInfo(
        name=settings.known_as,
        host=platform.node(),
        process=os.getpid(),
        functions=sorted(functions),
        queues=sorted(settings.queues),
    )


def _progress(root: CallNode) -> str:
    """Return that *root* is resumed, and how many of its calls are done."""
    calls = subtree(root)[1:]
    done = sum(call.has_ended for call in calls)
    return f"resumed: {done} of {len(calls)} calls below it are done" if calls else "resumed"
