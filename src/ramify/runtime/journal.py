"""What happens in a runtime, written down by one writer before anything depends on it.

Events are turned into entries where they happen, since what they speak of may change later, and
are written in batches by one thread. Whoever must not go on before a thing is safe waits for it;
everything else is written with the next batch, or a moment later.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ramify.core.errors import FencedError, StoreError
from ramify.core.events import CallRequested, Event
from ramify.core.journaling import entry_of
from ramify.core.packing import Packer, unpack
from ramify.core.store import Entry, Store
from ramify.runtime.home import settle_from_anywhere

_DELAY: Final = 0.01  # seconds that an event may wait which nobody waits for

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
        self._lock = threading.Condition()  # for all below
        self._entries: list[Entry] = []  # that are still to be written
        self._recorded = 0
        self._saved = 0
        self._failure: StoreError | None = None  # of the last try
        self._wanted = False  # somebody waits, or has waited for long enough
        self._closed = False  # there is no more to write
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._numbers: dict[int, int] = {}  # how many entries each node has
        self._writer: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def redacts(self) -> bool:
        """Whether texts are changed before they are written."""
        return self.redact is not None

    # What happens

    def record(self, tree: int, event: Event) -> None:
        """Take down *event*; it is written soon."""
        if self._closed:
            return
        with self._lock:
            if event.node not in self._numbers and not isinstance(event, CallRequested):
                self._numbers[event.node] = self.store.length(event.node)
            number = self._numbers[event.node] = self._numbers.get(event.node, 0) + 1
            entry = entry_of(event, tree=tree, number=number, redact=self.redact)
            self._entries.append(entry)
            self._recorded += 1
        if self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # another thread's; whoever made it does wait for it
                return
            self._timer = loop.call_later(_DELAY, self._write_soon, self._recorded)

    def redacted(self, text: str) -> str:
        """Return *text* as it would be written."""
        return Packer(self.redact).redacted(text)

    def as_written(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as they come back from the journal."""
        packer = Packer(self.redact)
        return unpack(packer.pack(dict(args)), packer.texts.__getitem__)

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
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed or self._saved == self._recorded:
                return None
            done = loop.create_future()
            wake = settle_from_anywhere(done)
            self._ask_for(self._recorded, wake)
            target = self._recorded
        await done
        return None if self._saved >= target or self._closed else self._failure

    def mark(self, earlier: int | None = None) -> int:
        """Have everything written soon; return what ``is_saved`` needs to know, or *earlier*."""
        with self._lock:
            if self._entries and not self._closed:
                self._ask_for(self._recorded, _nobody)
            return self._recorded if earlier is None else earlier

    def is_saved(self, mark: int) -> bool:
        """Whether all is safe that had happened at that *mark*."""
        return self._saved >= mark

    def flush(self) -> None:
        """Block until all that happened so far is safe.

        Raises:
            StoreError: it cannot be written.
        """
        done = threading.Event()
        with self._lock:
            if self._saved == self._recorded:
                return
            target = self._recorded
            self._ask_for(target, done.set)
        done.wait()
        if self._saved < target and self._failure is not None:
            raise self._failure

    def _ask_for(self, target: int, wake: Callable[[], None]) -> None:
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="ramify journal", daemon=True)
            self._writer.start()
        self._waiting.append((target, wake))
        self._wanted = True
        self._lock.notify()

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
                while not self._wanted:
                    if self._closed:
                        return
                    self._lock.wait()
                self._wanted = False
                entries, self._entries = self._entries, []
            failure = self._append(entries)
            with self._lock:
                self._failure = failure
                if failure is None:
                    self._saved += len(entries)
                else:
                    self._entries = entries + self._entries
                saved, waiting = self._saved, self._waiting
                self._waiting = []
                if failure is None:
                    self._waiting = [one for one in waiting if one[0] > saved]
                    self._wanted = bool(self._waiting)
                woken = [one for one in waiting if one not in self._waiting]
            for _, wake in woken:
                wake()

    def _append(self, entries: list[Entry]) -> StoreError | None:
        if isinstance(self._failure, FencedError):
            return self._failure
        try:
            if entries:
                self.store.append(entries)
        except StoreError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a store of somebody else's; the run has to know
            return StoreError(self.store.name, f"{type(error).__name__}: {error}")
        return None

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
                self._lock.notify()
            for _, wake in waiting:
                wake()
            if self._writer is not None:
                self._writer.join()


def _nobody() -> None:
    """Wake nobody."""
