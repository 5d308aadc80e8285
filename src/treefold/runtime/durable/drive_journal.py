"""The journal of one tree in a shared store, which ends when another worker adopts the tree."""

import asyncio
from collections.abc import Mapping
from typing import Any

from treefold.core.arriving import Delta
from treefold.core.errors import FencedError
from treefold.core.events import Event
from treefold.core.function import Node
from treefold.core.store import Store
from treefold.runtime.durable.drive import Drive
from treefold.runtime.durable.id_block import IdBlock
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.runtime.durable.pulse import Pulse


class DriveJournal:  # noqa: PLR0904 - a Recorder, which can be closed and reopened
    """Records the events of one drive through the writer that all drives share."""

    def __init__(self, writer: JournalWriter, drive: Drive, ids: IdBlock, pulse: Pulse) -> None:
        self.drive = drive
        self._pulse = pulse
        self.new_id = ids.next
        self._writer = writer
        self._is_closed = False
        self._is_leaving = False  # it is closed, and may be reopened
        self._decided = asyncio.Event()  # whether it is reopened; made anew each time
        self.has_missed = False  # whether events happened while it was closed

    @property
    def store(self) -> Store:
        return self._writer.store

    @property
    def redacts(self) -> bool:
        return self._writer.redacts

    @property
    def is_closed(self) -> bool:
        return self._is_closed or self._writer.is_closed

    @property
    def path(self) -> str | None:
        return self._writer.path

    @property
    def is_behind(self) -> bool:
        return self._writer.is_behind

    @property
    def is_saved(self) -> bool:
        """Whether all events so far are durable."""
        return self.drive.written == self.drive.recorded

    def record(self, tree: int, *events: Event) -> None:
        if self.is_closed:
            self.has_missed = True
        else:
            # Before they may be written.
            self.drive.note_reopened(events)
            self._writer.record(tree, *events, drive=self.drive)
            self.drive.recorded += len(events)

    def stream(self, tree: int, node: int, delta: Delta) -> None:
        if not self.is_closed:
            self._writer.stream(tree, node, delta)

    def length(self, node: int) -> int:
        return self._writer.length(node, self.drive)

    def redacted(self, text: str) -> str:
        return self._writer.redacted(text)

    def as_written(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return self._writer.as_written(args)

    async def saved(self, node: Node) -> None:
        if self._is_leaving:
            # What happens now may never be recorded: nothing may be done that depends on it.
            await self._decided.wait()
            if self._is_closed and self.drive.refusal is None:
                raise FencedError(self.store.name, "the run was given up; attach to watch it")
        if not self.is_closed:
            await self._writer.saved(node)
        await self.confirmed()

    async def confirmed(self) -> None:
        if not self.is_closed and not self._pulse.is_fresh:
            await self._pulse.wait()
        if self.drive.refusal is not None:
            raise self.drive.refusal

    def suspend(self) -> None:
        """Stop writing the events of all trees: the event loop is ending."""
        self._writer.suspend()

    def leave(self) -> None:
        """Stop writing until ``reopen`` or ``close``, for which ``saved`` waits as well."""
        self._is_closed = self._is_leaving = True
        self._decided = asyncio.Event()

    def close(self) -> None:
        """Stop writing the events of this tree: what happens from here on is not recorded."""
        self._is_closed, self._is_leaving = True, False
        self._decided.set()

    def reopen(self) -> bool:
        """Record events again; False if some were missed, so that this makes no sense."""
        # One that was closed meanwhile stays closed.
        if not self._is_leaving or self.has_missed:
            return False
        self._is_closed = self._is_leaving = False
        self._decided.set()
        return True
