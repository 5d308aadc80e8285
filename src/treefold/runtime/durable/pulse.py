"""Whether this process still counts as alive in a shared store.

A process that was stopped for longer than its lease (a suspended laptop, a frozen machine) may have
committed that a call begins, and continue there when another worker runs the call already. So a
call waits for the next heartbeat before it continues, if the last one is too old. The same goes for
a request that has taken slots and was not sent: others may have them.
"""

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Final

from treefold.core.moments import steady
from treefold.runtime.loops.loop_handle import threadsafe_resolver

_MARGIN: Final = 0.8  # of the lease


class Pulse:
    """When the last successful heartbeat was sent; usable in any thread.

    Args:
        lease: seconds after a heartbeat in which no other worker takes the trees over.

    Attributes:
        since: from when on this process has surely counted as alive without a break
            (``steady``).
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._sent = self.since = steady()  # when this process joined
        self._recovered = -math.inf
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_fresh(self) -> bool:
        """Whether no other worker can have taken over what this process owns."""
        return steady() - self._sent < _MARGIN * self._lease

    @property
    def is_steady(self) -> bool:
        """Whether other workers that look dead are so.

        After an outage all look dead until they have sent a heartbeat.
        """
        return steady() - self._recovered > self._lease

    def note_recovery(self) -> None:
        """Note that the store can be reached again."""
        self._recovered = steady()

    def confirm(self, sent: float) -> None:
        """Note that the heartbeat sent at this time (``steady``) has succeeded."""
        with self._lock:
            if not self.is_fresh:
                self.since = steady()
            self._sent = sent
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    async def wait(self) -> None:
        """Wait until this process is known to count as alive."""
        while not self.is_fresh:
            confirmed = asyncio.get_running_loop().create_future()
            with self._lock:
                self._waiting.append(threadsafe_resolver(confirmed))
            await confirmed
