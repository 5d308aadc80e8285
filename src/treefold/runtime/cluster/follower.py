"""Keeps trees and calls up to date in this process that other workers run."""

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress

from treefold.core.address import address
from treefold.core.errors import ClosedError, StoreError
from treefold.core.events import Event
from treefold.core.shared_store import SharedStore
from treefold.core.states import NodeState
from treefold.runtime.calls.cancellable_node import RemoteCancel
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import subtree
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.durable.tree_reader import TreeReader
from treefold.runtime.engine import Engine
from treefold.runtime.loops.threads import in_thread
from treefold.runtime.trees.waiting import Changes

log = logging.getLogger(__name__)


class _Replica:
    """A call that is run elsewhere, the nodes that stand for it and those below, and a reader."""

    def __init__(
        self,
        store: SharedStore,
        root: CallNode,
        *,
        after: int,
        known: int,
        cancel: RemoteCancel,
    ) -> None:
        self.root = root
        self.nodes = {node.id: node for node in subtree(root)}
        for node in self.nodes.values():
            node.remote_cancel = cancel
        self._reader = TreeReader(store, root.tree.id, after=after)
        self._known = known

    def read(self) -> list[Event]:
        """Return the events that are new."""
        events = self._reader.read()
        known, self._known = self._known, max(0, self._known - len(events))
        return events[known:]


class Follower:
    """Reads the new events of followed calls when it hears of them, and now and then.

    *cancel* asks the process that runs a node to cancel it, for a reason. *changes* wakes those who
    read events from the journal.

    A followed tree has nodes of its own, even if this process takes the tree over: what a program
    awaits is the same in either case. Everything but reading happens on the event loop.
    """

    def __init__(
        self,
        store: SharedStore,
        engine: Engine,
        interval: float,
        cancel: RemoteCancel,
        changes: Changes,
    ) -> None:
        self._store = store
        self._cancel = cancel
        self._changes = changes
        self._engine = engine
        self._interval = interval
        self._replicas: dict[int, _Replica] = {}  # by their topmost nodes
        self._changed: set[int] = set()  # replicas to read
        self._wake = asyncio.Event()

    def follow(self, root: CallNode, *, after: int = 0, known: int = 0) -> None:
        """Keep *root* and all below it up to date until it has ended.

        Entries up to the position *after* are not read, and so many events after that are *known*.
        """
        if not root.has_ended and root.id not in self._replicas:
            self._replicas[root.id] = _Replica(
                self._store, root, after=after, known=known, cancel=self._cancel
            )

    def followed(self, id: int) -> CallNode | None:
        """Return the followed node with this id, if it is a topmost one."""
        replica = self._replicas.get(id)
        return None if replica is None else replica.root

    def forget(self, root: CallNode) -> None:
        """Do not follow *root* any more."""
        replica = self._replicas.get(root.id)
        if replica is not None and replica.root is root:
            del self._replicas[root.id]
            for node in replica.nodes.values():
                node.remote_cancel = None

    def close(self) -> None:
        """Wake what waits for the followed calls, which continue elsewhere."""
        closed = ClosedError("this runtime was closed; the call continues in another process")
        for replica in self._replicas.values():
            journal = replica.root.tree.journal
            assert isinstance(journal, DriveJournal)  # as in every shared store
            # Nothing of that is recorded.
            journal.close()
            for node in replica.nodes.values():
                node.end((NodeState.Canceled, None, closed))

    def hear(self, trees: Collection[int]) -> None:
        """Note that these trees have changed, or any if none is named."""
        for id, replica in self._replicas.items():
            if not trees or replica.root.tree.id in trees:
                self._changed.add(id)
                self._wake.set()

    async def run(self) -> None:
        """Follow calls until this is cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._wake.wait()
            # After the interval all are read: a notification may be lost.
            due = self._changed if self._wake.is_set() else set(self._replicas)
            self._wake.clear()
            self._changed = set()
            for id in due:
                if (replica := self._replicas.get(id)) is not None:
                    await self._update(replica)

    async def _update(self, replica: _Replica) -> None:
        root = replica.root
        try:
            events = await in_thread(replica.read)
        except StoreError as error:
            log.debug("%s cannot be read: %s", address(root.path), error)
            return
        # It may have been forgotten meanwhile, because this process runs it.
        if self._replicas.get(root.id) is replica:
            self._engine.follow(root.tree, replica.nodes, events)
            if events:
                self._changes.wake()
            if root.has_ended:
                self.forget(root)
                self._engine.note_finished(root)
