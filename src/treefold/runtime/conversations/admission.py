"""Admits a model request: it waits for pauses, rates, a lease, slots and budgets."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial
from typing import Final

from treefold.core.agent_events import LeaseAwaited, RateAwaited
from treefold.core.model import Model
from treefold.core.rate import Rate
from treefold.core.transcript import ToolResult, UserText
from treefold.core.usage import NO_USAGE, TokenUsage
from treefold.models.prices import price
from treefold.runtime.calls.node import CallNode
from treefold.runtime.conversations.opened import Opened
from treefold.runtime.conversations.reservation import reservation_for
from treefold.runtime.limits.allowances import SlotsOfPools, TakenSlots
from treefold.runtime.limits.leases import take_lease, usable_lease
from treefold.runtime.questions.pauses import pause_over, wait_while_paused
from treefold.runtime.services import Services

log = logging.getLogger(__name__)

_NONE: Final = SlotsOfPools()


class Admission:
    """A request that may be sent, and what it has taken."""

    def __init__(self, node: CallNode, services: Services, model: Model) -> None:
        self.usage = NO_USAGE
        self.cost: Decimal | None = None
        self._node = node
        self._services = services
        self._model = model
        self._slots: TakenSlots = _NONE

    async def take_slots(self) -> None:
        """Take a slot of the provider and of each limit of all processes."""
        self._slots = await _take_slots(self._node, self._services, self._model)

    def give_back(self) -> None:
        """Let others have the slots."""
        slots, self._slots = self._slots, _NONE
        slots.give_back()

    async def is_confirmed(self) -> bool:
        """Wait until no other process can have the tree; return whether none can have its slots.

        Raises:
            FencedError: another process has the tree.
        """
        if (journal := self._node.tree.journal) is not None:
            await journal.confirmed()
        return self._slots.are_kept

    async def confirm(self) -> None:
        """Wait until an attempt may be sent; slots that others may have are taken anew."""
        while not await self.is_confirmed():
            self.give_back()
            await self.take_slots()


@asynccontextmanager
async def admitted(
    node: CallNode,
    services: Services,
    opened: Opened,
    inputs: Sequence[UserText | ToolResult],
    *,
    over_budget: bool,
) -> AsyncGenerator[Admission, None]:
    """Wait until no pause holds *node*, and a request with *inputs* may be sent.

    It fits into the rates, holds a lease, and a slot of its provider and of each limit of all
    processes, and is reserved in the budgets of its call and of all calls above.

    Args:
        over_budget: do not check budgets that allow one last call.

    Raises:
        BudgetExceeded: the request does not fit into a budget.
        UnknownPriceError: there is a budget in US dollars, and the model has no known price.
    """
    limits, allowances, model = services.limits, services.allowances, opened.model
    rates = limits.rates_for(model.name) if limits.rates else {}
    expected = opened.expected_input(inputs)
    tokens = expected.total
    reservation = reservation_for(node, services, opened, inputs, expected, over_budget=over_budget)
    admission, taken = Admission(node, services, model), False
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
            await admission.take_slots()
            # It may have been paused while it waited for the slot.
            is_paused = node.tree.is_held and pause_over(node) is not None
            may_send = not is_paused and (reservation is None or await reservation.make())
            if may_send and await admission.is_confirmed():
                break
            admission.give_back()
            if reservation is not None and may_send:
                reservation.give_back()
            elif reservation is not None and not is_paused:
                await reservation.wait()
        yield admission
    finally:
        admission.give_back()
        if reservation is not None:
            reservation.settle(admission.usage, admission.cost)
        if taken and admission.usage.total != tokens:
            allowances.charge_rates(tuple(rates), admission.usage.total - tokens)


async def _await_rates(
    node: CallNode, services: Services, rates: Mapping[str, Rate], tokens: int
) -> None:
    # In this process one request at a time tries, so that they are sent in order.
    queue = services.limits.local.queue(rates)
    shown = queue.is_full
    if shown:
        node.tree.publish(RateAwaited(node.id, node.tree.now(), 0.0))
    await queue.take()
    try:
        while seconds := await services.allowances.take_rates(rates, tokens):
            if not shown:
                node.tree.publish(RateAwaited(node.id, node.tree.now(), seconds))
                shown = True
            await asyncio.sleep(seconds)
    finally:
        queue.put_back()


async def _take_slots(node: CallNode, services: Services, model: Model) -> TakenSlots:
    """Take a slot of the provider and of each limit of all processes."""
    limits = services.limits
    pool = limits.pools.get(model.provider)
    if pool is not None:
        if pool.is_full:
            _publish_wait(node)
        await pool.take()
    own = _NONE if pool is None else SlotsOfPools(pool)
    wanted = limits.slots_for(model.name) if limits.cluster_requests else {}
    if not wanted:
        return own
    try:
        on_wait = partial(_publish_wait, node)
        shared = await services.allowances.take_slots(wanted, on_wait)
    except BaseException:
        own.give_back()
        raise
    return _BothSlots(shared, own)


class _BothSlots:
    """Slots of all processes, and of the provider in this one."""

    def __init__(self, shared: TakenSlots, own: TakenSlots) -> None:
        self._shared = shared
        self._own = own

    @property
    def are_kept(self) -> bool:
        return self._shared.are_kept

    def give_back(self) -> None:
        self._shared.give_back()
        self._own.give_back()


def _publish_wait(node: CallNode) -> None:
    if not node.has_ended:
        node.tree.publish(LeaseAwaited(node.id, node.tree.now()))


def price_if_known(usage: TokenUsage, model: Model) -> Decimal | None:
    """Return the cost of *usage*, or None if the price of *model* is not known."""
    try:
        return price(usage, model)
    # Foreign code may raise anything, and the usage has to be recorded all the same.
    except Exception:
        log.exception("the price of %s cannot be told", model.name)
        return None
