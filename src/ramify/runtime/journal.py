"""What happens in a runtime, written down by one writer before anything depends on it.

Events are turned into entries where they happen, since what they speak of may change later, and
are written in batches by one thread. Whoever must not go on before a thing is safe waits for it;
everything else is written with the next batch, or a moment later.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from traceback import clear_frames
from typing import Any, Final

from ramify.core.agent_events import ResponseStreamed
from ramify.core.errors import FencedError, StoreError
from ramify.core.events import CallEnded, CallRequested, Event
from ramify.core.journaling import entry_of
from ramify.core.long_texts import LongTexts
from ramify.core.packing import Packer, unpack
from ramify.core.store import Entry, Store
from ramify.runtime.home import settle_from_anywhere
from ramify.runtime.telling import Teller

log = logging.getLogger(__name__)

_DELAY: Final = 0.01  # seconds that an event may wait which nobody waits for
_QUICK: Final = 0.002  # seconds that a loop may be held up by writing
_ALONE_AFTER: Final = 8  # times in which only one waited
_MANY: Final = 1000  # entries

Trouble = Callable[[Any, StoreError], Awaitable[None]]  # may return when it is worth another try


class Journal:
    """Writes to one store what the trees of one runtime tell it.

    Args:
        redact: what to make of each text before it is written.
        trouble: what a node does if it cannot be written down, until that is to be tried again.
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
        self._wanted = False  # somebody waits, or has waited for long enough
        self._due = False  # the loop is about to see who waits
        self._writing: int | None = None  # the thread that does, just now
        self._interrupted = False  # somebody has been: it may be that the first entries are safe
        self._in_line = 0  # how many wait, or were woken and have not gone on: they come first
        self._writes_now: asyncio.Task[Any] | None = None  # and waits for no others
        self._crowd = 0  # how often one has to be alone until that is believed
        self._took = 2 * _QUICK  # seconds, lately, to write; it has to be shown that it is quick
        self._closed = False  # there is no more to write
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._nodes: dict[int, _Node] = {}  # those that are open, or not all of which is safe
        self._over: list[int] = []  # those of them that have ended
        self._writer: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # where it lives, if that is known
        self._teller = Teller(store, self._number_of)

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

    def live_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait on *loop*, wherever something happens, until it is time to write."""
        self._loop = loop

    # What happens

    def record(self, tree: int, *events: Event) -> None:
        """Take down *events*; they are written soon, all of them at once."""
        if self._closed:
            return
        with self._lock:
            for event in events:
                self._take_down(tree, event)
        if self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # another thread's; whoever made it does wait for it
                return
            if self._loop not in {None, loop}:  # as above; and that loop may end before it is time
                return
            self._timer = loop.call_later(_DELAY, self._write_soon, self._recorded)

    def stream(self, tree: int, event: ResponseStreamed) -> None:
        """Let those see *event* who look on from elsewhere; it is not taken down.

        Not if texts are changed before they are written: half of a word cannot be.
        """
        if self.redact is None and not self._closed:
            self._teller.take(tree, event)

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
        if over:
            self._over.append(event.node)
        self._entries += [entry]  # from here on nothing is called: that is where Ctrl-C comes
        node.number += 1
        self._recorded += 1

    def _node(self, event: Event) -> "_Node":
        if not isinstance(event, CallRequested):
            return _Node(self.store.length(event.node), LongTexts())
        caller = None if event.parent is None else self._nodes.get(event.parent)
        return _Node(0, LongTexts() if caller is None else caller.knows)

    def _number_of(self, node: int) -> int:
        known = self._nodes.get(node)
        return 0 if known is None else known.number

    def redacted(self, text: str) -> str:
        """Return *text* as it would be written."""
        return Packer(self.redact).redacted(text)

    def as_written(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as they come back from the journal."""
        packer = Packer(self.redact)
        return unpack(packer.pack_arguments(dict(args)), packer.texts.__getitem__)

    # Waiting until it is safe

    async def saved(self, node: Any) -> None:
        """Wait until all that happened so far is safe.

        If it cannot be written, *node* is told of the trouble, and it is tried again afterwards.

        Raises:
            FencedError: another runtime writes there, and nothing may be done any more.
        """
        while (failure := await self._try()) is not None:
            if isinstance(failure, FencedError):
                raise failure
            await self._trouble(node, failure)

    async def _try(self) -> StoreError | None:
        loop, done = asyncio.get_running_loop(), None
        try:
            with self._lock:
                if self._closed or not (self._entries or self._in_line):
                    return None
                target = self._recorded
                if self._is_alone(loop):
                    entries = self._take()
                else:
                    entries, done = [], loop.create_future()
                    self._waiting.append((target, settle_from_anywhere(done)))
                    if not self._due:
                        self._due = True
                        loop.call_soon(self._write_here)  # when all have asked who would just now
            if done is None:
                self._settle(len(entries), self._append(entries))
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
        if self._waiting or self._in_line or self._writing is not None or self._took > _QUICK:
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

    def mark(self) -> int:
        """Have everything written soon; return what ``is_saved`` needs to know."""
        with self._lock:
            if self._entries and not self._closed:
                self._ask_for(self._recorded, _nobody)
            return self._recorded

    def try_again(self) -> None:
        """Have written what could not be when it was last tried, though nobody waits for it."""
        if self._failure is not None and self._writing is None:
            self.mark()

    def is_saved(self, mark: int) -> bool:
        """Whether all is safe that had happened at that *mark*."""
        return self._saved >= mark

    @property
    def _saved(self) -> int:
        return self._recorded - len(self._entries)

    def flush(self) -> None:
        """Block until all that happened so far is safe.

        Raises:
            StoreError: it cannot be written.
        """
        done = threading.Event()
        with self._lock:
            if self._closed or not self._entries:
                return
            target = self._recorded
            self._ask_for(target, done.set)
        done.wait()
        if self._saved < target and self._failure is not None:
            raise self._failure

    def _ask_for(self, target: int, wake: Callable[[], None]) -> None:
        self._waiting.append((target, wake))
        self._have_written()

    def _have_written(self) -> None:
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="ramify journal", daemon=True)
            self._writer.start()
        self._wanted = True
        self._news.notify()

    def _write_soon(self, target: int) -> None:
        """Have what was recorded up to *target* written, or look again if only newer is left."""
        self._timer = None
        with self._lock:
            if not self._entries or self._closed:
                return
            if self._saved < target:
                self._ask_for(self._recorded, _nobody)
                return
            target = self._recorded
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_DELAY, self._write_soon, target)

    # Writing

    def _write(self) -> None:
        while True:
            with self._lock:
                while not self._wanted or self._writing is not None:
                    if self._closed and not self._wanted:
                        return
                    self._news.wait()
                entries = self._take()
            self._settle(len(entries), self._append(entries))

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
                if crowded or self._writing is not None or self._took > _QUICK:
                    self._have_written()
                    return
                entries = self._take()
            self._settle(len(entries), self._append(entries))
        except BaseException as error:
            self._leave_to_writer(error)
            raise

    def _leave_to_writer(self, error: BaseException) -> None:
        """Let the writer, to whom no Ctrl-C comes, finish what was begun in this thread."""
        clear_frames(error.__traceback__)  # or a lock may stay with a generator that is in them
        with self._lock:
            if self._writing == threading.get_ident():
                self._writing, self._interrupted = None, True
            self._have_written()

    def _take(self) -> list[Entry]:
        """Return what is to be written, by one at a time."""
        self._wanted, self._writing = False, threading.get_ident()
        return self._entries.copy()

    def _settle(self, count: int, failure: StoreError | None) -> None:
        """Wake those who waited for the first entries, or all if they could not be written."""
        with self._lock:
            self._failure = failure
            if failure is None:
                del self._entries[:count]
                self._forget_ended()
            saved = self._saved
            for target, wake in self._waiting:  # before anybody else, who comes later
                if failure is not None or target <= saved:
                    wake()
            self._waiting = [one for one in self._waiting if failure is None and one[0] > saved]
            self._writing = None
            if self._wanted or self._waiting:
                self._have_written()

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
            with self._lock:
                self._closed = True
                waiting, self._waiting = self._waiting, []
                self._news.notify_all()
            for _, wake in waiting:
                wake()
            if self._writer is not None:
                self._writer.join()


class _Node:
    """What the journal has of a node: how many entries, and which long texts were said of late."""

    __slots__ = ("caller_knows", "knows", "number")

    def __init__(self, number: int, caller_knows: LongTexts) -> None:
        self.number = number
        self.caller_knows = caller_knows
        self.knows = LongTexts()


def _nobody() -> None:
    """Wake nobody."""
