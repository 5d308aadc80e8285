"""Runs one call, from its first line to its outcome.

When its function is done, the call waits for the children that still run (cancelling them first if
it failed), so that no call outlives its caller. The outcome is what the function returned or
raised, whatever happens during that wait.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from treefold.core.address import address
from treefold.core.agent_events import NoticeGiven
from treefold.core.call_request import Concluded
from treefold.core.errors import RecursionDepthError
from treefold.core.events import ArgumentsEdited, CallAllowed, CallStarted, StopCause
from treefold.core.from_file import FromFile
from treefold.core.function import RunContext
from treefold.core.states import ERROR, SUCCESS, WAITING
from treefold.runtime.calls.child_calls import ChildCalls
from treefold.runtime.calls.files import read_files
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.outcome import Outcome
from treefold.runtime.calls.stage import ENDED, JOINING, REQUESTED, RESENDING, RUNNING, SCHEDULED
from treefold.runtime.calls.time_limits import keep_limits, start_timers
from treefold.runtime.trees.bags import SessionBag, close_all


def start_task(node: CallNode, context: RunContext) -> None:
    """Start the task of a call, with a copy of the current context variables."""
    if node.stage is REQUESTED:
        node.advance(SCHEDULED)
        work = run_call(node, context)
    elif node.stage is RESENDING:
        work = _send_again(node)
    else:
        return  # it was cancelled before
    node.context = context
    node.on_unstarted_end = None
    begins_in = node.stage
    task = node.loop_handle.loop.create_task(work, name=node.record.requested.function)
    if node.stage is begins_in:  # the loop does not start tasks eagerly
        node.task = task
        task.add_done_callback(node.end_if_never_begun)


async def _send_again(node: CallNode) -> None:
    """Send the recorded values of a call that has ended to the sink of its request."""
    try:
        for value in node.record.values:
            if node.request.sink is not None:
                await node.request.sink(value)
    finally:
        if node.stage is RESENDING:
            node.settle()


async def run_call(node: CallNode, context: RunContext) -> None:
    """Run the call and end its node, whatever is raised meanwhile."""
    outcome: Outcome
    try:
        try:
            try:
                is_resumed = not _begin(node, context)
                outcome = SUCCESS, await _work(node, context, is_resumed=is_resumed), None
            except asyncio.CancelledError:
                node.suspend_if_loop_ends()
                outcome = node.cancelled_outcome()
            except BaseException as error:
                if _ends_the_loop(node, error):
                    raise
                # Whatever else a function raises is the outcome of the call.
                outcome = ERROR, None, error
            tree = node.tree
            if node.child_calls is not None or tree.deps is not None:
                node.advance(JOINING)
                await _join(node, outcome)
            elif node.timers:
                node.stop_timers()
            if (journal := tree.journal) is not None:
                node.record_outcome(journal, outcome)
                await node.end_saved(journal)
            elif tree.kept or node.parent is not None or not (bags := tree.take_bags()):
                node.end(outcome)
            else:
                await _end_with(bags, node, outcome)
        except BaseException as error:  # noqa: BLE001 - its waiters must not hang for anything
            await _end_failed(node, error)
    # Ctrl-C may come at any line, and nothing can be awaited after it.
    except KeyboardInterrupt as error:
        _interrupt(node, error)
        raise


def _begin(node: CallNode, context: RunContext) -> bool:
    """Start the call; return False if an earlier process has started it."""
    RunContext.active.set(context)
    if node.task is None:  # the loop starts its tasks eagerly
        node.task = asyncio.current_task()
    else:
        node.task.remove_done_callback(node.end_if_never_begun)
    node.advance(RUNNING)
    if node.record.state is not WAITING:
        return False
    now, timeout = node.tree.now(), node.request.timeout
    deadline, gated = None if timeout is None else now + timeout, node.request.gate is not None
    node.tree.publish(CallStarted(node.id, now, deadline, gated))
    if node.accounts or timeout is not None:
        start_timers(node)
    return True


async def _work(node: CallNode, context: RunContext, *, is_resumed: bool) -> Any:
    if is_resumed:
        await keep_limits(node)
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


# Its end


async def _join(node: CallNode, outcome: Outcome) -> None:
    """Wait for the children, stop the timers, and close the dependencies of a tree that ends."""
    if node.child_calls is not None:
        cancels = outcome[0] is not SUCCESS
        await _children_ended(node, node.child_calls, cancel=cancels)
    if node.timers:
        node.stop_timers()
    deps = node.tree.deps
    if deps is not None and deps.top == node.id:
        try:
            await deps.close(outcome[2])
        except asyncio.CancelledError:
            node.suspend_if_loop_ends()


async def _children_ended(node: CallNode, calls: ChildCalls[CallNode], *, cancel: bool) -> None:
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


async def _end_failed(node: CallNode, error: BaseException) -> None:
    """End a call whose end has raised *error*, which becomes its outcome if it has none."""
    if node.stage is ENDED or _ends_the_loop(node, error):
        raise error
    outcome: Outcome = ERROR, None, error
    try:
        if node.stage is RUNNING:
            node.advance(JOINING)
        if node.stage is JOINING:
            await _join(node, outcome)
        journal = node.tree.journal
        if journal is not None and not node.record.state.final:
            node.record_outcome(journal, outcome)
            await node.end_saved(journal)
    except Exception:
        await _end_with(_bags_to_close(node), node, outcome)
        raise
    await _end_with(_bags_to_close(node), node, outcome)


def _bags_to_close(node: CallNode) -> Sequence[SessionBag]:
    """Take the bags of a tree that nothing else closes: it ends now, and is not kept."""
    tree = node.tree
    is_kept = tree.kept or tree.journal is not None or node.parent is not None
    return () if is_kept else tree.take_bags()


async def _end_with(bags: Sequence[SessionBag], node: CallNode, outcome: Outcome) -> None:
    """End the top-level call of a tree that is not kept after its *bags* are closed."""
    try:
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
    if node.stage is ENDED:
        node.wake()
    elif node.record.state is WAITING:
        node.end(node.cancelled_outcome())
    else:
        node.end((ERROR, None, error))
