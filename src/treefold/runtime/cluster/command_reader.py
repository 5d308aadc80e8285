"""Executes the commands that other processes post for the trees of this one.

It works in a thread of its own, since a shared store is far. A tree is given up only while none of
its commands is being executed; see ``Run``.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from treefold.core.errors import ClosedError, StoreError
from treefold.core.shared_store import SharedStore
from treefold.core.store import Message
from treefold.runtime.durable.inbox import Execute, Inbox

log = logging.getLogger(__name__)

_SOON: Final = 0.05  # seconds


class CommandReader:
    """Reads the messages for the drives of this process, whenever it is woken and now and then.

    Args:
        interval: seconds between two readings if nothing wakes it.
        owned: returns the drives of this process.
        begin: is called before the commands of a drive are executed; False if they must not be.
        end: is called afterwards.
        execute: executes one command.
        may_forget: whether the messages of a drive may be deleted; not if others have adopted it.
    """

    def __init__(
        self,
        store: SharedStore,
        inbox: Inbox,
        interval: float,
        *,
        owned: Callable[[], Collection[int]],
        begin: Callable[[int], bool],
        end: Callable[[int], None],
        execute: Execute,
        may_forget: Callable[[int], bool],
    ) -> None:
        self._store = store
        self._inbox = inbox
        self._interval = interval
        self._owned = owned
        self._begin = begin
        self._end = end
        self._execute = execute
        self._may_forget = may_forget
        self._drives: dict[int, int] = {}  # the drives of executed messages
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="treefold commands", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Read the messages soon; from any thread."""
        self._wake.set()

    def note_executed(self, message: int, drive: int) -> None:
        """Note that a message was executed, to be deleted when that is durable; on the loop."""
        self._drives[message] = drive
        self._inbox.note_executed(message)

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
                if not self._closed and (owned := self._owned()):
                    self._process(self._store.inbox_of(owned))
                self._delete_saved()
            except (StoreError, ClosedError) as error:
                log.debug("the messages cannot be read: %s", error)

    def _process(self, messages: Mapping[int, list[Message]]) -> None:
        for drive, posted in messages.items():
            if self._begin(drive):
                try:
                    self._drives.update((message.id, drive) for message in posted)
                    self._inbox.execute(posted, self._execute)
                finally:
                    self._end(drive)

    def _delete_saved(self) -> None:
        """Delete the messages whose effects are durable."""
        for message in self._inbox.saved():
            drive = self._drives[message]
            # Otherwise its new owner executes the command.
            if self._may_forget(drive):
                self._store.done(message)
            self._inbox.forget(message)
            del self._drives[message]
