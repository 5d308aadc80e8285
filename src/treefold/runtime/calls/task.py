"""Runs one call, from its first line to its outcome.

When its function is done, the call waits for the children that still run (cancelling them first if
it failed), so that no call outlives its caller. The outcome is what the function returned or
raised, whatever happens during that wait.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from treefold.core.address import address
from treefold.core.agent_events import NoticeGiven
from treefold.core.call_request import Concluded
from treefold.core.errors import CallTimeoutError, RecursionDepthError
from treefold.core.events import ArgumentsEdited, CallAllowed, CallStarted, StopCause
from treefold.core.from_file import FromFile
from treefold.core.function import RunContext
from treefold.core.states import NodeState
from treefold.runtime.calls.budgets import Account, exceeded
from treefold.runtime.calls.child_calls import ChildCalls
from treefold.runtime.calls.files import read_files
from treefold.runtime.calls.node import CallNode, Outcome
from treefold.runtime.calls.walk import root_of
from treefold.runtime.trees.bags import close_all


def start_task(node: CallNode, context: RunContext) -> None:
    """Start the task of a call, with a copy of the current context variables."""
    if node.has_ended or (node.conclusion is not None and not node.record.state.final):
        return  # it was cancelled before
    node.context = context
    node.on_unstarted_end = None
    work = _send_again(node) if node.record.state.final else run_call(node, context)
    task = node.loop_handle.loop.create_task(work, name=node.record.requested.function)
    if node.task is None and not node.has_ended:  # the loop does not start tasks eagerly
        node.task = task
        task.add_done_callback(node.end_if_never_begun)


async def _send_again(node: CallNode) -> None:
    """Send the recorded values of a call that has ended to the sink of its request."""
    try:
        for value in node.record.values:
            if node.request.sink is not None:
                await node.request.sink(value)
    finally:
        node.settle()


async def run_call(node: CallNode, context: RunContext) -> None:
    """Run the call and end its node."""
    outcome: Outcome
    try:
        is_resumed = not _begin(node, context)
        try:
            if is_resumed:
                await _keep_limits(node)
            elif node.accounts or node.request.timeout is not None:
                _start_timers(node)
            outcome = NodeState.Success, await _work(node, context), None
        except asyncio.CancelledError:
            node.suspend_if_loop_ends()
            outcome = node.cancelled_outcome()
        except BaseException as error:
            if _ends_the_loop(node, error):
                raise
            # Whatever else a function raises is the outcome of the call.
            outcome = NodeState.Error, None, error
        node.has_returned = True
        if node.child_calls is not None or node.tree.deps is not None:
            await _wind_up(node, outcome)
        elif node.timers:
            node.stop_timers()
        if node.tree.journal is None and (node.tree.kept or node.record.parent is not None):
            node.end(outcome)
        else:
            await _finish(node, outcome)
    # Ctrl-C may come at any line, and nothing can be awaited after it.
    except KeyboardInterrupt as error:
        _interrupt(node, error)
        raise


def _begin(node: CallNode, context: RunContext) -> bool:
    """Prepare the task of the call; return whether no earlier process has started it."""
    RunContext.active.set(context)
    if node.task is None:  # the loop starts its tasks eagerly
        node.task = asyncio.current_task()
    else:
        node.task.remove_done_callback(node.end_if_never_begun)
    if node.record.state is not NodeState.Waiting:
        return False
    now, timeout = time.time(), node.request.timeout
    deadline, gated = None if timeout is None else now + timeout, node.request.gate is not None
    node.tree.publish(CallStarted(node.id, now, deadline, gated))
    return True


async def _work(node: CallNode, context: RunContext) -> Any:
    args, function, request = node.record.inputs, node.function, node.request
    if request.gate is not None or function.uses_recursion:
        try:
            args = await _pass_gate(node, context)
        except Concluded as known:
            return known.value
    if not (function.is_agent and node.knows_all):
        for value in args.values():
            if type(value) is FromFile:
                args = await read_files(args, function.name)
                break
        if not request.checked:
            args = function.parameters.validate(args)
    if node.tree.journal is not None:
        await node.tree.journal.saved(node)
    if (deps := node.tree.deps) is not None:
        await deps.open()
    return await function.run_call(context, args)


async def _pass_gate(node: CallNode, context: RunContext) -> Mapping[str, Any]:
    """Wait for the gate, and return the arguments to run with."""
    if node.function.uses_recursion:
        _check_depth(node)
    if node.request.gate is not None:
        args = await node.request.gate(context)
        if args is not node.inputs:
            node.tree.publish(ArgumentsEdited(node.id, args))
        node.tree.publish(CallAllowed(node.id))
    return node.inputs


def _check_depth(node: CallNode) -> None:
    function = node.function
    depth, above = 0, node.parent
    while above is not None:
        depth += above.function is function
        above = above.parent
    if depth >= function.max_depth:
        raise RecursionDepthError(
            f"{function.name} may call itself {function.max_depth} deep and not"
            " deeper: solve this without calling it again, or give it a greater max_depth"
        )


# Its time limits


def _start_timers(node: CallNode) -> None:
    # Timers of the same length are cheap, so the time until the deadline is not computed.
    if (timeout := node.request.timeout) is not None:
        node.start_timer(timeout, _time_out, node, timeout)
    for account in node.accounts:
        if (seconds := account.seconds_left()) is not None:
            node.start_timer(seconds, _exceed, node, account)


async def _keep_limits(node: CallNode) -> None:
    """Start the timers of a call that an earlier process started, or end it if its time is over.

    The time in which no process ran it counts.
    """
    record, deadline = node.record, node.record.deadline
    since = time.time() if record.since is None else record.since
    # It was opened again, by a fork for example, or an earlier version of treefold recorded it.
    if deadline is None and node.request.timeout is not None:
        deadline = since + node.request.timeout
    if deadline is not None:
        timeout = round(deadline - since, 3)
        # A clock that was set back does not prolong it.
        left = min(deadline - time.time(), timeout)
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


# Its end


async def _wind_up(node: CallNode, outcome: Outcome) -> None:
    """Wait for the children, stop the timers, and close the dependencies of a tree that ends."""
    if node.child_calls is not None:
        await _join(node, node.child_calls, cancel=outcome[0] is not NodeState.Success)
    if node.timers:
        node.stop_timers()
    deps = node.tree.deps
    if deps is not None and deps.top == node.id:
        try:
            await deps.close(outcome[2])
        except asyncio.CancelledError:
            node.suspend_if_loop_ends()


async def _join(node: CallNode, calls: ChildCalls[CallNode], *, cancel: bool) -> None:
    """Wait for the children that still run; the outcome of this call stays the same."""
    if calls.unclaimed:
        _leave_unclaimed(node)
    while calls.running:
        if cancel:
            calls.closed = True
            for child in calls.nodes:
                child.cancel_on_loop(node.cancel_reason or f"{node.function.name} ended without it")
        try:
            for child in calls.nodes:
                await child.ended()
        except asyncio.CancelledError:
            node.suspend_if_loop_ends()
            cancel = True


def _leave_unclaimed(node: CallNode) -> None:
    """Cancel the recorded calls that were not made again, and publish a notice of them."""
    left = node.calls.take_unclaimed()
    for child in left:
        reason = f"{node.function.name} did not ask for it again"
        child.cancel_on_loop(reason, cause=StopCause.Unclaimed)
    if node.cancel_reason is None:
        names = ", ".join(f"{child.function.name} ({address(child.path)})" for child in left)
        text = f"these calls of an earlier process were not asked for again: {names}"
        indexes = tuple(child.index for child in left)
        node.tree.publish(NoticeGiven(node.id, text, indexes))


async def _finish(node: CallNode, outcome: Outcome) -> None:
    """End the call after its outcome is saved, or after the bags of its tree are closed."""
    if (journal := node.tree.journal) is not None:
        node.record_outcome(journal, outcome)
        await node.end_saved(journal)
        return
    try:
        if bags := node.tree.take_bags():
            await close_all(bags)
    finally:
        node.end(outcome)


def _ends_the_loop(node: CallNode, error: BaseException) -> bool:
    """Whether *error* is not the function's own: the loop is ending, or has ended."""
    return isinstance(error, KeyboardInterrupt) or not node.loop_handle.loop.is_running()


def _interrupt(node: CallNode, error: KeyboardInterrupt) -> None:
    """End the call at once, at whatever point it is."""
    if node.tree.journal is not None:
        # The call stays open in the journal, and the next driver resumes it.
        node.tree.journal.suspend()
    for child in node.children:
        child.cancel_on_loop("interrupted")
    if (task := asyncio.current_task()) is not None:
        # Retrieve the exception: asyncio would log that it was never retrieved.
        task.add_done_callback(lambda task: task.exception())
    if node.has_ended:
        node.wake()
    elif node.record.state.final:
        node.settle()
    elif node.record.state is NodeState.Waiting:
        node.end(node.cancelled_outcome())
    else:
        node.end((NodeState.Error, None, error))
