"""A drive: a tree of a shared store that this process runs and writes."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from treefold.core.cluster import Ownership
from treefold.core.errors import FencedError
from treefold.core.events import CallReopened, Event
from treefold.core.store import Batch, Entry
from treefold.core.work_engine import Ticket


class Drive:
    """What this process has written of one tree, and whether it may still write.

    Args:
        node: the topmost node that is owned.
        ownership: None for a tree that is only submitted, for another worker to run.
        lengths: how many entries each node had when the drive was adopted.
        place: the position in the tree of the last entry that was known then.

    Attributes:
        written: how many entries of the drive are durable.
        recorded: how many there are, durable or not.
        place: the position in the tree of the last entry that was written or read. Other drives of
            the tree may have entries before it that were never read here.
        read: the position of the last entry that was read when the drive was adopted.
        refusal: why the store refused its entries: another worker has adopted it.
        tickets: calls that are to become drives of their own when their first entry is written.
        reopened: calls that are drives of their own, and are to be run once more.
        below: remote calls that run as part of this drive and the calls below them, each with the
            drive that it belongs to.
        on_refused: is called in the writer's thread when entries are refused.
    """

    def __init__(
        self,
        node: int,
        ownership: Ownership | None,
        lengths: Mapping[int, int] | None = None,
        place: int = 0,
    ) -> None:
        self.node = node
        self.ownership = ownership
        self.written = 0 if ownership is None else ownership.written
        self.recorded = self.written
        self.place = self.read = place
        self.refusal: FencedError | None = None
        self.tickets: dict[int, Ticket] = {}
        self.reopened: set[int] = set()
        self.below: dict[int, int] = {}
        self.on_refused: Callable[[], None] | None = None
        self._lengths = lengths or {}

    def length(self, node: int) -> int:
        """Return how many entries a node had when the drive was adopted."""
        return self._lengths.get(node, 0)

    def note_reopened(self, events: Iterable[Event]) -> None:
        """Note which calls are to be run once more, perhaps by another worker.

        Those that are no drives of their own, all but remote calls, mean nothing to the store.
        """
        again = [event.node for event in events if isinstance(event, CallReopened)]
        self.reopened.update(node for node in again if node != self.node)

    def batch(self, entries: Sequence[Entry]) -> Batch:
        """Return the batch that writes *entries*, the next ones of this drive."""
        tickets = [
            self.tickets[one.node] for one in entries if one.call and one.node in self.tickets
        ]
        return Batch(
            entries=entries,
            ownership=self.ownership,
            written=self.written,
            tickets=tickets,
            drives=self._drives_of(entries) if self.below else {},
            reopened=[one.node for one in entries if one.node in self.reopened],
        )

    def _drives_of(self, entries: Sequence[Entry]) -> dict[int, int]:
        """Return the calls in *entries* that belong to other drives, and to which."""
        found: dict[int, int] = {}
        for entry in entries:
            if entry.call is None or entry.node in self.tickets:
                continue
            if (drive := self.below.get(entry.call.parent)) is not None:
                found[entry.node] = self.below[entry.node] = drive
        return found

    def settle(self, batch: Batch, result: int | FencedError) -> None:
        """Note that *batch* was written, or refused."""
        if not isinstance(result, FencedError):
            self.written = batch.written + len(batch.entries)
            self.place = result
            for ticket in batch.tickets:
                self.tickets.pop(ticket.node, None)
            self.reopened.difference_update(batch.reopened)
        elif self.refusal is None:
            self.refusal = result
            if self.on_refused is not None:
                self.on_refused()
