"""The entries of a journal that are recorded and not yet durable."""

from collections.abc import Callable
from typing import Final

from treefold.core.errors import TooLargeError
from treefold.core.events import CallEnded, CallRequested, Event
from treefold.core.journaling import entry_of
from treefold.core.store import Entry, Store, largest_part
from treefold.core.value_codec import ValueEncoder
from treefold.runtime.durable.drive import Drive

_BYTES: Final = 12  # that a character has at most, in the JSON of a question


class Backlog:
    """Serializes events to entries, in order, and has those that are not known to be durable.

    Args:
        redact: applied to each text before it is written.

    Attributes:
        entries: those that are not known to be durable.
        saved: how many entries are durable.
        recorded: how many entries there are, durable or not.
        characters: how many there are in all of these.
    """

    def __init__(self, store: Store, redact: Callable[[str], str] | None) -> None:
        self._store = store
        self._redact = redact
        self._largest: int | None = getattr(store, "largest", None)
        self.entries: list[Entry] = []
        self._drives: list[Drive | None] = []  # of each of them
        self.saved = 0
        self.recorded = 0
        self.characters = 0
        self._nodes: dict[int, _Node] = {}  # nodes that are open, or have entries in the backlog
        self._ended: list[int] = []  # those of them that have ended

    def add(self, tree: int, event: Event, drive: Drive | None = None) -> None:
        """Serialize *event* and add its entry, which belongs to *drive* in a shared store.

        Raises:
            TooLargeError: it does not fit into the store.
            InvalidValueError: it has a value that could not be read again.
        """
        node = self._nodes.get(event.node)
        # A tree that was submitted here may have been adopted here since, as another drive.
        if node is None or node.drive is not drive:
            node = self._nodes[event.node] = self._new_node(event, drive)
        ended = isinstance(event, CallEnded)
        between = ended or isinstance(event, CallRequested)  # its texts are shared with its caller
        encoder = node.caller_encoder if between else node.encoder
        entry = entry_of(event, encoder, tree=tree, number=node.number + 1)
        characters = len(entry.body) + sum(map(len, entry.texts.values()))
        self.characters += characters
        if self._largest is not None:
            if entry.call is not None:
                characters += len(entry.call.key)
            if (question := entry.question) is not None:
                characters += sum(map(len, (question.text, *question.choices)))
            # Bytes are counted only if there may be too many.
            if _BYTES * characters > self._largest:
                self._check_size(entry, self._largest)
        if ended:
            self._ended.append(event.node)
        # Ctrl-C is delivered at calls, and there is none in the next four lines.
        self.entries += [entry]
        self._drives += [drive]
        self.recorded += 1
        node.number += 1

    def _check_size(self, entry: Entry, largest: int) -> None:
        """Raise TooLargeError for what the store would refuse, so that only one call fails."""
        if (size := largest_part(entry)) > largest:
            raise TooLargeError(
                f"{entry.kind} of node:{entry.node} takes {size:,} bytes, and {self._store.name}"
                f" accepts at most {largest:,}: keep it in a file, and pass the path of that"
            )

    def _new_node(self, event: Event, drive: Drive | None) -> "_Node":
        if not isinstance(event, CallRequested):
            # A shared store is far, and is not asked.
            length = self._store.length if drive is None else drive.length
            return _Node(length(event.node), self._redact, drive)
        caller = None if event.parent is None else self._nodes.get(event.parent)
        return _Node(0, self._redact, drive, caller)

    def by_drive(self, count: int) -> dict[Drive | None, list[Entry]]:
        """Return the first *count* entries by their drives; None is that of a whole journal."""
        found: dict[Drive | None, list[Entry]] = {}
        for entry, drive in zip(self.entries[:count], self._drives[:count], strict=True):
            found.setdefault(drive, []).append(entry)
        return found

    def forget(self, drive: Drive) -> None:
        """Forget the nodes of a drive that this process does not own any more.

        Entries that are not written yet stay: the store refuses those that came too late.
        """
        self._nodes = {id: node for id, node in self._nodes.items() if node.drive is not drive}
        self._ended = [id for id in self._ended if id in self._nodes]

    def remove_after(self, count: int) -> None:
        """Remove all entries but the first *count*, as if they had not been recorded."""
        for entry in self.entries[count:]:
            self._nodes[entry.node].number -= 1
            self.recorded -= 1
        del self.entries[count:]
        del self._drives[count:]

    def remove_saved(self, count: int) -> None:
        """Remove the first *count* entries, which are durable."""
        # As in add, there is no call in the next three lines.
        del self.entries[:count]
        del self._drives[:count]
        self.saved += count
        # The entries of a node that has ended can be counted in the store.
        if self._ended and not self.entries:
            for node in self._ended:
                self._nodes.pop(node, None)
            self._ended = []

    def number_of(self, node: int) -> int:
        """Return the number of entries of a node; 0 if it is not known here."""
        known = self._nodes.get(node)
        return 0 if known is None else known.number


class _Node:
    """What the journal has of a node: the number of its entries, and its latest long texts."""

    __slots__ = ("caller_encoder", "drive", "encoder", "number")

    def __init__(
        self,
        number: int,
        redact: Callable[[str], str] | None,
        drive: Drive | None,
        caller: "_Node | None" = None,
    ) -> None:
        self.number = number
        self.drive = drive
        self.encoder = ValueEncoder(redact)
        self.caller_encoder = ValueEncoder(redact) if caller is None else caller.encoder
