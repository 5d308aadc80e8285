"""Polls a journal for new entries while there are waiters.

A thread of its own asks the store for one number; it ends soon after the last waiter has gone. A
store that several processes write tells when something was written, so it is seldom asked.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from treefold.core.cluster import Subscription
from treefold.core.errors import ClosedError, TreefoldError
from treefold.core.store import Store

_INTERVAL: Final = 0.05  # seconds
_NOTIFIED_INTERVAL: Final = 1.0  # seconds; a notification may be lost
_IDLE: Final = 2.0  # seconds without a waiter after which the thread ends
_NOTIFIED_IDLE: Final = 30.0  # seconds; a new thread would need a new connection


class Poll:
    """Wakes callbacks when one journal has changed, until it is closed; usable in any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # guards everything below
        self._waiting: list[Callable[[], None]] = []
        self._last = 0  # the number that the store gave at the last poll
        self._position = 0  # in the broadcasts, at the last poll
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._due = threading.Event()  # the next poll need not wait

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Call *wake* once, when there is something new or this is closed."""
        with self._lock:
            self.check_open()
            if self._thread is None:
                self._last = self._store.last()
                thread = threading.Thread(target=self._run, name="treefold poll", daemon=True)
                thread.start()
                # Only now: if it could not be started, the next waiter tries again.
                self._thread = thread
            self._waiting.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Remove a callback added with ``on_next_event``."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(wake)

    def refuse_blocking(self, what: str, instead: str) -> None:
        """Allow blocking in every thread: the events come from another process."""

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Block this thread until *event* is set; return False after *timeout*."""
        return event.wait(None if timeout is None else max(0.0, timeout))

    def check_open(self) -> None:
        """Raise ClosedError if it was closed."""
        if self._closed.is_set():
            raise ClosedError(f"nobody looks at {self._store.name} here any more; attach again")

    def close(self) -> None:
        """Stop polling, and wake all waiters."""
        with self._lock:
            self._closed.set()
            self._due.set()
            thread = self._thread
        if thread is not None:
            thread.join()
        self._wake()

    def _run(self) -> None:
        subscription = self._listen()
        interval = _INTERVAL if subscription is None else _NOTIFIED_INTERVAL
        longest = _IDLE if subscription is None else _NOTIFIED_IDLE
        try:
            self._poll(interval, longest)
        finally:
            if subscription is not None:
                subscription.close()
        with self._lock:
            self._thread = None
            # Waiters that came after the last poll would not be woken by this thread any more.
            waiting = bool(self._waiting)
        if waiting:
            self._wake()

    def _listen(self) -> Subscription | None:
        """Have a store that can do so say when there is something new."""
        if (cluster := self._store.cluster) is None:
            return None
        try:
            return cluster.listen(lambda _trees: self._due.set(), broadcasts=True)
        except TreefoldError:
            return None

    def _poll(self, interval: float, longest: float) -> None:
        used = time.monotonic()
        while time.monotonic() - used < longest:
            self._due.wait(interval)
            self._due.clear()
            if self._closed.is_set():
                return
            if self._waiting:
                used = time.monotonic()
                if self._has_changed():
                    self._wake()

    def _has_changed(self) -> bool:
        try:
            last = self._store.last()
            position, _ = self._store.read_broadcasts(self._position)
        except TreefoldError:
            # The waiters read the store themselves, and get the error there.
            return True
        changed = (last, position) != (self._last, self._position)
        self._last, self._position = last, position
        return changed

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()
