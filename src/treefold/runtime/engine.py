"""Starts calls: gives them ids and nodes, and finds calls that were made before by their keys.

Each runtime has one engine.
"""

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from treefold.core.call_keys import named
from treefold.core.call_request import CallRequest
from treefold.core.errors import ClosedError, InvalidValueError
from treefold.core.fold import Record
from treefold.core.function import Function
from treefold.core.value_codec import digest
from treefold.runtime.calls.budgets import Account
from treefold.runtime.calls.node import CallNode, CodeNode
from treefold.runtime.context import Context
from treefold.runtime.graph import discover
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.questions.pauses import start
from treefold.runtime.services import Services
from treefold.runtime.tree_registry import TreeRegistry
from treefold.runtime.trees.tree import Tree


class Engine:
    """Makes the nodes of a runtime, and starts them.

    Args:
        runtime: what calls see as their runtime.
        functions: by name; their call graph has been checked.
        loop_handle: returns the handle of the runtime's loop, which it starts if need be.
        keeps_trees: whether trees stay in memory after they have ended.
    """

    def __init__(
        self,
        runtime: Any,
        functions: Mapping[str, Function],
        services: Services,
        trees: TreeRegistry,
        *,
        loop_handle: Callable[[], LoopHandle],
        keeps_trees: bool,
    ) -> None:
        self.runtime = runtime
        self.recovery: Any = None  # a Recovery, if the runtime has a store
        self.services = services
        self._functions = functions
        self._checked = WeakSet(functions.values())  # functions whose call graph is valid
        self._trees = trees
        self._loop_handle = loop_handle
        self._keeps_trees = keeps_trees
        self._lock = threading.Lock()  # guards ids, numbers and keys
        self._keyed: dict[str, CallNode] = {}  # top-level calls by their keys
        self._ids = itertools.count(1)
        self._numbers = itertools.count(1)

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

    # Calls

    def start(self, request: CallRequest, parent: CallNode | None) -> CallNode:
        """Start the call that *request* asks for; its task copies the current context variables."""
        # A running parent uses its own handle: self._loop_handle() raises while the runtime closes,
        # and calls that still run are to be cancelled then, not to fail before that.
        loop_handle = (
            self._loop_handle() if parent is None or parent.has_ended else parent.loop_handle
        )
        # The journal is suspended: the call would not be recorded, and so be made again.
        if self.recovery is not None and self.recovery.is_suspended:
            raise ClosedError("this runtime is being closed; the next one resumes its open calls")
        self._check_key(request.key)
        if parent is not None:
            # The parent belongs to the loop, and must not be changed from other threads.
            return loop_handle.run_sync(self._start_child, loop_handle, request, parent)
        self._check(request.function)
        if request.key is not None and (known := self._find_by_key(request)) is not None:
            return known
        with self._lock:
            if request.key is not None and named(request.key) in self._keyed:
                # Another thread has started it in the meantime.
                return self._checked_same(request, self._keyed[named(request.key)])
            id, journal = next(self._ids), None if self.recovery is None else self.recovery.journal
            tree = Tree(id, self.next_number(), kept=self._keeps_trees, journal=journal)
            node = self._make(id, request, loop_handle, tree, None)
            self._trees.add(node)
            if request.key is not None:
                self._keyed[named(request.key)] = node
        loop_handle.run_soon(node.start, Context(self, node))
        return node

    def _start_child(
        self, loop_handle: LoopHandle, request: CallRequest, parent: CallNode
    ) -> CallNode:
        node: CallNode | None = None
        if self.recovery is not None or request.key is not None:
            node = parent.claim(request)
        if node is None:
            node = self._make(next(self._ids), request, loop_handle, parent.tree, parent)
            self._trees.add(node)
        elif self.recovery is not None:
            self.recovery.reattach(node, request)
            self._open_accounts(node, request)
            if node.has_ended:
                return node
        start(node, Context(self, node))
        return node

    def start_again(self, root: CallNode, request: CallRequest, *, is_fork: bool) -> None:
        """Start the top-level call of a tree that was loaded, or of a fork."""
        self._open_accounts(root, request, is_fork=is_fork)
        self._trees.expect(root)
        root.loop_handle.run_soon(root.start, Context(self, root))

    def _check(self, function: Function) -> None:
        """Check the call graph of a function when it is first called at top level."""
        if not function.is_plain and function not in self._checked:
            discover([function], self.services.models, self._functions)
            self._checked.add(function)

    # Calls with a key

    def _check_key(self, key: str | None) -> None:
        """Raise InvalidValueError if redaction would change *key*, by which the call is found."""
        if key and self.recovery is not None and self.recovery.journal.redacted(key) != key:
            raise InvalidValueError(
                "the key of a call is written down, and there is something in this one that is to"
                " be redacted; give another key"
            )

    def _find_by_key(self, request: CallRequest) -> CallNode | None:
        """Return the top-level call that has the key of *request*, or None."""
        assert request.key is not None  # checked by the caller
        key = named(request.key)
        node = self._keyed.get(key)
        if node is None and self.recovery is not None:
            tree = self.recovery.store.find_key(key)
            node = None if tree is None else self._trees.find(tree)
        if node is not None and self._checked_same(request, node) and self.recovery is not None:
            node.loop_handle.run_sync(self.recovery.adopt, node, request.function)
        return node

    def _checked_same(self, request: CallRequest, node: CallNode) -> CallNode:
        """Return *node*, which has the key of *request*.

        Raises:
            InvalidValueError: it is another call: its function or its arguments differ.
        """
        given = (
            request.args
            if self.recovery is None
            else self.recovery.journal.as_written(request.args)
        )
        same = node.function.name == request.function.name
        if not same or digest(dict(node.inputs)) not in {digest(given), digest(dict(request.args))}:
            raise InvalidValueError(
                f"{node!r} has the key {request.key!r}, and is another call; give another key"
            )
        return node

    def forget(self, root: CallNode) -> None:
        """Forget the key of a top-level call."""
        self._keyed = {key: node for key, node in self._keyed.items() if node is not root}

    # Nodes

    def remake(
        self, record: Record, request: CallRequest, tree: Tree, parent: CallNode | None
    ) -> CallNode:
        """Return a new node for a recorded call."""
        node = self._node(record.requested.node, request, self._loop_handle(), tree, parent, record)
        self._trees.show(node)
        return node

    def load(self, id: int) -> CallNode | None:
        """Load the tree of a node of an earlier process, and return the node; None if unknown."""
        if self.recovery is None or (tree := self.recovery.store.find(node=id)) is None:
            return None
        loop_handle, events = self._loop_handle(), self.recovery.events(tree)
        loop_handle.run_sync(self.recovery.load, tree, events)
        return self.loaded(id)

    def loaded(self, id: int) -> CallNode | None:
        """Return the node with this id if it is in memory, otherwise None."""
        return self._trees.get(id)

    def knows_model(self, model_ref: Any) -> bool:
        """Whether *model_ref* refers to a model; None refers to the default."""
        if model_ref is None:
            return True
        try:
            self.services.models.find(model_ref)
        except InvalidValueError:
            return False
        return True

    def _make(
        self,
        id: int,
        request: CallRequest,
        loop_handle: LoopHandle,
        tree: Tree,
        parent: CallNode | None,
    ) -> CallNode:
        node = self._node(id, request, loop_handle, tree, parent)
        top = parent is None and self.services.account is not None
        if top or request.budget is not None or request.function.budget is not None:
            self._open_accounts(node, request)
        return node

    def _node(
        self,
        id: int,
        request: CallRequest,
        loop_handle: LoopHandle,
        tree: Tree,
        parent: CallNode | None,
        record: Record | None = None,
    ) -> CallNode:
        services = self.services
        if request.function.is_agent:
            return self._agent_class(
                id,
                request,
                parent=parent,
                tree=tree,
                loop_handle=loop_handle,
                services=services,
                record=record,
            )
        return CodeNode(
            id,
            request,
            parent=parent,
            tree=tree,
            loop_handle=loop_handle,
            board=services.board,
            record=record,
        )

    @property
    def _agent_class(self) -> Callable[..., CallNode]:
        from treefold.runtime.conversations.agent_node import AgentNode  # noqa: PLC0415 - only agents need it

        return AgentNode

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
        if node.spent is not None:
            for account in counted:
                account.take_over(node.spent)
