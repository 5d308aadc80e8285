"""Opens the accounts of calls: one for each budget that their requests are paid from."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from treefold.core.budget import Budget, raised
from treefold.core.call_request import CallRequest
from treefold.core.events import BudgetAbove, CallEnded, Event
from treefold.core.fact import replace
from treefold.core.function import Function
from treefold.core.guards import named_account
from treefold.runtime.calls.budgets import Account, History
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of, upwards
from treefold.runtime.graph import reachable
from treefold.runtime.guarding import Guarding

_OF_FUNCTION: Final = 1  # the place of its budget, after that of the call


class Accounts:
    """Opens accounts for the calls of one runtime.

    Args:
        common: the account of the runtime, if it has a budget.
        guarding: knows the budget of an earlier runtime that binds a tree.
        since: when the runtime began, by the clock of the journal.
        history_of: returns what was spent of an account in a tree and in all that were forked from
            the same tree as it, and that tree; None if that is among those given.
        is_shared: whether other workers may spend of a budget, which the store keeps then.
    """

    def __init__(
        self,
        common: Account | None,
        guarding: Guarding,
        *,
        since: float,
        history_of: Callable[[int, str, Collection[int]], History | None] | None = None,
        is_shared: bool = False,
    ) -> None:
        self._common = common
        self._guarding = guarding
        self._since = since
        # The accounts of earlier runtimes: the trees of one runtime spend of the same.
        self._earlier: dict[str, Account] = {}
        self._history_of = history_of
        self._is_shared = is_shared
        # Whether calls of a function may make remote calls.
        self._has_remote: WeakKeyDictionary[Function, bool] = WeakKeyDictionary()
        if is_shared and common is not None and common.budget.name is not None:
            common.stored_as = named_account(common.budget.name)

    def open_new(self, node: CallNode, request: CallRequest) -> None:
        """Open the accounts of a new call, if it has any."""
        is_common = node.parent is None and self._common is not None
        # A new tree is bound by no earlier runtime.
        if is_common or request.budget is not None or request.function.budget is not None:
            self.open(node, request)

    def has_counted(self, events: Sequence[Event]) -> bool:
        """Whether a tree that has ended, with these *events*, has spent the runtime's budget.

        A tree that ended before this runtime began has spent that of an earlier one.
        """
        root = events[0].node
        ends = [one.at for one in events if isinstance(one, CallEnded) and one.node == root]
        return bool(ends) and ends[-1] >= self._since

    def open(self, node: CallNode, request: CallRequest, *, is_counted: bool = False) -> None:
        """Open the accounts of *node*, and charge them with what an earlier process has spent.

        That of the runtime is not charged if *is_counted*: it has been already. That of an earlier
        runtime is charged before the first request.
        """
        budgets = (request.budget, request.function.budget)
        node.accounts = tuple([
            Account(
                one,
                node,
                is_given=place != _OF_FUNCTION,
                stored_as=self._stored_as(one, node, place),
            )
            for place, one in enumerate(budgets)
            if one is not None
        ])
        for account in node.accounts:
            _raise(account, node)
        counted = node.accounts
        if node.record.since is not None:
            for account in node.accounts:
                account.count(node.tree.now() - node.record.since)
        common = self._common_of(node)
        if node.parent is None and common is not None:
            node.accounts += (common,)
            _raise(common, node)
            if common is self._common and not is_counted:
                counted = node.accounts
        if node.record.spending is not None:
            for account in counted:
                # The store knows what was spent of a budget that outlives its tree.
                if account.stored_as is None or account.budget.name is None:
                    account.take_over(node.record.spending)

    def open_above(self, node: CallNode) -> None:
        """Open the accounts of the calls above a call that this process runs for another one."""
        options, above = node.record.requested.options, {one.id: one for one in upwards(node)}
        for one in () if options is None else options.budgets_above:
            owner = None if one.node is None else above[one.node]
            is_given = not one.name.endswith(f":{_OF_FUNCTION}")
            account = Account(one.budget, owner, is_given=is_given, stored_as=one.name)
            if one.budget.name is None and one.history:
                # The store does not know it before the first request: a fork has inherited it.
                account.take_over_from(one)
            elif one.budget.name is None:
                self._count(account, one.name, node)
            if owner is not None:
                _raise(account, owner)
            node.accounts += (account,)
        common = self._common_of(node)
        if common is not None and common.stored_as is None:
            # It is for all that this process spends.
            node.accounts += (common,)

    def _common_of(self, node: CallNode) -> Account | None:
        """Return the account of the runtime, or of an earlier one whose budget binds the tree."""
        guards = self._guarding.earlier_budget(root_of(node).record.guards)
        if self._common is not None or guards is None or guards.budget is None:
            return self._common
        name, budget = guards.paid_from, guards.budget
        if self._is_shared:
            # The store knows it, and this is only how one tree names it.
            account = Account(budget, None, stored_as=name)
        else:
            account = self._earlier.setdefault(name, Account(budget, None))
        if account.stored_as is None or budget.name is None:
            self._count(account, name, node)
        return account

    def _count(self, account: Account, name: str, node: CallNode) -> None:
        """Have what earlier processes have spent of *account* counted before its first request."""
        if self._history_of is not None:
            account.unread[node.tree.id] = partial(self._history_of, node.tree.id, name)

    def _stored_as(self, budget: Budget, node: CallNode, place: int) -> str | None:
        """Return the name of an account in a shared store, if other workers may spend of it."""
        if not self._is_shared:
            return None
        if budget.name is not None:
            return named_account(budget.name)
        function = node.function
        if function not in self._has_remote:
            below = reachable(function.may_call)
            self._has_remote[function] = any(one.queue for one in below.values())
        return f"{node.id}:{place}" if self._has_remote[function] else None


def budgets_above(parent: CallNode) -> tuple[BudgetAbove, ...]:
    """Return the budgets that a remote call below *parent* spends of.

    Seconds are left out: the worker that runs the owner of the budget counts them.
    """
    found: list[BudgetAbove] = []
    for one in upwards(parent):
        for account in one.accounts:
            budget, name = account.budget, account.stored_as
            if name is None or (budget.usd, budget.tokens, budget.calls) == (None, None, None):
                continue
            owner = None if account.owner is None else account.owner.id
            above = BudgetAbove(name, owner, replace(budget, seconds=None))
            if not account.unread and budget.name is None:
                calls, tokens, usd = account.taken_over
                history = account.history or parent.tree.id
                above = replace(above, history=history, calls=calls, tokens=tokens, usd=usd)
            found.append(above)
    return tuple(found)


def _raise(account: Account, owner: CallNode) -> None:
    """Raise a budget as people have done in an earlier process, or in the source of a fork."""
    if (more := (owner.record.budgets or {}).get(account.place)) is not None:
        account.budget = raised(account.budget, more)
