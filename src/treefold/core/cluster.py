"""What only a store that several processes write can do: the ``Cluster`` that it has.

Each process is a *worker*. A worker owns trees, one by one, and calls that run elsewhere than their
caller: whatever is owned on its own is a *drive*, named by its topmost node. The store fences: the
entries of a drive are refused if another worker has adopted it. It also knows which drives are
*owed*, that is wanted and owned by no living worker; a work engine only places them
(``core/work_engine.py``).
"""

import os
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Protocol
from uuid import UUID

from msgspec import field

from treefold.core.fact import UNCOMPARED, Fact
from treefold.core.rate import Rate
from treefold.core.work_engine import Ticket


class Ownership(Fact, frozen=True):
    """The right to write one drive, until another worker adopts it.

    Attributes:
        node: the topmost node of the drive.
        tree: the id of the tree it belongs to, the same as *node* for a whole tree.
        epoch: how often the drive was adopted; an older epoch is refused.
        written: how many entries the drive had when it was adopted.
        attempts: how many owners have died since it last made progress. Progress is a call that
            ended, or a release.
        has_messages: whether its inbox had messages.
        first_id: the first of the node ids that were reserved for it.

    Example:
        >>> from treefold.stores import Ownership
        >>> Ownership(7, tree=7, epoch=2, written=40) == Ownership(7, 7, 2, 40, attempts=1)
        True
    """

    node: int
    tree: int
    epoch: int
    written: int = 0
    attempts: Annotated[int, UNCOMPARED] = 0
    has_messages: Annotated[bool, UNCOMPARED] = False
    first_id: Annotated[int, UNCOMPARED] = 0


class WorkerInfo(Fact, frozen=True, kw_only=True):
    """What a worker tells about itself when it joins.

    Attributes:
        name: for people.
        functions: the names of the functions that it can run.
        queues: the queues that it serves; empty for a program that runs its own trees only.

    Example:
        >>> from treefold.stores import WorkerInfo
        >>> WorkerInfo(name="worker 1").queues
        ()
    """

    name: str = ""
    host: str = field(default_factory=platform.node)
    process: int = field(default_factory=os.getpid)
    functions: Collection[str] = ()
    queues: Collection[str] = ()


class Load(Fact, frozen=True, kw_only=True):
    """What a worker does just now, for people and autoscalers.

    Example:
        >>> from treefold.stores import Load
        >>> Load(running=3, slots=50).waiting
        0
    """

    running: int = 0
    waiting: int = 0
    slots: int = 0
    draining: bool = False


class Orders(Fact, frozen=True, kw_only=True):
    """What a worker learns from a heartbeat.

    Attributes:
        lost: drives that it owned and that another worker has adopted, or that were deleted.
        messages: drives that it owns and that have messages in their inbox.
        drain: whether it was asked to stop.
        now: the time by the clock of the database, in seconds since the epoch.

    Example:
        >>> from treefold.stores import Orders
        >>> Orders(messages=frozenset({7})).lost
        frozenset()
    """

    lost: frozenset[int] = frozenset()
    messages: frozenset[int] = frozenset()
    drain: bool = False
    now: Annotated[float, UNCOMPARED] = 0.0


class WorkerRow(Fact, frozen=True, kw_only=True):
    """One worker that has joined, as others see it.

    Attributes:
        seen: seconds since its last heartbeat.
        alive: whether that is less than its lease.
        drives: how many drives it owns.

    Example:
        >>> from treefold.stores import WorkerInfo, WorkerRow
        >>> WorkerRow(id=1, info=WorkerInfo(name="worker 1")).alive
        True
    """

    id: int
    info: WorkerInfo
    load: Load = Load()
    seen: float = 0.0
    alive: bool = True
    drives: int = 0


class Owed(Fact, frozen=True, kw_only=True):
    """How much work waits for a worker.

    Attributes:
        count: the drives that are wanted and have no living owner.
        oldest: seconds since the first of them was wanted; 0 if there is none.

    Example:
        >>> from treefold.stores import Owed
        >>> Owed()
        Owed(count=0, oldest=0.0)
    """

    count: int = 0
    oldest: float = 0.0


class StoredAccount(Fact, frozen=True, kw_only=True):
    """A budget of which several workers spend, for one request.

    Attributes:
        name: identifies it among all accounts of the store.
        tree: the tree that it ends with; 0 if it outlives all trees.
        most_calls: how many requests it allows; None for any number, as for the next two.
        history: a tree of which a part was paid from this budget before it was kept here; 0 if
            there is none.
        calls: how many requests were made in that part, as for the next two. They count once.

    Example:
        >>> from treefold.stores import StoredAccount
        >>> StoredAccount(name="7:0", tree=7, most_calls=20).most_usd is None
        True
    """

    name: str
    tree: int = 0
    most_calls: int | None = None
    most_tokens: int | None = None
    most_usd: Decimal | None = None
    history: int = 0
    calls: int = 0
    tokens: int = 0
    usd: Decimal = Decimal(0)


class Estimate(Fact, frozen=True, kw_only=True):
    """The most that a request takes, its answer included, and what it takes without an answer.

    Attributes:
        tokens: the most that it takes.
        usd: the same in US dollars, 0 if no budget is in dollars.
        least_tokens: what it takes at least; it is sent only if that fits.
        least_usd: the same in US dollars.

    Example:
        >>> from treefold.stores import Estimate
        >>> Estimate(tokens=9_000, least_tokens=800).usd
        Decimal('0')
    """

    tokens: int
    usd: Decimal = Decimal(0)
    least_tokens: int = 0
    least_usd: Decimal = Decimal(0)


class Overdrawn(Fact, frozen=True, kw_only=True):
    """The account that a request does not fit into, and what is spent and reserved there.

    Attributes:
        must_wait: it may fit when requests that are under way have ended.

    Example:
        >>> from decimal import Decimal
        >>> from treefold.stores import Overdrawn
        >>> Overdrawn(name="7:0", calls=20, tokens=90_000, usd=Decimal(0)).calls
        20
    """

    name: str
    calls: int
    tokens: int
    usd: Decimal
    must_wait: bool = False


class Subscription(Protocol):
    """What ``listen`` returns; closing it ends the calls."""

    def close(self) -> None: ...


class Members(Protocol):
    """The workers of a store, this one among them.

    ``Store.join`` makes one of a store object, and ``Store.leave`` ends that.

    Example:
        >>> from treefold.stores import Members
        >>> def alive(members: Members) -> list[str]:
        ...     return [row.info.name for row in members.workers() if row.alive]
    """

    @property
    def worker(self) -> int:
        """The id of this worker.

        Raises:
            UsageError: ``join`` was not called.
        """
        ...

    def beat(self, load: Load) -> Orders:
        """Send a heartbeat.

        A worker that counted as dead lives again, but for the drives that others have adopted.

        Raises:
            FencedError: this worker was forgotten, and owns nothing any more: it must join again.
        """
        ...

    def workers(self) -> list[WorkerRow]:
        """Return the workers that have joined and not left, dead ones included."""
        ...

    def drain(self, worker: int) -> None:
        """Ask a worker to stop."""
        ...


class Drives(Protocol):
    """What is owned on its own: by whom, and which of it waits for a worker.

    Example:
        >>> from treefold.stores import Drives
        >>> def is_behind(drives: Drives, queue: str) -> bool:
        ...     return drives.depth([queue]).oldest > 60.0
    """

    def adopt(self, node: int, *, ids: int = 0) -> Ownership | None:
        """Become the owner of a drive, if it has no living owner, and reserve so many node ids.

        A worker that owns it already gets a new epoch, and its former ownership is refused from
        then on: it may not have heard that it has it.

        Returns:
            None if another worker has it, or nothing is left to do: it has ended and its inbox is
            empty.

        Raises:
            FencedError: this worker counts as dead.
        """
        ...

    def release(
        self,
        ownership: Ownership,
        *,
        parked: bool,
        awaited: Collection[int] = (),
        wake_in: float | None = None,
    ) -> bool:
        """Give up a drive that was written to the end.

        If *parked*, it is not wanted until a message is posted for it, or a call in it that is a
        drive of its own is over and released, or *wake_in* seconds have passed. Otherwise it is
        owed at once, unless it has ended.

        Returns:
            False if *parked*, and there are messages, or one of the *awaited* calls has ended: then
            it is still owned. Otherwise it is not owned any more, also if another worker has
            adopted it before.
        """
        ...

    def reserve(self, nodes: int, trees: int = 0) -> tuple[int, int]:
        """Reserve consecutive node ids and tree numbers; return the first of each.

        They are higher than all reserved before.
        """
        ...

    def ticket(self, node: int) -> Ticket | None:
        """Return the queue and the priority of a drive; None if there is no such drive."""
        ...

    def owed(
        self,
        limit: int,
        *,
        older_than: float = 0.0,
        queues: Collection[str] = (),
        after: int = 0,
    ) -> list[Ticket]:
        """Return drives that were wanted for so many seconds, and have no living owner.

        They are the oldest of these *queues*, or of all, the oldest first. With *after*, they are
        those that follow this drive; none, if it is not owed any more.
        """
        ...

    def depth(self, queues: Collection[str] = ()) -> Owed:
        """Return how much is owed, in these queues or in all."""
        ...

    def doubts(self) -> int:
        """Return how many calls are in doubt, and wait for a person."""
        ...


class SharedLimits(Protocol):
    """Limits, rates and budgets of all workers together.

    Example:
        >>> from treefold.core.rate import Rate
        >>> from treefold.stores import SharedLimits
        >>> def seconds_until_free(limits: SharedLimits, rate: Rate) -> float:
        ...     return limits.take_rates({"a model": rate}, tokens=2_000)
    """

    def set_slots(
        self, slots: Mapping[str, int], *, limits: Mapping[str, int] | None = None
    ) -> bool:
        """Set how many slots of each limit this worker has: so many of its requests are under way.

        Those of all workers count that are alive by their leases, whatever happens to their
        connections; those of a worker that counted as dead and lives again count again. With
        *limits*, nothing is set if this worker is not alive, or if all would have more slots of one
        of these limits than it allows. If this raises a StoreError, the slots may be set or not;
        the next call decides, also if this one arrives only after it.

        Returns:
            Whether they were set.
        """
        ...

    def take_rates(self, rates: Mapping[str, Rate], tokens: int) -> float:
        """Take a request with so many tokens out of each rate, or out of none.

        Returns:
            0 if it was taken, otherwise after how many seconds to try again.
        """
        ...

    def charge_rates(self, names: Collection[str], more: int) -> None:
        """Take more tokens out of these rates, or put some back if *more* is negative."""
        ...

    def set_aside(
        self,
        accounts: Sequence[StoredAccount],
        *,
        id: UUID,
        estimate: Estimate,
        ownership: Ownership,
    ) -> Overdrawn | None:
        """Reserve a request in each account, or in none.

        It fits if the whole *estimate* is left beside what is reserved. One request at a time in
        each account is excused: it fits if the least of it is left, and only that is reserved. What
        the owner of a drive has reserved when it dies counts as spent. Reserving the same *id*
        twice does no harm.

        Returns:
            None, or the first account that it does not fit into.
        """
        ...

    def charge(self, id: UUID, *, calls: int, tokens: int, usd: Decimal) -> None:
        """Replace the reservation *id* by what was spent; it is charged once."""
        ...


class Cluster(Protocol):
    """The part of a store that only a store of several processes has.

    All times are those of the database. Every method may block for a round trip, so none is called
    on an event loop. ``treefold.testing.ClusterSuite`` tests whether a class implements this.

    Attributes:
        members: the workers; this process sends heartbeats there.
        drives: what each of them owns, and what is owed.
        limits: what all of them together may use.

    Example:
        >>> from treefold.stores import Store
        >>> def run_one(store: Store) -> None:
        ...     store.join()
        ...     if (cluster := store.cluster) is not None:
        ...         for ticket in cluster.drives.owed(limit=1):
        ...             ownership = cluster.drives.adopt(ticket.node)
    """

    @property
    def members(self) -> Members: ...
    @property
    def drives(self) -> Drives: ...
    @property
    def limits(self) -> SharedLimits: ...

    def listen(
        self,
        wake: Callable[[Collection[int]], None],
        *,
        posted: Callable[[Collection[int]], None] | None = None,
        broadcasts: bool = False,
    ) -> Subscription:
        """Call *wake*, in a thread of the store, when something was written or posted.

        It gets the ids of the trees, none if they are unknown. *posted* is called as well when a
        message may have been posted. With *broadcasts* *wake* is also called when there is a new
        broadcast. A call may be lost: poll as well.
        """
        ...
