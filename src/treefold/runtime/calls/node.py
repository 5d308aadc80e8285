"""``CallNode``: one call, from its request to its end.

A node is the record of its call, the task that runs it, those who wait for it, and the calls that
it has made. It is changed only on its runtime's loop; ``result``, ``cancel`` and ``await`` may be
used in any thread and switch to that loop themselves.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from types import TracebackType
from typing import Any

from treefold.core.address import address
from treefold.core.call_keys import of_content
from treefold.core.call_request import CallRequest
from treefold.core.errors import (
    ClosedError,
    FencedError,
    TooLargeError,
    UsageError,
)
from treefold.core.escaping import one_line
from treefold.core.events import (
    ArgumentsEdited,
    CallEnded,
    CallPaused,
    CallReopened,
    CallResumed,
    Event,
    Failure,
    StopCause,
    ValueSent,
)
from treefold.core.exchange import Exchange
from treefold.core.function import Node, RunContext
from treefold.core.record import CallRecord
from treefold.core.states import NodeState, check_transition
from treefold.core.usage import NO_COST, NO_USAGE, TokenUsage
from treefold.runtime.calls.budgets import Account
from treefold.runtime.calls.cancellation import Cancellation
from treefold.runtime.calls.child_calls import ChildCalls
from treefold.runtime.calls.waiters import Waiters, Wake
from treefold.runtime.loops.loop_handle import LoopHandle, settle as settle_future
from treefold.runtime.loops.timers import AnyTimer
from treefold.runtime.trees.bags import SessionBag
from treefold.runtime.trees.question_board import QuestionBoard
from treefold.runtime.trees.tree import Recorder, Tree

log = logging.getLogger(__name__)

Outcome = tuple[NodeState, Any, BaseException | None]
# Asks the process that runs the node with this id to cancel it, for a reason.
RemoteCancel = Callable[[int, str, StopCause], None]


class CallNode(Node[Any]):  # noqa: PLR0904 - most of the public methods are properties
    """A call: its record, its task, its waiters and its child calls.

    Args:
        record: of the call, which was made just now or in an earlier process.
        request: the function, arguments and options; of a recorded call, what the journal has.
    """

    # Two are not set here: "conversation" is for agents, and "unread" for calls whose tree is read
    # later (``unread_nodes``), which become the one or the other.

    __slots__ = (
        "__weakref__",
        "_cancellation",
        "_pauses",
        "_repeated",
        "_traceback",
        "_waiters",
        "accounts",
        "asked_for",
        "board",
        "child_calls",
        "conclusion",
        "context",
        "conversation",
        "exception",
        "function",
        "has_ended",
        "has_returned",
        "id",
        "loop_handle",
        "on_unstarted_end",
        "parent",
        "record",
        "remote_cancel",
        "request",
        "task",
        "timers",
        "tree",
        "unread",
        "waiting_on",
    )

    parent: "CallNode | None"

    def __init__(
        self,
        record: CallRecord,
        request: CallRequest,
        *,
        parent: "CallNode | None",
        tree: Tree,
        loop_handle: LoopHandle,
        board: QuestionBoard,
    ) -> None:
        self.id = record.requested.node
        self.record = record
        self.request = request
        self.function = request.function
        self.tree = tree
        self.loop_handle = loop_handle
        self.board = board
        self.context: RunContext | None = None
        self.task: asyncio.Task[None] | None = None
        self.accounts: tuple[Account, ...] = ()
        self.exception = None
        self.waiting_on = None
        self.asked_for = request.sink is not None  # whether its outcome has been asked for
        self.has_returned = False  # its function is done; only children may still run
        self.has_ended = False  # it has its outcome, and its waiters have been woken
        self.on_unstarted_end: Callable[[], None] | None = None  # called if it ends unstarted
        self.parent = parent  # pyright: ignore[reportIncompatibleMethodOverride]
        self.child_calls: ChildCalls[CallNode] | None = None  # made for the first one
        self._waiters = Waiters(loop_handle)
        self._traceback: TracebackType | None = None
        self.conclusion: CallEnded | None = None  # its outcome, which may still have to be saved
        self._pauses = 0  # how many begin_pause calls have not been ended
        self._repeated = 0  # how many values it will send that are recorded already
        self._cancellation: Cancellation | None = None  # made when it is first cancelled
        self.timers: list[AnyTimer] | tuple[()] = ()
        self.remote_cancel: RemoteCancel | None = None  # of a call that another process runs
        if (ended := record.ended) is not None:
            self.conclusion, self.has_ended = ended, True
            self._waiters.are_woken = True
            self.exception = _exception_of(ended)
            self.asked_for = True  # in the earlier process
        if parent is not None:
            siblings = parent.calls
            siblings.nodes.append(self)
            siblings.running += not self.has_ended

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {self.function.name} {self.state}>"

    # What it is

    @property
    def path(self) -> str:
        return self.record.path

    @property
    def index(self) -> int:
        """Its position among its siblings, from 1."""
        return self.record.requested.index

    @property
    def sequence(self) -> int:
        return self.record.requested.sequence

    @property
    def tool_use_id(self) -> str | None:
        return self.record.requested.tool_use_id

    @property
    def stable_id(self) -> int:
        """Its id, or that of the call of a failed tree that it resumes."""
        return self.record.requested.continues or self.id

    @property
    def state(self) -> NodeState:
        return self.record.state

    @property
    def inputs(self) -> Mapping[str, Any]:
        return self.record.inputs

    @property
    def outputs(self) -> Any:
        ended = self.record.ended
        return None if ended is None else ended.outputs

    @property
    def started_at(self) -> datetime | None:
        return self.record.started_at

    @property
    def ended_at(self) -> datetime | None:
        return self.record.ended_at

    @property
    def usage(self) -> TokenUsage:
        return self.record.conversation.usage

    @property
    def cost(self) -> Decimal | None:
        return self.record.conversation.cost

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """Its completed exchanges with a model; empty if it is not an agent's call."""
        return ()

    @property
    def total_usage(self) -> TokenUsage:
        spending = self.record.spending
        return NO_USAGE if spending is None else spending.usage

    @property
    def total_cost(self) -> Decimal | None:
        spending = self.record.spending
        return NO_COST if spending is None else spending.cost

    @property
    def bag(self) -> SessionBag:
        """The objects of this node, which live as long as its tree."""
        return self.tree.bag_of(self.id)

    @property
    def is_under_way(self) -> bool:
        """Whether it has been started by this process and has not ended."""
        return self.task is not None

    @property
    def is_requesting(self) -> bool:
        """Whether a request to a model is under way; only agents send any."""
        return False

    @property
    def concluded(self) -> bool:
        """Whether its outcome is decided, and published or recorded."""
        return self.conclusion is not None

    @property
    def is_ending(self) -> bool:
        """Whether its outcome is decided, and only has to be saved."""
        return self.conclusion is not None and not self.record.state.final

    @property
    def knows_all(self) -> bool:
        """Whether its arguments are not needed any more: an earlier process has used them."""
        return False

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it took too long."""
        return self.stopped_by is StopCause.Timeout

    @property
    def stopped_by(self) -> StopCause | None:
        """Why it was stopped, or None."""
        ended = self.record.ended
        return None if ended is None or ended.stop is None else ended.stop.cause

    # Its calls

    @property
    def calls(self) -> "ChildCalls[CallNode]":
        """The calls that it has made."""
        if self.child_calls is None:
            self.child_calls = ChildCalls()
        return self.child_calls

    @property
    def children(self) -> "Sequence[CallNode]":
        return () if self.child_calls is None else self.child_calls.nodes

    def get_children(self) -> list[Node | list[Node]]:
        batches: dict[int, list[Node]] = {}
        for child in list(self.children):
            batches.setdefault(child.sequence, []).append(child)
        return [batch if len(batch) > 1 else batch[0] for batch in batches.values()]

    def check_open(self) -> None:
        """Raise ClosedError if it can make no more calls."""
        if self.has_ended or (self.child_calls is not None and self.child_calls.closed):
            raise ClosedError(
                f"{self.function.name} ({address(self.path)}) has ended and can make no more calls;"
                " await what it starts before it returns"
            )

    def key_of(self, request: CallRequest) -> str:
        """Return a new key for the call that *request* asks for, unique among its calls."""
        return self.calls.key_of(request, "" if request.key else self.content_key(request))

    def content_key(self, request: CallRequest) -> str:
        """Return the key of a call that was given none."""
        journal, args = self.tree.journal, request.args
        # The key is compared with those of recorded calls, whose arguments are redacted.
        if journal is not None and journal.redacts:
            args = journal.as_written(args)
        return of_content(request.function.name, request.model, args)

    def may_make_again(self, key: str) -> bool:
        """Whether this call may make the call with this key again when it is resumed."""
        return not self.has_ended

    def expect_again(self, child: "CallNode") -> None:
        """Add a call of an earlier process to the unclaimed ones, if it may be made again."""
        key = child.record.requested.key
        if self.may_make_again(key):
            self.calls.unclaimed[key] = child

    def note_resignation(self, error: BaseException | None) -> None:
        """Note that an agent gave up with *error*, raised by one of its calls; agents override."""

    def continuation(self) -> CallRequest:
        """Return the request for a call that continues where this one ended.

        Raises:
            UsageError: it is not the call of an agent.
        """
        raise UsageError(f"{self!r} is not a call of an agent and cannot continue: call it again")

    async def send(self, value: Any) -> None:
        """Publish a value of this call, and pass it to the sink of its request."""
        if self.has_ended:
            raise ClosedError(
                f"{self.function.name} ({address(self.path)}) has ended; it sends no more"
            )
        if self._repeated:
            self._repeated -= 1
        else:
            self.tree.publish(ValueSent(self.id, value))
            # A call that sends quickly waits for the journal, so that others need not wait longer.
            if (journal := self.tree.journal) is not None and journal.is_behind:
                await journal.saved(self)
        if self.request.sink is not None:
            await self.request.sink(value)

    # Waiting for it

    def result(self, timeout: float | None = None) -> Any:
        self.asked_for = True
        if not self.has_ended:
            caller, is_caller = self._begin_wait()
            is_over = False
            try:
                self.loop_handle.refuse_blocking(f"result() of {self.function.name!r}")
                mark = partial(self._mark_waiting, caller)
                is_over = self._waiters.block(timeout, mark, is_caller=is_caller)
            finally:
                if caller is not None and caller.waiting_on is self:
                    caller.waiting_on = None
            if not is_over:
                raise TimeoutError(
                    f"{self.function.name} ({address(self.path)}) has not ended in {timeout} s;"
                    " it still runs: wait again, or cancel it"
                )
        if self.exception is None:
            return self.outputs
        raise self.exception.with_traceback(self._traceback)

    def __await__(self) -> Generator[Any, None, Any]:
        self.asked_for = True
        if not self.has_ended:
            caller, is_caller = self._begin_wait()
            if caller is not None:
                caller.waiting_on = self
            try:
                yield from self._waiters.wait(self.abandon if is_caller else None)
            finally:
                if caller is not None and caller.waiting_on is self:
                    caller.waiting_on = None
        if self.exception is None:
            ended = self.record.ended
            return None if ended is None else ended.outputs
        raise self.exception.with_traceback(self._traceback)

    def _begin_wait(self) -> "tuple[CallNode | None, bool]":
        """Return the parent if the code that waits here belongs to it, and whether it is a caller.

        A caller is the code that made this call, which is of no use to others: its parent, or for a
        top-level call all code outside any call.
        """
        asking, parent = RunContext.active.get(None), self.parent
        if asking is not None:
            if asking is self.context:
                name = f"{self.function.name} ({address(self.path)})"
                raise UsageError(f"{name} cannot wait for itself")
            if parent is not None and asking is parent.context:
                return parent, True
            # This call may need a lease, so the call that waits here gives its own up.
            asking.give_up_lease()
        # A call in a journal outlives its waiters: Ctrl-C cancels the task that awaits it, too, and
        # the next process resumes the call.
        if parent is not None or self.tree.journal is not None:
            return None, False
        return None, asking is None or asking is asking.runtime.get_ctx()

    def _mark_waiting(self, caller: "CallNode | None") -> None:
        if caller is not None:
            caller.waiting_on = self

    def add_end_callback(self, wake: Wake) -> None:
        """Call *wake* on the loop when the call ends, or at once if it has ended."""
        self._waiters.add(wake)

    def when_answering(self, wake: Callable[[], None]) -> None:
        """Call *wake* on the loop when its model has begun to answer, or when the call ends."""
        self._waiters.add(wake)

    def remove_end_callback(self, wake: Wake) -> None:
        """Remove a callback added with ``add_end_callback``."""
        self._waiters.remove(wake)

    async def ended(self) -> None:
        """Wait on the runtime's own loop until the call has ended, with whatever outcome."""
        if not self.has_ended:
            ended = self.loop_handle.loop.create_future()
            self._waiters.add(partial(settle_future, ended))
            await ended

    # Pausing it

    def begin_pause(self, reason: str, *, show: Callable[[Event], object] | None = None) -> None:
        """Enter Paused if it runs; each call of this needs a matching ``end_pause``.

        The change is passed to *show*, if given, instead of being published.
        """
        if self.record.state is NodeState.Running:
            (show or self.tree.publish)(CallPaused(self.id, time.time(), reason))
            self.tree.paused.add(self)
        self._pauses += 1

    def end_pause(self, *, show: Callable[[Event], object] | None = None) -> None:
        """End one pause; the call runs again when none is left."""
        self._pauses -= 1
        if not self._pauses and self.record.state is NodeState.Paused:
            self.tree.paused.discard(self)
            (show or self.tree.publish)(CallResumed(self.id, time.time()))

    # Cancelling it

    def cancel(self, reason: str = "cancelled") -> None:
        if not self.has_ended:
            self.loop_handle.run_soon(self._cancel_or_insist, reason)

    def _cancel_or_insist(self, reason: str) -> None:
        if self._cancellation is None or not self._cancellation.confirm(reason):
            self.cancel_on_loop(reason, insist=self.cancel_reason is not None)

    def abandon(self, reason: str = "its caller stopped waiting for it") -> None:
        """Cancel the call because its caller does not wait for it any more."""
        self.cancel_on_loop(reason, cause=StopCause.Abandoned)

    def fail_with(self, error: BaseException, reason: str, cause: StopCause) -> None:
        """Cancel the call for this *reason*; it fails with *error* unless it had an outcome."""
        if self.cancel_reason is None and not self.has_returned:
            self._get_cancellation().error = error
        self.cancel_on_loop(reason, cause=cause)

    def _get_cancellation(self) -> Cancellation:
        if self._cancellation is None:
            self._cancellation = Cancellation()
        return self._cancellation

    def cancel_on_loop(
        self, reason: str, *, insist: bool = False, cause: StopCause = StopCause.Cancelled
    ) -> None:
        """Cancel every task of the subtree; runs on the runtime's own loop.

        Nodes that are being cancelled already, and all below them, are not cancelled again while
        they clean up, unless *insist*. A call that has not ended after ``patience`` seconds is
        cancelled again.
        """
        if self.has_ended or (self.cancel_reason is not None and not insist):
            return
        if self.remote_cancel is not None:
            self._cancel_remotely(self.remote_cancel, reason, cause)
            return
        if self.cancel_reason is None:
            self._get_cancellation().cause = cause
        self._cancel_subtree(reason, insist=insist)
        self._repeat_later()

    def _cancel_subtree(self, reason: str, *, insist: bool, repeated: bool = False) -> None:
        stack: list[tuple[CallNode, str]] = [(self, reason)]
        unrun: list[CallNode] = []  # nodes whose task will not end them, callers first
        while stack:
            node, why = stack.pop()
            if node.has_ended or (node.cancel_reason is not None and not insist):
                continue
            if repeated and node._is_being_saved:
                continue
            if node.remote_cancel is not None:
                node._cancel_remotely(node.remote_cancel, why, StopCause.Cancelled)
                continue
            cancellation = node._get_cancellation()
            cancellation.reason = cancellation.reason or why
            below = f"{node.function.name} was cancelled: {reason}"
            stack.extend((child, below) for child in node.children)
            if node.task is not None:
                node.task.cancel()
            if node.task is None or node.record.state is NodeState.Waiting:
                unrun.append(node)
        for node in reversed(unrun):
            node._end_unrun()

    def _cancel_remotely(self, cancel: RemoteCancel, reason: str, cause: StopCause) -> None:
        """Ask the process that runs the call to cancel it; its end arrives like any other."""
        caller, journal = self.parent, self.tree.journal
        runs_caller = caller is not None and caller.remote_cancel is None
        if not runs_caller or journal is None or not journal.is_closed:
            cancel(self.id, reason, cause)
        # This process gives its caller up, and the call continues elsewhere.
        elif self.task is not None:
            self.task.cancel()
        else:
            self.end(self.cancelled_outcome())

    def _repeat_later(self) -> None:
        """Schedule another cancellation, because code may swallow one.

        ``asyncio.wait_for`` does on Python 3.11, if what it waits for is done at the same moment.
        """
        over = self.has_ended or self.loop_handle.loop.is_closed()
        patience, again = self.loop_handle.patience, self._cancel_again
        timer = None if over else self.loop_handle.call_later(patience, again)
        self._get_cancellation().repeat_at(timer)

    def _cancel_again(self) -> None:
        self._cancel_subtree(self.cancel_reason or "cancelled", insist=True, repeated=True)
        self._repeat_later()

    @property
    def cancel_reason(self) -> str | None:
        """Why it is being cancelled, itself or with a call above it; None if it is not."""
        return None if self._cancellation is None else self._cancellation.reason

    @property
    def _is_being_saved(self) -> bool:
        """Whether its outcome waits to be written.

        Its function is done then and can swallow no cancellation; cancelling the task would publish
        an outcome that is not saved yet.
        """
        journal = self.tree.journal
        return self.concluded and journal is not None and not journal.is_closed

    def start_timer(self, seconds: float, function: Callable[..., None], *args: Any) -> None:
        """Call *function* after a delay, unless the call has ended or its timers are stopped."""
        self.timers = [*self.timers, self.loop_handle.call_later(seconds, function, *args)]

    def stop_timers(self) -> None:
        """Stop the timers of ``start_timer``."""
        for timer in self.timers:
            timer.cancel()
        self.timers = ()

    # Ending it

    def cancelled_outcome(self) -> Outcome:
        """Return the outcome of the call if it is cancelled."""
        cancellation = self._get_cancellation()
        state = NodeState.Canceled if cancellation.error is None else NodeState.Error
        return state, None, cancellation.outcome(self.function.name, self.path)

    def end(self, outcome: Outcome) -> None:
        """Publish the outcome of the call, unless it was published, and wake its waiters."""
        if self.has_ended:  # it was ended early, by Ctrl-C or a cancellation
            return
        if self.conclusion is None:
            self.tree.publish(self._conclude(outcome))
        else:
            self._show_conclusion()
        self.settle()

    def record_outcome(self, journal: Recorder, outcome: Outcome) -> None:
        """Record the outcome in the journal, without publishing it yet.

        A result or exception that is too large for the journal is replaced by a TooLargeError.
        """
        try:
            journal.record(self.tree.id, self._conclude(outcome))
        except TooLargeError as error:
            error.__cause__ = outcome[2]
            journal.record(self.tree.id, self._conclude((NodeState.Error, None, error)))

    async def end_saved(self, journal: Recorder) -> None:
        """End the call, and publish its outcome, when that is saved."""
        try:
            await journal.saved(self)
        except FencedError as error:
            # Another process drives the journal now, and the outcome of the call is decided there.
            waits = self.record.state is NodeState.Waiting
            self._conclude((NodeState.Canceled if waits else NodeState.Error, None, error))
        finally:
            if not self.has_ended:
                self._show_conclusion()
                self.settle()

    def _conclude(self, outcome: Outcome) -> CallEnded:
        """Decide the outcome, and return the event that states it."""
        state, value, error = outcome
        before = self.record.state
        # A call that asked a question may return without waiting for the answer.
        if before is NodeState.Paused and state is NodeState.Success:
            before = NodeState.Running
        if before is not NodeState.Running:
            check_transition(before, state)
        failure, stop = None, None
        if error is not None:
            failure = Failure.of(error)
            cancellation = self._cancellation
            if cancellation is not None and (
                state is NodeState.Canceled or error is cancellation.error
            ):
                stop = cancellation.stop(self.path)
        self.exception = error
        self._traceback = None if error is None else error.__traceback__
        self.conclusion = CallEnded(self.id, state, time.time(), value, failure, stop)
        return self.conclusion

    def _show_conclusion(self) -> None:
        if self.conclusion is not None and not self.record.state.final:
            self.tree.show(self.conclusion)

    def settle(self) -> None:
        """Mark the call as ended, release what it holds, and wake its waiters."""
        if (parent := self.parent) is not None:
            siblings = parent.calls
            siblings.running -= 1
            siblings.failed += self.record.state is NodeState.Error
        # Ctrl-C is delivered at calls, and there is none between the counters above and this line.
        self.has_ended = True
        self._waiters.are_woken = True
        self.task = None
        self.tree.paused.discard(self)
        if self.child_calls is not None and self.child_calls.failed:
            for child in self.child_calls.nodes:
                report_if_unseen(child)
        self.context = None  # breaks a reference cycle
        if self.timers:
            self.stop_timers()
        if self._cancellation is not None:
            self._cancellation.repeat_at(None)
        if self.on_unstarted_end is not None:
            self.on_unstarted_end()
        self._waiters.wake()

    def wake(self) -> None:
        """Wake the waiters of a call that has ended, if Ctrl-C interrupted that."""
        self._waiters.wake()

    def _end_unrun(self) -> None:
        """End a call whose task has not reached its first line."""
        self.waiting_on = None
        if self.parent is not None:
            self.parent.suspend_if_loop_ends()
        outcome, journal, loop = self.cancelled_outcome(), self.tree.journal, self.loop_handle.loop
        if journal is None or not loop.is_running():
            self.end(outcome)
        elif not self.concluded:
            self.record_outcome(journal, outcome)
            self.board.forget_old(self.id)
            self.task = loop.create_task(
                self._end_last(journal), name=f"end of {self.function.name}"
            )

    def end_if_never_begun(self, task: "asyncio.Task[None]") -> None:
        """End the call if its task was cancelled before its first line."""
        if self.has_ended:
            return
        if self.record.state.final:
            # It had ended in an earlier process, and was to send its values again.
            self.settle()
        elif not self.concluded:
            self.suspend_if_loop_ends()
            self.end(self.cancelled_outcome())

    async def _end_last(self, journal: Recorder) -> None:
        """End the call after its children, or when the wait for them is cancelled."""
        try:
            for child in self.children:
                await child.ended()
        finally:
            await self.end_saved(journal)

    def suspend_if_loop_ends(self) -> None:
        """Suspend the journal if the whole loop is ending and the call itself was not cancelled.

        Then no end is recorded, and the next process resumes the call.
        """
        journal, task = self.tree.journal, self.task
        if (
            journal is None
            or self.cancel_reason is not None
            or task is None
            or not task.cancelling()
        ):
            return
        if not journal.is_closed and self.loop_handle.is_ending():
            journal.suspend()

    # Calls of an earlier process

    def resume_as(self, request: CallRequest) -> None:
        """Attach a new request to a recovered call, which continues from its recorded state."""
        self.waiting_on = None
        if self.record.state is NodeState.Paused:
            self.tree.publish(CallResumed(self.id, time.time()))
        if request.tool_use_id is not None and not self.has_ended and self._differs(request.args):
            # Hooks have been asked again, about the edited ones if they were edited.
            self.tree.publish(ArgumentsEdited(self.id, request.args))
        elif not self.record.edited:
            # The recorded ones lack objects that could not be serialized.
            self.record.inputs = request.args
        self._repeated = len(self.record.values)
        self.request = request
        self.function = request.function
        if not self.has_ended:
            self.asked_for = request.sink is not None
        elif request.sink is not None and self.parent is not None:
            # It has ended, but its values have to be sent to the sink again.
            self.has_ended = self._waiters.are_woken = False
            self.parent.calls.running += 1

    def _differs(self, args: Mapping[str, Any]) -> bool:
        """Whether these are other arguments than the recorded ones."""
        journal = self.tree.journal
        return journal is not None and journal.as_written(args) != self.record.inputs

    def follow(self, event: CallEnded | CallReopened) -> None:
        """Note that the call, which another process runs, has ended or runs again."""
        if isinstance(event, CallEnded):
            self.conclusion = event
            self.exception = _exception_of(event)
            self.settle()
        elif self.has_ended:
            self.has_ended = self._waiters.are_woken = False
            self.conclusion, self.exception = None, None
            if self.parent is not None:
                self.parent.calls.running += 1

    def attach(self, request: CallRequest) -> None:
        """Attach a new request to a recovered call that another process runs."""
        self.request, self.function = request, request.function

    def restore_outputs(self, value: Any) -> None:
        """Replace the recorded value of the call by *value*, restored to its type."""
        if (ended := self.record.ended) is not None and value is not ended.outputs:
            self.record.ended = self.conclusion = replace(ended, outputs=value)

    def reopen(self) -> None:
        """Reopen an ended call: it must run again, because its outcome cannot be restored."""
        self.tree.publish(CallReopened(self.id, time.time()))
        self.has_ended = self._waiters.are_woken = False
        self.conclusion, self.exception = None, None
        for child in self.children:
            self.expect_again(child)
        if self.parent is not None:
            self.parent.calls.running += 1


def _exception_of(ended: CallEnded) -> BaseException | None:
    """Return the exception that a call of another process has raised."""
    if ended.exception is None:
        return None
    from treefold.core.restoring import exception_of  # noqa: PLC0415 - seldom needed

    return exception_of(ended.exception)


class CodeNode(CallNode):
    """A call of Python code.

    Example:
        >>> from treefold import CodeFunction, CodeNode, Runtime
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(CodeFunction(name="three", callable=lambda ctx: 3))
        ...     node.result(), isinstance(node, CodeNode)
        (3, True)
    """

    __slots__ = ()


def report_if_unseen(node: CallNode) -> None:
    """Log that *node* failed if its result was never asked for, because now it cannot be."""
    if node.state is NodeState.Error and node.exception is not None and not node.asked_for:
        node.asked_for = True  # log it once
        failure = one_line(node.tree.as_written(str(Failure.of(node.exception))))
        log.warning("%s failed, and nobody asked for its result: %s", node, failure)


def report_if_abandoned(node: CallNode) -> None:
    """Log that the event loop ended before *node*, whose result was never asked for."""
    if node.state is NodeState.Canceled and node.cancel_reason is None:
        log.warning(
            "%s was cancelled, because its event loop ended and nobody asked for its result: write"
            " 'await', as in 'await %s.run(...)'",
            node,
            node.function.name,
        )
