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
from treefold.core.journaling import entry_of
from treefold.core.long_texts import LongTexts
from treefold.core.store import Entry, Store, largest_part, nonblocking
from treefold.core.value_codec import ValueEncoder, unpack
from treefold.runtime.live_text import LiveTextWriter
from treefold.runtime.loop_handle import threadsafe_resolver

log = logging.getLogger(__name__)

_DELAY: Final = 0.01  # seconds that an event may wait which nobody waits for
_QUICK: Final = 0.002  # seconds that a loop may be held up by writing
_ALONE_AFTER: Final = 8  # times in which only one waited
_MANY: Final = 1000  # entries
_PATIENCE: Final = 5.0  # seconds of retries before a person is asked, if the store does not say
_FIRST_DELAY: Final = 0.05  # seconds before the first retry; each further one waits twice as long
_LAST_DELAY: Final = 1.0

# Called with a node, the error, and a future that is done when the store can be written again.
# Returns when another try is worthwhile.
Trouble = Callable[[Any, StoreError, "asyncio.Future[None]"], Awaitable[None]]


class JournalWriter:
    """Writes to one store what the trees of one runtime tell it.

    Args:
        redact: what to make of each text before it is written.
        trouble: awaited by a node when retries did not help; returns when it is worth another try.
    """

    def __init__(self, store: Store, redact: Callable[[str], str] | None, trouble: Trouble) -> None:
        self.store = store
        self.redact = redact
        self._trouble = trouble
        self._lock = threading.RLock()  # for all below
        self._news = threading.Condition(self._lock)  # for the writer
        self._entries: list[Entry] = []  # that are not known to be safe
        self._recorded = 0
        self._failure: StoreError | None = None  # of the last try
        self._largest: int | None = getattr(store, "largest", None)
        self._patience: float = getattr(store, "patience", _PATIENCE)
        self.failing_since: float | None = None  # when the first of the failed tries ended
        self._delay = _FIRST_DELAY
        self._retry_at = 0.0
        self._is_stuck = False  # retries have failed for longer than the store's patience
        self._recovery: list[Callable[[], None]] = []  # called when a retry has succeeded
        self._starting: asyncio.TimerHandle | None = None  # of a writer that could not be started
        self._wanted = False  # somebody waits, or has waited for long enough
        self._urgent = False  # the next retry is due now
        self._due = False  # the loop is about to see who waits
        self._writing: int | None = None  # the thread that does, just now
        self._interrupted = False  # somebody has been: it may be that the first entries are safe
        self._in_line = 0  # how many wait, or were woken and have not gone on: they come first
        self._writes_now: asyncio.Task[Any] | None = None  # and waits for no others
        self._crowd = 0  # how often one has to be alone until that is believed
        self._took = 2 * _QUICK  # seconds, lately, to write; it has to be shown that it is quick
        self._closed = False  # there is no more to write
        # The last entry, a callback, and whether it is called only when retries do not help either.
        self._waiting: list[tuple[int, Callable[[], None], bool]] = []
        self._nodes: dict[int, _Node] = {}  # those that are open, or not all of which is safe
        self._over: list[int] = []  # those of them that have ended
        self._writer: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.loop: asyncio.AbstractEventLoop | None = (
            None  # where it is time to write, if that is known
        )
        self._live_text = LiveTextWriter(store, self._number_of)

    @property
    def redacts(self) -> bool:
        """Whether texts are changed before they are written."""
        return self.redact is not None

    @property
    def is_closed(self) -> bool:
        """Whether nothing is written any more."""
        return self._closed

    @property
    def is_behind(self) -> bool:
        """Whether so much is still to be written that whoever can should wait for it."""
        return len(self._entries) > _MANY

    # What happens

    def record(self, tree: int, *events: Event) -> None:
        """Take down *events*; they are written soon, all of them at once.

        Raises:
            TooLargeError: one does not fit into the store; then none is taken down.
        """
        if self._closed:
            return
        with self._lock:
            count = len(self._entries)
            try:
                for event in events:
                    self._take_down(tree, event)
            except TooLargeError:
                self._take_back(count)
                raise
        if self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # another thread's; whoever made it does wait for it
                return
            if self.loop not in {None, loop}:  # as above; and that loop may end before it is time
                return
            self._timer = loop.call_later(_DELAY, self._write_soon, self._recorded)

    def stream(self, tree: int, event: ResponseStreamed) -> None:
        """Let those see *event* who look on from elsewhere; it is not taken down.

        Not if texts are changed before they are written: half of a word cannot be.
        """
        if self.redact is None and not self._closed:
            self._live_text.take(tree, event)

    def _take_down(self, tree: int, event: Event) -> None:
        node = self._nodes.get(event.node)
        if node is None:
            node = self._nodes[event.node] = self._node(event)
        over = isinstance(event, CallEnded)
        between = over or isinstance(event, CallRequested)  # it and its caller
        entry = entry_of(
            event,
            tree=tree,
            number=node.number + 1,
            redact=self.redact,
            known=node.caller_knows if between else node.knows,
        )
        self._check_size(entry)
        if over:
            self._over.append(event.node)
        self._entries += [entry]  # from here on nothing is called: that is where Ctrl-C comes
        node.number += 1
        self._recorded += 1

    def _check_size(self, entry: Entry) -> None:
        """Refuse what the store would refuse: then it concerns one call, and no other one."""
        if self._largest is None:
            return
        # Bytes are counted only if the characters could be too many: one has at most 12 bytes, in
        # the JSON of a question.
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

    def _take_back(self, count: int) -> None:
        """Have all entries but the first *count* not recorded."""
        for entry in self._entries[count:]:
            self._nodes[entry.node].number -= 1
            self._recorded -= 1
        del self._entries[count:]

    def _node(self, event: Event) -> "_Node":
        if not isinstance(event, CallRequested):
            return _Node(self.store.length(event.node), LongTexts())
        caller = None if event.parent is None else self._nodes.get(event.parent)
        return _Node(0, LongTexts() if caller is None else caller.knows)

    def _number_of(self, node: int) -> int:
        known = self._nodes.get(node)
        return 0 if known is None else known.number

    def length(self, node: int) -> int:
        """Return how many entries a node has, those included that are not written yet."""
        return self._number_of(node) or self.store.length(node)

    def redacted(self, text: str) -> str:
        """Return *text* as it would be written."""
        return ValueEncoder(self.redact).redacted(text)

    def as_written(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as they come back from the journal."""
        packer = ValueEncoder(self.redact)
        return unpack(packer.pack_arguments(dict(args)), packer.texts.__getitem__)

    # Waiting until it is safe

    async def saved(self, node: Any) -> None:
        """Wait until all that happened so far is safe.

        A failure of the store is retried. If retries fail, *node* asks a question about it, and
        waits until it is over.

        Raises:
            FencedError: another runtime writes there, and nothing may be done any more.
        """
        while (failure := await self._try()) is not None:
            if isinstance(failure, FencedError):
                raise failure
            await self._trouble(node, failure, self._writable())
            self._retry_now()

    async def _try(self) -> StoreError | None:
        loop, done = asyncio.get_running_loop(), None
        try:
            with self._lock:
                if self._closed or not (self._entries or self._in_line):
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
                        self._have_written()
                    elif not self._due:
                        self._due = True
                        loop.call_soon(self._write_here)  # when all have asked who would just now
        except BaseException as error:
            self._leave_to_writer(error)
            raise
        if done is not None:
            self._in_line += 1
            try:
                await done
            finally:
                self._in_line -= 1
        return None if self._saved >= target or self._closed else self._failure

    def _is_alone(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether nobody else would ask just now, as far as can be told from the last times."""
        if self._waiting or self._in_line or not self._is_quick():
            return False
        task = asyncio.current_task()
        if self._writes_now is None:
            if self._crowd:
                return False
            self._writes_now = task
            loop.call_soon(self._let_others_write)
        elif self._writes_now is not task:
            self._crowd = _ALONE_AFTER
        return self._writes_now is task

    def _let_others_write(self) -> None:
        self._writes_now = None

    def _is_quick(self) -> bool:
        """Whether writing does not hold up the loop, as far as can be told from the last times."""
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
        """Retry at once, as a caller asked for; a failure is reported at once, without backoff."""
        with self._lock:
            if self._is_stuck and not self._closed:
                self._is_stuck = False
                self._have_written(at_once=True)

    def mark(self) -> int:
        """Have everything written soon; return what ``is_saved`` needs to know."""
        with self._lock:
            if self._entries and not self._closed:
                self._have_written()
            return self._recorded

    def _when_tried(self, wake: Callable[[], None]) -> int:
        """Call *wake*, on any thread, when all so far is safe or could not be written just now.

        Returns:
            What ``is_saved`` needs to know.
        """
        with self._lock:
            if self._entries and not self._closed:
                self._waiting.append((self._recorded, wake, False))
                self._have_written(at_once=True)
            else:
                wake()
            return self._recorded

    def is_saved(self, mark: int) -> bool:
        """Whether all is safe that had happened at that *mark*."""
        return self._saved >= mark

    @property
    def _saved(self) -> int:
        return self._recorded - len(self._entries)

    def flush(self, timeout: float | None = None) -> None:
        """Block until all that happened so far is safe.

        Raises:
            StoreError: it cannot be written just now.
            StoreBusyError: it took longer than *timeout* seconds, and may still be written.
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

    def _have_written(self, *, at_once: bool = False) -> None:
        """Have the writer write; after a failure not before the next retry, unless *at_once*."""
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
        self._news.notify()

    def _start_later(self, error: RuntimeError) -> None:
        """Take it as a failed try that the writer's thread could not be started."""
        self._fail(StoreError(self.store.name, f"the thread that writes it: {error}"))
        loop = self.loop
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
        if loop is None or self._starting is not None:  # then the next who waits starts it
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
                self._have_written()

    def _write_soon(self, target: int) -> None:
        """Have what was recorded up to *target* written, or look again if only newer is left."""
        self._timer = None
        with self._lock:
            if not self._entries or self._closed:
                return
            if self._saved < target:
                self._have_written()
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
                    self._news.wait(seconds)
                entries = self._take()
            self._settle(len(entries), self._append(entries))

    def _seconds_left(self) -> float | None:
        """Return the time until the writer has to write; None if that is not known."""
        if not self._wanted or self._writing is not None:
            return None
        if self.failing_since is None or self._urgent:
            return 0.0
        return max(0.0, self._retry_at - time.monotonic())

    def _write_here(self) -> None:
        """Write, right on the loop, what only one waits for: that takes less than another thread.

        Not if the disk is slow, or the writer is at it.
        """
        try:
            with self._lock:
                self._due = False
                if not self._waiting:
                    return
                crowded = len(self._waiting) > 1
                self._crowd = _ALONE_AFTER if crowded else max(0, self._crowd - 1)
                if crowded or not self._is_quick():
                    self._have_written()
                    return
                entries = self._take()
            if not self._write_on_loop(entries):
                with self._lock:
                    self._have_written()
        except BaseException as error:
            self._leave_to_writer(error)
            raise

    def _write_on_loop(self, entries: list[Entry]) -> bool:
        """Write in this thread; False if the writer has to, since another program has a lock."""
        with nonblocking():
            failure = self._append(entries)
        if isinstance(failure, StoreBusyError):
            self._writing = None
            return False
        self._settle(len(entries), failure)
        return True

    def _leave_to_writer(self, error: BaseException) -> None:
        """Let the writer, to whom no Ctrl-C comes, finish what was begun in this thread."""
        clear_frames(error.__traceback__)  # or a lock may stay with a generator that is in them
        with self._lock:
            if self._writing == threading.get_ident():
                self._writing, self._interrupted = None, True
            self._have_written()

    def _take(self) -> list[Entry]:
        """Return what is to be written, by one at a time."""
        self._wanted = self._urgent = False
        self._writing = threading.get_ident()
        return self._entries.copy()

    def _settle(self, count: int, failure: StoreError | None) -> None:
        """Take note of the first entries being safe, or of a failure to write them."""
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
                self._have_written()

    def _fail(self, failure: StoreError) -> None:
        """Plan the next retry, and wake those who do not wait for it."""
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
        """Wake those who waited for what is safe now, or are not to wait for a retry."""
        saved, failed = self._saved, self._failure is not None
        waiting: list[tuple[int, Callable[[], None], bool]] = []
        for one in self._waiting:  # before anybody else, who comes later
            target, wake, is_patient = one
            if target <= saved or (failed and (self._is_stuck or not is_patient)):
                wake()
            else:
                waiting.append(one)
        self._waiting = waiting

    def _forget_ended(self) -> None:
        """Let go of the nodes that have ended: all that there is of them can be counted."""
        if self._over and not self._entries:
            for node in self._over:
                self._nodes.pop(node, None)
            self._over = []

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
        except Exception as error:  # noqa: BLE001 - a store of somebody else's; the run has to know
            return StoreError(self.store.name, f"{type(error).__name__}: {error}")
        self._took += (time.perf_counter() - begun - self._took) / 4
        return None

    def suspend(self) -> None:
        """Write what is left if that can be, and nothing after that: the rest is for the next."""
        try:
            self.close()
        except StoreError as error:
            log.warning("not everything could be written down: %s", error)

    def close(self) -> None:
        """Write what is left, and nothing after that.

        Raises:
            StoreError: that cannot be written.
        """
        try:
            if not self._closed:
                self.flush()
        finally:
            self.stop()
            if self._writer is not None:
                self._writer.join()

    def stop(self) -> None:
        """Write nothing any more, what is left included."""
        with self._lock:
            self._closed = True
            wakes = [wake for _, wake, _ in self._waiting] + self._recovery
            self._waiting, self._recovery = [], []
            self._news.notify_all()
        for wake in wakes:
            wake()


class _Node:
    """What the journal has of a node: how many entries, and which long texts were said of late."""

    __slots__ = ("caller_knows", "knows", "number")

    def __init__(self, number: int, caller_knows: LongTexts) -> None:
        self.number = number
        self.caller_knows = caller_knows
        self.knows = LongTexts()
