"""The heartbeat of a worker, sent by a thread of its own: the event loop may be busy."""

import logging
import threading
from collections.abc import Callable

from treefold.core.cluster import Load, Orders
from treefold.core.errors import FencedError, StoreError
from treefold.core.moments import steady
from treefold.runtime.durable.shared_trees import SharedTrees

log = logging.getLogger(__name__)


class Heartbeat:
    """Sends heartbeats until it is closed.

    A store that cannot be reached ends nothing: no call has an effect before it is written, so
    everything waits. If the store answers again, either this worker still owns its trees, or it
    learns which of them others have adopted.

    Args:
        store: where the store is, for messages.
        source: its pulse is notified when the store can be reached again, and its clock is set by
            each answer.
        interval: seconds between two heartbeats.
        load: returns what the worker does just now.
        on_orders: is called in the thread with what the store answered, and when the heartbeat was
            sent (``steady``).
        on_dead: is called in the thread when this worker was forgotten.

    Attributes:
        is_failing: whether the store has not answered the last one.
    """

    def __init__(
        self,
        store: str,
        source: SharedTrees,
        interval: float,
        *,
        load: Callable[[], Load],
        on_orders: Callable[[Orders, float], None],
        on_dead: Callable[[FencedError], None],
    ) -> None:
        self._store = store
        self._interval = interval
        self._members = source.cluster.members
        self._pulse, self._clock = source.pulse, source.clock
        self._load = load
        self._on_orders = on_orders
        self._on_dead = on_dead
        self._closed = False
        self._wake = threading.Event()
        self.is_failing = False
        self._answered = steady()  # when the store last answered
        self._thread = threading.Thread(target=self._run, name="treefold heartbeat", daemon=True)
        self._thread.start()

    def seconds_since(self) -> float:
        """Return for how long the store has not answered."""
        return steady() - self._answered

    def _run(self) -> None:
        while True:
            self._wake.wait(self._interval)
            self._wake.clear()
            if self._closed:
                return
            sent = steady()
            try:
                orders = self._members.beat(self._load())
            except FencedError as error:
                self._on_dead(error)
                return
            except StoreError as error:
                if not self.is_failing:
                    log.warning("the heartbeat failed, and is repeated: %s", error)
                self.is_failing = True
            else:
                self._clock.set(orders.now, sent)
                if self.is_failing:
                    log.warning("%s can be reached again", self._store)
                    self._pulse.note_recovery()
                self.is_failing = False
                self._answered = steady()
                self._on_orders(orders, sent)

    def beat_now(self) -> None:
        """Send a heartbeat at once, because the load has changed much."""
        self._wake.set()

    def close(self) -> None:
        """Send no more heartbeats; this waits for one under way."""
        self._closed = True
        self._wake.set()
        self._thread.join()
