"""How a process takes part in a shared store, and how it does there."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from treefold.core.errors import InvalidValueError
from treefold.core.function import DEFAULT_QUEUE


@dataclass(slots=True, frozen=True, kw_only=True)
class WorkerSettings:
    """How this process takes part in a shared store: its name, its queues, its times in seconds.

    Attributes:
        name: for people; by default the host and the process id.
        queues: the queues that it serves.
        slots: how many trees run at once; those that only wait do not count.
        lease: after how long without a heartbeat others take its trees over.
        beat: between two heartbeats.
        sweep: between two sweeps for orphaned trees.
        poll: between two looks for messages and events, besides notifications.

    Example:
        >>> from treefold import WorkerSettings
        >>> WorkerSettings(queues=["nightly"], slots=4).lease
        12.0
    """

    name: str | None = None
    queues: Collection[str] = (DEFAULT_QUEUE,)
    slots: int = 50
    lease: float = 12.0
    beat: float = 3.0
    sweep: float = 1.0
    poll: float = 1.0

    @property
    def known_as(self) -> str:
        """What people call this process: its name, or the host and the process id."""
        return self.name or f"{os.uname().nodename}-{os.getpid()}"

    def __post_init__(self) -> None:
        if isinstance(self.queues, str) or not self.queues:
            raise InvalidValueError(f"queues must be a list of names, got {self.queues!r}")
        if self.slots < 1:
            raise InvalidValueError(f"slots must be at least 1, got {self.slots!r}")
        if not 0 < self.beat <= self.lease / 3:
            raise InvalidValueError(
                "beat must be at most a third of lease, so that a single heartbeat may be lost;"
                f" got beat={self.beat!r} and lease={self.lease!r}"
            )


class WorkerPhase(Enum):
    """Where a worker is in its life.

    Example:
        >>> from treefold import WorkerPhase
        >>> [phase.value for phase in WorkerPhase]
        ['starting', 'ready', 'draining', 'dead']
    """

    Starting = "starting"  # it takes no work yet
    Ready = "ready"
    Draining = "draining"  # it takes no more work, and gives up what it has
    Dead = "dead"  # it counted as dead, and others run its trees


@dataclass(slots=True, frozen=True, kw_only=True)
class WorkerStatus:
    """What a worker does just now, and whether the store answers it.

    Attributes:
        running: trees that it runs.
        waiting: trees that it has, and that only wait.
        slots: how many it may run at once; 0 if it takes no work.
        is_reachable: whether the store has answered the last heartbeat in time.
        beaten: seconds since the store last answered one.
        appends: how often entries of a tree were written.
        entries: how many entries that were.
        lost: how many trees another worker has adopted while this one ran them.

    Example:
        >>> from treefold import WorkerPhase, WorkerStatus
        >>> status = WorkerStatus(phase=WorkerPhase.Ready)  # as runtime.worker_status() returns it
        >>> status.is_reachable, status.running
        (True, 0)
    """

    phase: WorkerPhase
    running: int = 0
    waiting: int = 0
    slots: int = 0
    is_reachable: bool = True
    beaten: float = 0.0
    appends: int = 0
    entries: int = 0
    lost: int = 0
