"""Starts calls: gives them ids and nodes, and finds calls that were made before by their keys.

Each runtime has one engine.
"""

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol
from weakref import WeakSet, WeakValueDictionary

from treefold.core.call_keys import named
from treefold.core.call_request import CallRequest
from treefold.core.errors import ClosedError, InvalidValueError, UnknownNodeError
from treefold.core.events import CallOptions, CallRequested, Event
from treefold.core.function import Function, Node
from treefold.core.origin import redefines
from treefold.core.record import CallRecord
from treefold.core.value_codec import digest
from treefold.runtime.calls.budgets import Account
from treefold.runtime.calls.node import CallNode, CodeNode
from treefold.runtime.calls.task import start_task
from treefold.runtime.context import Context, Host
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.runtime.durable.loader import Loader
from treefold.runtime.graph import discover
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.questions.pauses import start_or_postpone
from treefold.runtime.services import Services
from treefold.runtime.tree_registry import TreeRegistry
from treefold.runtime.trees.tree import Tree


class StartPolicy(Protocol):
    """Decides about each call before it is made; a replay matches it with a recorded one."""

    def admit(self, request: CallRequest, tree: Tree, parent: CallNode | None) -> int | None:
        """Prepare *request*; return the id that its node gets, or None for the next one."""
        ...

    def made(self, node: CallNode) -> None:
        """Note that the call was made."""
        ...


class Resumer(Protocol):
    """Deals with trees of earlier processes; see ``Recovery``."""

    def resume_with(self, root: CallNode, function: Function) -> None:
        """Resume a tree that was left open because its *function* was unknown."""
        ...

    def note_end(self, node: CallNode) -> None:
        """Note the end of a call that was open when its tree was loaded."""
        ...


class Engine:
    """Makes the nodes of a runtime, and starts them.

    Args:
        runtime: what calls see as their runtime.
        functions: by name; their call graph has been checked.
        loop_handle: returns the handle of the runtime's loop, which it starts if need be.
        keeps_trees: whether trees stay in memory after they have ended.
        policy: decides about each call before it is made.
    """

    def __init__(
        self,
        runtime: Host,
        functions: dict[str, Function],
        services: Services,
        trees: TreeRegistry,
        *,
        loop_handle: Callable[[], LoopHandle],
        keeps_trees: bool,
        policy: StartPolicy | None = None,
    ) -> None:
        self.runtime = runtime
        self.services = services
        self.resumer: Resumer | None = None  # set with the loader
        # Returns the open span of the program, which is recorded with each top-level call.
        self.find_span: Callable[[], str | None] | None = None
        self._loader: Loader | None = None  # reads earlier trees, if the runtime has a store
        self._journal: JournalWriter | None = None
        self._functions = functions
        self._checked = WeakSet(functions.values())  # functions whose call graph is valid
        self._trees = trees
        self._loop_handle = loop_handle
        self._keeps_trees = keeps_trees
        self._policy = policy
        self._lock = threading.Lock()  # guards ids, numbers and keys
        # Top-level calls by their keys, as long as they are in memory.
        self._keyed: WeakValueDictionary[str, CallNode] = WeakValueDictionary()
        self._ids = itertools.count(1)
        self._numbers = itertools.count(1)

    def use_journal(self, loader: Loader, resumer: Resumer) -> None:
        """Record all calls in the journal of *loader*, and find earlier ones there."""
        self._loader, self._journal, self.resumer = loader, loader.journal, resumer
        highest_id, highest_number = loader.store.highest()
        self.count_from(highest_id + 1, highest_number + 1)

    def count_from(self, id: int, number: int) -> None:
        """Use *id* for the next node and *number* for the next tree."""
        self._ids = itertools.count(id)
        self._numbers = itertools.count(number)

    def reserve_ids(self, count: int) -> int:
        """Reserve *count* consecutive node ids, and return the first."""
        with self._lock:
            first = next(self._ids)
            self._ids = itertools.count(first + count)
            return first

    def next_number(self) -> int:
        """Return the number of the next tree."""
        return next(self._numbers)

    # Starting calls

    def start(self, request: CallRequest, parent: CallNode | None) -> CallNode:
        """Start the call that *request* asks for; its task copies the current context variables."""
        # A running parent uses its own handle: self._loop_handle() raises while the runtime closes,
        # and calls that still run are to be cancelled then, not to fail before that.
        loop_handle = (
            self._loop_handle() if parent is None or parent.has_ended else parent.loop_handle
        )
        if (journal := self._journal) is not None:
            # The journal is suspended: the call would not be recorded, and so be made again.
            if journal.is_closed:
                raise ClosedError(
                    "this runtime is being closed; the next one resumes its open calls"
                )
            if request.key and journal.redacted(request.key) != request.key:
                raise InvalidValueError(
                    "the key of a call is written down, and there is something in this one that is"
                    " to be redacted; give another key"
                )
        if parent is not None:
            if loop_handle.is_current():
                return self._start_child(loop_handle, request, parent)
            # The parent belongs to the loop, and must not be changed from other threads.
            return loop_handle.run_sync(self._start_child, loop_handle, request, parent)
        self._check(request.function)
        if request.key is not None and (known := self._find_by_key(request)) is not None:
            return known
        with self._lock:
            if request.key is not None and named(request.key) in self._keyed:
                # Another thread has started it in the meantime.
                return self._checked_same(request, self._keyed[named(request.key)])
            id = next(self._ids)
            number = next(self._numbers)
            tree = Tree(id, number, kept=self._keeps_trees, journal=journal)
            node = self._make(id, request, loop_handle, tree, None)
            self._trees.expect(node)
            if request.key is not None:
                self._keyed[named(request.key)] = node
        context = Context(self, node)
        if loop_handle.is_current():
            start_task(node, context)
        else:
            loop_handle.call_soon(start_task, node, context)
        return node

    def _start_child(
        self, loop_handle: LoopHandle, request: CallRequest, parent: CallNode
    ) -> CallNode:
        parent.check_open()
        node: CallNode | None = None
        if self._loader is not None or request.key is not None:
            request.call_key = parent.key_of(request)
            node = parent.calls.claim(request)
        if node is None:
            node = self._make(next(self._ids), request, loop_handle, parent.tree, parent)
            self._trees.add(node)
        elif self._loader is not None:
            self._loader.reattach(node, request)
            self._open_accounts(node, request)
            if node.has_ended:
                return node
        if parent.tree.is_held:
            start_or_postpone(node, Context(self, node))
        else:
            start_task(node, Context(self, node))
        return node

    def restart(self, root: CallNode, request: CallRequest, *, is_fork: bool) -> None:
        """Start the top-level call of a tree that was loaded, or of a fork."""
        self._open_accounts(root, request, is_fork=is_fork)
        self._trees.expect(root)
        root.loop_handle.run_soon(start_task, root, Context(self, root))

    def _check(self, function: Function) -> None:
        """Check the call graph of a function when it is first called at top level.

        Definitions that were run again, in a notebook, replace those of the runtime.
        """
        if function.is_plain:
            # A runtime of calls outside any Runtime has no functions.
            known = self._functions.get(function.name) if self._functions else None
            if known is not None and redefines(function, known):
                self._functions[function.name] = function
        elif function not in self._checked:
            found = discover([function], self.services.models, self._functions)
            self._checked.add(function)
            for name in self._functions:
                self._functions[name] = found[name]

    # Making nodes

    def _make(
        self,
        id: int,
        request: CallRequest,
        loop_handle: LoopHandle,
        tree: Tree,
        parent: CallNode | None,
    ) -> CallNode:
        """Publish the request of a new call, and return its node."""
        if self._policy is not None:
            id = self._policy.admit(request, tree, parent) or id
        options = None
        if parent is None and tree.journal is not None:
            # This is the thread, and the context, of the code that makes the call.
            options = _options(request, None if self.find_span is None else self.find_span())
        record = tree.publish(_requested(id, request, tree, parent, options))
        node = self._node(record, request, loop_handle, tree, parent)
        top = parent is None and self.services.account is not None
        if top or request.budget is not None or request.function.budget is not None:
            self._open_accounts(node, request)
        if self._policy is not None:
            self._policy.made(node)
        return node

    def _node(
        self,
        record: CallRecord,
        request: CallRequest,
        loop_handle: LoopHandle,
        tree: Tree,
        parent: CallNode | None,
    ) -> CallNode:
        services = self.services
        if request.function.is_agent:
            from treefold.runtime.conversations.agent_node import (  # noqa: PLC0415 - only for agents
                AgentNode,
            )

            return AgentNode(
                record,
                request,
                parent=parent,
                tree=tree,
                loop_handle=loop_handle,
                services=services,
            )
        return CodeNode(
            record,
            request,
            parent=parent,
            tree=tree,
            loop_handle=loop_handle,
            board=services.board,
        )

    def _open_accounts(
        self, node: CallNode, request: CallRequest, *, is_fork: bool = False
    ) -> None:
        """Open the accounts of *node*, and charge them with what an earlier process has spent.

        What a fork shares with its original tree was charged to the runtime's budget by that tree.
        """
        budgets = (request.budget, request.function.budget)
        node.accounts = tuple([Account(one, node) for one in budgets if one is not None])
        counted = node.accounts
        if node.parent is None and (common := self.services.account) is not None:
            node.accounts += (common,)
            counted = counted if is_fork else node.accounts
        if node.record.spending is not None:
            for account in counted:
                account.take_over(node.record.spending)

    # Calls with a key

    def _find_by_key(self, request: CallRequest) -> CallNode | None:
        """Return the top-level call that has the key of *request*, or None."""
        assert request.key is not None  # checked by the caller
        key = named(request.key)
        node = self._keyed.get(key)
        if node is None and self._loader is not None:
            tree = self._loader.store.find_key(key)
            node = None if tree is None else self.find(tree)
        if node is not None and self._checked_same(request, node) and self.resumer is not None:
            node.loop_handle.run_sync(self.resumer.resume_with, node, request.function)
        return node

    def _checked_same(self, request: CallRequest, node: CallNode) -> CallNode:
        """Return *node*, which has the key of *request*.

        Raises:
            InvalidValueError: it is another call: its function or its arguments differ.
        """
        journal = self._journal
        given = request.args if journal is None else journal.as_written(request.args)
        same = node.function.name == request.function.name
        if not same or digest(dict(node.inputs)) not in {digest(given), digest(dict(request.args))}:
            raise InvalidValueError(
                f"{node!r} has the key {request.key!r}, and is another call; give another key"
            )
        return node

    def forget_key(self, root: CallNode) -> None:
        """Forget the key of a top-level call."""
        self._keyed.pop(root.record.requested.key, None)

    # Finding nodes, in memory and in the store

    def find(self, node: Node | int) -> CallNode:
        """Return *node*, or the node with that id, loading its tree if need be.

        Raises:
            UnknownNodeError: there is no such node.
            StoreError: its tree cannot be read.
        """
        if isinstance(node, CallNode):
            return node
        found = self._trees.get(node) if isinstance(node, int) else None
        if found is None and self._loader is not None and isinstance(node, int):
            tree = self._loader.store.find(node=node)
            if tree is not None:
                loop_handle, events = self._loop_handle(), self._loader.events(tree)
                loop_handle.run_sync(self.load, tree, events)
                found = self._trees.get(node)
        if found is None:
            raise UnknownNodeError(f"this runtime has no node {node!r}; it may have been deleted")
        return found

    def loaded(self, id: int) -> CallNode | None:
        """Return the node with this id if it is in memory, otherwise None."""
        return self._trees.get(id)

    def load(self, id: int, events: list[Event] | None = None) -> CallNode:
        """Return the top-level node of the tree with this id, loading the tree if need be.

        Raises:
            StoreError: it cannot be read.
        """
        if (known := self._trees.get(id)) is not None:
            return known
        assert self._loader is not None  # there are no other trees without a store
        tree, loop_handle = self._loader.load(id, events), self._loop_handle()
        nodes: dict[int, CallNode] = {}
        for record in tree.records:
            parent = record.requested.parent
            above = None if parent is None else nodes[parent]
            request = self._loader.request_of(record)
            node = self._node(record, request, loop_handle, tree, above)
            nodes[node.id] = node
            self._trees.add(node)
            if above is not None:
                above.calls.next_sequence = max(above.calls.next_sequence, node.sequence + 1)
                above.expect_again(node)
            if not node.has_ended:
                if self.resumer is not None:
                    node.add_end_callback(partial(self.resumer.note_end, node))
                if above is not None and above.function.is_agent and above.waiting_on is None:
                    # Agents await their calls in order: until it is resumed, this is the first.
                    above.waiting_on = node
        if nodes[id].has_ended:
            self._trees.note_finished(nodes[id])
        return nodes[id]

    def knows_model(self, model_ref: Any) -> bool:
        """Whether *model_ref* refers to a model; None refers to the default."""
        if model_ref is None:
            return True
        try:
            self.services.models.find(model_ref)
        except InvalidValueError:
            return False
        return True


def _requested(
    id: int,
    request: CallRequest,
    tree: Tree,
    parent: CallNode | None,
    options: CallOptions | None,
) -> CallRequested:
    """Return the event that a call is requested, as a child of *parent* or at top level."""
    function, gated = request.function, request.gate is not None
    if parent is not None:
        index, sequence = parent.calls.place(parent, request.tied_with)
        above, key = parent.id, request.call_key
    else:
        index = sequence = tree.number
        above, key = None, f"#{id}" if request.key is None else named(request.key)
    return CallRequested(
        id,
        above,
        index,
        sequence,
        function.name,
        request.args,
        request.tool_use_id,
        options,
        key,
        gated,
        function.is_agent,
        request.continues,
    )


def _options(request: CallRequest, traceparent: str | None) -> CallOptions | None:
    model = request.model
    options = CallOptions(
        timeout=request.timeout,
        model=None if model is None else str(getattr(model, "name", model)),
        budget=request.budget,
        passing=request.prior is not None,
        traceparent=traceparent,
    )
    return None if options == CallOptions() else options
