"""Executes the commands that other processes post for the trees of this one.

It works in a thread of its own, since a shared store is far. A tree is given up only while none of
its commands is being executed; see ``Run``.
"""

import logging
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final, Protocol

from treefold.core.errors import ClosedError, StoreError
from treefold.core.store import Message, Store
from treefold.runtime.durable.inbox import Execute, Inbox, IsComplete
from treefold.runtime.loops.loop_handle import LoopHandle

log = logging.getLogger(__name__)

_SOON: Final = 0.05  # seconds


class CommandedDrives(Protocol):
    """The drives of this process, as far as commands are concerned; see ``Runs``."""

    def owned(self) -> Collection[int]:
        """Return the topmost nodes of all drives; from any thread."""
        ...

    def begin_commands(self, node: int) -> bool:
        """Keep a drive here while commands are executed; False if it cannot be. On the loop."""
        ...

    def end_commands(self, node: int) -> None:
        """End what ``begin_commands`` began; on the loop."""
        ...

    def may_forget(self, node: int) -> bool:
        """Whether commands that were executed may be deleted; from any thread."""
        ...


class CommandReader:
    """Reads the messages for the drives of this process, whenever it is woken and now and then.

    Args:
        interval: seconds between two readings if nothing wakes it.
        execute: executes one command.
    """

    def __init__(
        self,
        store: Store,
        inbox: Inbox,
        drives: CommandedDrives,
        loop_handle: LoopHandle,
        *,
        interval: float,
        execute: Execute,
    ) -> None:
        self._store = store
        self._inbox = inbox
        self._interval = interval
        self._owned_drives = drives
        self._loop_handle = loop_handle
        self._execute = execute
        self._drives: dict[int, int] = {}  # the drives of executed messages
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="treefold commands", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Read the messages soon; from any thread."""
        self._wake.set()

    def note_executed(
        self, message: int, drive: int, is_complete: IsComplete | None = None
    ) -> None:
        """Note that a message was executed, to be deleted when that is durable; on the loop."""
        self._drives[message] = drive
        self._inbox.note_executed(message, is_complete)

    def forget(self, drive: int) -> None:
        """Forget what was executed for a drive that this process had before; on the loop.

        What is still in its inbox is executed again: another worker may have run it meanwhile.
        """
        for message, its_drive in tuple(self._drives.items()):
            if its_drive == drive:
                self._inbox.forget(message)
                self._drives.pop(message, None)

    def close(self) -> None:
        """Execute no more commands; this waits for the one under way."""
        self._closed = True
        self._wake.set()
        self._thread.join()
        with suppress(StoreError, ClosedError):
            self._delete_saved()

    def _run(self) -> None:
        while not self._closed:
            # Executed messages are deleted as soon as their effects are durable.
            self._wake.wait(_SOON if self._inbox.has_executed else self._interval)
            self._wake.clear()
            try:
                if not self._closed and (owned := self._owned_drives.owned()):
                    self._process(self._store.inbox(drives=owned, owned=True))
                self._delete_saved()
            except (StoreError, ClosedError) as error:
                log.debug("the messages cannot be read: %s", error)

    def _process(self, messages: Iterable[Message]) -> None:
        by_drive: dict[int, list[Message]] = {}
        for message in messages:
            by_drive.setdefault(message.drive, []).append(message)
        for drive, posted in by_drive.items():
            if self._loop_handle.run_sync(self._owned_drives.begin_commands, drive):
                try:
                    self._inbox.execute(posted, self._execute, until_resume=True)
                finally:
                    for message in posted:
                        if self._inbox.is_executed(message.id):
                            self._drives[message.id] = drive
                    self._loop_handle.run_sync(self._owned_drives.end_commands, drive)

    def _delete_saved(self) -> None:
        """Delete the messages whose effects are durable."""
        for message in self._inbox.saved():
            drive = self._drives.pop(message, None)
            # Otherwise its new owner executes the command.
            if drive is not None and self._owned_drives.may_forget(drive):
                self._store.done(message)
            self._inbox.forget(message)
