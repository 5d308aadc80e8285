"""Look now and then whether a journal has grown, for as long as somebody waits for that.

A thread of its own asks the store for one number; it ends soon after nobody waits any more.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from treefold.core.errors import ClosedError, TreefoldError
from treefold.core.store import Store

_LOOKS_EVERY: Final = 0.05  # seconds
_IDLE_LOOKS: Final = 40  # for how many nobody has to wait until the thread ends


class Poll:
    """Wakes those who wait for news of one journal, from any thread, until it is closed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # for all below
        self._waiting: list[Callable[[], None]] = []
        self._last = 0  # the place of the newest entry, at the last look
        self._told = 0  # the place after what was told by then
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Have *wake* called once, when there is something new or an end of it."""
        with self._lock:
            self.check_open()
            if self._thread is None:
                self._last = self._store.last()
                thread = threading.Thread(target=self._look, name="treefold poll", daemon=True)
                thread.start()  # or there is none, and the next who waits starts it
                self._thread = thread
            self._waiting.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Take back what ``on_next_event`` was given."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(wake)

    def refuse_blocking(self, what: str) -> None:
        """Allow it everywhere: what is waited for happens elsewhere."""

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Block this thread until *event* is set; False if it took too long."""
        return event.wait(None if timeout is None else max(0.0, timeout))

    def check_open(self) -> None:
        """Raise ClosedError if it was closed."""
        if self._closed.is_set():
            raise ClosedError(f"nobody looks at {self._store.name} here any more; attach again")

    def close(self) -> None:
        """Wake everybody, and look no more."""
        with self._lock:
            self._closed.set()
            thread = self._thread
        if thread is not None:
            thread.join()
        self._wake()

    def _look(self) -> None:
        idle = 0
        while idle < _IDLE_LOOKS and not self._closed.wait(_LOOKS_EVERY):
            idle = 0 if self._waiting else idle + 1
            if not idle and self._has_changed():
                self._wake()
        with self._lock:  # whoever came meanwhile has not been told that it ends
            self._thread = None
            waiting = bool(self._waiting)
        if waiting:
            self._wake()

    def _has_changed(self) -> bool:
        try:
            last, (told, _) = self._store.last(), self._store.read_broadcasts(self._told)
        except TreefoldError:  # whoever waits looks himself, and is told
            return True
        changed = (last, told) != (self._last, self._told)
        self._last, self._told = last, told
        return changed

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()
