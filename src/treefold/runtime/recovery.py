"""Loads and resumes the trees of earlier processes.

An unfinished tree is resumed from its root: the top-level call is started again, and each call that
it makes again is looked up in the journal. Agents continue after their last response, code runs
from its beginning. A tree in which everything waits for a person is parked until one answers.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, Final, cast

from treefold.core.errors import (
    ClosedError,
    InvalidValueError,
    StoreError,
    UnknownNodeError,
    UsageError,
)
from treefold.core.events import AgentEdited, CallRequested, Event, TreeForked
from treefold.core.forking import (
    UNCHANGED,
    Cut,
    Edit,
    edits_of,
    fork_of,
    inherit,
    new_id,
    still_asked,
    still_open,
)
from treefold.core.function import Function, Node
from treefold.core.question import Answer, Question
from treefold.core.store import Store, TreeRow, nonblocking
from treefold.core.value_codec import has_unserializable
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import subtree
from treefold.runtime.durable.crash_trials import CrashTrials
from treefold.runtime.durable.inbox import Inbox
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.runtime.durable.loader import Loader, PastFunction
from treefold.runtime.durable.tree_reader import read_events
from treefold.runtime.engine import Engine
from treefold.runtime.graph import reachable
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.loops.threads import finish_in_thread
from treefold.runtime.trees.question_board import GRACE
from treefold.runtime.trees.run_log import name_of, questions_command
from treefold.stores.deprecated import checked_store

log = logging.getLogger(__name__)

_TRIES: Final = 10  # to write all events of a runtime that is being closed
_MOMENT: Final = 0.1  # seconds that the loop may wait for the writer


class Recovery:
    """Resumes and forks the trees in a store, and answers their questions."""

    def __init__(self, loader: Loader, engine: Engine, trials: CrashTrials) -> None:
        self.journal = loader.journal
        self.store = loader.store
        self.inbox = Inbox(self.journal)
        self.parked: set[int] = set()  # trees that wait for a person
        self.recovered: dict[int, None] = {}  # open trees of earlier processes that can be resumed
        self._board = engine.services.board
        self._loader = loader
        self._engine = engine
        self._trials = trials
        self._due: set[int] = set()  # trees to resume as soon as the store can be read
        self._deleting: set[int] = set()  # trees that must not be forked any more
        engine.use_journal(loader, self)

    # Resuming

    def recover(self, loop_handle: LoopHandle) -> None:
        """Resume every open tree that can be, and take over the open questions."""
        self.journal.loop = loop_handle.loop
        opened: list[TreeRow] = []
        unknown: list[TreeRow] = []  # trees whose function this runtime does not have
        for row in self.store.trees():
            if not row.open:
                continue
            if row.function not in self._loader.functions:
                unknown.append(row)
            elif row.parked:
                self.recovered[row.id] = None
                self.parked.add(row.id)
            else:
                opened.append(row)
        for question in [*self.store.questions(), *self.inbox.answered()]:
            self._take_over(question, loop_handle)
        for row in [*unknown, *opened]:
            self._resume_or_leave(row)
        self._trials.begin()
        if self.parked:
            loop_handle.call_later(GRACE, self._log_parked)

    def _log_parked(self) -> None:
        """Log that trees wait for a person, in one message: there may be thousands."""
        level = logging.INFO if self._board.is_read else logging.WARNING
        if len(self.parked) > 1:
            what = f"{len(self.parked)} runs of {self.store.name} wait"
        else:
            what = f"a run of {self.store.name} waits"
        listed = questions_command(self.journal.path)
        if self.parked:
            log.log(level, "%s for a person; list the questions with: %s", what, listed)

    def _resume_or_leave(self, row: TreeRow) -> None:
        try:
            if row.function in self._loader.functions:
                self.resume_tree(row.id)
            else:
                self._leave(row)
        except StoreError as error:
            log.warning("tree %d stays as it is: %s", row.id, error)

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
            no_function = "tree %d stays as it is: this runtime has no function %r"
            log.warning(no_function, row.id, row.function)

    def _take_over(self, question: Question, loop_handle: LoopHandle) -> None:
        def publish(event: Event) -> None:
            self._asker(question).tree.publish(event)

        def settle(answer: Answer) -> None:
            tree = self._asker(question).tree.id
            if tree in self.parked:
                self._wake(tree)

        self._board.take_over(question, publish, loop_handle, settle)

    def answer(self, id: str, text: str, args: Mapping[str, Any] | None) -> None:
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
        if tree not in self.parked or (root is not None and root.is_ending):
            return
        try:
            self.resume_tree(tree)
        except StoreError as error:
            if tree not in self._due:
                log.warning("tree %d does not go on yet: %s", tree, error)
            self._due.add(tree)

    def note_end(self, node: CallNode) -> None:
        """Note the end of a call that was open when its tree was loaded."""
        self._board.forget_old(node.id)
        if node.parent is None:
            self.parked.discard(node.id)
        elif node.tree.id in self.parked:
            # Its caller can continue, so the tree is not parked any more.
            node.loop_handle.loop.call_soon(self._wake, node.tree.id)

    def resume_tree(self, tree: int, *, is_fork: bool = False) -> CallNode:
        """Load a tree and start its top-level call again; *is_fork* for a fork made just now."""
        root = self._engine.load(tree)
        self.parked.discard(tree)
        self._due.discard(tree)
        request = self._loader.request_of(root.record)
        model = _model_of(request.model, root.record.conversation.edit)
        if not self._engine.knows_model(model):
            unknown = "tree %d stays as it is: this runtime has no model %r; give it in models="
            log.warning(unknown, tree, model)
            return root
        self.recovered[tree] = None
        self._loader.reattach(root, request)
        if not is_fork:
            self._trials.admit(root, request)
        self._engine.restart(root, request, is_fork=is_fork)
        if log.isEnabledFor(logging.INFO):
            log.info("%s is %s", name_of(root.record), "a fork" if is_fork else _progress(root))
        return root

    def resume_with(self, root: CallNode, function: Function) -> None:
        """Resume a tree that was left open because its function was unknown, now with *function*.

        Such a tree was started with a function that is not among those of the runtime.
        """
        if isinstance(root.function, PastFunction) and not (root.has_ended or root.is_ending):
            known = self._loader.functions
            self._loader.functions = {**reachable([function]), **known}
            self.resume_tree(root.id)

    # Forks

    def id_of(self, node: Node | int) -> int:
        """Return the id of *node*, which may be a node of an earlier runtime on the same journal.

        Raises:
            UsageError: it is in another journal, or in none.
        """
        if not isinstance(node, CallNode):
            return cast("int", node)
        journal = node.tree.journal
        if not isinstance(journal, JournalWriter) or journal.store.id != self.store.id:
            raise UsageError(f"{node!r} is not in the journal of this runtime: fork it where it is")
        return node.id

    def fork(
        self,
        loop_handle: LoopHandle,
        root: int,
        cut: Callable[[Sequence[Event]], Cut],
        edit: Edit | None,
        key: str | None = None,
    ) -> CallNode:
        """Fork the tree *root* at a *cut* through its events; return the new top-level node.

        With a *key* the fork is made once, even if the process dies meanwhile. The fork starts
        before it is written, and like every call it has no effect until it is. On a thread other
        than the loop's it is written when this returns, if the store can be written at all.

        Raises:
            StoreBusyError: this is the loop's thread, and *root* could not be written in time.
        """
        # *root* is read from the store.
        self._flush(loop_handle)
        forked = loop_handle.run_sync(self._fork, root, cut, edit, key)
        if not loop_handle.is_current():
            with suppress(StoreError):
                self.journal.flush()
        return forked

    def _flush(self, loop_handle: LoopHandle) -> None:
        """Block until all events so far are written; on the loop for a short time only.

        Raises:
            StoreError: they cannot be written now.
        """
        self.journal.flush(timeout=_MOMENT if loop_handle.is_current() else None)

    def _fork(
        self,
        root: int,
        cut: Callable[[Sequence[Event]], Cut],
        edit: Edit | None,
        key: str | None,
    ) -> CallNode:
        if root in self._deleting:
            raise UnknownNodeError(f"{self.store.name} has no tree {root}")
        if key is not None and (known := self.store.find_key(key)) is not None:
            return self._engine.loaded(known) or self.resume_tree(known)
        edit = None if edit is None else self._as_recorded(edit)
        events = read_events(self.store, root)
        found = cut(events)
        count = sum(isinstance(event, CallRequested) for event in events)
        number, first = self._engine.next_number(), self._engine.reserve_ids(count)
        requested = events[0]
        assert isinstance(requested, CallRequested)  # as in every tree
        known = [edit] if edit is not None and len(found.reopened) == 1 else []
        self._check_model(requested, [*events[: found.position], *known])
        forked = fork_of(
            events,
            found,
            TreeForked(
                node=first,
                at=time.time(),
                key=f"#{first}" if key is None else key,
                tree_number=number,
                function=requested.function,
                is_agent=requested.is_agent,
                source=root,
                inherited=0,
                cut=0,
                length=0,
                reopened=(),
            ),
        )
        changed = new_id(events, forked, found.reopened[-1])
        shared = inherit(events, forked)
        asked = still_asked(shared)
        own = [forked, *still_open(shared), *asked, *edits_of(changed, edit, forked.at)]
        self.journal.record(first, *own)
        loop_handle = self._engine.load(first, self._loader.restored([*shared, *own])).loop_handle
        for one in asked:
            self._take_over(one.question, loop_handle)
        if edit is not None and edit.model is not None:
            node = self._engine.loaded(changed)
            assert node is not None  # it has just been loaded
            # The model itself, of which only the name is in the journal.
            node.tree.show(AgentEdited(changed, model=edit.model))
        return self.resume_tree(first, is_fork=True)

    def _as_recorded(self, edit: Edit) -> Edit:
        """Return *edit* with its values as they would be read from the journal.

        Raises:
            InvalidValueError: a value has no JSON form.
        """
        recorded = self.journal.as_written({"result": edit.result, "arguments": edit.args})
        for what, value in recorded.items():
            if has_unserializable(value):
                raise InvalidValueError(f"the {what} of an edit has no JSON form: {value!r}")
        result = edit.result if edit.result is UNCHANGED else recorded["result"]
        return replace(edit, result=result, args=recorded["arguments"])

    def _check_model(self, requested: CallRequested, known: Sequence[Event | Edit]) -> None:
        """Raise InvalidValueError if this runtime has no model for the top-level call of a fork.

        *known* are the events and the edit that may have changed its model, in order.
        """
        model: Any = None if requested.options is None else requested.options.model
        for one in known:
            if isinstance(one, Edit) or (
                isinstance(one, AgentEdited) and one.node == requested.node
            ):
                model = _model_of(model, one)
        if not self._engine.knows_model(model):
            raise InvalidValueError(f"this runtime has no model {model!r}; give it in models=")

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

    def delete(self, loop_handle: LoopHandle, tree: int) -> None:
        """Delete a tree from the store, from any thread.

        Raises:
            StoreBusyError: this is the loop's thread, and another program has the store locked.
        """
        loop_handle.run_sync(self._deleting.add, tree)
        try:
            # This writes any fork of it made just now: the store refuses to delete its source then.
            self._flush(loop_handle)
            with nonblocking() if loop_handle.is_current() else nullcontext():
                self.store.delete(tree)
        finally:
            self._deleting.discard(tree)
        self.recovered.pop(tree, None)

    def close(self) -> None:
        """Write what is left, and close the store."""
        self._trials.close()
        try:
            self.journal.close()
            self.inbox.delete_executed()
        except (StoreError, ClosedError) as error:
            log.warning("not everything could be written down: %s", error)
        finally:  # even after another Ctrl-C
            self.store.close()


def _model_of(model_ref: str | None, edit: AgentEdited | Edit | None) -> Any:
    """Return the model of a call: *model_ref*, unless *edit* replaces it."""
    return model_ref if edit is None or edit.model is None else edit.model


def open_recovery(
    store: Store | str | os.PathLike[str],
    redact: Callable[[str], str] | None,
    functions: Mapping[str, Function],
    engine: Engine,
) -> Recovery:
    """Acquire a store as its driver, and return the recovery of what is in it.

    Raises:
        StoreOwnedError: another runtime owns it.
        StoreError: it cannot be opened.
    """
    if not isinstance(store, str | os.PathLike):
        store = checked_store(store)
        # If this raises, the store stays open: the caller has opened it.
        was_killed = store.acquire()
    else:
        from treefold.stores.sqlite_store import SqliteStore  # noqa: PLC0415 - only paths need it

        store = SqliteStore(os.fspath(store))
        try:
            was_killed = store.acquire()
        except BaseException:
            store.close()
            raise
    loader = Loader(JournalWriter(store, redact), functions)
    return Recovery(loader, engine, CrashTrials(was_killed=bool(was_killed)))


def _progress(root: CallNode) -> str:
    """Return that *root* is resumed, and how many of its calls are done."""
    calls = subtree(root)[1:]
    done = sum(call.has_ended for call in calls)
    return f"resumed: {done} of {len(calls)} calls below it are done" if calls else "resumed"
