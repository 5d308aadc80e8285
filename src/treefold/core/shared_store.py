"""The ``SharedStore`` protocol: a journal that the processes of several machines write at once.

Each process is a *worker*. A worker owns trees, one by one, and calls that run elsewhere than their
caller: whatever is owned on its own is a *drive*, named by its topmost node. The store fences: the
entries of a drive are refused if another worker has adopted it. It also knows which drives are
*owed*, that is wanted and owned by no living worker; a work engine only places them
(``core/work_engine.py``).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import Protocol, TypeGuard
from uuid import UUID

from msgspec import field

from treefold.core.errors import FencedError
from treefold.core.fact import Fact
from treefold.core.question import Question
from treefold.core.rate import Rate
from treefold.core.store import Entry, Message, Store
from treefold.core.work_engine import Ticket


class Ownership(Fact, frozen=True):
    """The right to write one drive, until another worker adopts it.

    Attributes:
        node: the topmost node of the drive.
        tree: the id of the tree it belongs to, the same as *node* for a whole tree.
        epoch: how often the drive was adopted; an older epoch is refused.
        written: how many entries the drive had when it was adopted.

    Example:
        >>> from treefold.stores import Ownership
        >>> Ownership(7, tree=7, epoch=2, written=40)
        Ownership(node=7, tree=7, epoch=2, written=40)
    """

    node: int
    tree: int
    epoch: int
    written: int = 0


class Batch(Fact, frozen=True, kw_only=True):
    """Entries of one drive, in order, which are written together or refused together.

    Attributes:
        ownership: of the drive. An epoch of 1 and nothing written creates the drive, owned by this
            worker. None creates a drive without an owner: then the entries are those of a new tree,
            and *tickets* has its ticket; without one it is not owed. No worker is needed for that.
        written: how many entries of the drive were written before these. Entries that the store has
            already are skipped, so that a batch can be sent again after a lost connection.
        tickets: the calls among these entries that become drives of their own, owed from now on.
        drives: the calls among these entries that belong to another drive, and to which: calls
            below a remote call that its worker runs as part of the tree. A worker that
            adopts that drive later runs them, and gets the messages for them.

    Example:
        >>> from treefold.stores import Batch, Call, Entry, Ownership
        >>> call = Call(parent=0, key="nightly", index=1, function="report")
        >>> entry = Entry(tree=7, node=7, number=1, kind="Asked", body="{}", call=call)
        >>> batch = Batch(ownership=Ownership(7, tree=7, epoch=1), entries=[entry])
        >>> batch.written
        0
    """

    entries: Sequence[Entry]
    ownership: Ownership | None
    written: int = 0
    tickets: Sequence[Ticket] = ()
    drives: Mapping[int, int] = field(default_factory=dict[int, int])


class WorkerInfo(Fact, frozen=True, kw_only=True):
    """What a worker tells about itself when it joins.

    Attributes:
        functions: the names of the functions that it can run.
        queues: the queues that it serves; empty for a program that runs its own trees only.

    Example:
        >>> from treefold.stores import WorkerInfo
        >>> WorkerInfo(name="worker 1", host="here", process=4711).queues
        ()
    """

    name: str
    host: str
    process: int
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

    Example:
        >>> from treefold.stores import Orders
        >>> Orders(messages=frozenset({7})).lost
        frozenset()
    """

    lost: frozenset[int] = frozenset()
    messages: frozenset[int] = frozenset()
    drain: bool = False


class WorkerRow(Fact, frozen=True, kw_only=True):
    """One worker that has joined, as others see it.

    Attributes:
        seen: seconds since its last heartbeat.
        alive: whether that is less than its lease.
        drives: how many drives it owns.

    Example:
        >>> from treefold.stores import WorkerInfo, WorkerRow
        >>> WorkerRow(id=1, info=WorkerInfo(name="worker 1", host="here", process=4711)).alive
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


class TakenSlots(Protocol):
    """What ``take_slots`` returns.

    Example:
        >>> from treefold.stores import TakenSlots
        >>> callable(TakenSlots.give_back)
        True
    """

    def give_back(self) -> None:
        """Let others have the slots; they are given back as well if the connection is lost."""
        ...


class Subscription(Protocol):
    """What ``listen`` returns; closing it ends the calls."""

    def close(self) -> None: ...


class SharedStore(Store, Protocol):  # noqa: PLR0904 - and all that its workers need
    """A journal with several owners at once, each of some drives.

    ``acquire`` and ``append`` of ``Store`` are for one owner of everything, and raise UsageError
    here: a process joins as a worker instead, and writes batches. So does ``post`` without a
    question, because a message is for the owner of a drive. Only a worker may call ``done``, and
    the message stays if another worker has adopted its drive. All times are those of the database.
    Every method may block for a round trip, so none is called on an event loop; except
    ``broadcast``, which only queues.

    The position of an entry (``Entry.seq``, *after* of ``entries``) is its place within its tree.
    ``treefold.testing.SharedStoreSuite`` tests whether a class implements this contract.

    Example:
        >>> from treefold.stores import SharedStore, WorkerInfo
        >>> def run_one(store: SharedStore) -> None:
        ...     store.join(WorkerInfo(name="worker 1", host="here", process=4711), lease=12.0)
        ...     for ticket in store.owed(limit=1):
        ...         ownership = store.adopt(ticket.node)
    """

    def last(self) -> int:
        """Return a number that grows when something was written or posted.

        It may grow for other reasons as well, and is no position of an entry.
        """
        ...

    def entries_around(self, call: int, *, leaving_out: Collection[str] = ()) -> list[Entry]:
        """Return the entries of a call, of all calls below it, and of those above it.

        Entries of the calls above, if they are of the kinds *leaving_out*, are not returned. All
        are in the order of their positions.
        """
        ...

    def places(self, trees: Collection[int]) -> dict[int, int]:
        """Return the position of the last entry of each of these trees, by tree."""
        ...

    def texts(self, tree: int, *, hashes: Collection[str] | None = None) -> dict[str, str]:
        """Return the long texts of a tree by hash: all, or those with *hashes* that it has."""
        ...

    def text(self, hash: str, *, tree: int | None = None) -> str:
        """Return the long text with this hash; it is found sooner in a given *tree*.

        Raises:
            StoreDamagedError: there is none; the journal is damaged.
        """
        ...

    def find_all(self, nodes: Collection[int]) -> dict[int, int]:
        """Return what ``find`` finds for several nodes, by node, without those it does not find."""
        ...

    def join(self, worker: WorkerInfo, *, lease: float) -> int:
        """Become a worker, which counts as dead *lease* seconds after its last heartbeat.

        Returns:
            Its id. A store object is one worker at most; ``close`` leaves.
        """
        ...

    def beat(self, load: Load) -> Orders:
        """Send a heartbeat.

        A worker that counted as dead lives again, but for the drives that others have adopted.

        Raises:
            FencedError: this worker was forgotten, and owns nothing any more: it must join again.
        """
        ...

    def leave(self) -> None:
        """Stop being a worker, and release all drives that are still owned; they are owed then."""
        ...

    def adopt(self, node: int) -> Ownership | None:
        """Become the owner of a drive, if it has no living owner.

        A worker that owns it already gets a new epoch, and its former ownership is refused from
        then on: it may not have heard that it has it.

        Returns:
            None if another worker has it, or nothing is left to do: it has ended and its inbox is
            empty.

        Raises:
            FencedError: this worker counts as dead.
        """
        ...

    def ticket(self, node: int) -> Ticket | None:
        """Return the queue and the priority of a drive; None if there is no such drive."""
        ...

    def attempts(self, node: int) -> int:
        """Return how many owners of a drive have died since it last made progress.

        Progress is a call that ended, or a release.
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

    def append_batches(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        """Write *batches*, each all or none, in one transaction unless one is refused.

        Returns:
            For each batch the position of its last entry within its tree, or why it was refused.

        Raises:
            UsageError: the first entry of a node has no call, or entries of a batch belong to
                different trees; then nothing is written.
        """
        ...

    def owed(
        self,
        limit: int,
        *,
        older_than: float = 0.0,
        queues: Collection[str] = (),
        after: int | None = None,
    ) -> list[Ticket]:
        """Return drives that were wanted for so many seconds, and have no living owner.

        They are those of these *queues*, or of all, by priority and age. With *after*, they are
        those with a higher id than that, by rising ids.
        """
        ...

    def depth(self, queues: Collection[str] = ()) -> Owed:
        """Return how much is owed, in these queues or in all."""
        ...

    def workers(self) -> list[WorkerRow]:
        """Return the workers that have joined and not left, dead ones included."""
        ...

    def drain(self, worker: int) -> None:
        """Ask a worker to stop."""
        ...

    def post_to(self, node: int, body: str, *, question: str | None = None) -> bool:
        """Post a message for the owner of the drive that *node* belongs to, and want the drive.

        Returns:
            As ``post``.

        Raises:
            UnknownNodeError: there is no such node.
        """
        ...

    def inbox_of(self, nodes: Collection[int]) -> dict[int, list[Message]]:
        """Return the messages for these drives that are not done, oldest first, by drive."""
        ...

    def pending(self, tree: int) -> list[Question]:
        """Return the pending questions of a tree, with those to which an answer was posted."""
        ...

    def listen(
        self, wake: Callable[[Collection[int]], None], *, broadcasts: bool = False
    ) -> Subscription:
        """Call *wake*, in a thread of the store, when something was written or posted.

        It gets the ids of the trees, none if they are unknown. With *broadcasts* it is also called
        when there is a new broadcast. A call may be lost: poll as well.
        """
        ...

    # Limits of all workers together

    def take_slots(self, limits: Mapping[str, int]) -> TakenSlots | None:
        """Take one slot of each limit, of which there are so many; None if one has none left.

        The slots of a process that ends are free again at once, and those of a process that cannot
        be reached any more after about half a minute.
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


def is_shared(store: Store) -> TypeGuard[SharedStore]:
    """Whether several processes may write *store* at once."""
    return hasattr(store, "append_batches")
