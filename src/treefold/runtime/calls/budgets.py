"""Accounts: what has been spent of each budget, and whether another request fits."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final, NamedTuple, Protocol

from treefold.core.address import address
from treefold.core.agent_errors import BudgetExceeded
from treefold.core.agent_events import RequestFailed, ResponseCompleted
from treefold.core.budget import Budget
from treefold.core.cluster import Estimate
from treefold.core.events import BudgetAbove, Event
from treefold.core.function import Node
from treefold.core.record import Spending
from treefold.core.usage import TokenUsage
from treefold.runtime.calls.ways_out import Root, way_out
from treefold.runtime.loops.loop_handle import threadsafe_resolver
from treefold.runtime.trees.tree import Tree

# Guards what is spent and reserved: the trees of a runtime may be on several loops, and a request
# is reserved in all of its accounts or in none.
_LOCK: Final = threading.Lock()


class Hold:
    """What is reserved for one request while it is under way on the running loop."""

    __slots__ = ("_loop", "estimate")

    def __init__(self, estimate: Estimate) -> None:
        self.estimate = estimate
        self._loop = asyncio.get_running_loop()

    @property
    def is_lost(self) -> bool:
        """Whether its loop was closed under way, so that it will never be charged."""
        return self._loop.is_closed()


class Account:
    """A budget, what has been spent of it, and what is reserved for requests under way.

    All that a request may take is reserved for it; but one request at a time, the *excused* one,
    may go with room for the least that it takes. So what is spent, and all that may be taken by
    what is under way, fits into the budget, but for the answer of one request: however long the
    answers are, they exceed the budget by one answer at most, and a budget that is smaller than
    the longest answer can be used up.

    Args:
        owner: the call that it belongs to; None: the runtime.
        is_given: whether it was given to that call, and not to its function.
        stored_as: the name of the account in a shared store, if several workers spend of it; then
            what has been spent is known there only.
    """

    def __init__(
        self,
        budget: Budget,
        owner: Node | None,
        *,
        is_given: bool = True,
        stored_as: str | None = None,
    ) -> None:
        self.budget = budget
        self.owner = owner
        self.is_given = is_given
        self.stored_as = stored_as
        self._spent = Spent()
        self._held = Spent()  # the sum of what is reserved
        self._holds: dict[Hold, Spent] = {}  # what is reserved for each
        self._excused: Hold | None = None
        # What reads what earlier processes have spent of it in a tree, by tree; none if that is
        # counted. Trees that were forked from one another are counted together, and once.
        self.unread: dict[int, HistoryOf] = {}
        self._reading = threading.Lock()  # a family is read once, also for several requests at once
        self._counted: set[int] = set()
        self.history = 0  # the tree whose history is that of an account that is stored
        self._waiting: dict[Callable[[], None], None] = {}  # in order
        self._since: float | None = None
        # The requests that wait for a person to raise the budget; None if no question is open.
        self.waiting_for_more: list[Callable[[], None]] | None = None

    @property
    def place(self) -> str:
        """Which budget of its owner it is, for the journal."""
        if self.owner is None:
            return "runtime"
        return "call" if self.is_given else "function"

    @property
    def name(self) -> str:
        """The owner of the budget, for messages."""
        owner = self.owner
        return "the runtime" if owner is None else f"{owner.function.name} ({address(owner.path)})"

    @property
    def taken_over(self) -> "Spent":
        """What earlier processes have spent, in an account that is stored."""
        return self._spent

    def seconds_left(self) -> float | None:
        """Return the seconds left, counted from the first call of this; None if unlimited."""
        if self.budget.seconds is None:
            return None
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return max(0.0, self._since + self.budget.seconds - now)

    def refusal(self, estimate: Estimate) -> "Refused | None":
        """Return why a request does not fit, or None if it does; called with the lock."""
        if self.seconds_left() == 0:
            return Refused(self, f"{self.budget.seconds:g} s are over")
        if self.stored_as is not None:
            return None
        found = self._refusal(estimate)
        # Requests that nobody will ever charge are looked for only when they are in the way.
        if found is not None and (lost := [one for one in self._holds if one.is_lost]):
            for hold in lost:
                self._spent = self._spent.plus(*self._let_go(hold))
            found = self._refusal(estimate)
        return found

    def _refusal(self, estimate: Estimate) -> "Refused | None":
        spent, held = self._spent, self._held
        found = refusal(self, spent.plus(held.calls, 0, Decimal(0)), estimate)
        if found is not None or self._fits(estimate.tokens, estimate.usd):
            return found
        # With nothing under way it is always so: one request at a time is made if its least fits.
        if self._excused is None and self._fits(estimate.least_tokens, estimate.least_usd):
            return None
        return Refused(self, "what is left is reserved for requests under way", must_wait=True)

    def _fits(self, tokens: int, usd: Decimal) -> bool:
        """Whether so much is left beside what is reserved."""
        budget, spent, held = self.budget, self._spent, self._held
        return (budget.tokens is None or spent.tokens + held.tokens + tokens <= budget.tokens) and (
            budget.usd is None or spent.usd + held.usd + usd <= Decimal(budget.usd)
        )

    def take_over(self, spending: Spending) -> None:
        """Add what an earlier process has spent of this budget."""
        cost = spending.cost or Decimal(0)
        with _LOCK:
            self._spent = self._spent.plus(spending.responses, spending.usage.total, cost)

    def take_over_from(self, above: BudgetAbove) -> None:
        """Add what earlier processes have spent of this budget, as its owner's process knows it."""
        with _LOCK:
            self._spent = self._spent.plus(above.calls, above.tokens, above.usd)
            self.history = above.history

    async def catch_up(self, read: "Read") -> None:
        """Count what earlier processes have spent, which *read* is to read off the loop."""
        for tree in tuple(self.unread):
            await read(partial(self._count, tree))

    def _count(self, tree: int) -> None:
        """Count what was spent in the family of *tree*, unless it is counted; in a thread."""
        with self._reading:
            if (history_of := self.unread.get(tree)) is None:
                return
            history = history_of(self._counted)
            with _LOCK:
                if history is not None:
                    self.history, spent = history
                    self._counted.add(self.history)
                    self._spent = self._spent.plus(*spent)
                self.unread.pop(tree, None)

    def count(self, seconds: float) -> None:
        """Count the *seconds* that have passed since the start of its owner."""
        self._since = time.monotonic() - max(0.0, seconds)

    def hold(self, hold: Hold) -> None:
        """Reserve *hold*, which was not refused, or is not checked; called with the lock."""
        estimate = hold.estimate
        reserved = Spent(1, estimate.tokens, estimate.usd)
        if self._excused is None and not self._fits(estimate.tokens, estimate.usd):
            self._excused = hold
            reserved = Spent(1, estimate.least_tokens, estimate.least_usd)
        self._holds[hold] = reserved
        self._held = self._held.plus(*reserved)

    def _let_go(self, hold: Hold) -> "Spent":
        """Return what was reserved, and is not any more; called with the lock."""
        reserved = self._holds.pop(hold, _NOTHING)
        self._held = self._held.plus(-reserved.calls, -reserved.tokens, -reserved.usd)
        if self._excused is hold:
            self._excused = None
        return reserved

    def put_back(self, hold: Hold) -> None:
        """Take a reservation back: the request is not sent."""
        with _LOCK:
            self._let_go(hold)
        self.wake()

    def charge(self, hold: Hold, usage: TokenUsage, cost: Decimal | None) -> None:
        """Replace the reservation of a request by what it took."""
        with _LOCK:
            self._let_go(hold)
            self._spent = self._spent.plus(1, usage.total, cost or Decimal(0))
        self.wake()

    def wake(self) -> None:
        """Let those who wait look again."""
        for wake in tuple(self._waiting):
            wake()

    async def changed(self, seconds: float) -> None:
        """Wait until a request of this process was charged or not sent, for *seconds* at most."""
        future = asyncio.get_running_loop().create_future()
        wake = threadsafe_resolver(future)
        self._waiting[wake] = None
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            del self._waiting[wake]


class Spent(NamedTuple):
    """Requests to models, tokens and US dollars."""

    calls: int = 0
    tokens: int = 0
    usd: Decimal = Decimal(0)

    def plus(self, calls: int, tokens: int, usd: Decimal) -> "Spent":
        """Return this with more added."""
        return Spent(self.calls + calls, self.tokens + tokens, self.usd + usd)


_NOTHING: Final = Spent()
History = tuple[int, Spent]  # the tree that others were forked from, and what was spent in them all
# Returns that of a family, or None if its first tree is among those given, which are counted.
HistoryOf = Callable[[Collection[int]], History | None]
Read = Callable[[Callable[[], None]], Awaitable[None]]


def spent_in(events: Iterable[Event]) -> Spent:
    """Return what the requests among *events* took."""
    spent = Spent()
    for event in events:
        if isinstance(event, ResponseCompleted | RequestFailed):
            made = int(isinstance(event, ResponseCompleted))
            spent = spent.plus(made, event.usage.total, event.cost or Decimal(0))
    return spent


@dataclass(slots=True, frozen=True)
class Refused:
    """The account that a request does not fit into, and why not.

    Attributes:
        must_wait: it may fit when requests that are under way have ended.
    """

    account: Account
    reason: str
    must_wait: bool = False


def refusal(account: Account, spent: Spent, estimate: Estimate) -> Refused | None:
    """Return why a request will never fit into *account*, of which so much is *spent*.

    Requests that are under way are among its calls.
    """
    budget, tokens, usd = account.budget, spent.tokens, spent.usd
    if budget.calls is not None and spent.calls >= budget.calls:
        reason = f"{spent.calls} of {budget.calls} requests to models are made or under way"
        return Refused(account, reason)
    if budget.tokens is not None and tokens + (least := estimate.least_tokens) > budget.tokens:
        used = f"{tokens:,} of {budget.tokens:,} tokens are used"
        return Refused(account, f"{used}, and {least:,} needed")
    if budget.usd is not None and usd + estimate.least_usd > Decimal(budget.usd):
        used = f"${usd:.4f} of ${budget.usd} are used"
        return Refused(account, f"{used}, and about ${estimate.least_usd:.4f} needed")
    return None


class Accounting(Protocol):
    """Keeps the accounts of which several workers spend; see ``ClusterAllowances``."""

    async def call(self, ask: Callable[[], None]) -> None:
        """Call *ask*, which reads the store, as soon as that can be reached.

        It may be called again. What it raises is raised here, unless that may pass.
        """
        ...

    async def set_aside(
        self, tree: Tree, accounts: Sequence[Account], estimate: Estimate, unchecked: Set[Account]
    ) -> Callable[[int, int, Decimal], None] | Refused:
        """Reserve a request of *tree* in each account; those that are *unchecked* only count it.

        Returns:
            What replaces the reservation by so many requests, tokens and US dollars, soon.
        """
        ...


def set_aside(accounts: Collection[Account], hold: Hold, unchecked: Set[Account]) -> Refused | None:
    """Reserve *hold* in each account that is kept in this process, or in none.

    Returns:
        None, or what refuses it for good, or else what it has to wait for.
    """
    waits: Refused | None = None
    with _LOCK:
        for account in accounts:
            found = None if account in unchecked else account.refusal(hold.estimate)
            if found is not None and not found.must_wait:
                return found
            waits = waits or found
        if waits is None:
            for account in accounts:
                if account.stored_as is None:
                    account.hold(hold)
    return waits


def exceeded(account: Account, reason: str, root: Root) -> BudgetExceeded:
    """Return the error for a request that does not fit into *account*."""
    if not (way := way_out(root)):
        remedy = "give more, or a smaller task"
    elif account.owner is None:
        remedy = f"give more, Runtime(budget=...), and {way}"
    elif account.is_given and account.owner.parent is None:
        remedy = f"give more: {way_out(root, ' --budget ...')}"
    else:
        remedy = f"give more in the code, and {way}"
    owner, last_call = account.owner or root, account.budget.last_call
    error = BudgetExceeded(reason, owner, account.name, last_call=last_call, remedy=remedy)
    error.account = account
    return error
