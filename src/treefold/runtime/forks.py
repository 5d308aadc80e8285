"""Forks: trees that share the past of another tree and run what follows anew."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from treefold.core.edit import UNCHANGED, Edit
from treefold.core.errors import (
    HeldBackError,
    InvalidValueError,
    ModelProviderException,
    StoreError,
    UnknownNodeError,
    UsageError,
)
from treefold.core.events import (
    AgentEdited,
    CallEnded,
    CallRequested,
    Event,
    GuardsAdded,
    GuardsLifted,
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
from treefold.core.guards import Guards
from treefold.core.shared_store import is_shared
from treefold.core.value_codec import has_unserializable
from treefold.core.work_engine import Ticket
from treefold.runtime.calls.budgets import spent_in
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.runtime.durable.new_code import Fork
from treefold.runtime.durable.tree_reader import read_events
from treefold.runtime.engine import Engine
from treefold.runtime.guarding import check_lifted, guards_in
from treefold.runtime.readiness import model_of, why_unguarded
from treefold.runtime.recovery import Recovery


class Forks:
    """Makes forks of the trees in a store, and starts them."""

    def __init__(self, recovery: Recovery, engine: Engine) -> None:
        self._recovery = recovery
        self._journal = recovery.journal
        self._store = recovery.store
        self._engine = engine

    def id_of(self, node: Node | int) -> int:
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
        node: CallNode,
        at: int | None,
        edit: Edit | None,
        key: str | None = None,
        without: Sequence[str] = (),
    ) -> CallNode:
        """Fork the tree of *node* after its response *at*; return the new top-level node.

        The fork is bound by the guards of its source, but for those that it is *without*.

        Raises:
            InvalidValueError: there is no such response or guard, or *edit* does not fit the node.
            StoreBusyError: this is the loop's thread, and the tree could not be written in time.
        """
        response = checked_response(node.function, at, edit)
        if edit is not None and edit.model is not None:
            self._engine.services.models.find(edit.model)
        cut = partial(cut_at, node=node.id, response=response)
        return self._fork_tree(root_of(node), cut, edit, key, without)

    def resume_failed(
        self, root: CallNode, key: str | None, without: Sequence[str] = ()
    ) -> CallNode:
        """Fork a tree that failed or was cancelled, so that the fork resumes it."""
        cut = partial(cut_at_failure, is_passing=_provider_failed)
        return self._fork_tree(root, cut, None, key, without)

    def _fork_tree(
        self,
        root: CallNode,
        cut: Callable[[Sequence[Event]], Cut],
        edit: Edit | None,
        key: str | None,
        without: Sequence[str],
    ) -> CallNode:
        """Fork the tree of *root* at a *cut* through its events.

        With a *key* the fork is made once, even if the process dies meanwhile. The fork starts
        before it is written, and like every call it has no effect until it is. On a thread other
        than the loop's it is written when this returns, if the store can be written at all.

        Raises:
            StoreBusyError: this is the loop's thread, and *root* could not be written in time.
        """
        self._check_guards(root, without)
        loop_handle, forking = root.loop_handle, self._recovery.forking
        # Either this sees that the tree is being deleted, or the deletion sees this.
        forking.append(root.id)
        try:
            if root.id in self._recovery.deleting:
                raise UnknownNodeError(f"{self._store.name} has no tree {root.id}")
            # *root* is read from the store; in this thread: the loop has other calls to run.
            self._recovery.flush(loop_handle)
            events = read_events(self._store, root.id)
            ticket = self._store.ticket(root.id) if is_shared(self._store) else None
            fork = partial(self._fork, root.id, events, ticket, cut, edit, key, without)
            forked = loop_handle.run_sync(fork)
        finally:
            forking.remove(root.id)
        if not loop_handle.is_current():
            with suppress(StoreError):
                self._journal.flush()
        return forked

    def _check_guards(self, root: CallNode, without: Sequence[str]) -> None:
        """Raise HeldBackError if the fork could not run here, for want of a hook that guards it.

        With a work engine it runs on a worker, which may have the hook.
        """
        check_lifted(without, root.record)
        why = why_unguarded(root, self._recovery.loader.guarding, without)
        if why and self._engine.placement is None:
            raise HeldBackError(root.index, why)

    def _fork(
        self,
        root: int,
        events: Sequence[Event],
        ticket: Ticket | None,
        cut: Callable[[Sequence[Event]], Cut],
        edit: Edit | None,
        key: str | None,
        without: Sequence[str],
    ) -> CallNode:
        if key is not None and (known := self._store.find_key(key)) is not None:
            return self._engine.loaded(known) or self._recovery.resume_tree(known)
        edit = None if edit is None else self._as_recorded(edit)
        found = cut(events)
        count = sum(isinstance(event, CallRequested) for event in events)
        new = self._engine.new_fork(count, ticket)
        requested = events[0]
        assert isinstance(requested, CallRequested)  # as in every tree
        known = [edit] if edit is not None and len(found.reopened) == 1 else []
        self._check_model(requested, [*events[: found.position], *known])
        forked = fork_of(
            events,
            found,
            TreeForked(
                node=new.id,
                at=time.time(),
                key=f"#{new.id}" if key is None else key,
                tree_number=new.number,
                function=requested.function,
                is_agent=requested.is_agent,
                source=root,
                inherited=0,
                cut=0,
                length=0,
                reopened=(),
                version=self._engine.version_of(requested.function),
            ),
        )
        changed = new_id(events, forked, found.reopened[-1])
        shared = inherit(events, forked)
        asked = still_asked(shared)
        opened = still_open(shared, self._engine.version_of)
        bound = self._recovery.loader.added_guards(new.id, shared)
        bound += self._budget_left(new.id, events, shared)
        if without:
            bound.append(GuardsLifted(new.id, forked.at, tuple(without)))
        own = [forked, *bound, *opened, *asked, *edits_of(changed, edit, forked.at)]
        assert new.journal is not None  # there is a store
        new.journal.record(new.id, *own)
        loaded = self._engine.load(new.id, self._engine.restored([*shared, *own]))
        loaded.tree.part(Fork).is_own = True
        for one in asked:
            self._recovery.take_over(one.question, loaded.loop_handle)
        if edit is not None and edit.model is not None:
            node = self._engine.loaded(changed)
            assert node is not None  # it has just been loaded
            # The model itself, of which only the name is in the journal.
            node.tree.show(AgentEdited(changed, model=edit.model))
        placement = self._engine.placement
        if placement is not None:
            submitted = self._engine.load(new.id)
            placement.submit(submitted, len(shared) + len(own))
            return submitted
        return self._recovery.resume_tree(new.id, is_fork=True)

    def _budget_left(
        self, fork: int, events: Sequence[Event], shared: Sequence[Event]
    ) -> list[Event]:
        """Return the event that limits a *fork* to what its source has left of a runtime's budget.

        Otherwise each fork in a process without a budget of its own could spend all of it again.
        """
        budget = self._recovery.loader.guarding.earlier_budget(guards_in(shared))
        if budget is None:
            return []
        spent, kept = spent_in(events), spent_in(shared)
        left = budget.less(
            spent.calls - kept.calls, spent.tokens - kept.tokens, spent.usd - kept.usd
        )
        return [] if left == budget else [GuardsAdded(fork, Guards(budget=left))]

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


def _provider_failed(ended: CallEnded) -> bool:
    return ended.exception is not None and ended.exception.type == ModelProviderException.__name__
