"""Writes the events of a runtime to its store, before anything depends on them.

Events are serialized when they happen, because the objects in them may change later, and written in
batches by one thread. A call that must not continue before its events are durable waits for
``saved``; other events are written with the next batch, or a moment later. A batch that cannot be
written is retried, with growing delays, until the store accepts it.

If a single call waits and the disk is fast, the event loop writes the batch itself, which saves two
changes of the thread; docs/decisions/0021 has what they were measured to cost. A shared store is
never written there. Its entries are written as one batch for each drive; a batch that is refused,
because another worker has adopted the drive, ends that drive and no other.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from traceback import clear_frames
from typing import Any, Final
from weakref import WeakValueDictionary

from treefold.core.arriving import Delta
from treefold.core.errors import (
    FencedError,
    InvalidValueError,
    StoreBusyError,
    StoreError,
    TooLargeError,
)
from treefold.core.events import Event
from treefold.core.function import Node
from treefold.core.store import Batch, Call, Entry, Store, nonblocking
from treefold.core.value_codec import ValueEncoder, unpack
from treefold.runtime.calls.node import CallNode
from treefold.runtime.durable.backlog import Backlog
from treefold.runtime.durable.drive import Drive
from treefold.runtime.durable.live_text import LiveTextWriter
from treefold.runtime.durable.outage import Outage
from treefold.runtime.loops.loop_handle import threadsafe_resolver
from treefold.runtime.questions.ask import wait_for_help
from treefold.runtime.trees.waiting import Changes

log = logging.getLogger(__name__)

_DELAY: Final = 0.01  # seconds until an event is written that no call waits for
_QUICK: Final = 0.002  # seconds that writing may block the loop
_MANY: Final = 1000  # entries that are not written yet
_PATIENCE: Final = 5.0  # seconds of retries before a person is asked, if the store does not say


class JournalWriter:  # noqa: PLR0904 - recording, waiting, writing and closing, for all trees
    """Writes the events of the trees of one runtime to one store.

    Args:
        redact: applied to each text before it is written.

    Attributes:
        redacts: whether there is such a function.
        is_closed: whether events are not written any more.
        loop: runs the timers, if it is known.
        changes: wakes readers of the journal in this process, when something was written or
            broadcast and when this is closed.
        appends: how many batches were written.
        written: how many entries they had.
        process: the process that writes; in a forked one, the copy of this writes nothing.
    """

    def __init__(self, store: Store, redact: Callable[[str], str] | None) -> None:
        self.store = store
        self.redacts = redact is not None
        self.is_closed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.changes = Changes()
        self.appends = self.written = 0
        self._redact = redact
        self._patience: float = getattr(store, "patience", _PATIENCE)
        self._is_near = store.cluster is None  # otherwise it is reached through a network
        self._timer: asyncio.TimerHandle | None = None  # writes events that no call waits for
        self._queued = 0  # calls that wait, or were woken and have not continued: they come first
        self._lock = threading.RLock()  # guards everything below
        self._changed = threading.Condition(self._lock)  # wakes the writer thread
        self._backlog = Backlog(store, redact)
        # The last entry waited for, a callback, and whether the callback waits for retries.
        self._waiting: list[tuple[int, Callable[[], None], bool]] = []
        self._outage: Outage | None = None  # since the last attempt has failed
        self._recovery: list[Callable[[], None]] = []  # called when a retry has succeeded
        self._wanted = False  # a write has been requested
        self._urgent = False  # the next retry is due now
        self._due = False  # _write_here is scheduled on the loop
        self._writing: int | None = None  # the thread that is writing
        self._interrupted = False  # Ctrl-C came during a write: the first entries may be durable
        # Moving average of the seconds a write takes; slow until measurements show otherwise.
        self._took = 2 * _QUICK
        self._writer: threading.Thread | None = None
        self._is_starting = False  # a timer will try again to start the writer thread
        self._live_text = LiveTextWriter(store, self._backlog.number_of, self.changes.wake)
        self.process = os.getpid()
        _writers[id(self)] = self

    @property
    def path(self) -> str | None:
        """The file of the store, or its address without a password; None if it has neither."""
        is_reachable = not self._is_near or os.path.isfile(self.store.name)
        return self.store.name if is_reachable else None

    @property
    def is_behind(self) -> bool:
        """Whether so many entries are unwritten that a call should wait for them if it can."""
        return len(self._backlog.entries) > _MANY

    @property
    def characters(self) -> int:
        """How many characters were recorded."""
        return self._backlog.characters

    @property
    def failing_since(self) -> float | None:
        """When the first of the failed attempts ended, None if the last one succeeded."""
        return None if self._outage is None else self._outage.since

    # Recording events

    def record(self, tree: int, *events: Event, drive: Drive | None = None) -> None:
        """Serialize *events* and add them to the next batch, all or none.

        In a shared store they belong to *drive*.

        Raises:
            TooLargeError: one does not fit into the store; then none is recorded.
            InvalidValueError: one has a value that could not be read again; the same.
        """
        if self.is_closed:
            return
        with self._lock:
            count = len(self._backlog.entries)
            try:
                for event in events:
                    self._backlog.add(tree, event, drive)
            except (TooLargeError, InvalidValueError):
                self._backlog.remove_after(count)
                raise
        if self._timer is None:
            self._start_timer()

    def _start_timer(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # An event of another thread, which waits until it is saved.
            return
        # On another loop it is the same; and that loop may end before the timer fires.
        if self.loop in {None, loop}:
            self._timer = loop.call_later(_DELAY, self._write_soon, self._backlog.recorded)

    def _write_soon(self, target: int) -> None:
        """Request a write if entries up to *target* are left, or check newer ones again later."""
        self._timer = None
        with self._lock:
            if not self._backlog.entries or self.is_closed:
                return
            if self._backlog.saved < target:
                self._request_write()
                return
        self._start_timer()

    def stream(self, tree: int, node: int, delta: Delta) -> None:
        """Broadcast a fragment of a response of *node* to observers; it is not recorded.

        Nothing is broadcast if texts are redacted, because parts of a word cannot be.
        """
        if not self.redacts and not self.is_closed:
            self._live_text.take(tree, node, delta)

    def length(self, node: int, drive: Drive | None = None) -> int:
        """Return the number of entries of a node, including those that are not written yet.

        Given its *drive*, the store is not asked.
        """
        length = self.store.length if drive is None else drive.length
        return self._backlog.number_of(node) or length(node)

    def forget(self, drive: Drive) -> None:
        """Forget a drive that this process does not own any more."""
        with self._lock:
            self._backlog.forget(drive)

    def redacted(self, text: str) -> str:
        """Return *text* as it would be written."""
        return text if self._redact is None else ValueEncoder(self._redact).redacted(text)

    def as_written(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as they come back from the journal."""
        encoder = ValueEncoder(self._redact)
        return unpack(encoder.pack_arguments(args), encoder.texts.__getitem__)

    def unwritten_calls(self) -> list[tuple[int, Call]]:
        """Return the ids and requests of the calls that are not known to be in the store."""
        with self._lock:
            entries = self._backlog.entries
            return [(entry.node, entry.call) for entry in entries if entry.call is not None]

    # Waiting until events are durable

    async def saved(self, node: Node) -> None:
        """Wait until all events recorded so far are durable.

        A failed write is retried. If retries fail, *node* asks a question about it, and waits until
        the store can be written again.

        Raises:
            FencedError: another runtime writes to the store, and this one must not continue.
        """
        while (failure := await self._try()) is not None:
            if isinstance(failure, FencedError):
                raise failure
            assert isinstance(node, CallNode)  # others wait for no journal
            await wait_for_help(node, failure, self._writable())
            self._retry_now()

    async def confirmed(self) -> None:
        """Return at once: no other process takes over what one driver has."""

    async def _try(self) -> StoreError | None:
        """Wait for the next attempts; return the failure if a person has to be asked."""
        with self._lock:
            if self.is_closed or not (self._backlog.entries or self._queued):
                return None
            if self._outage is not None and self._outage.is_stuck:
                return self._outage.failure
            target, loop = self._backlog.recorded, asyncio.get_running_loop()
            done: asyncio.Future[None] = loop.create_future()
            self._waiting.append((target, threadsafe_resolver(done), True))
            if not self._due:
                # After the other tasks that are ready have asked, too: one batch for all.
                loop.call_soon(self._write_here)
                # Afterwards, so that after a Ctrl-C in between the next call schedules it.
                self._due = True
        self._queued += 1
        try:
            await done
        finally:
            self._queued -= 1
        outage = self._outage
        if outage is None or self._backlog.saved >= target or self.is_closed:
            return None
        return outage.failure

    def _writable(self) -> "asyncio.Future[None]":
        """Return a future that is done when the store can be written again."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._outage is not None and self._outage.is_stuck:
                self._recovery.append(threadsafe_resolver(future))
            else:
                future.set_result(None)
        return future

    def _retry_now(self) -> None:
        """Retry at once; a failure is reported at once, too, without further retries."""
        with self._lock:
            if self._outage is not None and self._outage.is_stuck and not self.is_closed:
                self._outage.is_stuck = False
                self._request_write(at_once=True)

    def mark(self) -> int:
        """Request a write; return a mark for ``is_saved``."""
        with self._lock:
            if self._backlog.entries and not self.is_closed:
                self._request_write()
            return self._backlog.recorded

    def is_saved(self, mark: int) -> bool:
        """Whether all events recorded before that *mark* are durable."""
        return self._backlog.saved >= mark

    def flush(self, timeout: float | None = None) -> None:
        """Block until all events recorded so far are durable.

        Raises:
            StoreError: they cannot be written now.
            StoreBusyError: it took longer than *timeout* seconds; they may still be written.
        """
        tried = threading.Event()
        with self._lock:
            if self.is_closed or not self._backlog.entries:
                return
            target = self._backlog.recorded
            self._waiting.append((target, tried.set, False))
            self._request_write(at_once=True)
        if not tried.wait(timeout):
            raise StoreBusyError(
                self.store.name,
                "it is not written yet, and the event loop must not wait for it; try again, or call"
                " this from another thread, as with asyncio.to_thread",
            )
        if (outage := self._outage) is not None and self._backlog.saved < target:
            raise outage.failure

    # Writing

    def _request_write(self, *, at_once: bool = False) -> None:
        """Ask the writer to write; after a failure not before the next retry, unless *at_once*."""
        self._wanted = True
        self._urgent = self._urgent or at_once
        if self._writer is None:
            writer = threading.Thread(target=self._write, name="treefold journal", daemon=True)
            try:
                writer.start()
            except RuntimeError as error:
                # It counts as a failed write.
                failure = StoreError(self.store.name, f"the thread that writes it: {error}")
                self._start_later(self._fail(failure))
                return
            self._writer = writer
        self._changed.notify()

    def _start_later(self, outage: Outage) -> None:
        """Try again on the loop to start the thread; without a loop, the next waiter does."""
        loop = self.loop
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
        if loop is None or self._is_starting:
            return
        with suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(loop.call_later, outage.delay, self._start_again)
            self._is_starting = True

    def _start_again(self) -> None:
        with self._lock:
            self._is_starting = False
            if self._wanted and not self.is_closed:
                self._request_write()

    def _write(self) -> None:
        while True:
            with self._lock:
                while (seconds := self._seconds_left()) != 0.0:
                    if self.is_closed and (not self._wanted or self._outage is not None):
                        return
                    self._changed.wait(seconds)
                entries = self._take()
            self._settle(len(entries), self._append(entries))

    def _seconds_left(self) -> float | None:
        """Return the time until the writer has to write; None if no write is due."""
        if not self._wanted or self._writing is not None:
            return None
        if self._outage is None or self._urgent:
            return 0.0
        return self._outage.seconds_left()

    def _write_here(self) -> None:
        """Write on the loop if a single call waits and the last writes were quick.

        Otherwise, and if the writer thread is writing already, the thread does it.
        """
        try:
            with self._lock:
                self._due = False
                if not self._waiting:
                    return
                is_busy = self._writing is not None or self._outage is not None
                is_slow = not self._is_near or self._took > _QUICK
                if is_busy or is_slow or len(self._waiting) > 1:
                    self._request_write()
                    return
                entries = self._take()
            with nonblocking():
                failure = self._append(entries)
            if not isinstance(failure, StoreBusyError):
                self._settle(len(entries), failure)
                return
            # Another program has locked the store; the thread waits for it.
            with self._lock:
                self._writing = None
                self._request_write()
        except BaseException as error:
            self._leave_to_writer(error)
            raise

    def _leave_to_writer(self, error: BaseException) -> None:
        """Let the writer thread, which gets no Ctrl-C, finish what was begun in this thread."""
        # A suspended generator in these frames might hold a lock of the store.
        clear_frames(error.__traceback__)
        with self._lock:
            if self._writing == threading.get_ident():
                self._writing, self._interrupted = None, True
            self._request_write()

    def _take(self) -> list[Entry]:
        """Return the entries to write; this thread is the one that writes them."""
        self._wanted = self._urgent = False
        self._writing = threading.get_ident()
        return self._backlog.entries.copy()

    def _append(self, entries: list[Entry]) -> StoreError | None:
        if self._outage is not None and self._outage.is_final:
            return self._outage.failure
        begun = time.perf_counter()
        try:
            self._append_batches(len(entries))
            self._interrupted = False
        except StoreError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a foreign store may raise anything
            return StoreError(self.store.name, f"{type(error).__name__}: {error}")
        self._took += (time.perf_counter() - begun - self._took) / 4
        return None

    def _append_batches(self, count: int) -> None:
        """Write the first *count* entries.

        Raises:
            FencedError: a store with one owner refused them, so this process does not own it.
        """
        with self._lock:
            drives = self._backlog.by_drive(count)
        # What another worker has adopted is dropped.
        batches = [
            (drive, self._new_batch(part) if drive is None else drive.batch(part))
            for drive, part in drives.items()
            if drive is None or drive.refusal is None
        ]
        results = self.store.append([batch for _, batch in batches])
        for (drive, batch), result in zip(batches, results, strict=True):
            if drive is not None:
                drive.settle(batch, result)
            if not isinstance(result, FencedError):
                self.appends += 1
                self.written += len(batch.entries)
            elif drive is None:
                raise result

    def _new_batch(self, entries: list[Entry]) -> Batch:
        """Return the batch of a whole journal, without what an interrupted write has written."""
        if self._interrupted:
            entries = [one for one in entries if self.store.length(one.node) < one.number]
        return Batch(entries=entries)

    def _settle(self, count: int, failure: StoreError | None) -> None:
        """Note that the first *count* entries are durable, or that writing them failed."""
        with self._lock:
            self._writing = None
            if failure is not None:
                self._fail(failure)
            else:
                self._backlog.remove_saved(count)
                if self._outage is not None:
                    self._recover()
                if self._waiting:
                    self._wake_waiting()
                self.changes.wake()
            if self._wanted or self._waiting:
                self._request_write()

    def _fail(self, failure: StoreError) -> Outage:
        """Plan the next retry, and wake the waiters that do not wait for it."""
        if (outage := self._outage) is None:
            outage = self._outage = Outage(failure, self._patience)
            log.warning("%s%s", failure, "" if outage.is_final else " (it is retried)")
        else:
            outage.prolong(failure)
        self._wanted = not outage.is_final
        self._wake_waiting()
        return outage

    def _recover(self) -> None:
        log.warning("%s can be written again", self.store.name)
        self._outage = None
        recovery, self._recovery = self._recovery, []
        for wake in recovery:
            wake()

    def _wake_waiting(self) -> None:
        """Wake, in order, the waiters whose entries are durable or that do not wait for a retry."""
        saved, outage = self._backlog.saved, self._outage
        waiting: list[tuple[int, Callable[[], None], bool]] = []
        for one in self._waiting:
            target, wake, is_patient = one
            if target <= saved or (outage is not None and (outage.is_stuck or not is_patient)):
                wake()
            else:
                waiting.append(one)
        self._waiting = waiting

    # Closing

    def suspend(self) -> None:
        """Write what is left, if possible, and stop: the next driver resumes from there."""
        try:
            self.close()
        except StoreError as error:
            log.warning("not everything could be written down: %s", error)

    def close(self) -> None:
        """Write what is left, and stop.

        Raises:
            StoreError: it cannot be written.
        """
        try:
            if not self.is_closed:
                self.flush()
        finally:
            self.stop()
            if self._writer is not None:
                self._writer.join()

    def stop(self) -> None:
        """Stop at once, without writing what is left."""
        with self._lock:
            self.is_closed = True
            wakes = [wake for _, wake, _ in self._waiting] + self._recovery
            self._waiting, self._recovery = [], []
            self._changed.notify_all()
        for wake in wakes:
            wake()
        self.changes.wake()


_writers: Final[WeakValueDictionary[int, JournalWriter]] = WeakValueDictionary()  # by identity


def writers_here() -> list[JournalWriter]:
    """Return the open writers of this process."""
    # A copy that is made at once: other threads make writers, too.
    writers = [reference() for reference in _writers.valuerefs()]
    process = os.getpid()
    return [
        one for one in writers if one is not None and one.process == process and not one.is_closed
    ]
