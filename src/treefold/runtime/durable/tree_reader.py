"""Reads the events of a tree from a store: all of them, the new ones, or those around a call.

The events that a fork shares with its original tree are included.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

from treefold.core.errors import StoreDamagedError, UnknownNodeError
from treefold.core.events import Event, TreeForked, set_number
from treefold.core.forking import inherit
from treefold.core.journaling import INWARD, events_of, hashes_in
from treefold.core.store import Entry, Store
from treefold.core.value_codec import QUOTED_TAG
from treefold.runtime.durable.gc_disabled import gc_disabled


class TreeReader:
    """Reads the events of one tree, those *after* a position; each ``read`` continues the last.

    Without *long_texts* each long text is read as an empty one: enough to know what happened, if
    not what was said. With *around* only what this call needs is read: its own events, those of
    the calls below it, and of those above it what is not about them alone. Without *with_source*
    what a fork shares with its original tree is left out.
    """

    def __init__(
        self,
        store: Store,
        tree: int,
        *,
        after: int = 0,
        long_texts: bool = True,
        around: int | None = None,
        with_source: bool = True,
    ) -> None:
        self._store = store
        self._tree = tree
        self._around = around
        self._long_texts = long_texts
        self._with_source = with_source
        self._read = after  # the position of the last entry that was read
        self.count = 0  # how many events were read
        self.has_asked = False  # whether a call has asked a question
        self.numbers: dict[int, int] = {}  # the number of the last entry of each node

    @property
    def place(self) -> int:
        """The position of the last entry that was read."""
        return self._read

    def read(self) -> list[Event]:
        """Return the events since the last call, with values as plain data.

        Raises:
            StoreDamagedError: the journal is damaged.
        """
        with gc_disabled():
            return self._new_events()

    def _new_events(self) -> list[Event]:
        wanted = self._long_texts
        entries = self._entries()
        if not entries:
            return []
        reporting = partial(reporting_damage, self._store, self._tree)
        with reporting():
            texts = self._texts(entries) if wanted else {}

            def text_of(hash: str) -> str:
                if not wanted:
                    return ""
                if hash not in texts:
                    texts[hash] = self._store.text(hash)
                return texts[hash]

            events = events_of(entries, text_of, reporting)
            if not self._read and self._with_source and isinstance(events[0], TreeForked):
                events[:0] = self._inherited(events[0])
        for number, event in enumerate(events, self.count + 1):
            set_number(event, number)
        self.count += len(events)
        self._read = entries[-1].seq
        self.numbers |= {entry.node: entry.number for entry in entries}
        self.has_asked = self.has_asked or any(entry.question is not None for entry in entries)
        return events

    def _entries(self) -> list[Entry]:
        if self._around is None:
            return self._store.entries(self._tree, after=self._read)
        return self._store.entries_around(self._around, leaving_out=INWARD)

    def _texts(self, entries: list[Entry]) -> dict[str, str]:
        """Return the long texts of *entries*, as far as one question to the store has them."""
        is_whole = not self._read and self._around is None
        referring = [one for one in entries if QUOTED_TAG in one.body]
        if is_whole and referring:
            return self._store.texts(self._tree)
        hashes = {hash for one in referring for hash in hashes_in(one)}
        return self._store.texts(self._tree, hashes=hashes) if hashes else {}

    def _inherited(self, forked: TreeForked) -> list[Event]:
        """Return the events that a fork inherits from its source, which may be a fork as well."""
        forks: list[tuple[TreeForked, list[Event]]] = []  # each with the events of its source
        event: Event = forked
        while isinstance(event, TreeForked):
            if event.source >= event.node:
                raise ValueError(f"it is a fork of {event.source}, which is no earlier tree")
            reader = TreeReader(
                self._store, event.source, long_texts=self._long_texts, with_source=False
            )
            if not (events := reader.read()):
                raise ValueError(f"{self._store.name} has no node:{event.source}")
            forks.append((event, events))
            event = events[0]
        known: list[Event] = []
        for fork, events in reversed(forks):
            known = inherit([*known, *events], fork, in_place=True)
        return known


@contextmanager
def reporting_damage(store: Store, tree: int) -> Generator[None]:
    """Raise StoreDamagedError, naming the tree, for any error that damaged entries lead to."""
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError) as error:
        what = f"node:{tree} cannot be read: something in it is wrong ({error!r})"
        raise StoreDamagedError(store.name, what) from error
    except (OSError, RecursionError, ValueError) as error:
        what = f"node:{tree} cannot be read: {error}"
        raise StoreDamagedError(store.name, what) from error


def read_events(store: Store, tree: int, *, long_texts: bool = True) -> list[Event]:
    """Return all events of a tree, with values as plain data.

    Raises:
        UnknownNodeError: there is no such tree.
        StoreDamagedError: the journal is damaged.
    """
    return read_tree(store, tree, long_texts=long_texts)[0]


def read_tree(store: Store, tree: int, *, long_texts: bool = True) -> tuple[list[Event], int]:
    """Return all events of a tree, as ``read_events`` does, and the position of its last entry."""
    reader = TreeReader(store, tree, long_texts=long_texts)
    events = reader.read()
    if not events:
        raise UnknownNodeError(f"{store.name} has no node:{tree}")
    return events, reader.place
