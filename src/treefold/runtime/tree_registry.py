"""The trees of one runtime: which there are, which are open, and how they are deleted."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final
from weakref import WeakSet, WeakValueDictionary

from treefold.core.address import address
from treefold.core.errors import UsageError
from treefold.core.states import NodeState
from treefold.runtime.calls.node import CallNode, report_if_unseen
from treefold.runtime.calls.walk import is_parked, root_of, subtree
from treefold.runtime.loops.cancellation import wait_until
from treefold.runtime.loops.loop_handle import threadsafe_resolver
from treefold.runtime.trees.bags import SessionBag, close_all
from treefold.runtime.trees.dependencies import Dependencies

log = logging.getLogger(__name__)

# The nodes of a tree refer to each other, and large texts in them do not make the garbage collector
# run any earlier. So it is run whenever so many characters were recorded.
_COLLECT_AFTER: Final = 16_000_000


class UnseenFailure:
    """Reports that a call failed when no code can read its result any more.

    It belongs to the tree of the call and refers back to it, so both are deleted together.
    """

    root: CallNode | None = None

    def __del__(self) -> None:
        if self.root is not None:
            report_if_unseen(self.root)


class TreeRegistry:
    """Finds nodes by id, keeps or drops finished trees, and waits for the open ones to end.

    A finished tree in a journal is dropped: it is read again on demand, and as long as the
    program uses one of its nodes, they are found as the same ones. Without a journal, finished
    trees stay until they are deleted, or are dropped at once if not *keeps_finished*. A node that
    follows a call is found as long as this process does not run the call itself. Nodes may be
    added and found from any thread; trees end and are deleted on the runtime's loop.
    """

    def __init__(self, *, keeps_finished: bool, recorded: Callable[[], int] = int) -> None:
        self._keeps_finished = keeps_finished
        self._nodes: dict[int, CallNode] = {}
        self._roots: dict[int, CallNode] = {}
        self._open: set[CallNode] = set()  # top-level and remote calls that have not ended
        self._following: dict[int, CallNode] = {}  # nodes of calls that run elsewhere
        # The nodes of dropped trees that the program still uses.
        self._dropped: WeakValueDictionary[int, CallNode] = WeakValueDictionary()
        self._unseen: WeakSet[CallNode] = WeakSet()  # failed, perhaps not reported yet
        self._recorded = recorded  # returns how many characters were recorded
        self._collected = 0  # what it returned when garbage was collected last
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def roots(self) -> list[CallNode]:
        """The top-level calls, oldest first."""
        return list(self._roots.values())

    def add(self, node: CallNode) -> None:
        """Add a node, which need not run, unless a node of this call runs already."""
        self._nodes.setdefault(node.id, node)
        if node.parent is None:
            self._roots[node.id] = node

    def follow(self, node: CallNode) -> None:
        """Note that a node follows a call: it is found while no other of the call is."""
        if self._nodes.get(node.id) is node:
            del self._nodes[node.id]
        self._following[node.id] = node

    def expect(self, root: CallNode) -> None:
        """Add a top-level node, and count it among the open ones until it ends."""
        self._nodes[root.id] = self._roots[root.id] = root
        self._open.add(root)
        root.add_end_callback(partial(self._root_ended, root))

    def expect_call(self, node: CallNode) -> None:
        """Count a call among the open ones until it ends, though other workers run its caller."""
        self._open.add(node)
        node.add_end_callback(partial(self._open.discard, node))

    def get(self, id: int) -> CallNode | None:
        """Return the node with this id if it is in memory, otherwise None."""
        return self._nodes.get(id) or self._dropped.get(id) or self._following.get(id)

    def check_over(self, root: CallNode) -> None:
        """Raise UsageError unless *root* is a top-level call that has ended."""
        if root.parent is not None:
            raise UsageError(
                f"{root!r} is not a top-level call; delete {address(root_of(root).path)} instead"
            )
        # What ended just now may still be among the open ones.
        if root in self._open and not root.has_ended:
            raise UsageError(f"{root!r} has not ended; cancel it first")

    def delete(self, root: CallNode, closed: Callable[[], object]) -> None:
        """Remove a finished tree and close its bags; then call *closed*."""
        self.check_over(root)
        report_if_unseen(root)
        closing = self.close_bags(root)
        self.forget(root)
        if closing is None:
            closed()
        else:
            closing.add_done_callback(lambda _: closed())

    async def end(
        self, *, cancel: bool, suspend: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Wait until all trees have ended, with *cancel* by cancelling them; then close all bags.

        With a store, *suspend* suspends the journal before calls are cancelled, so that they stay
        open for the next driver, and parked trees are not waited for. If this is cancelled, it
        cancels the trees that still run, and waits for their end.
        """
        interrupted = insist = False
        while self._open:
            try:
                if cancel:
                    if suspend is not None:
                        await suspend()
                    for root in tuple(self._open):
                        root.cancel_on_loop("its runtime was closed", insist=insist)
                for root in tuple(self._open):
                    if cancel or suspend is None:
                        await root.ended()
                    else:
                        await _ended_or_parked(root)
                # With a store, the trees that are left are parked: they need not be waited for.
                cancel = cancel or suspend is not None
            except asyncio.CancelledError:
                insist = interrupted  # from the second cancellation on
                cancel = interrupted = True
        for root in {*self._unseen, *self.roots}:
            report_if_unseen(root)
            self.close_bags(root)
        await self._bags_closed()
        if interrupted:
            raise asyncio.CancelledError

    async def _bags_closed(self) -> None:
        def cancel() -> None:
            for task in self._closing:
                task.cancel()

        await wait_until(lambda: not self._closing, lambda: asyncio.wait(self._closing), cancel)

    def _root_ended(self, root: CallNode) -> None:
        self._open.discard(root)
        if not self._keeps_finished:
            if not root.asked_for:
                report_if_unseen(root)
                _report_if_abandoned(root)
            self.forget(root)
        elif (journal := root.tree.journal) is not None and not journal.is_closed:
            self.drop(root)

    def drop(self, root: CallNode) -> None:
        """Drop a finished tree from memory, which can be read again from its journal."""
        # The objects in its bags live until the tree is deleted.
        if root.tree.has_bags:
            return
        # The program may have another node of this call, which follows it, or did.
        other = self._following.get(root.id) or self._dropped.get(root.id)
        # Before they are forgotten: another thread finds them at any moment.
        for node in [root] if root.child_calls is None else subtree(root):
            self._dropped[node.id] = node
        self.forget(root)
        # That one says so.
        is_told = other is not None and other is not root
        if root.state is NodeState.Error and not root.asked_for and not is_told:
            root.tree.part(UnseenFailure).root = root
            self._unseen.add(root)
        if (recorded := self._recorded()) - self._collected > _COLLECT_AFTER and gc.isenabled():
            self._collected = recorded
            # Afterwards: its task still refers to it.
            root.loop_handle.loop.call_soon(gc.collect)

    def forget(self, root: CallNode) -> None:
        """Remove a tree, or a remote call that runs apart from its caller, and all of its nodes."""
        if self._roots.get(root.id) is root:
            del self._roots[root.id]
        for node in [root] if root.child_calls is None else subtree(root):
            # It is in one of them; looking into the last is slow.
            if self._nodes.get(node.id) is node:
                del self._nodes[node.id]
            elif self._following.get(node.id) is node:
                del self._following[node.id]
            elif self._dropped.get(node.id) is node:
                del self._dropped[node.id]

    def close_bags(self, root: CallNode) -> "asyncio.Task[None] | None":
        """Start the task that closes the bags of a tree; None if it has no bags.

        If Ctrl-C ended its calls at once, its dependencies are still open, and closed as well.
        """
        bags, deps = root.tree.take_bags(), root.tree.deps
        left = deps if deps is not None and deps.is_open else None
        if not bags and left is None:
            return None
        closing = close_all(bags) if left is None else _close_all(bags, left)
        task = root.loop_handle.loop.create_task(closing, name="close session bags")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task


async def _close_all(bags: Sequence[SessionBag], deps: Dependencies) -> None:
    try:
        await close_all(bags)
    finally:
        await deps.close(None)


async def _ended_or_parked(root: CallNode) -> None:
    """Wait until *root* has ended or is parked."""
    while not root.state.final and not is_parked(root):
        changed = root.loop_handle.loop.create_future()
        wake = threadsafe_resolver(changed)
        root.tree.on_next_event(wake)
        try:
            await changed
        finally:
            root.tree.forget(wake)


def _report_if_abandoned(node: CallNode) -> None:
    """Log that the event loop ended before *node*, whose result was never asked for."""
    if node.state is NodeState.Canceled and node.cancel_reason is None:
        log.warning(
            "%s was cancelled, because its event loop ended and nobody asked for its result: write"
            " 'await', as in 'await %s.run(...)'",
            node,
            node.function.name,
        )
