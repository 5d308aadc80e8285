"""The outcome of a call: what its function returned or raised, and the event that states it."""

from typing import Any

from treefold.core.events import CallEnded, Failure
from treefold.core.record import CallRecord
from treefold.core.restoring import exception_of
from treefold.core.states import CANCELED, PAUSED, RUNNING, SUCCESS, NodeState, check_transition
from treefold.runtime.calls.cancellation import Cancellation

Outcome = tuple[NodeState, Any, BaseException | None]


def end_of(
    record: CallRecord, outcome: Outcome, cancellation: Cancellation | None, now: float
) -> CallEnded:
    """Return the event that a call ends *now* with *outcome*.

    Raises:
        IllegalTransitionError: its state does not allow it.
    """
    state, value, error = outcome
    before = record.state
    # A call that asked a question may return without waiting for the answer.
    if before is PAUSED and state is SUCCESS:
        before = RUNNING
    if before is not RUNNING:
        check_transition(before, state)
    failure, stop = None, None
    if error is not None:
        failure = Failure.of(error)
        if cancellation is not None and (state is CANCELED or error is cancellation.error):
            stop = cancellation.stop(record.path)
    return CallEnded(record.requested.node, state, now, value, failure, stop)


def raised_in(ended: CallEnded) -> BaseException | None:
    """Return the exception that a call of another process has raised."""
    if ended.exception is None:
        return None
    return exception_of(ended.exception)
