"""The ``WorkEngine`` protocol: places work on the machines of a cluster.

An engine carries nothing but the ids of drives. What is owed is in the store, which fences as well,
so an engine may deliver late, twice or never: a sweep of the store submits orphaned drives again.
"""

from collections.abc import Awaitable, Callable, Collection
from enum import Enum
from typing import Protocol

from treefold.core.fact import Fact
from treefold.core.function import DEFAULT_QUEUE


class Ticket(Fact, frozen=True, kw_only=True):
    """Says that some worker should run a drive.

    Attributes:
        node: the topmost node of the drive.
        queue: only workers that serve this queue run it.
        priority: higher ones are run first.
        not_before: seconds since the epoch, in the time of the database; None for now.

    Example:
        >>> from treefold.stores import Ticket
        >>> Ticket(node=7, queue="gpu")
        Ticket(node=7, queue='gpu', priority=0, not_before=None)
    """

    node: int
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    not_before: float | None = None


class Taken(Enum):
    """What became of a drive that an engine delivered.

    Example:
        >>> from treefold.engines import Taken
        >>> async def take(node: int) -> Taken:
        ...     return Taken.Done if node == 7 else Taken.Later
    """

    Done = "done"  # it ended, parked, only waits, or runs elsewhere: forget the delivery
    Later = "later"  # this worker cannot run it: deliver it again, later


class Depth(Fact, frozen=True, kw_only=True):
    """How much work an engine has, about: the figures may be some seconds old.

    Attributes:
        queued: deliveries that wait for a worker, or for their time.
        running: deliveries that a worker has.

    Example:
        >>> from treefold.engines import Depth
        >>> Depth(queued=3)
        Depth(queued=3, running=0)
    """

    queued: int = 0
    running: int = 0


Take = Callable[[int], Awaitable[Taken]]  # runs the drive with this node


class Stop(Protocol):
    """An event that is set once, such as ``asyncio.Event``.

    Example:
        >>> import asyncio
        >>> from treefold.engines import Stop
        >>> stop: Stop = asyncio.Event()
    """

    def is_set(self) -> bool: ...

    async def wait(self) -> object: ...


class WorkEngine(Protocol):
    """Delivers drives to workers, at least once, as far as it can.

    All methods are called on one event loop. ``treefold.testing.EngineSuite`` tests whether a class
    implements this contract.

    Example:
        >>> from treefold.engines import InProcess, WorkEngine
        >>> engine: WorkEngine = InProcess()
    """

    async def open(self, journal: str = "") -> None:
        """Connect, and create what the engine needs; called before anything else.

        *journal* is the id of the store. Several journals may use one engine: each has queues and
        nodes of its own.

        Raises:
            EngineError: the engine cannot be used; the message says what to do.
        """
        ...

    async def submit(self, ticket: Ticket) -> None:
        """Ask for a drive to be run.

        If the drive is queued already, it is delivered once, at the earlier of the two times; but
        if it waits because of ``Taken.Later``, it continues to wait. If the drive is running, it is
        delivered again.

        Raises:
            EngineError: the engine cannot be reached just now.
        """
        ...

    async def withdraw(self, node: int) -> None:
        """Remove a drive from the queue, if it is there; a hint.

        Raises:
            EngineError: as ``submit``.
        """
        ...

    async def work(self, take: Take, *, queues: Collection[str], slots: int, stop: Stop) -> None:
        """Deliver drives to *take*, at most *slots* at once, until *stop* is set.

        Then nothing more is delivered, and this returns when all calls of *take* have returned. If
        this is cancelled, they are cancelled, and what they had is delivered again. A call that
        raises is logged, and counts as ``Taken.Later``. While the engine cannot be reached, this
        keeps trying.
        """
        ...

    async def depth(self, queues: Collection[str]) -> Depth:
        """Return how much work there is in these queues.

        Raises:
            EngineError: as ``submit``.
        """
        ...

    async def close(self) -> None:
        """Disconnect; closing twice is fine."""
        ...
