"""Ids and journals of the trees that this process runs in a shared store.

Ids are reserved in blocks, one for each tree: a block that is reserved when a tree is adopted is
higher than all ids in it, so that a call always has a higher id than its caller.
"""

import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import ClassVar, Final

from treefold.core.cluster import Cluster, Load, Ownership
from treefold.core.errors import ClosedError, StoreError
from treefold.core.moments import steady
from treefold.core.work_engine import Ticket
from treefold.runtime.durable.drive import Drive
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.durable.id_block import BLOCK, IdBlock
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.runtime.durable.pulse import Pulse
from treefold.runtime.durable.store_clock import StoreClock
from treefold.runtime.durable.tree_source import NewTree
from treefold.runtime.trees.tree import Recorder, Tree

_MOST_PREPARED: Final = 16  # trees
_BUSY: Final = 0.1  # seconds between two preparations


class SharedTrees:
    """Gives ids and a journal to each tree that this process starts, forks or adopts.

    Args:
        queue: of the trees that are started here.
        lease: of this worker, in seconds.

    Attributes:
        cluster: that of the store.
        pulse: whether this process still counts as alive.
        clock: that of the store.
        writer: writes what they record.
    """

    is_alone: ClassVar[bool] = False

    def __init__(
        self, cluster: Cluster, writer: JournalWriter, *, queue: str, lease: float
    ) -> None:
        self.pulse, self.clock = Pulse(lease), StoreClock()
        sent = steady()
        self.clock.set(cluster.members.beat(Load()).now, sent)
        self.cluster = cluster
        self._queue = queue
        self.writer = writer
        self._lock = threading.Lock()
        self._count = 1  # how many trees were prepared last
        self._prepared_at = 0.0
        self._is_preparing = False
        self._prepared: deque[tuple[int, int]] = deque()  # the first id and the number of a tree
        self._no_ids = IdBlock(cluster.drives)  # of trees that this process does not run
        self._owned: dict[int, DriveJournal] = {}  # by the topmost node of each drive

    def new_tree(self) -> NewTree:
        while True:
            with self._lock:
                taken = self._prepared.popleft() if self._prepared else None
                is_due = not self._prepared and not self._is_preparing
                self._is_preparing = self._is_preparing or is_due
            if is_due and taken is not None:
                name = "treefold trees"
                threading.Thread(target=self._prepare_quietly, name=name, daemon=True).start()
            elif taken is None:
                # Many trees are started at once, or the store could not be reached.
                self._prepare()
            if taken is not None:
                first, number = taken
                return self._own_new(first, number, range(first + 1, first + BLOCK))

    def _prepare_quietly(self) -> None:
        # If it fails, the next call that needs a tree tries again, and raises.
        with suppress(StoreError, ClosedError):
            self._prepare()

    def _prepare(self) -> None:
        """Reserve ids and numbers for the next trees: one, or more if many are started."""
        try:
            now = time.monotonic()
            # Two threads may prepare trees at the same time.
            with self._lock:
                is_busy = now - self._prepared_at < _BUSY
                count = self._count = min(2 * self._count, _MOST_PREPARED) if is_busy else 1
                self._prepared_at = now
            first, number = self.cluster.drives.reserve(BLOCK * count, count)
            with self._lock:
                for place in range(count):
                    self._prepared.append((first + place * BLOCK, number + place))
        finally:
            self._is_preparing = False

    def new_fork(self, calls: int) -> NewTree:
        first, number = self.cluster.drives.reserve(calls + BLOCK, 1)
        return self._own_new(first, number, range(first + calls, first + calls + BLOCK))

    def _own_new(self, id: int, number: int, ids: Iterable[int]) -> NewTree:
        drive = Drive(id, Ownership(id, id, 1))
        # Workers of this queue take it over if this process dies.
        drive.tickets[id] = Ticket(node=id, queue=self._queue)
        return NewTree(id, number, self._own(drive, IdBlock(self.cluster.drives, ids)))

    def submitted(self, new: NewTree, ticket: Ticket) -> NewTree:
        """Return a new tree as one that another worker is to run."""
        self.forget(new.id)
        drive = Drive(new.id, None)
        drive.tickets[new.id] = ticket
        return NewTree(
            new.id, new.number, DriveJournal(self.writer, drive, self._no_ids, self.pulse)
        )

    def new_call(self, tree: Tree) -> int:
        journal = tree.journal
        assert isinstance(journal, DriveJournal)  # as in every tree of a shared store
        return journal.new_id()

    def now(self) -> float:
        return self.clock.now()

    def journal_of(self, tree: int) -> DriveJournal:
        """Return the journal of a tree; one that is not owned records nothing."""
        if (owned := self._owned.get(tree)) is not None:
            return owned
        unowned = DriveJournal(self.writer, Drive(tree, None), self._no_ids, self.pulse)
        unowned.close()
        return unowned

    def claim(self, journal: Recorder | None) -> bool:
        assert isinstance(journal, DriveJournal)  # as in every tree of a shared store
        drive = journal.drive
        # The first one that is written gets the key; the store refuses the others.
        if not drive.written:
            self.writer.flush()
        if not drive.written and drive.refusal is not None:
            self.forget(drive.node)
            return False
        return True

    # Ownership

    def owned(self) -> list[int]:
        """Return the topmost nodes of all drives that this process owns."""
        return list(self._owned)

    def owned_in(self, trees: Collection[int]) -> bool:
        """Whether this process owns a drive in one of these trees: all of it, or a call in it."""
        journals = tuple(self._owned.values())
        owned = [journal.drive.ownership for journal in journals]
        return any(one is not None and one.tree in trees for one in owned)

    def drive_of(self, node: int) -> Drive | None:
        """Return the drive with this topmost node, if this process owns it."""
        journal = self._owned.get(node)
        return None if journal is None else journal.drive

    def is_recording(self, node: int) -> bool:
        """Whether this process owns a drive and records its events: it is not being given up."""
        journal = self._owned.get(node)
        return journal is not None and not journal.is_closed

    def adopt(self, ownership: Ownership, lengths: Mapping[int, int], place: int) -> DriveJournal:
        """Return the journal of a drive that was adopted.

        Its nodes have entries as in *lengths*, and *place* is the position of the last. It was
        adopted with ``BLOCK`` ids.
        """
        first = ownership.first_id
        drive = Drive(ownership.node, ownership, lengths, place)
        return self._own(drive, IdBlock(self.cluster.drives, range(first, first + BLOCK)))

    def _own(self, drive: Drive, ids: IdBlock) -> DriveJournal:
        journal = DriveJournal(self.writer, drive, ids, self.pulse)
        self._owned[drive.node] = journal
        return journal

    def own_in_place(self, node: int, journal: DriveJournal) -> None:
        """Write an adopted call as part of the tree of its caller, which this process owns."""
        journal.drive.below[node] = node
        self._owned[node] = journal

    def forget(self, node: int) -> None:
        """Forget a drive that has ended, or that this process does not own any more."""
        journal = self._owned.pop(node, None)
        if journal is not None and journal not in self._owned.values():
            self.writer.forget(journal.drive)
