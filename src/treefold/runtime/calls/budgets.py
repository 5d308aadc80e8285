"""Accounts: what has been spent of each budget, and whether another request fits."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from treefold.core.agent_errors import BudgetExceeded
from treefold.core.budget import Budget
from treefold.core.function import Node
from treefold.core.record import Spending
from treefold.core.usage import TokenUsage


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected tokens and cost of a request."""

    tokens: int
    cost: Decimal | None


class Account:
    """A budget, what has been spent of it, and what is reserved for requests under way."""

    def __init__(self, budget: Budget, owner: Node | None) -> None:
        self.budget = budget
        self.owner = owner  # None: the runtime
        self._tokens = 0
        self._usd = Decimal(0)
        self._calls = 0
        self._set_aside: list[Estimate] = []
        self._since: float | None = None

    @property
    def name(self) -> str:
        """The owner of the budget, for messages."""
        owner = self.owner
        return "the runtime" if owner is None else f"{owner.function.name} (path {owner.path})"

    def seconds_left(self) -> float | None:
        """Return the seconds left, counted from the first call of this; None if unlimited."""
        if self.budget.seconds is None:
            return None
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return max(0.0, self._since + self.budget.seconds - now)

    def refusal(self, estimate: Estimate) -> str | None:
        """Return why a request does not fit, or None if it does."""
        budget, waiting = self.budget, self._set_aside
        if self.seconds_left() == 0:
            return f"{budget.seconds:g} s are over"
        if budget.calls is not None and self._calls + len(waiting) >= budget.calls:
            made = self._calls + len(waiting)
            return f"{made} of {budget.calls} requests to models are made or under way"
        tokens = sum(e.tokens for e in waiting) + estimate.tokens
        if budget.tokens is not None and self._tokens + tokens > budget.tokens:
            return f"{self._tokens:,} of {budget.tokens:,} tokens are used, and {tokens:,} needed"
        usd = sum((e.cost or Decimal(0) for e in [*waiting, estimate]), Decimal(0))
        if budget.usd is not None and self._usd + usd > Decimal(budget.usd):
            return f"${self._usd:.4f} of ${budget.usd} are used, and about ${usd:.4f} needed"
        return None

    def take_over(self, spending: Spending) -> None:
        """Add what an earlier process has spent of this budget."""
        self._calls += spending.responses
        self._tokens += spending.usage.total
        self._usd += spending.cost or Decimal(0)

    def set_aside(self, estimate: Estimate) -> None:
        """Reserve *estimate* for a request."""
        self._set_aside.append(estimate)

    def charge(self, estimate: Estimate, usage: TokenUsage, cost: Decimal | None) -> None:
        """Replace the reservation of a request by what it took."""
        self._set_aside.remove(estimate)
        self._calls += 1
        self._tokens += usage.total
        self._usd += cost or Decimal(0)


def check(accounts: Sequence[Account], estimate: Estimate, root: Node) -> None:
    """Raise BudgetExceeded unless a request fits into each of *accounts*."""
    for account in accounts:
        if (limit := account.refusal(estimate)) is not None:
            raise BudgetExceeded(
                limit, account.owner or root, account.name, last_call=account.budget.last_call
            )


def set_aside(accounts: Sequence[Account], estimate: Estimate) -> None:
    """Reserve *estimate* for a request in each of *accounts*."""
    for account in accounts:
        account.set_aside(estimate)
