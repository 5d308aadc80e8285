"""Admits a model request: it waits for pauses, a lease and a slot, and has to fit into budgets."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal

from treefold.core.agent_errors import UnknownPriceError
from treefold.core.agent_events import LeaseAwaited
from treefold.core.model import Model
from treefold.core.provider import Provider
from treefold.core.usage import TokenUsage
from treefold.models.prices import price
from treefold.runtime.calls.budgets import Account, Estimate, check, set_aside
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of
from treefold.runtime.limits.leases import take_lease, usable_lease
from treefold.runtime.limits.limits import Limits
from treefold.runtime.questions.pauses import pause_over, wait_while_paused

log = logging.getLogger(__name__)


@asynccontextmanager
async def admitted(
    node: CallNode, limits: Limits, provider: Provider
) -> AsyncGenerator[None, None]:
    """Wait until no pause holds *node*, and hold a lease and a slot of *provider* for it."""
    pool = limits.pools.get(provider)
    while True:
        if node.tree.is_held:
            await wait_while_paused(node)
        if limits.pool.is_full and usable_lease(node) is None:
            node.tree.publish(LeaseAwaited(node.id))
        await take_lease(node, limits.pool)
        if pool is not None:
            await pool.take()
        if not node.tree.is_held or pause_over(node) is None:
            break
        # It was paused while it waited for the slot.
        if pool is not None:
            pool.put_back()
    try:
        yield
    finally:
        if pool is not None:
            pool.put_back()


class Reservation:
    """What is reserved for a request in each budget of its call and of the calls above.

    Args:
        accounts: those of the budgets.
        expected: the estimated usage of the request.
        over_budget: do not check budgets that allow one last call.

    Raises:
        BudgetExceeded: the request does not fit into a budget.
        UnknownPriceError: there is a budget in US dollars, and *model* has no known price.
    """

    def __init__(
        self,
        node: CallNode,
        accounts: Sequence[Account],
        model: Model,
        expected: TokenUsage,
        *,
        over_budget: bool,
    ) -> None:
        self._accounts = accounts
        cost: Decimal | None = None
        if any(account.budget.usd is not None for account in self._accounts):
            cost = price(expected, model)
            if cost is None:
                raise UnknownPriceError(
                    f"{model.name} has no known price, so a budget in US dollars cannot be kept:"
                    " give one in tokens, or tell the model what it costs (price=)"
                )
        self._estimate = Estimate(expected.total, cost)
        strict = [a for a in self._accounts if not (over_budget and a.budget.last_call)]
        check(strict, self._estimate, root_of(node))
        set_aside(self._accounts, self._estimate)

    def charge(self, usage: TokenUsage, cost: Decimal | None) -> None:
        """Charge what the request took instead."""
        for account in self._accounts:
            account.charge(self._estimate, usage, cost)


def price_if_known(usage: TokenUsage, model: Model) -> Decimal | None:
    """Return the cost of *usage*, or None if the price of *model* is not known."""
    try:
        return price(usage, model)
    # Foreign code may raise anything, and the usage has to be recorded all the same.
    except Exception:
        log.exception("the price of %s cannot be told", model.name)
        return None
