"""Reads the events of a tree from a journal, for streams of events."""

from collections.abc import Mapping
from typing import ClassVar

from treefold.core.arriving import ArrivingResponse
from treefold.core.errors import ClosedError, UnknownNodeError
from treefold.core.events import Event
from treefold.core.store import Store
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.runtime.durable.live_text import LiveTextReader
from treefold.runtime.durable.tree_reader import TreeReader
from treefold.runtime.trees.waiting import ChangeSource


class JournalEvents:
    """Reads the events of one tree, each once.

    Args:
        changes: calls back when the journal has changed.
        writer: writes the journal, if this process does.
        long_texts: whether long texts are read, and responses that are arriving.
    """

    reads_a_store: ClassVar[bool] = True

    def __init__(
        self,
        store: Store,
        tree: int,
        changes: ChangeSource,
        *,
        writer: JournalWriter | None = None,
        long_texts: bool = True,
    ) -> None:
        self._store = store
        self._tree = tree
        self._writer = writer
        self._reader = TreeReader(store, tree, long_texts=long_texts)
        self._live_text = LiveTextReader(store, tree) if long_texts else None
        self.on_next_event = changes.on_next_event
        self.forget = changes.forget

    def read(self) -> tuple[list[Event], Mapping[int, ArrivingResponse]]:
        """Return the events since the last time, and the arriving responses by node.

        Raises:
            ClosedError: the runtime that wrote the journal was closed.
            UnknownNodeError: the tree was deleted.
        """
        # Asked first: what was written before it was closed is read.
        is_closed = self._writer is not None and self._writer.is_closed
        events = self._reader.read()
        if not events:
            self._check(is_closed=is_closed)
        live_text = self._live_text
        return events, {} if live_text is None else live_text.read(self._reader.numbers)

    def _check(self, *, is_closed: bool) -> None:
        if is_closed:
            raise ClosedError(
                f"the runtime of node:{self._tree} was closed before the tree had ended; attach to"
                f" {self._store.name} to see how the next runtime continues it"
            )
        if not self._is_known():
            name = self._store.name
            raise UnknownNodeError(f"{name} has no node:{self._tree}; it may have been deleted")

    def _is_known(self) -> bool:
        if self._writer is None:
            return self._store.find(node=self._tree) is not None
        # The first events of a new tree may not be written yet.
        return self._writer.length(self._tree) > 0
