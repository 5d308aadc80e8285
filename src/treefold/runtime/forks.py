"""Forks: trees that share the past of another tree and run what follows anew."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from treefold.core.address import address
from treefold.core.budget import Budget
from treefold.core.call_keys import of_continuation
from treefold.core.edit import UNCHANGED, Edit
from treefold.core.errors import (
    HeldBackError,
    InvalidValueError,
    StoreError,
    UnknownNodeError,
    UsageError,
)
from treefold.core.events import (
    AgentEdited,
    CallRequested,
    Event,
    GuardsLifted,
    QuestionAsked,
    TreeForked,
)
from treefold.core.forking import (
    Cut,
    checked_response,
    cut_at,
    cut_at_failure,
    edits_of,
    fork_of,
    inherit,
    new_id,
    still_asked,
    still_open,
)
from treefold.core.function import Node
from treefold.core.value_codec import has_unserializable
from treefold.core.work_engine import Ticket
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of
from treefold.runtime.deps import give_deps
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.runtime.durable.new_code import Fork
from treefold.runtime.durable.tree_reader import read_events
from treefold.runtime.durable.tree_source import NewTree
from treefold.runtime.engine import Engine
from treefold.runtime.guarding import check_lifted
from treefold.runtime.readiness import model_of, why_unguarded, why_without_deps
from treefold.runtime.recovery import Recovery


class Forks:
    """Makes forks of the trees in a store, and starts them."""

    def __init__(self, recovery: Recovery, engine: Engine) -> None:
        self._recovery = recovery
        self._journal = recovery.journal
        self._store = recovery.loader.store
        self._engine = engine

    def _id_of(self, node: Node | int) -> int:
        """Return the id of *node*, which may be a node of an earlier runtime on the same journal.

        Raises:
            UsageError: it is in another journal, or in none.
        """
        if not isinstance(node, CallNode):
            return cast("int", node)
        journal = node.tree.journal
        is_written = isinstance(journal, JournalWriter | DriveJournal)
        if not is_written or journal.store.id != self._store.id:
            raise UsageError(f"{node!r} is not in the journal of this runtime: fork it where it is")
        return node.id

    def fork(
        self,
        given: Node | int,
        at: int | None,
        edit: Edit | None,
        key: str | None = None,
        without: Sequence[str] = (),
    ) -> CallNode:
        """Fork the tree of a *given* node after its response *at*; return the new top-level node.

        The fork is bound by the guards of its source, but for those that it is *without*.

        Raises:
            InvalidValueError: there is no such response or guard, or *edit* does not fit the node.
            StoreBusyError: this is the loop's thread, and the tree could not be written in time.
        """
        node = self._engine.find(self._id_of(given))
        response = checked_response(node.function, at, edit)
        if edit is not None and edit.model is not None:
            self._engine.services.models.find(edit.model)
        cut = partial(cut_at, node=node.id, response=response)
        return self._fork_tree(root_of(node), cut, edit, key, without)

    def continue_failed(
        self, root: CallNode, budget: Budget | None, without: Sequence[str] = ()
    ) -> CallNode:
        """Return the fork that continues a tree which failed or was cancelled, made if need be.

        There is one, however many callers ask for it at the same time. A new one has *budget*, if
        given, instead of the budget that its top-level call was made with, and is *without* these
        guards.
        """
        key = of_continuation(root.id)
        return self._fork_tree(root, cut_at_failure, None, key, without, budget)

    def _fork_tree(
        self,
        root: CallNode,
        cut: Callable[[Sequence[Event]], Cut],
        edit: Edit | None,
        key: str | None,
        without: Sequence[str],
        budget: Budget | None = None,
    ) -> CallNode:
        """Fork the tree of *root* at a *cut* through its events.

        With a *key* the fork is made once, even if the process dies meanwhile. The fork starts
        before it is written, and like every call it has no effect until it is. On a thread other
        than the loop's it is written when this returns, if the store can be written at all.

        Raises:
            StoreBusyError: this is the loop's thread, and *root* could not be written in time.
        """
        self._check_ready(root, without)
        loop_handle, forking = root.loop_handle, self._recovery.forking
        # Either this sees that the tree is being deleted, or the deletion sees this.
        forking.append(root.id)
        try:
            if root.id in self._recovery.deleting:
                raise UnknownNodeError(f"{self._store.name} has no {address(root.path)}")
            # *root* is read from the store; in this thread: the loop has other calls to run.
            self._recovery.flush_briefly(loop_handle)
            events = read_events(self._store, root.id)
            placement = self._engine.backend.placement
            ticket = None if placement is None else placement.ticket(root.id)
            wanted = _Wanted(root.id, events, ticket, cut, edit, key, without, budget)
            made = loop_handle.run_sync(self._make, wanted)
            if isinstance(made, CallNode):
                return made
            # In this thread as well: another process may be asked who was first.
            try:
                is_first = key is None or self._engine.source.claim(made.new.journal)
            except StoreError:
                # As for every call with a key: it is written once the store can be reached.
                loop_handle.run_sync(self._start, made)
                raise
            forked = loop_handle.run_sync(self._start if is_first else self._withdraw, made)
        finally:
            forking.remove(root.id)
        if not loop_handle.is_current():
            with suppress(StoreError):
                self._journal.flush()
        return forked

    def _check_ready(self, root: CallNode, without: Sequence[str]) -> None:
        """Raise HeldBackError if the fork could not run here, for want of a hook or dependencies.

        With a work engine it runs on a worker, which may have them.
        """
        check_lifted(without, root.record)
        why = why_unguarded(root, self._recovery.loader.guarding, without)
        why = why or why_without_deps(root, self._engine)
        if why and self._engine.backend.placement is None:
            raise HeldBackError(root.index, why)

    def _make(self, wanted: "_Wanted") -> "_Made | CallNode":
        """Make a fork and record it, or return the one that has its key; runs on the loop."""
        engine, events = self._engine, wanted.events
        if wanted.key is not None and (known := engine.keys.find(wanted.key)) is not None:
            return known
        edit = None if wanted.edit is None else self._as_recorded(wanted.edit)
        found = wanted.cut(events)
        requested = events[0]
        assert isinstance(requested, CallRequested)  # as in every tree
        edited = [edit] if edit is not None and len(found.reopened) == 1 else []
        self._check_model(requested, [*events[: found.position], *edited])
        count = sum(isinstance(event, CallRequested) for event in events)
        new = engine.new_fork(count, wanted.ticket)
        forked = fork_of(events, found, self._event_of(wanted, new, requested))
        changed = new_id(events, forked, found.reopened[-1])
        shared = inherit(events, forked)
        asked = still_asked(shared)
        opened = still_open(shared, engine.version_of)
        bound = self._recovery.loader.added_guards(new.id, shared)
        if wanted.without:
            bound.append(GuardsLifted(new.id, forked.at, tuple(wanted.without)))
        own = [forked, *bound, *opened, *asked, *edits_of(changed, edit, forked.at)]
        assert new.journal is not None  # there is a store
        new.journal.record(new.id, *own)
        # Before it is written, and may be delivered to this process.
        root = engine.load(new.id, engine.restored([*shared, *own]))
        # That of a fork which another worker is to run, too.
        root.tree.journal = new.journal
        if engine.source.is_alone:
            # No other process can be quicker, and other threads are to find this one.
            engine.keys.add(root)
        is_counted = not found.resumed or engine.accounts.has_counted(events)
        return _Made(wanted.source, new, root, asked, changed, edit, is_counted)

    def _start(self, made: "_Made") -> CallNode:
        """Start a fork that was made just now; runs on the loop."""
        engine, root, edit = self._engine, made.root, made.edit
        engine.keys.add(root)
        root.tree.part(Fork).is_own = True
        source = engine.loaded(made.source)
        deps = None if source is None else source.tree.deps
        if deps is not None and deps.is_given:
            # What was given for one call serves this process.
            give_deps(root, engine.services, deps.source)
        for one in made.asked:
            if one.question.asks_people:
                self._recovery.take_over(one.question)
        if edit is not None and edit.model is not None:
            node = engine.loaded(made.changed)
            assert node is not None  # it has just been loaded
            # The model itself, of which only the name is in the journal.
            node.tree.show(AgentEdited(made.changed, model=edit.model))
        if engine.backend.placement is not None:
            engine.backend.placement.submit(root)
        else:
            is_counted = made.is_counted
            self._recovery.resume(root, was_killed=False, is_fork=True, is_counted=is_counted)
        return root

    def _withdraw(self, made: "_Made") -> CallNode:
        """Return the fork with the same key that another process was quicker to make."""
        self._engine.forget_new(made.root)
        key = made.root.record.requested.key
        if (found := self._engine.keys.find(key)) is None:
            raise UnknownNodeError("another process made the same fork, and deleted it; try again")
        return found

    def _event_of(self, wanted: "_Wanted", new: NewTree, requested: CallRequested) -> TreeForked:
        """Return the event of a *new* fork, without what ``fork_of`` fills in."""
        return TreeForked(
            node=new.id,
            at=self._engine.source.now(),
            key=f"#{new.id}" if wanted.key is None else wanted.key,
            tree_number=new.number,
            function=requested.function,
            is_agent=requested.is_agent,
            source=wanted.source,
            inherited=0,
            cut=0,
            length=0,
            reopened=(),
            version=self._engine.version_of(requested.function),
            budget=wanted.budget,
        )

    def _as_recorded(self, edit: Edit) -> Edit:
        """Return *edit* with its values as they would be read from the journal.

        Raises:
            InvalidValueError: a value has no JSON form.
        """
        recorded = self._journal.as_written({"result": edit.result, "arguments": edit.args})
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
                model = model_of(model, one)
        if not self._engine.knows_model(model):
            raise InvalidValueError(f"this runtime has no model {model!r}; give it in models=")


@dataclass(slots=True, frozen=True)
class _Wanted:
    """A fork that is to be made."""

    source: int  # the id of the tree that is forked
    events: Sequence[Event]  # of that tree
    ticket: Ticket | None  # by which workers are found for that tree
    cut: Callable[[Sequence[Event]], Cut]
    edit: Edit | None
    key: str | None  # with a key it is made once
    without: Sequence[str]  # the guards that a person has lifted
    budget: Budget | None  # of its top-level call, instead of that of the source's


@dataclass(slots=True, frozen=True)
class _Made:
    """A fork that was made, and is to be started."""

    source: int  # the id of the tree that was forked
    new: NewTree
    root: CallNode
    asked: Sequence[QuestionAsked]  # questions that are open in the source, too
    changed: int  # the node that is edited
    edit: Edit | None
    is_counted: bool  # whether the runtime's budget has what its source spent
