"""Accounts: what has been spent of each budget, and whether another request fits."""

import time
from collections.abc import Callable, Iterable, Sequence, Set
from decimal import Decimal
from typing import Protocol

from treefold.core.agent_errors import BudgetExceeded
from treefold.core.agent_events import RequestFailed, ResponseCompleted
from treefold.core.budget import Budget
from treefold.core.events import Event
from treefold.core.function import Node
from treefold.core.lazy_dataclass import lazy_dataclass
from treefold.core.record import Spending
from treefold.core.usage import TokenUsage
from treefold.runtime.calls.ways_out import Root, way_out
from treefold.runtime.trees.tree import Tree


@lazy_dataclass(frozen=True)
class Estimate:
    """The expected tokens and cost of a request."""

    tokens: int
    cost: Decimal | None


class Account:
    """A budget, what has been spent of it, and what is reserved for requests under way.

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
        self._set_aside: list[Estimate] = []
        self._since: float | None = None
        # Those who wait until a person has been asked for more; None if nobody is asked.
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
        return "the runtime" if owner is None else f"{owner.function.name} (path {owner.path})"

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

    def refusal(self, estimate: Estimate) -> str | None:
        """Return why a request does not fit, or None if it does."""
        if self.seconds_left() == 0:
            return f"{self.budget.seconds:g} s are over"
        if self.stored_as is not None:
            return None
        waiting = self._set_aside
        held = Spent(
            len(waiting),
            sum(one.tokens for one in waiting),
            sum((one.cost or Decimal(0) for one in waiting), Decimal(0)),
        )
        return refusal(self.budget, self._spent, held, estimate)

    def take_over(self, spending: Spending) -> None:
        """Add what an earlier process has spent of this budget."""
        cost = spending.cost or Decimal(0)
        self._spent = self._spent.plus(spending.responses, spending.usage.total, cost)

    def count_from(self, start: float) -> None:
        """Count the seconds from *start*, in seconds since the epoch."""
        self._since = time.monotonic() - max(0.0, time.time() - start)

    def set_aside(self, estimate: Estimate) -> None:
        """Reserve *estimate* for a request."""
        self._set_aside.append(estimate)

    def put_back(self, estimate: Estimate) -> None:
        """Take a reservation back: the request is not sent."""
        self._set_aside.remove(estimate)

    def charge(self, estimate: Estimate, usage: TokenUsage, cost: Decimal | None) -> None:
        """Replace the reservation of a request by what it took."""
        self._set_aside.remove(estimate)
        self._spent = self._spent.plus(1, usage.total, cost or Decimal(0))


@lazy_dataclass(frozen=True)
class Spent:
    """Requests to models, tokens and US dollars."""

    calls: int = 0
    tokens: int = 0
    usd: Decimal = Decimal(0)

    def plus(self, calls: int, tokens: int, usd: Decimal) -> "Spent":
        """Return this with more added."""
        return Spent(self.calls + calls, self.tokens + tokens, self.usd + usd)


def spent_in(events: Iterable[Event]) -> Spent:
    """Return what the requests among *events* took."""
    spent = Spent()
    for event in events:
        if isinstance(event, ResponseCompleted | RequestFailed):
            made = int(isinstance(event, ResponseCompleted))
            spent = spent.plus(made, event.usage.total, event.cost or Decimal(0))
    return spent


def refusal(budget: Budget, spent: Spent, held: Spent, estimate: Estimate) -> str | None:
    """Return why a request does not fit into *budget*, of which *held* is reserved for others."""
    if budget.calls is not None and (made := spent.calls + held.calls) >= budget.calls:
        return f"{made} of {budget.calls} requests to models are made or under way"
    tokens = held.tokens + estimate.tokens
    if budget.tokens is not None and spent.tokens + tokens > budget.tokens:
        return f"{spent.tokens:,} of {budget.tokens:,} tokens are used, and {tokens:,} needed"
    usd = held.usd + (estimate.cost or Decimal(0))
    if budget.usd is not None and spent.usd + usd > Decimal(budget.usd):
        return f"${spent.usd:.4f} of ${budget.usd} are used, and about ${usd:.4f} needed"
    return None


@lazy_dataclass(frozen=True)
class Refused:
    """The account that a request does not fit into, and why not."""

    account: Account
    reason: str


class Accounting(Protocol):
    """Keeps the accounts of which several workers spend; see ``ClusterAllowances``."""

    async def set_aside(
        self, tree: Tree, accounts: Sequence[Account], estimate: Estimate, unchecked: Set[Account]
    ) -> Callable[[int, int, Decimal], None] | Refused:
        """Reserve a request of *tree* in each account; those that are *unchecked* only count it.

        Returns:
            What replaces the reservation by so many requests, tokens and US dollars, soon.
        """
        ...


def check(accounts: Sequence[Account], estimate: Estimate, root: Root) -> None:
    """Raise BudgetExceeded unless a request fits into each of *accounts*."""
    for account in accounts:
        if (limit := account.refusal(estimate)) is not None:
            raise exceeded(account, limit, root)


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
