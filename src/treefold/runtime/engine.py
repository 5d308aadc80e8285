"""Starts calls: gives them ids and nodes, and finds calls that were made before by their keys.

Each runtime has one engine.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Final, Protocol
from weakref import WeakSet, WeakValueDictionary

from treefold.core.call_keys import named, of_arguments
from treefold.core.call_request import CallRequest
from treefold.core.deps import DepsSource
from treefold.core.errors import (
    ClosedError,
    HeldBackError,
    InvalidValueError,
    StoreError,
    UnknownNodeError,
    UsageError,
)
from treefold.core.events import (
    BudgetAbove,
    CallEnded,
    CallOptions,
    CallReopened,
    CallRequested,
    Event,
)
from treefold.core.function import Function, Node
from treefold.core.guards import Guards
from treefold.core.origin import redefines
from treefold.core.record import CallRecord, why_inert
from treefold.core.states import NodeState
from treefold.core.store import Store
from treefold.core.truncation import truncate
from treefold.core.work_engine import Ticket
from treefold.runtime.accounts import Accounts, budgets_above
from treefold.runtime.backend import Backend, RemoteCalls
from treefold.runtime.calls.budgets import History
from treefold.runtime.calls.node import CallNode, CodeNode
from treefold.runtime.calls.task import start_task
from treefold.runtime.calls.walk import subtree
from treefold.runtime.calls.ways_out import explain_outcome, failed_outside
from treefold.runtime.context import Context, Host
from treefold.runtime.deps import give_deps
from treefold.runtime.durable.gc_disabled import gc_disabled
from treefold.runtime.durable.tree_source import CountedTrees, NewTree, TreeSource
from treefold.runtime.graph import discover
from treefold.runtime.keyed_calls import KeyedCalls
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.questions.pauses import start_or_postpone
from treefold.runtime.services import Services
from treefold.runtime.tree_registry import TreeRegistry
from treefold.runtime.trees.tree import Recorder, Tree

log = logging.getLogger(__name__)

_LONGEST_DESCRIPTION: Final = 200  # characters; it is recorded with each call


class StartPolicy(Protocol):
    """Decides about each call before it is made; a replay matches it with a recorded one."""

    def admit(self, request: CallRequest, tree: Tree, parent: CallNode | None) -> int | None:
        """Prepare *request*; return the id that its node gets, or None for the next one."""
        ...

    def made(self, node: CallNode) -> None:
        """Note that the call was made."""
        ...


class TreeLoader(Protocol):
    """Reads the trees of a journal; see ``Loader``, which only runtimes with a store import."""

    @property
    def journal(self) -> Recorder:
        """Writes the journal."""
        ...

    @property
    def store(self) -> Store:
        """Where the journal is kept."""
        ...

    @property
    def source(self) -> TreeSource:
        """Gives ids to trees and calls."""
        ...

    def read(self, tree: int) -> tuple[list[Event], int]:
        """Return the events of a tree, and the position of its last entry.

        Results are restored to the types of their functions.
        """
        ...

    def restored(self, events: list[Event]) -> list[Event]:
        """Restore the results in *events* to the types of their functions; return *events*."""
        ...

    def restored_event(self, event: Event, function: str) -> Event:
        """Return *event* with its value restored to the type of *function*."""
        ...

    def load(self, id: int, events: list[Event] | None = None) -> Tree:
        """Return the tree with this id and all of its records, from *events* if given."""
        ...

    @property
    def unread(self) -> WeakValueDictionary[int, CallNode]:
        """The top-level calls that were listed, and whose trees were not read yet."""
        ...

    def recorded(self) -> int:
        """Return how many characters were recorded."""
        ...

    def version_of(self, function: Function) -> str:
        """Return the version of *function*."""
        ...

    def history_of(self, tree: int, account: str, counted: Collection[int] = ()) -> History | None:
        """Return what a tree and its forks have spent of the account of an earlier runtime."""
        ...

    def guards_of(self, request: CallRequest) -> tuple[Guards, ...]:
        """Return the guards of a new tree, which are recorded with its top-level call."""
        ...

    def load_around(self, call: int, tree: int, events: list[Event]) -> Tree:
        """Return a tree of which this process runs one *call* and those below it."""
        ...

    def request_of(self, record: CallRecord) -> CallRequest:
        """Return the request of a recorded call, as far as the journal has it."""
        ...

    def reattach(self, node: CallNode, request: CallRequest) -> None:
        """Attach *request* to a recorded call, and reopen the call if it must run again."""
        ...


class Engine:
    """Makes the nodes of a runtime, and starts them.

    Args:
        runtime: what calls see as their runtime.
        functions: by name; their call graph has been checked.
        loader: reads and writes the journal, if there is one.
        connect: makes the backend, which needs this engine.
        loop_handle: returns the handle of the runtime's loop, which it starts if need be.
        keeps_trees: whether trees stay in memory after they have ended.
        policy: decides about each call before it is made.
    """

    def __init__(  # noqa: PLR0913 - the parts of a runtime, most passed by name
        self,
        runtime: Host,
        functions: dict[str, Function],
        services: Services,
        registry: TreeRegistry,
        *,
        loader: TreeLoader | None,
        connect: Callable[["Engine"], Backend],
        loop_handle: Callable[[], LoopHandle],
        keeps_trees: bool,
        policy: StartPolicy | None = None,
    ) -> None:
        self.runtime = runtime
        self.services = services
        # Returns the open span of the program, which is recorded with each top-level call.
        self.find_span: Callable[[], str | None] | None = None
        self._loader = loader
        self._journal = None if loader is None else loader.journal
        self._functions = functions
        self._checked = WeakSet(functions.values())  # functions whose call graph is valid
        self.registry = registry
        self._loop_handle = loop_handle
        self._keeps_trees = keeps_trees
        self._policy = policy
        self._lock = threading.Lock()  # guards keys
        self.source: TreeSource = CountedTrees() if loader is None else loader.source
        self.accounts = Accounts(
            services.account,
            services.guarding,
            since=self.source.now(),
            history_of=None if loader is None else loader.history_of,
            is_shared=services.shared is not None,
        )
        self.keys = KeyedCalls(
            self.find,
            lambda root: self.source.claim(root.tree.journal),
            None if loader is None else loader.store,
        )
        self.backend = connect(self)

    def _new_tree(self, request: CallRequest) -> NewTree:
        if (placement := self.backend.placement) is not None:
            if request.deps is not None:
                raise UsageError(
                    "deps= is for calls that this process runs, and with engine= others may run"
                    " them: give each of them Runtime(deps=...)"
                )
            return placement.new_tree(request)
        if request.queue or request.priority:
            raise UsageError(
                "queue= and priority= are for a work engine: Runtime(store='postgresql://...',"
                " engine=...)"
            )
        return self.source.new_tree()

    def new_fork(self, calls: int, source: Ticket | None) -> NewTree:
        """Return a new tree, with ids for that many calls that it shares with its *source*."""
        if (placement := self.backend.placement) is not None:
            return placement.new_fork(calls, source)
        return self.source.new_fork(calls)

    # Starting calls

    def start(
        self, request: CallRequest, parent: CallNode | None, *, is_here: bool = False
    ) -> CallNode:
        """Start the call that *request* asks for; its task copies the current context variables.

        *is_here* says that this is code of the runtime's loop, which is asked otherwise.
        """
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
            if request.deps is not None:
                raise UsageError(
                    f"deps= is for top-level calls, and {request.function.name} is called in"
                    f" {parent.function.name}: it has the dependencies of its run"
                )
            if is_here or loop_handle.is_current():
                return self._start_child(loop_handle, request, parent)
            # The parent belongs to the loop, and must not be changed from other threads.
            return loop_handle.run_sync(self._start_child, loop_handle, request, parent)
        is_here = is_here or loop_handle.is_current()
        return self._start_top(loop_handle, request, is_here=is_here)

    def _start_top(
        self, loop_handle: LoopHandle, request: CallRequest, *, is_here: bool
    ) -> CallNode:
        self._check(request.function)
        if request.key is not None and (known := self._find_by_key(request)) is not None:
            return known
        with self._lock:
            known = None if request.key is None else self.keys.loaded(named(request.key))
            if known is not None:
                # Another thread has started it in the meantime.
                return self._checked_same(request, known)
            new = self._new_tree(request)
            kept, now = self._keeps_trees, self.source.now
            tree = Tree(new.id, new.number, kept=kept, journal=new.journal, now=now)
            node = self._make(new.id, request, loop_handle, tree, None)
            give_deps(node, self.services, request.deps)
            # Before it is written, and may be delivered to this process.
            self.registry.add(node)
            try:
                is_first = request.key is None or self.source.claim(new.journal)
            except StoreError:
                # It is written once the store can be reached, perhaps even was: whoever makes the
                # call again gets this node.
                self._begin_top(node, is_here=is_here)
                raise
            if is_first:
                self._begin_top(node, is_here=is_here)
        return node if is_first else self._found_meanwhile(request, node)

    def _begin_top(self, node: CallNode, *, is_here: bool) -> None:
        """Submit or start a new top-level call, which has no effect before it is written."""
        if node.request.key is not None:
            self.keys.add(node)
        if (placement := self.backend.placement) is not None:
            node.loop_handle.run_soon(placement.submit, node)
            return
        self._open(node)
        context = Context(self, node)
        if is_here:
            start_task(node, context)
        else:
            node.loop_handle.call_soon(start_task, node, context)

    def _open(self, root: CallNode) -> None:
        """Note that this process begins to run a top-level call."""
        self.registry.expect(root)
        self.backend.opened(root)

    def _start_child(
        self, loop_handle: LoopHandle, request: CallRequest, parent: CallNode
    ) -> CallNode:
        parent.check_open()
        node: CallNode | None = None
        if self._loader is not None or request.key is not None:
            request.call_key = parent.key_of(request)
            node = parent.calls.claim(request)
        if node is None:
            id = self.source.new_call(parent.tree)
            node = self._make(id, request, loop_handle, parent.tree, parent)
            self.registry.add(node)
        elif self._loader is not None:
            if not node.has_ended and self._runs_apart(node):
                node.attach(request)
            else:
                self._loader.reattach(node, request)
            self.accounts.open(node, request)
            if node.has_ended:
                return node
        if (remote := self._runs_apart(node)) is not None:
            remote.wait(node, Context(self, node))
        elif parent.tree.is_held:
            start_or_postpone(node, Context(self, node))
        else:
            start_task(node, Context(self, node))
        return node

    def _runs_apart(self, node: CallNode) -> RemoteCalls | None:
        """Return what waits for a call that other workers may run, or None."""
        return self.backend.remote_calls if node.record.requested.queue else None

    def restart(self, root: CallNode, request: CallRequest, *, is_counted: bool) -> None:
        """Start the top-level call of a tree that was loaded, or of a fork.

        *is_counted* says that the runtime's budget has what was spent in it before.
        """
        self.accounts.open(root, request, is_counted=is_counted)
        give_deps(root, self.services)
        self._open(root)
        root.loop_handle.run_soon(start_task, root, Context(self, root))

    def restart_call(self, node: CallNode, request: CallRequest) -> None:
        """Start a call, loaded with ``load_call``, that another worker had begun or requested."""
        self.accounts.open(node, request)
        self.accounts.open_above(node)
        give_deps(node, self.services)
        self.registry.expect_call(node)
        node.loop_handle.run_soon(start_task, node, Context(self, node))

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
        queue = ""
        # While a pause holds the tree, the call waits here until that ends, and runs here.
        if request.function.queue and parent is not None and not tree.is_held:
            remote = self.backend.remote_calls
            queue = "" if remote is None else remote.place(id, request, parent)
        options = None
        if parent is None and tree.journal is not None:
            # This is the thread, and the context, of the code that makes the call.
            span = None if self.find_span is None else self.find_span()
            guards = () if self._loader is None else self._loader.guards_of(request)
            deps = request.deps or self.services.deps
            options = _options(request, deps, traceparent=span, guards=guards)
        elif queue and parent is not None:
            # Another worker, which does not run its caller, starts it with these.
            deps = None if tree.deps is None else tree.deps.source
            options = _options(request, deps, budgets_above=budgets_above(parent))
        loader = self._loader
        version = "" if loader is None else loader.version_of(request.function)
        event = _requested(id, request, tree, parent, options, queue, version)
        record = tree.publish(event)
        node = self._node(record, request, loop_handle, tree, parent)
        self.accounts.open_new(node, request)
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

    # Calls with a key

    def _find_by_key(self, request: CallRequest) -> CallNode | None:
        """Return the top-level call that has the key of *request*, or None."""
        assert request.key is not None  # checked by the caller
        node = self.keys.find(named(request.key))
        if node is None:
            return None
        node = self.keys.newest(self._checked_same(request, node))
        if node.record.inert and node.state is not NodeState.Success:
            # It was imported, and has not ended well: only a person lets it run.
            raise HeldBackError(node.index, why_inert(node.path))
        if self._loader is not None:
            node.loop_handle.run_sync(self.backend.resume_with, node, request)
            if node.record.held_back and node.id in self.backend.held_back:
                raise HeldBackError(node.index, node.record.held_back)
        if not node.has_ended or node.exception is None:
            return node
        if failed_outside(node.record):
            again = self.backend.invoked_again(node, request)
            if again is not None:
                return again
        explain_outcome(node, request.key)
        return node

    def _found_meanwhile(self, request: CallRequest, new: CallNode) -> CallNode:
        """Return the call that another process has made in the place of a *new* one."""
        self.forget_new(new)
        found = self._find_by_key(request)
        if found is None:
            raise UnknownNodeError(
                f"another process made the call with the key {request.key!r}, and deleted it; call"
                " it again"
            )
        return found

    def forget_new(self, new: CallNode) -> None:
        """Forget a new top-level call, because another process was quicker."""
        self.registry.forget(new)
        if self.backend.placement is not None:
            self.backend.placement.withdraw(new.id)

    def _checked_same(self, request: CallRequest, node: CallNode) -> CallNode:
        """Return *node*, which has the key of *request*.

        Raises:
            InvalidValueError: it is another call: its function or its arguments differ.
        """
        journal = self._journal
        given = request.args if journal is None else journal.as_written(request.args)
        same = node.function.name == request.function.name
        wanted = {of_arguments(given), of_arguments(request.args)}
        if not same or of_arguments(node.inputs) not in wanted:
            raise InvalidValueError(
                f"{node!r} has the key {request.key!r}, and is another call; give another key"
            )
        return node

    # Finding nodes, in memory and in the store

    def find(self, node: Node | int) -> CallNode:
        """Return *node*, or the node with that id, loading its tree if need be.

        Raises:
            UnknownNodeError: there is no such node.
            StoreError: its tree cannot be read.
        """
        if isinstance(node, CallNode):
            return node
        found = self.registry.get(node) if isinstance(node, int) else None
        if found is None and self._loader is not None and isinstance(node, int):
            tree = self._loader.store.find(node=node)
            if tree is not None:
                loop_handle = self._loop_handle()
                with gc_disabled():
                    events, place = self._loader.read(tree)
                    # A finished tree stays in memory only while its nodes are held.
                    root = loop_handle.run_sync(self._load_found, tree, events, place)
                # Of the trees that follow a call, the registry may have had another one.
                found = next((one for one in subtree(root) if one.id == node), None)
        if found is None:
            raise UnknownNodeError(f"this runtime has no node:{node!r}; it may have been deleted")
        return found

    def find_readable(self, id: int) -> CallNode | None:
        """Return the node with this id; None if it has just been deleted or cannot be read."""
        try:
            return self.find(id)
        except UnknownNodeError:
            return None
        except StoreError as error:  # other trees may be readable
            log.warning("node:%d is left out: %s", id, error)
            return None

    def _load_found(self, tree: int, events: list[Event], place: int) -> CallNode:
        """Load a tree because a program looks at it, unless it is loaded meanwhile: on the loop.

        A tree that this process has just begun to run must not be followed: each cancellation of it
        would be posted to this process, for ever.
        """
        if (known := self.registry.get(tree)) is not None:
            return known
        root = self.load(tree, events)
        self.backend.found(root, place)
        return root

    def loaded(self, id: int) -> CallNode | None:
        """Return the node with this id if it is in memory, otherwise None."""
        return self.registry.get(id)

    def load(self, id: int, events: list[Event] | None = None) -> CallNode:
        """Return the top-level node of the tree with this id, made of *events* if given.

        Raises:
            StoreError: it cannot be read.
        """
        assert self._loader is not None  # there are no other trees without a store
        with gc_disabled():
            nodes = self._nodes_of(self._loader.load(id, events))
        for node in nodes.values():
            self.registry.add(node)
        if nodes[id].has_ended:
            self.registry.drop(nodes[id])
        return nodes[id]

    def load_call(self, tree: int, id: int, events: list[Event], journal: Recorder) -> CallNode:
        """Return a call of a tree whose other calls other workers run; *journal* records it."""
        assert self._loader is not None  # there are no other trees without a store
        loaded = self._loader.load_around(id, tree, events)
        loaded.journal = journal
        node = self._nodes_of(loaded)[id]
        for one in subtree(node):
            self.registry.add(one)
        return node

    def _nodes_of(self, tree: Tree) -> dict[int, CallNode]:
        """Make the nodes of a tree that was read, each after its caller."""
        from treefold.runtime.unread_nodes import complete  # noqa: PLC0415 - only for stores

        assert self._loader is not None  # it was read from a store
        nodes: dict[int, CallNode] = {}
        for record in tree.records:
            parent = record.requested.parent
            above = None if parent is None else nodes[parent]
            request = self._loader.request_of(record)
            loop_handle = self._loop_handle()
            unread = self._loader.unread.pop(tree.id, None) if above is None else None
            if unread is None:
                node = self._node(record, request, loop_handle, tree, above)
            else:
                node = complete(unread, record, request, tree, loop_handle, self.services)
            nodes[node.id] = node
            if above is not None:
                above.calls.next_sequence = max(above.calls.next_sequence, node.sequence + 1)
                above.expect_again(node)
            if not node.has_ended:
                node.add_end_callback(partial(self.backend.note_end, node))
                if above is not None and above.function.is_agent and above.waiting_on is None:
                    # Agents await their calls in order: until it is resumed, this is the first.
                    above.waiting_on = node
        return nodes

    def version_of(self, function: str) -> str:
        """Return the version of the function with this name; empty if there is none."""
        known, loader = self._functions.get(function), self._loader
        return "" if known is None or loader is None else loader.version_of(known)

    def restored(self, events: list[Event]) -> list[Event]:
        """Restore the results in *events* to the types of their functions; return *events*."""
        assert self._loader is not None  # they are from a store
        return self._loader.restored(events)

    def follow(
        self,
        tree: Tree,
        nodes: dict[int, CallNode],
        events: Iterable[Event],
        goes_on: Callable[[CallNode, CallEnded], bool],
    ) -> None:
        """Apply the *events* of calls that another process runs to their *nodes* in this one.

        Calls below them become nodes, too; events of other calls are left out. A call that has
        ended and *goes_on* is to be run once more.
        """
        assert self._loader is not None  # they are from a store
        for event in events:
            node = nodes.get(event.node)
            if isinstance(event, CallRequested):
                if node is None and event.parent in nodes:
                    record, above = tree.show(event), nodes.get(event.parent or 0)
                    request = self._loader.request_of(record)
                    node = self._node(record, request, self._loop_handle(), tree, above)
                    node.remote_cancel = None if above is None else above.remote_cancel
                    nodes[node.id] = node
                    self.registry.follow(node)
            elif node is not None:
                event = self._loader.restored_event(event, node.function.name)
                tree.show(event)
                if isinstance(event, CallEnded) and goes_on(node, event):
                    tree.publish(CallReopened(node.id, tree.now()))
                elif isinstance(event, CallEnded | CallReopened):
                    node.follow(event)

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
    queue: str,
    version: str,
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
        queue,
        version,
        tree.now(),
        "" if tree.journal is None else _first_line(function.description),
    )


def _first_line(description: str) -> str:
    line = description.strip().partition("\n")[0].rstrip()
    return truncate(line, _LONGEST_DESCRIPTION)


def _options(
    request: CallRequest,
    deps: DepsSource | None,
    *,
    traceparent: str | None = None,
    budgets_above: tuple[BudgetAbove, ...] = (),
    guards: tuple[Guards, ...] = (),
) -> CallOptions | None:
    model = request.model
    options = CallOptions(
        timeout=request.timeout,
        model=None if model is None else str(getattr(model, "name", model)),
        budget=request.budget,
        passing=request.prior is not None,
        traceparent=traceparent,
        budgets_above=budgets_above,
        guards=guards,
        deps="" if deps is None else deps.name,
    )
    return None if options == CallOptions() else options
