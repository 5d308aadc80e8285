"""Reads the events of a tree from a store: all of them, or the new ones.

The events that a fork shares with its original tree are included.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

from treefold.core.errors import StoreError, UnknownNodeError
from treefold.core.events import Event, TreeForked, set_number
from treefold.core.forking import inherit
from treefold.core.journaling import events_of
from treefold.core.store import Store


class TreeReader:
    """Reads the events of one tree, those *after* a position; each ``read`` continues the last.

    Without *long_texts* each long text is read as an empty one: enough to know what happened, if
    not what was said.
    """

    def __init__(self, store: Store, tree: int, *, after: int = 0, long_texts: bool = True) -> None:
        self._store = store
        self._tree = tree
        self._long_texts = long_texts
        self._with_source = True  # includes what a fork shares with its original tree
        self._read = after  # the position of the last entry that was read
        self.count = 0  # how many events were read
        self.numbers: dict[int, int] = {}  # the number of the last entry of each node

    @property
    def place(self) -> int:
        """The position of the last entry that was read."""
        return self._read

    def read(self) -> list[Event]:
        """Return the events since the last call, with values as plain data.

        Raises:
            StoreError: the journal is damaged.
        """
        wanted = self._long_texts
        texts = self._store.texts(self._tree) if wanted and not self._read else {}

        def text_of(hash: str) -> str:
            if not wanted:
                return ""
            if hash not in texts:
                texts[hash] = self._store.text(hash)
            return texts[hash]

        entries = self._store.entries(self._tree, after=self._read)
        if not entries:
            return []
        reporting = partial(reporting_damage, self._store, self._tree)
        with reporting():
            with gc_disabled():
                events = events_of(entries, text_of, reporting)
            if not self._read and self._with_source and isinstance(events[0], TreeForked):
                events[:0] = self._inherited(events[0])
        for number, event in enumerate(events, self.count + 1):
            set_number(event, number)
        self.count += len(events)
        self._read = entries[-1].seq
        self.numbers |= {entry.node: entry.number for entry in entries}
        return events

    def _inherited(self, forked: TreeForked) -> list[Event]:
        """Return the events that a fork inherits from its source, which may be a fork as well."""
        forks: list[tuple[TreeForked, list[Event]]] = []  # each with the events of its source
        event: Event = forked
        while isinstance(event, TreeForked):
            if event.source >= event.node:
                raise ValueError(f"it is a fork of {event.source}, which is no earlier tree")
            reader = TreeReader(self._store, event.source, long_texts=self._long_texts)
            reader._with_source = False
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
    """Raise StoreError, naming the tree, for any error that damaged entries lead to."""
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError) as error:
        what = f"node:{tree} cannot be read: something in it is wrong ({error!r})"
        raise StoreError(store.name, what) from error
    except (OSError, RecursionError, ValueError) as error:
        raise StoreError(store.name, f"node:{tree} cannot be read: {error}") from error


@contextmanager
def gc_disabled() -> Generator[None]:
    """Disable garbage collection while loading: what is read is all alive, and scanning is slow."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def read_events(store: Store, tree: int, *, long_texts: bool = True) -> list[Event]:
    """Return all events of a tree, with values as plain data.

    Raises:
        UnknownNodeError: there is no such tree.
        StoreError: the journal is damaged.
    """
    events = TreeReader(store, tree, long_texts=long_texts).read()
    if not events:
        raise UnknownNodeError(f"{store.name} has no node:{tree}")
    return events
