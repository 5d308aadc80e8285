"""Admits a model request: it waits for pauses, rates, a lease and slots, and fits into budgets."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial

from treefold.core.agent_errors import UnknownPriceError
from treefold.core.agent_events import LeaseAwaited, RateAwaited
from treefold.core.model import Model
from treefold.core.rate import Rate
from treefold.core.usage import TokenUsage
from treefold.models.prices import price
from treefold.runtime.calls.budgets import Account, Estimate, Refused, check, exceeded
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of, upwards
from treefold.runtime.limits.leases import take_lease, usable_lease
from treefold.runtime.questions.pauses import pause_over, wait_while_paused
from treefold.runtime.services import Services

log = logging.getLogger(__name__)


class Admission:
    """A request that may be sent, and how many tokens it has used."""

    def __init__(self) -> None:
        self.tokens = 0


@asynccontextmanager
async def admitted(
    node: CallNode, services: Services, model: Model, tokens: int
) -> AsyncGenerator[Admission, None]:
    """Wait until no pause holds *node*, and a request to *model* with about *tokens* may be sent.

    It fits into the rates, and holds a lease, and a slot of its provider and of each limit of all
    processes.
    """
    limits, allowances = services.limits, services.allowances
    rates = limits.rates_for(model.name) if limits.rates else {}
    admission, taken = Admission(), False
    give_back: Callable[[], None] = _nothing
    try:
        while True:
            if node.tree.is_held:
                await wait_while_paused(node)
            if limits.pool.is_full and usable_lease(node) is None:
                _publish_wait(node)
            await take_lease(node, limits.pool)
            if rates and not taken:
                await _await_rates(node, services, rates, tokens)
                taken = True
            give_back = await _take_slots(node, services, model)
            if not node.tree.is_held or pause_over(node) is None:
                break
            # It was paused while it waited for the slot.
            give_back()
            give_back = _nothing
        yield admission
    finally:
        give_back()
        if taken and admission.tokens != tokens:
            allowances.charge_rates(tuple(rates), admission.tokens - tokens)


async def _await_rates(
    node: CallNode, services: Services, rates: Mapping[str, Rate], tokens: int
) -> None:
    # In this process one request at a time tries, so that they are sent in order.
    queue = services.limits.local.queue(rates)
    shown = queue.is_full
    if shown:
        node.tree.publish(RateAwaited(node.id, time.time(), 0.0))
    await queue.take()
    try:
        while seconds := await services.allowances.take_rates(rates, tokens):
            if not shown:
                node.tree.publish(RateAwaited(node.id, time.time(), seconds))
                shown = True
            await asyncio.sleep(seconds)
    finally:
        queue.put_back()


async def _take_slots(node: CallNode, services: Services, model: Model) -> Callable[[], None]:
    """Take a slot of the provider and of each limit of all processes; return what gives it back."""
    limits = services.limits
    pool = limits.pools.get(model.provider)
    if pool is not None:
        if pool.is_full:
            _publish_wait(node)
        await pool.take()
    give_back = _nothing if pool is None else pool.put_back
    wanted = limits.slots_for(model.name) if limits.cluster_requests else {}
    if not wanted:
        return give_back
    try:
        on_wait = partial(_publish_wait, node)
        give_back_slots = await services.allowances.take_slots(wanted, on_wait)
    except BaseException:
        give_back()
        raise

    def give_all_back() -> None:
        give_back_slots()
        give_back()

    return give_all_back


def _publish_wait(node: CallNode) -> None:
    if not node.has_ended:
        node.tree.publish(LeaseAwaited(node.id, time.time()))


def _nothing() -> None:
    """Give nothing back."""


class Reservation:
    """What is reserved for a request in each budget of its call and of the calls above."""

    def __init__(
        self,
        accounts: Sequence[Account],
        estimate: Estimate,
        stored: Callable[[int, int, Decimal], None] | None,
    ) -> None:
        self._accounts = accounts  # those that are kept in this process
        self._estimate = estimate
        self._stored = stored  # charges the others

    def charge(self, usage: TokenUsage, cost: Decimal | None) -> None:
        """Charge what the request took instead."""
        for account in self._accounts:
            account.charge(self._estimate, usage, cost)
        if self._stored is not None:
            self._stored(1, usage.total, cost or Decimal(0))


async def reserve(
    node: CallNode,
    services: Services,
    model: Model,
    expected: TokenUsage,
    *,
    over_budget: bool,
) -> Reservation | None:
    """Reserve a request in the budgets of its call and of all calls above; None if there are none.

    Args:
        expected: the estimated usage of the request.
        over_budget: do not check budgets that allow one last call.

    Raises:
        BudgetExceeded: the request does not fit into a budget.
        UnknownPriceError: there is a budget in US dollars, and *model* has no known price.
    """
    accounts = [account for one in upwards(node) for account in one.accounts]
    if not accounts:
        return None
    cost: Decimal | None = None
    if any(account.budget.usd is not None for account in accounts):
        cost = price(expected, model)
        if cost is None:
            raise UnknownPriceError(
                f"{model.name} has no known price, so a budget in US dollars cannot be kept:"
                " give one in tokens, or tell the model what it costs (price=)"
            )
    estimate = Estimate(expected.total, cost)
    unchecked = {one for one in accounts if over_budget and one.budget.last_call}
    check([one for one in accounts if one not in unchecked], estimate, root_of(node))
    local = [one for one in accounts if one.stored_as is None]
    for account in local:
        account.set_aside(estimate)
    if len(local) == len(accounts) or services.shared is None:
        return Reservation(local, estimate, None)
    stored = [one for one in accounts if one.stored_as is not None]
    charge: Callable[[int, int, Decimal], None] | Refused | None = None
    try:
        charge = await services.shared.set_aside(node.tree, stored, estimate, unchecked)
    finally:
        if not callable(charge):
            for account in local:
                account.put_back(estimate)
    if isinstance(charge, Refused):
        raise exceeded(charge.account, charge.reason, root_of(node))
    return Reservation(local, estimate, charge)


def price_if_known(usage: TokenUsage, model: Model) -> Decimal | None:
    """Return the cost of *usage*, or None if the price of *model* is not known."""
    try:
        return price(usage, model)
    # Foreign code may raise anything, and the usage has to be recorded all the same.
    except Exception:
        log.exception("the price of %s cannot be told", model.name)
        return None
