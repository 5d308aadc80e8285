"""Short times, so that the tests need not wait; each heartbeat may be late by a second."""

from typing import Final

from treefold import WorkerSettings

QUICK: Final = WorkerSettings(lease=3.0, beat=0.3, sweep=0.1, poll=0.1)
