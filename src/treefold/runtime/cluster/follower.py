"""Keeps trees and calls up to date in this process that other workers run."""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import islice
from typing import Final

from treefold.core.errors import ClosedError, StoreError, UnknownNodeError
from treefold.core.events import CallEnded, CallRequested, Event
from treefold.core.states import NodeState
from treefold.core.store import Store
from treefold.runtime.calls.cancellable_node import RemoteCancel
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import subtree
from treefold.runtime.durable.drive import Drive
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.durable.tree_reader import TreeReader
from treefold.runtime.engine import Engine
from treefold.runtime.loops.threads import in_thread
from treefold.runtime.trees.waiting import Changes

log = logging.getLogger(__name__)

_AT_ONCE: Final = 4  # trees that are read at the same time

# Whether a call is to be run once more, although it has ended so.
GoesOn = Callable[[CallNode, CallEnded], bool]


def _is_over(_call: CallNode, _ended: CallEnded) -> bool:
    return False


class _Replica:
    """A call that is run elsewhere, and the nodes that stand for it and for those below.

    *read* is the position of the last entry of its tree that these nodes know.
    """

    def __init__(self, root: CallNode, *, read: int, cancel: RemoteCancel, goes_on: GoesOn) -> None:
        self.root = root
        self.goes_on = goes_on
        self.read = read
        self.nodes = {node.id: node for node in subtree(root)}
        for node in self.nodes.values():
            node.remote_cancel = cancel

    @property
    def journal(self) -> DriveJournal:
        journal = self.root.tree.journal
        assert isinstance(journal, DriveJournal)  # as in every shared store
        return journal


class _FollowedTree:
    """A tree of which calls are followed: all of it, or any number of remote calls in it.

    Its entries are read once for all of these calls.
    """

    def __init__(self, store: Store, id: int) -> None:
        self._store = store
        self._id = id
        self._replicas: list[_Replica] = []
        self._by_node: dict[int, list[_Replica]] = {}

    @property
    def replicas(self) -> list[_Replica]:
        """The calls in it that are followed."""
        return list(self._replicas)

    @property
    def is_stored(self) -> bool:
        """Whether it is, or was, in the store."""
        return all(self._id not in replica.journal.drive.tickets for replica in self._replicas)

    @property
    def is_followed(self) -> bool:
        return bool(self._replicas)

    @property
    def place(self) -> int:
        """The position of the last entry that all replicas know."""
        return min(replica.read for replica in self._replicas)

    def add(self, replica: _Replica) -> None:
        self._replicas.append(replica)
        for node in replica.nodes:
            self._by_node.setdefault(node, []).append(replica)

    def remove(self, replica: _Replica) -> None:
        self._replicas.remove(replica)
        for node in replica.nodes:
            if replica in (known := self._by_node.get(node, [])):
                known.remove(replica)
                if not known:
                    del self._by_node[node]

    def read(self, after: int) -> tuple[int, list[Event]]:
        """Return the events after that position, and the position of the last; in a thread."""
        reader = TreeReader(self._store, self._id, after=after, with_source=False)
        events = reader.read()
        return reader.place, events

    def sort(self, place: int, events: list[Event]) -> dict[_Replica, list[Event]]:
        """Return which of the *events* up to *place* are new, for each replica that has some."""
        # The positions in a tree have no gap.
        first = place - len(events) + 1
        # One that was added meanwhile may know less than what was read follows on.
        ready = {replica for replica in self._replicas if replica.read >= first - 1}
        new: dict[_Replica, list[Event]] = {}
        for position, event in enumerate(events, first):
            concerned = self._by_node.get(event.node, [])
            if isinstance(event, CallRequested) and event.parent in self._by_node:
                above = self._by_node[event.parent]
                concerned += [replica for replica in above if replica not in concerned]
                self._by_node[event.node] = concerned
            for replica in concerned:
                if replica in ready and position > replica.read:
                    new.setdefault(replica, []).append(event)
        for replica in ready:
            replica.read = max(replica.read, place)
        return new


class Follower:
    """Reads the new events of followed calls when it hears of them, and now and then.

    *cancel* asks the process that runs a node to cancel it, for a reason. *changes* wakes those who
    read events from the journal.

    A followed tree has nodes of its own, even if this process takes the tree over: what a program
    awaits is the same in either case. Everything but reading happens on the event loop.
    """

    def __init__(
        self,
        store: Store,
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
        self._trees: dict[int, _FollowedTree] = {}
        self._changed: dict[int, None] = {}  # trees to read, in order
        self._look_at = 0.0  # when all trees are looked at, in the time of the loop
        self._wake = asyncio.Event()

    def follow(self, root: CallNode, *, after: int, goes_on: GoesOn = _is_over) -> None:
        """Keep *root* and all below it up to date until it has ended.

        Entries of its tree up to the position *after* are known. An end is not one if it *goes_on*.
        """
        if not root.has_ended and root.id not in self._replicas:
            replica = _Replica(root, read=after, cancel=self._cancel, goes_on=goes_on)
            self._replicas[root.id] = replica
            id = root.tree.id
            if id not in self._trees:
                self._trees[id] = _FollowedTree(self._store, id)
            self._trees[id].add(replica)
            for node in replica.nodes.values():
                self._engine.registry.follow(node)

    async def catch_up(self, tree: int, drive: Drive) -> bool:
        """Have the nodes that follow calls in a tree know what was written of a *drive* in it.

        They do not if the store cannot be read now.
        """
        if (followed := self._trees.get(tree)) is None:
            return True
        if followed.place < drive.place:
            await self._update(tree)
        return not followed.is_followed or followed.place >= drive.place

    def forget(self, root: CallNode) -> None:
        """Do not follow *root* any more."""
        replica = self._replicas.get(root.id)
        if replica is not None and replica.root is root:
            del self._replicas[root.id]
            tree = self._trees[root.tree.id]
            tree.remove(replica)
            if not tree.is_followed:
                del self._trees[root.tree.id]
            for node in replica.nodes.values():
                node.remote_cancel = None

    def close(self) -> None:
        """Wake what waits for the followed calls, which continue elsewhere."""
        closed = ClosedError("this runtime was closed; the call continues in another process")
        for replica in self._replicas.values():
            self._end(replica, closed)

    def follows(self, trees: Collection[int]) -> bool:
        """Whether a call in one of these trees is followed; from any thread."""
        return any(id in self._trees for id in trees)

    def hear(self, trees: Collection[int]) -> None:
        """Note that these trees have changed, or any if none is named."""
        if not trees:
            self._look_at = 0.0
            self._wake.set()
        for id in trees:
            if id in self._trees:
                self._note(id)

    async def run(self) -> None:
        """Follow calls until this is cancelled."""
        loop = asyncio.get_running_loop()
        self._look_at = loop.time() + self._interval
        while True:
            try:
                await self._round(loop)
            except Exception:
                # Whatever it was, what was missed is seen when all trees are looked at.
                log.exception("the news of followed calls cannot be read")
                await asyncio.sleep(self._interval)

    async def _round(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for news, and read those of a few trees."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._look_at):
                await self._wake.wait()
        # Also while there is always news of others: a notification may be lost.
        if loop.time() >= self._look_at:
            self._look_at = loop.time() + self._interval
            await self._look()
        due = list(islice(self._changed, _AT_ONCE))
        for id in due:
            del self._changed[id]
        if not self._changed:
            self._wake.clear()
        async with asyncio.TaskGroup() as group:
            for id in due:
                group.create_task(self._update(id), name=f"treefold news of {id}")

    async def _look(self) -> None:
        """Note which trees have changed: one question to the store for all of them."""
        if not self._trees:
            return
        # Others are submitted here, and are not written yet.
        stored = {id for id, tree in self._trees.items() if tree.is_stored}
        try:
            places = await in_thread(self._store.places, tuple(self._trees))
        except StoreError as error:
            log.debug("the followed calls cannot be looked at: %s", error)
            return
        for id, place in places.items():
            if (tree := self._trees.get(id)) is not None and tree.place < place:
                self._note(id)
        for id in stored.difference(places):
            if (tree := self._trees.get(id)) is not None:
                self._end_deleted(tree)

    def _end_deleted(self, tree: _FollowedTree) -> None:
        """Wake what waits for the calls of a tree that was deleted before their ends were read."""
        for replica in tree.replicas:
            deleted = UnknownNodeError(f"{replica.root!r} was deleted")
            self._end(replica, deleted)
            self.forget(replica.root)
            if replica.root.parent is None:
                self._engine.keys.forget(replica.root)
                self._engine.registry.forget(replica.root)

    def _end(self, replica: _Replica, error: Exception) -> None:
        """End the nodes of a replica here; nothing of that is recorded."""
        replica.journal.close()
        for node in replica.nodes.values():
            node.end((NodeState.Canceled, None, error))

    def _note(self, id: int) -> None:
        """Note that a followed tree is to be read."""
        self._changed[id] = None
        self._wake.set()

    def _apply(self, replica: _Replica, new: list[Event]) -> None:
        """Apply new events to the nodes of a replica."""
        root = replica.root
        # It may be forgotten just now, because this process runs it.
        if self._replicas.get(root.id) is replica:
            self._engine.follow(root.tree, replica.nodes, new, replica.goes_on)
            if root.has_ended:
                self.forget(root)
                if root.parent is None:
                    self._engine.registry.drop(root)

    async def _update(self, id: int) -> None:
        """Read the new events of a tree, and apply them to the nodes of its replicas."""
        if (tree := self._trees.get(id)) is None:
            return
        try:
            place, events = await in_thread(tree.read, tree.place)
        except StoreError as error:
            log.debug("node:%d cannot be read: %s", id, error)
            return
        for replica, new in tree.sort(place, events).items():
            # Whatever the callbacks of one tree raise, the others are followed.
            try:
                self._apply(replica, new)
            except Exception:
                log.exception("the news of node:%d cannot be applied", id)
        if events:
            self._changes.wake()
        if self._trees.get(id) is tree and tree.place < place:
            self._note(id)
