"""Ask a person for a larger budget; all requests that do not fit into it wait for the answer."""

import asyncio
from collections.abc import Callable

from treefold.core.budget import amounts_in, raised
from treefold.core.question import CANCEL, QuestionKey, QuestionKind
from treefold.runtime.calls.budgets import Account
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import upwards
from treefold.runtime.limits.leases import give_up_lease
from treefold.runtime.loops.loop_handle import threadsafe_resolver
from treefold.runtime.questions.ask import ask


async def ask_for_more(node: CallNode, account: Account, limit: str) -> None:
    """Wait until a person has raised the budget of *account*; *limit* says what is used of it.

    Several requests ask one question. A person who cancels, cancels the call that the budget
    belongs to; then this does not return.
    """
    text = (
        f"the budget of {account.name} is used up: {limit}; answer with the new budget, such as"
        f" {_example(account)!r}, or with 'cancel'"
    )
    if account.waiting_for_more is not None:
        await _wait_for_answer(node, account.waiting_for_more, text)
        return
    waiting: list[Callable[[], None]] = []
    account.waiting_for_more = waiting
    try:
        answer = await ask(node, QuestionKind.Budget, text, key=_key(node, account))
        if answer.text == CANCEL:
            owner = upwards(node)[_levels(node, account)]
            owner.cancel_on_loop(f"cancelled: the budget of {account.name} is used up")
            # It is cancelled with its owner, which another process may run.
            await asyncio.get_running_loop().create_future()
        account.budget = raised(account.budget, amounts_in(answer.text))
    finally:
        account.waiting_for_more = None
        for wake in waiting:
            wake()


def _key(node: CallNode, account: Account) -> str:
    """Return the key of the question, from which the record knows which budget is raised."""
    return f"{QuestionKey.Budget}:{_levels(node, account)}:{account.place}"


def _levels(node: CallNode, account: Account) -> int:
    """Return how many calls above *node* the owner of *account* is; the top-level one for all."""
    ids = [one.id for one in upwards(node)]
    return len(ids) - 1 if account.owner is None else ids.index(account.owner.id)


def _example(account: Account) -> str:
    budget = account.budget
    found = {"usd": budget.usd, "tokens": budget.tokens, "calls": budget.calls}
    doubled = {name: 2 * value or 1 for name, value in found.items() if value is not None}
    return " ".join(f"{name}={value}" for name, value in doubled.items())


async def _wait_for_answer(node: CallNode, waiting: list[Callable[[], None]], text: str) -> None:
    """Wait, as Paused and without a lease, until the question of another call is settled."""
    answered = asyncio.get_running_loop().create_future()
    waiting.append(threadsafe_resolver(answered))
    give_up_lease(node)
    node.begin_pause(text)
    try:
        await answered
    finally:
        node.end_pause()
