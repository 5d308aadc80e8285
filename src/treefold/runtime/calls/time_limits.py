"""The time limits of a call: its own timeout, and the seconds of its budgets."""

import asyncio
from collections.abc import Callable
from functools import partial

from treefold.core.address import address
from treefold.core.errors import CallTimeoutError
from treefold.core.events import StopCause
from treefold.runtime.calls.budgets import Account, exceeded
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of


def start_timers(node: CallNode) -> None:
    """Start the timers of a call that begins."""
    # Timers of the same length are cheap, so the time until the deadline is not computed.
    if (timeout := node.request.timeout) is not None:
        node.start_timer(timeout, _time_out, node, timeout)
    for account in node.accounts:
        if (seconds := account.seconds_left()) is not None:
            node.start_timer(seconds, _exceed, node, account)


async def keep_limits(node: CallNode) -> None:
    """Start the timers of a call that an earlier process started, or end it if its time is over.

    The time in which no process ran it counts.
    """
    record, deadline, now = node.record, node.record.deadline, node.tree.now()
    since = now if record.since is None else record.since
    # It was opened again, by a fork for example.
    if deadline is None and node.request.timeout is not None:
        deadline = since + node.request.timeout
    if deadline is not None:
        timeout = round(deadline - since, 3)
        # A clock that was set back does not prolong it.
        left = min(deadline - now, timeout)
        await _stop_after(node, left, partial(_time_out, node, timeout))
    for account in node.accounts:
        if (left := account.seconds_left()) is not None:
            await _stop_after(node, left, partial(_exceed, node, account))


async def _stop_after(node: CallNode, seconds: float, stop: Callable[[], None]) -> None:
    if seconds > 0:
        node.start_timer(seconds, stop)
    else:
        stop()
        await asyncio.sleep(0)  # raises CancelledError


def _time_out(node: CallNode, timeout: float) -> None:
    reason = f"it took longer than {timeout} s"
    error = CallTimeoutError(f"{node.function.name} ({address(node.path)}): {reason}")
    node.fail_with(error, reason, StopCause.Timeout)


def _exceed(node: CallNode, account: Account) -> None:
    reason = f"{account.budget.seconds:g} s are over"
    error = exceeded(account, reason, root_of(node))
    node.fail_with(error, reason, StopCause.Budget)
