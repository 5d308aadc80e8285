"""Reserves a model request in the budgets of its call and of all calls above."""

import asyncio
import random
from collections.abc import Callable, Sequence, Set
from decimal import Decimal
from typing import Final

from treefold.core.agent_errors import UnknownPriceError
from treefold.core.agent_events import BudgetAwaited
from treefold.core.cluster import Estimate
from treefold.core.model import Model
from treefold.core.transcript import ToolResult, UserText
from treefold.core.usage import TokenUsage
from treefold.models.prices import price
from treefold.runtime.calls.budgets import Account, Hold, Refused, exceeded, set_aside
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of, upwards
from treefold.runtime.conversations.opened import Opened
from treefold.runtime.services import Services

_SOON: Final = 0.05  # seconds until the store is asked again
_SLOWER: Final = 1.5
_LATER: Final = 1.0  # seconds at most; also if another loop is closed with a request under way


class Reservation:
    """What is reserved for one request, from before it is sent until it is charged.

    Nothing is reserved while it waits, and once it is reserved the request needs nothing else: so
    requests that wait for each other's budgets come to an end.

    Args:
        estimate: what to reserve.
        unchecked: the accounts that may be overdrawn by it.
    """

    def __init__(
        self,
        node: CallNode,
        services: Services,
        accounts: Sequence[Account],
        estimate: Estimate,
        unchecked: Set[Account],
    ) -> None:
        self._node = node
        self._services = services
        self._accounts = accounts
        self._estimate = estimate
        self._unchecked = unchecked
        self._hold: Hold | None = None
        self._full: Account | None = None  # where it has to wait
        self._charge_stored: Callable[[int, int, Decimal], None] | None = None
        self._is_shown = False  # whether it is known that it waits
        self._delay = _SOON

    async def make(self) -> bool:
        """Reserve the request; return False if it has to wait for others.

        Raises:
            BudgetExceeded: the request does not fit into a budget.
        """
        for account in self._accounts:
            if account.unread:
                await self._catch_up(account)
        hold = Hold(self._estimate)
        refused = set_aside(self._accounts, hold, self._unchecked)
        if refused is None:
            refused = await self._make_stored(hold)
        if refused is None:
            self._hold = hold
            return True
        if refused.must_wait:
            self._full = refused.account
            return False
        raise exceeded(refused.account, refused.reason, root_of(self._node))

    async def _catch_up(self, account: Account) -> None:
        """Count what earlier processes have spent of an account, as the journal says."""
        shared, journal = self._services.shared, self._node.tree.journal
        if journal is not None:
            await journal.saved(self._node)  # a fork may be new
        await account.catch_up(asyncio.to_thread if shared is None else shared.call)

    async def _make_stored(self, hold: Hold) -> Refused | None:
        """Reserve it in the accounts of which several workers spend."""
        stored = [one for one in self._accounts if one.stored_as is not None]
        shared = self._services.shared
        if not stored or shared is None:
            return None
        charge: Callable[[int, int, Decimal], None] | Refused | None = None
        try:
            charge = await shared.set_aside(self._node.tree, stored, hold.estimate, self._unchecked)
        finally:
            if not callable(charge):
                for account in self._accounts:
                    account.put_back(hold)
        if isinstance(charge, Refused):
            return charge
        self._charge_stored = charge
        return None

    def give_back(self) -> None:
        """Reserve nothing any more: the request is not sent now."""
        hold, self._hold = self._hold, None
        if hold is None:
            return
        if self._charge_stored is not None:
            self._charge_stored(0, 0, Decimal(0))
        for account in self._accounts:
            account.put_back(hold)

    async def wait(self) -> None:
        """Wait until more may be left in the account that was full."""
        node, account = self._node, self._full
        if account is None:
            return
        if not self._is_shown and not node.has_ended:
            self._is_shown = True
            node.tree.publish(BudgetAwaited(node.id, node.tree.now(), account.name))
        if account.stored_as is None:
            await account.changed(_LATER)
            return
        await account.changed(self._delay * random.uniform(0.5, 1.5))
        self._delay = min(_LATER, self._delay * _SLOWER)

    def settle(self, usage: TokenUsage, cost: Decimal | None) -> None:
        """Charge what the request took instead, if it was reserved."""
        hold, self._hold = self._hold, None
        if hold is None:
            return
        if self._charge_stored is not None:
            self._charge_stored(1, usage.total, cost or Decimal(0))
        for account in self._accounts:
            if account.stored_as is None:
                account.charge(hold, usage, cost)
            else:
                account.wake()


def reservation_for(
    node: CallNode,
    services: Services,
    opened: Opened,
    inputs: Sequence[UserText | ToolResult],
    expected: TokenUsage,
    *,
    over_budget: bool,
) -> Reservation | None:
    """Return the reservation of a request that is about to be made; None if there are no budgets.

    Args:
        expected: what is sent, about.
        over_budget: do not check budgets that allow one last call.

    Raises:
        UnknownPriceError: a budget is in US dollars, and the model has no known price.
    """
    accounts = [account for one in upwards(node) for account in one.accounts]
    if not accounts:
        return None
    in_dollars = any(account.budget.usd is not None for account in accounts)
    most, least = opened.most(inputs), expected.total
    # What was sent last was counted by the provider, and may be more than it is here.
    tokens = max(most.total, least)
    if in_dollars:
        least_usd = _price(expected, opened.model)
        usd = max(_price(most, opened.model), least_usd)
        estimate = Estimate(tokens=tokens, usd=usd, least_tokens=least, least_usd=least_usd)
    else:
        estimate = Estimate(tokens=tokens, least_tokens=least)
    unchecked = {one for one in accounts if over_budget and one.budget.last_call}
    return Reservation(node, services, accounts, estimate, unchecked)


def _price(usage: TokenUsage, model: Model) -> Decimal:
    found = price(usage, model)
    if found is None:
        raise UnknownPriceError(
            f"{model.name} has no known price, so a budget in US dollars cannot be kept:"
            " give one in tokens, or tell the model what it costs (price=)"
        )
    return found
