"""Writes the events of a runtime to its store, before anything depends on them.

Events are serialized when they happen, because the objects in them may change later, and written in
batches by one thread. A call that must not continue before its events are durable waits for
``saved``; other events are written with the next batch, or a moment later. A batch that cannot be
written is retried, with growing delays, until the store accepts it.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from traceback import clear_frames
from typing import Any, Final

from treefold.core.agent_events import ResponseStreamed
from treefold.core.errors import FencedError, StoreBusyError, StoreError, TooLargeError
from treefold.core.events import CallEnded, CallRequested, Event
from treefold.core.function import Node
from treefold.core.journaling import entry_of
from treefold.core.store import Entry, Store, largest_part, nonblocking
from treefold.core.value_codec import ValueEncoder, unpack
from treefold.runtime.durable.live_text import LiveTextWriter
from treefold.runtime.loops.loop_handle import threadsafe_resolver

log = logging.getLogger(__name__)

_DELAY: Final = 0.01  # seconds until an event is written that no call waits for
_QUICK: Final = 0.002  # seconds that writing may block the loop
_ALONE_AFTER: Final = 8  # batches with one waiter after which the next is written on the loop
_MANY: Final = 1000  # entries that are not written yet
_PATIENCE: Final = 5.0  # seconds of retries before a person is asked, if the store does not say
_FIRST_DELAY: Final = 0.05  # seconds before the first retry; each further one waits twice as long
_LAST_DELAY: Final = 1.0

# Called with a node, the error, and a future that is done when the store can be written again.
# Returns when another try is worthwhile.
AskForHelp = Callable[[Any, StoreError, "asyncio.Future[None]"], Awaitable[None]]


class JournalWriter:
    """Writes the events of the trees of one runtime to one store.

    Args:
        redact: applied to each text before it is written.
        ask_for_help: awaited by a node when retries have failed; returns to try once more.
    """

    def __init__(
        self, store: Store, redact: Callable[[str], str] | None, ask_for_help: AskForHelp
    ) -> None:
        self.store = store
        self.redact = redact
        self._ask_for_help = ask_for_help
        self._lock = threading.RLock()  # guards everything below
        self._changed = threading.Condition(self._lock)  # wakes the writer thread
        self._entries: list[Entry] = []  # not known to be durable
        self._recorded = 0  # number of entries so far
        self._failure: StoreError | None = None  # of the last attempt
        self._largest: int | None = getattr(store, "largest", None)
        self._patience: float = getattr(store, "patience", _PATIENCE)
        self.failing_since: float | None = None  # when the first failed attempt ended
        self._delay = _FIRST_DELAY
        self._retry_at = 0.0
        self._is_stuck = False  # retries have failed for longer than the store's patience
        self._recovery: list[Callable[[], None]] = []  # called when a retry has succeeded
        self._starting: asyncio.TimerHandle | None = None  # retries to start the writer thread
        self._wanted = False  # a write has been requested
        self._urgent = False  # the next retry is due now
        self._due = False  # _write_here is scheduled on the loop
        self._writing: int | None = None  # the thread that is writing
        self._interrupted = False  # Ctrl-C came during a write: the first entries may be durable
        self._queued = 0  # calls that wait, or were woken and have not continued: they come first
        self._writes_now: asyncio.Task[Any] | None = None  # the task that writes without waiting
        self._until_alone = 0  # batches with one waiter that are left until tasks write on the loop
        # Moving average of the seconds a write takes; slow until measurements show otherwise.
        self._took = 2 * _QUICK
        self._closed = False
        # The last entry waited for, a callback, and whether the callback waits for retries.
        self._waiting: list[tuple[int, Callable[[], None], bool]] = []
        self._nodes: dict[int, _Node] = {}  # nodes that are open, or have entries to be written
        self._ended: list[int] = []  # those of them that have ended
        self._writer: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.loop: asyncio.AbstractEventLoop | None = None  # runs the timers, if it is known
        self._live_text = LiveTextWriter(store, self._number_of)

    @property
    def redacts(self) -> bool:
        """Whether texts are changed before they are written."""
        return self.redact is not None

    @property
    def is_closed(self) -> bool:
        """Whether events are not written any more."""
        return self._closed

    @property
    def is_behind(self) -> bool:
        """Whether so many entries are unwritten that a call should wait for them if it can."""
        return len(self._entries) > _MANY

    # Recording events

    def record(self, tree: int, *events: Event) -> None:
        """Serialize *events* and add them to the next batch, all or none.

        Raises:
            TooLargeError: one does not fit into the store; then none is recorded.
        """
        if self._closed:
            return
        with self._lock:
            count = len(self._entries)
            try:
                for event in events:
                    self._record_one(tree, event)
            except TooLargeError:
                self._remove_after(count)
                raise
        if self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                # An event of another thread, which waits until it is saved.
                return
            if self.loop not in {None, loop}:
                # The same; and that loop may end before the timer fires.
                return
            self._timer = loop.call_later(_DELAY, self._write_soon, self._recorded)

    def stream(self, tree: int, event: ResponseStreamed) -> None:
        """Broadcast *event* to observers; it is not recorded.

        Nothing is broadcast if texts are redacted, because parts of a word cannot be.
        """
        if self.redact is None and not self._closed:
            self._live_text.take(tree, event)

    def _record_one(self, tree: int, event: Event) -> None:
        node = self._nodes.get(event.node)
        if node is None:
            node = self._nodes[event.node] = self._node(event)
        ended = isinstance(event, CallEnded)
        between = ended or isinstance(event, CallRequested)  # its texts are shared with its caller
        encoder = node.caller_encoder if between else node.encoder
        entry = entry_of(event, encoder, tree=tree, number=node.number + 1)
        self._check_size(entry)
        if ended:
            self._ended.append(event.node)
        # Ctrl-C is delivered at calls, and there is none in the next three lines.
        self._entries += [entry]
        node.number += 1
        self._recorded += 1

    def _check_size(self, entry: Entry) -> None:
        """Raise TooLargeError for what the store would refuse, so that only one call fails."""
        if self._largest is None:
            return
        # Bytes are counted only if there may be too many: a character has at most 12 bytes, in the
        # JSON of a question.
        characters = len(entry.body)
        for text in entry.texts.values():
            characters += len(text)
        if (call := entry.call) is not None:
            characters += len(call.key)
        if (question := entry.question) is not None:
            characters += sum(map(len, (question.text, *question.choices)))
        if 12 * characters > self._largest and (size := largest_part(entry)) > self._largest:
            raise TooLargeError(
                f"{entry.kind} of node {entry.node} takes {size:,} bytes, and {self.store.name}"
                f" accepts at most {self._largest:,}: keep it in a file, and pass the path of that"
            )

    def _remove_after(self, count: int) -> None:
        """Remove all entries but the first *count*."""
        for entry in self._entries[count:]:
            self._nodes[entry.node].number -= 1
            self._recorded -= 1
        del self._entries[count:]

    def _node(self, event: Event) -> "_Node":
        if not isinstance(event, CallRequested):
            return _Node(self.store.length(event.node), self.redact)
        caller = None if event.parent is None else self._nodes.get(event.parent)
        return _Node(0, self.redact, caller)

    def _number_of(self, node: int) -> int:
        known = self._nodes.get(node)
        return 0 if known is None else known.number

    def length(self, node: int) -> int:
        """Return the number of entries of a node, including those that are not written yet."""
        return self._number_of(node) or self.store.length(node)

    def redacted(self, text: str) -> str:
        """Return *text* as it would be written."""
        return ValueEncoder(self.redact).redacted(text)

    def as_written(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as they come back from the journal."""
        encoder = ValueEncoder(self.redact)
        return unpack(encoder.pack_arguments(dict(args)), encoder.texts.__getitem__)

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
            await self._ask_for_help(node, failure, self._writable())
            self._retry_now()

    async def _try(self) -> StoreError | None:
        loop, done = asyncio.get_running_loop(), None
        try:
            with self._lock:
                if self._closed or not (self._entries or self._queued):
                    return None
                if self._is_stuck:
                    return self._failure
                target = self._recorded
                alone = self._is_alone(loop)
                entries = self._take() if alone else []
            if not (alone and self._write_on_loop(entries)):
                done = loop.create_future()
                with self._lock:
                    self._waiting.append((target, threadsafe_resolver(done), True))
                    if alone:
                        self._request_write()
                    elif not self._due:
                        self._due = True
                        # After the other tasks that are ready have asked, too: one batch for all.
                        loop.call_soon(self._write_here)
        except BaseException as error:
            self._leave_to_writer(error)
            raise
        if done is not None:
            self._queued += 1
            try:
                await done
            finally:
                self._queued -= 1
        return None if self._saved >= target or self._closed else self._failure

    def _is_alone(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this task is probably the only one that waits, judged by the last batches."""
        if self._waiting or self._queued or not self._is_quick():
            return False
        task = asyncio.current_task()
        if self._writes_now is None:
            if self._until_alone:
                return False
            self._writes_now = task
            loop.call_soon(self._end_exclusive_write)
        elif self._writes_now is not task:
            self._until_alone = _ALONE_AFTER
        return self._writes_now is task

    def _end_exclusive_write(self) -> None:
        self._writes_now = None

    def _is_quick(self) -> bool:
        """Whether a write is quick enough for the loop, judged by the last writes."""
        idle = self._writing is None and self.failing_since is None
        return idle and self._took <= _QUICK

    def _writable(self) -> "asyncio.Future[None]":
        """Return a future that is done when the store can be written again."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._is_stuck:
                self._recovery.append(threadsafe_resolver(future))
            else:
                future.set_result(None)
        return future

    def _retry_now(self) -> None:
        """Retry at once; a failure is reported at once, too, without further retries."""
        with self._lock:
            if self._is_stuck and not self._closed:
                self._is_stuck = False
                self._request_write(at_once=True)

    def mark(self) -> int:
        """Request a write; return a mark for ``is_saved``."""
        with self._lock:
            if self._entries and not self._closed:
                self._request_write()
            return self._recorded

    def _when_tried(self, wake: Callable[[], None]) -> int:
        """Call *wake*, on any thread, when all so far is durable or an attempt has failed.

        Returns:
            A mark for ``is_saved``.
        """
        with self._lock:
            if self._entries and not self._closed:
                self._waiting.append((self._recorded, wake, False))
                self._request_write(at_once=True)
            else:
                wake()
            return self._recorded

    def is_saved(self, mark: int) -> bool:
        """Whether all events recorded before that *mark* are durable."""
        return self._saved >= mark

    @property
    def _saved(self) -> int:
        return self._recorded - len(self._entries)

    def flush(self, timeout: float | None = None) -> None:
        """Block until all events recorded so far are durable.

        Raises:
            StoreError: they cannot be written now.
            StoreBusyError: it took longer than *timeout* seconds; they may still be written.
        """
        if self._closed or not self._entries:
            return
        done = threading.Event()
        target = self._when_tried(done.set)
        if not done.wait(timeout):
            raise StoreBusyError(
                self.store.name,
                "it is not written yet, and the event loop must not wait for it; try again, or call"
                " this from another thread, as with asyncio.to_thread",
            )
        if self._saved < target and self._failure is not None:
            raise self._failure

    def _request_write(self, *, at_once: bool = False) -> None:
        """Ask the writer to write; after a failure not before the next retry, unless *at_once*."""
        self._wanted = True
        self._urgent = self._urgent or at_once
        if self._writer is None:
            writer = threading.Thread(target=self._write, name="treefold journal", daemon=True)
            try:
                writer.start()
            except RuntimeError as error:
                self._start_later(error)
                return
            self._writer = writer
        self._changed.notify()

    def _start_later(self, error: RuntimeError) -> None:
        """Treat it as a failed write that the writer's thread could not be started."""
        self._fail(StoreError(self.store.name, f"the thread that writes it: {error}"))
        loop = self.loop
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
        if loop is None or self._starting is not None:  # without a loop, the next waiter starts it
            return
        with suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(self._start_on, loop)

    def _start_on(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._starting is None:
            self._starting = loop.call_later(self._delay, self._start_again)

    def _start_again(self) -> None:
        self._starting = None
        with self._lock:
            if self._wanted and not self._closed:
                self._request_write()

    def _write_soon(self, target: int) -> None:
        """Request a write if entries up to *target* are left, or check newer ones again later."""
        self._timer = None
        with self._lock:
            if not self._entries or self._closed:
                return
            if self._saved < target:
                self._request_write()
                return
            target = self._recorded
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_DELAY, self._write_soon, target)

    # Writing

    def _write(self) -> None:
        while True:
            with self._lock:
                while (seconds := self._seconds_left()) != 0.0:
                    if self._closed and (not self._wanted or self.failing_since is not None):
                        return
                    self._changed.wait(seconds)
                entries = self._take()
            self._settle(len(entries), self._append(entries))

    def _seconds_left(self) -> float | None:
        """Return the time until the writer has to write; None if no write is due."""
        if not self._wanted or self._writing is not None:
            return None
        if self.failing_since is None or self._urgent:
            return 0.0
        return max(0.0, self._retry_at - time.monotonic())

    def _write_here(self) -> None:
        """Write on the loop if only one call waits: that is quicker than another thread.

        The writer thread does it if the disk is slow, or if it is writing already.
        """
        try:
            with self._lock:
                self._due = False
                if not self._waiting:
                    return
                crowded = len(self._waiting) > 1
                self._until_alone = _ALONE_AFTER if crowded else max(0, self._until_alone - 1)
                if crowded or not self._is_quick():
                    self._request_write()
                    return
                entries = self._take()
            if not self._write_on_loop(entries):
                with self._lock:
                    self._request_write()
        except BaseException as error:
            self._leave_to_writer(error)
            raise

    def _write_on_loop(self, entries: list[Entry]) -> bool:
        """Write in this thread; return False if another program holds a lock on the store."""
        with nonblocking():
            failure = self._append(entries)
        if isinstance(failure, StoreBusyError):
            self._writing = None
            return False
        self._settle(len(entries), failure)
        return True

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
        return self._entries.copy()

    def _settle(self, count: int, failure: StoreError | None) -> None:
        """Note that the first *count* entries are durable, or that writing them failed."""
        with self._lock:
            self._writing = None
            if failure is not None:
                self._fail(failure)
            else:
                self._failure = None
                del self._entries[:count]
                self._forget_ended()
                if self.failing_since is not None:
                    self._recover()
                if self._waiting:
                    self._wake_waiting()
            if self._wanted or self._waiting:
                self._request_write()

    def _fail(self, failure: StoreError) -> None:
        """Plan the next retry, and wake the waiters that do not wait for it."""
        now = time.monotonic()
        self._failure = failure
        is_final = isinstance(failure, FencedError)
        if self.failing_since is None:
            self.failing_since, self._delay = now, _FIRST_DELAY
            log.warning("%s%s", failure, "" if is_final else " (it is retried)")
        else:
            self._delay = min(2 * self._delay, _LAST_DELAY)
        self._retry_at = now + self._delay
        self._wanted = not is_final
        self._is_stuck = is_final or now - self.failing_since >= self._patience
        self._wake_waiting()

    def _recover(self) -> None:
        log.warning("%s can be written again", self.store.name)
        self.failing_since, self._is_stuck = None, False
        recovery, self._recovery = self._recovery, []
        for wake in recovery:
            wake()

    def _wake_waiting(self) -> None:
        """Wake, in order, the waiters whose entries are durable or that do not wait for a retry."""
        saved, failed = self._saved, self._failure is not None
        waiting: list[tuple[int, Callable[[], None], bool]] = []
        for one in self._waiting:
            target, wake, is_patient = one
            if target <= saved or (failed and (self._is_stuck or not is_patient)):
                wake()
            else:
                waiting.append(one)
        self._waiting = waiting

    def _forget_ended(self) -> None:
        """Drop the nodes that have ended: their entries can be counted in the store."""
        if self._ended and not self._entries:
            for node in self._ended:
                self._nodes.pop(node, None)
            self._ended = []

    def _append(self, entries: list[Entry]) -> StoreError | None:
        if isinstance(self._failure, FencedError):
            return self._failure
        begun = time.perf_counter()
        try:
            if self._interrupted:
                entries = [one for one in entries if self.store.length(one.node) < one.number]
            if entries:
                self.store.append(entries)
            self._interrupted = False
        except StoreError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a foreign store may raise anything
            return StoreError(self.store.name, f"{type(error).__name__}: {error}")
        self._took += (time.perf_counter() - begun - self._took) / 4
        return None

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
            if not self._closed:
                self.flush()
        finally:
            self.stop()
            if self._writer is not None:
                self._writer.join()

    def stop(self) -> None:
        """Stop at once, without writing what is left."""
        with self._lock:
            self._closed = True
            wakes = [wake for _, wake, _ in self._waiting] + self._recovery
            self._waiting, self._recovery = [], []
            self._changed.notify_all()
        for wake in wakes:
            wake()


class _Node:
    """What the journal has of a node: the number of its entries, and its latest long texts."""

    __slots__ = ("caller_encoder", "encoder", "number")

    def __init__(
        self, number: int, redact: Callable[[str], str] | None, caller: "_Node | None" = None
    ) -> None:
        self.number = number
        self.encoder = ValueEncoder(redact)
        self.caller_encoder = ValueEncoder(redact) if caller is None else caller.encoder
