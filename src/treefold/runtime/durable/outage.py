"""A time in which the journal cannot be written: when to retry, and when to ask a person."""

import time
from typing import Final

from treefold.core.errors import FencedError, StoreError

_FIRST_DELAY: Final = 0.05  # seconds before the first retry; each further one waits twice as long
_LAST_DELAY: Final = 1.0


class Outage:
    """Begins with a failed write and ends with the first that succeeds.

    Args:
        failure: why the write failed.
        patience: for how many seconds calls wait for a retry before a person is asked.

    Attributes:
        since: when the first failed attempt ended.
        failure: of the last attempt.
        delay: seconds between the last attempt and the next.
        is_stuck: retries have failed for longer than *patience*, or cannot succeed.
    """

    def __init__(self, failure: StoreError, patience: float) -> None:
        self.since = time.monotonic()
        self.delay = _FIRST_DELAY
        self._patience = patience
        self._note(failure, self.since)

    def prolong(self, failure: StoreError) -> None:
        """Note that another attempt failed."""
        self.delay = min(2 * self.delay, _LAST_DELAY)
        self._note(failure, time.monotonic())

    def _note(self, failure: StoreError, now: float) -> None:
        self.failure = failure
        self._retry_at = now + self.delay
        self.is_stuck = self.is_final or now - self.since >= self._patience

    @property
    def is_final(self) -> bool:
        """Whether no retry can succeed, because another runtime has written to the store."""
        return isinstance(self.failure, FencedError)

    def seconds_left(self) -> float:
        """Return the time until the next retry is due."""
        return max(0.0, self._retry_at - time.monotonic())
