"""The lifetime of one call: it is run as a task, may be cancelled, and ends after its children.

A node is changed only on its runtime's loop; ``result``, ``cancel`` and ``await`` may be used in
any thread and switch to that loop themselves.
"""

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from treefold.core.agent_errors import BudgetExceeded
from treefold.core.agent_events import NoticeGiven
from treefold.core.call_request import CallRequest, Concluded
from treefold.core.errors import (
    CallTimeoutError,
    CancellationException,
    ClosedError,
    FencedError,
    RecursionDepthError,
    TooLargeError,
    UsageError,
)
from treefold.core.events import (
    ArgumentsEdited,
    CallAllowed,
    CallEnded,
    CallStarted,
    Failure,
    Stop,
    StopCause,
    ValueSent,
)
from treefold.core.fold import Record
from treefold.core.from_file import FromFile
from treefold.core.function import RunContext
from treefold.core.states import NodeState
from treefold.core.usage import TokenUsage
from treefold.runtime.calls.budgets import Account, Spent
from treefold.runtime.calls.files import read_files
from treefold.runtime.calls.stated_node import StatedNode
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.trees.question_board import QuestionBoard
from treefold.runtime.trees.tree import Recorder, Tree

log = logging.getLogger(__name__)

_CANCELLED: Final = "its task was cancelled"  # the reason if none was given

Outcome = tuple[NodeState, Any, BaseException | None]


class CallNode(StatedNode):
    """A call, run as one task.

    When its function is done, the node waits for the children that still run (cancelling them
    first if it failed), so that no call outlives its caller. The outcome is what the function
    returned or raised, whatever happens during that wait.
    """

    __slots__ = (
        "__weakref__",
        "_cause",
        "_confirmed",
        "_overdue",
        "_reason",
        "_repeat",
        "_returned",
        "_task",
        "_timers",
        "accounts",
        "board",
        "cancel_start",
        "spent",
    )

    def __init__(
        self,
        id: int,
        request: CallRequest,
        *,
        parent: "CallNode | None",
        tree: Tree,
        loop_handle: LoopHandle,
        board: QuestionBoard,
        record: Record | None = None,
    ) -> None:
        super().__init__(
            id, request, parent=parent, tree=tree, loop_handle=loop_handle, record=record
        )
        self.board = board
        self.spent: Spent | None = None
        self.accounts: tuple[Account, ...] = ()
        self.cancel_start: Callable[[], None] | None = None  # called if it ends unstarted
        self.children: list[CallNode]
        self._task: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] | None = None
        self._overdue: BaseException | None = None  # the error to fail with when it is cancelled
        self._reason: str | None = None  # why it is being cancelled
        self._cause = StopCause.Cancelled
        self._confirmed = False  # it was abandoned, and then cancelled explicitly
        self._repeat: asyncio.TimerHandle | None = None  # cancels it again
        self._returned = False  # its function is done; only children may still run
        self._appear()

    # What it is

    @property
    def parent(self) -> "CallNode | None":
        return self._parent

    @property
    def usage(self) -> TokenUsage:
        return TokenUsage()

    @property
    def cost(self) -> Decimal | None:
        return Decimal(0)

    @property
    def total_usage(self) -> TokenUsage:
        return TokenUsage() if self.spent is None else self.spent.usage

    @property
    def total_cost(self) -> Decimal | None:
        return Decimal(0) if self.spent is None else self.spent.cost

    @property
    def is_under_way(self) -> bool:
        """Whether it has been started by this process and has not ended."""
        return self._task is not None

    @property
    def knows_all(self) -> bool:
        """Whether its arguments are not needed any more: an earlier process has used them."""
        return False

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it took too long."""
        if self._overdue is not None:
            return self._cause is StopCause.Timeout
        return self.stopped_by is StopCause.Timeout

    # Running it

    def start(self, context: RunContext) -> None:
        """Start the task of the call, with a copy of the current context variables."""
        if self._ended is not None or self.is_ending:  # it was cancelled before
            return
        self.context = context
        self.cancel_start = None
        work = self._send_again() if self.state.final else self._drive(context)
        task = self.loop_handle.loop.create_task(work, name=self.function.name)
        if self._task is None and self._ended is None:  # the loop does not start tasks eagerly
            self._task = task
            task.add_done_callback(self._never_began)

    def _never_began(self, task: "asyncio.Task[None]") -> None:
        if self._ended is None and self.state.final:
            # It had ended in an earlier process, and was to send its values again.
            self._settle()
        elif self._ended is None and not self.concluded:
            self._suspend_if_loop_ends()
            self._end(*self._cancelled_outcome())

    async def _drive(self, context: RunContext) -> None:
        outcome: Outcome
        try:
            self._begin(context)
            try:
                if self._request.timeout is not None or self.accounts:
                    self._start_timers()
                outcome = NodeState.Success, await self._work(context), None
            except asyncio.CancelledError:
                self._suspend_if_loop_ends()
                outcome = self._cancelled_outcome()
            except BaseException as error:
                if self._ends_the_loop(error):
                    raise
                # Whatever else a function raises is the outcome of the call.
                outcome = NodeState.Error, None, error
            self._returned = True
            if self._running or self.unclaimed:
                await self._join(cancel=outcome[0] is not NodeState.Success)
            self._stop_timers()
            if self.tree.journal is None and (self._parent is not None or self.tree.kept):
                self._end(*outcome)
            else:
                await self._finish(outcome)
        # Ctrl-C may come at any line, and nothing can be awaited after it.
        except KeyboardInterrupt as error:
            self._interrupt(error)
            raise

    def _begin(self, context: RunContext) -> None:
        RunContext.active.set(context)
        if self._task is None:  # the loop starts its tasks eagerly
            self._task = asyncio.current_task()
        else:
            self._task.remove_done_callback(self._never_began)
        if self.state is NodeState.Waiting:
            self._enter(NodeState.Running)
            self._started = now = time.time()
            self.tree.publish(CallStarted(self.id, now))

    async def _finish(self, outcome: Outcome) -> None:
        """End the call after its outcome is saved, or after the bags of its tree are closed."""
        if (journal := self.tree.journal) is not None:
            await self._end_saved(journal, *self._record_outcome(journal, outcome))
            return
        try:
            await self.tree.close_bags()
        finally:
            self._end(*outcome)

    def _record_outcome(self, journal: Recorder, outcome: Outcome) -> tuple[Outcome, CallEnded]:
        """Record the outcome in the journal, without publishing it; return what was recorded.

        A result or exception that is too large for the journal is replaced by a TooLargeError.
        """
        ended = self._conclude(*outcome)
        try:
            journal.record(self.tree.id, ended)
        except TooLargeError as error:
            error.__cause__ = outcome[2]
            outcome = NodeState.Error, None, error
            ended = self._conclude(*outcome)
            journal.record(self.tree.id, ended)
        return outcome, ended

    async def _end_saved(self, journal: Recorder, outcome: Outcome, ended: CallEnded) -> None:
        """End the call, and publish its outcome, when that is saved."""
        try:
            await journal.saved(self)
        except FencedError as error:
            # Another process drives the journal now, and the outcome of the call is decided there.
            outcome = NodeState.Error, None, error
        finally:
            self.tree.show(ended)
            self._end(*outcome)

    async def _work(self, context: RunContext) -> Any:
        args, request = self.inputs, self._request
        if request.gate is not None or self.function.uses_recursion:
            try:
                args = await self._pass_gate(context)
            except Concluded as known:
                return known.value
        if not self.knows_all:
            for value in args.values():
                if type(value) is FromFile:
                    args = await read_files(args, self.function.name)
                    break
            if not request.checked:
                args = self.function.parameters.validate(args)
        if self.tree.journal is not None:
            await self.tree.journal.saved(self)
        return await self.function.run(context, args)

    async def _pass_gate(self, context: RunContext) -> Mapping[str, Any]:
        """Wait for the gate, and return the arguments to run with."""
        if self.function.uses_recursion:
            self._check_depth()
        if self._request.gate is not None:
            args = await self._request.gate(context)
            if args is not self.inputs:
                self.inputs = args
                self.tree.publish(ArgumentsEdited(self.id, args))
            self.tree.publish(CallAllowed(self.id))
        return self.inputs

    def _check_depth(self) -> None:
        depth, node = 0, self._parent
        while node is not None:
            depth += node.function is self.function
            node = node._parent
        if depth >= self.function.max_depth:
            raise RecursionDepthError(
                f"{self.function.name} may call itself {self.function.max_depth} deep and not"
                " deeper: solve this without calling it again, or give it a greater max_depth"
            )

    def _ends_the_loop(self, error: BaseException) -> bool:
        """Whether *error* is not the function's own: the loop is ending, or has ended."""
        return isinstance(error, KeyboardInterrupt) or not self.loop_handle.loop.is_running()

    def _interrupt(self, error: KeyboardInterrupt) -> None:
        """End the call at once, at whatever point it is."""
        if self.tree.journal is not None:
            # The call stays open in the journal, and the next driver resumes it.
            self.tree.journal.suspend()
        for child in self.children:
            child.cancel_on_loop("interrupted")
        if (task := asyncio.current_task()) is not None:
            # Retrieve the exception: asyncio would log that it was never retrieved.
            task.add_done_callback(lambda task: task.exception())
        if self._ended is not None:
            self._wake()
        elif self.state.final:
            self._settle()
        elif self.state is NodeState.Waiting:
            self._end(*self._cancelled_outcome())
        else:
            self._end(NodeState.Error, None, error)

    async def send(self, value: Any) -> None:
        """Publish a value of this call, and pass it to the sink of its request."""
        if self._ended is not None:
            raise ClosedError(
                f"{self.function.name} (node {self.path}) has ended; it sends no more"
            )
        if self._repeated:
            self._repeated -= 1
        else:
            self.tree.publish(ValueSent(self.id, value))
            # A call that sends quickly waits for the journal, so that others need not wait longer.
            if (journal := self.tree.journal) is not None and journal.is_behind:
                await journal.saved(self)
        if self._request.sink is not None:
            await self._request.sink(value)

    # Ending it

    def cancel(self, reason: str = "cancelled") -> None:
        if self._ended is None:
            self.loop_handle.run_soon(self._cancel_or_insist, reason)

    def _cancel_or_insist(self, reason: str) -> None:
        if self._cause is not StopCause.Abandoned or self._confirmed:
            self.cancel_on_loop(reason, insist=self._reason is not None)
            return
        # Code that stops waiting often cancels the call as well: that is one cancel, not two. Its
        # reason says more than that of the abandonment.
        self._confirmed, self._reason = True, reason

    def cancel_on_loop(
        self, reason: str, *, insist: bool = False, cause: StopCause = StopCause.Cancelled
    ) -> None:
        """Cancel every task of the subtree; runs on the runtime's own loop.

        Nodes that are being cancelled already, and all below them, are not cancelled again while
        they clean up, unless *insist*. A call that has not ended after ``patience`` seconds is
        cancelled again.
        """
        if self._ended is not None or (self._reason is not None and not insist):
            return
        if self._reason is None:
            self._cause = cause
        self._cancel_subtree(reason, insist=insist)
        self._repeat_later()

    def _cancel_subtree(self, reason: str, *, insist: bool, repeated: bool = False) -> None:
        stack: list[tuple[CallNode, str]] = [(self, reason)]
        unrun: list[CallNode] = []  # nodes whose task will not end them, callers first
        while stack:
            node, why = stack.pop()
            if node._ended is not None or (node._reason is not None and not insist):
                continue
            if repeated and node._is_being_saved:
                continue
            node._reason = node._reason or why
            below = f"{node.function.name} was cancelled: {reason}"
            stack.extend((child, below) for child in node.children)
            if node._task is not None:
                node._task.cancel()
            if node._task is None or node.state is NodeState.Waiting:
                unrun.append(node)
        for node in reversed(unrun):
            node._end_unrun()

    def _repeat_later(self) -> None:
        """Schedule another cancellation, because code may swallow one.

        ``asyncio.wait_for`` does on Python 3.11, if what it waits for is done at the same moment.
        """
        if self._repeat is not None:
            self._repeat.cancel()
        if self._ended is None and not self.loop_handle.loop.is_closed():
            self._repeat = self._call_later(self.loop_handle.patience, self._cancel_again)

    def _cancel_again(self) -> None:
        self._cancel_subtree(self._reason or "cancelled", insist=True, repeated=True)
        self._repeat_later()

    @property
    def _is_being_saved(self) -> bool:
        """Whether its outcome waits to be written.

        Its function is done then and can swallow no cancellation; cancelling the task would publish
        an outcome that is not saved yet.
        """
        journal = self.tree.journal
        return self.concluded and journal is not None and not journal.is_closed

    def _end_unrun(self) -> None:
        """End a call whose task has not reached its first line."""
        self.waiting_on = None
        if self._parent is not None:
            self._parent._suspend_if_loop_ends()
        outcome, journal, loop = self._cancelled_outcome(), self.tree.journal, self.loop_handle.loop
        if journal is None or not loop.is_running():
            self._end(*outcome)
        elif not self.concluded:
            ending = self._end_last(journal, *self._record_outcome(journal, outcome))
            self.board.forget_old(self.id)
            self._task = loop.create_task(ending, name=f"end of {self.function.name}")

    async def _end_last(self, journal: Recorder, outcome: Outcome, ended: CallEnded) -> None:
        """End the call after its children, or when the wait for them is cancelled."""
        try:
            for child in self.children:
                await child.ended()
        finally:
            await self._end_saved(journal, outcome, ended)

    def _expire(self, account: Account | None) -> None:
        """Cancel the call because a time limit is over: that of *account*, or its own timeout."""
        if account is None:
            reason = f"it took longer than {self._request.timeout} s"
            error = CallTimeoutError(f"{self.function.name} (node {self.path}): {reason}")
            self.fail_with(error, reason, StopCause.Timeout)
        else:
            reason = f"{account.budget.seconds:g} s are over"
            error = BudgetExceeded(reason, account.owner or self, account.name)
            self.fail_with(error, reason, StopCause.Budget)

    def fail_with(self, error: BaseException, reason: str, cause: StopCause) -> None:
        """Cancel the call for this *reason*; it fails with *error* unless it had an outcome."""
        if self._reason is None and not self._returned:
            self._overdue = error
        self.cancel_on_loop(reason, cause=cause)

    def _cancelled_outcome(self) -> Outcome:
        if self._overdue is not None:
            return NodeState.Error, None, self._overdue
        reason = self._reason or _CANCELLED
        error = CancellationException(self.function.name, self.path, reason)
        return NodeState.Canceled, None, error

    async def _join(self, *, cancel: bool) -> None:
        """Wait for the children that still run; the outcome of this call stays the same."""
        if self.unclaimed:
            self._leave_unclaimed()
        while self._running:
            if cancel:
                self._closing = True
                reason = self._reason or f"{self.function.name} ended without it"
                for child in self.children:
                    child.cancel_on_loop(reason)
            try:
                for child in self.children:
                    await child.ended()
            except asyncio.CancelledError:
                self._suspend_if_loop_ends()
                cancel = True

    def _suspend_if_loop_ends(self) -> None:
        """Suspend the journal if the whole loop is ending and the call itself was not cancelled.

        Then no end is recorded, and the next process resumes the call.
        """
        journal, task = self.tree.journal, self._task
        if journal is None or self._reason is not None or task is None or not task.cancelling():
            return
        if not journal.is_closed and self.loop_handle.is_ending():
            journal.suspend()

    def _end(self, state: NodeState, value: Any, error: BaseException | None) -> None:
        if self._ended is not None:  # it was ended early, by Ctrl-C or a cancellation
            return
        if state is NodeState.Success and self.state is NodeState.Paused:
            # It asked a question and returned without waiting for the answer.
            self._enter(NodeState.Running)
        self.outputs = value
        self.exception = error
        self._traceback = None if error is None else error.__traceback__
        # Other threads may read the outcome from here on.
        self._enter(state)
        if not self.concluded:
            self.tree.publish(self._conclude(state, value, error))
        self._settle()

    def _settle(self) -> None:
        """Mark the call as ended, release what it holds, and wake its waiters."""
        if (parent := self._parent) is not None:
            parent._running -= 1
            parent._failures += self.state is NodeState.Error
        # Ctrl-C is delivered at calls, and there is none between the counters above and this line.
        self._ended = self._ends
        self._task = None
        if self._failures:
            for child in self.children:
                report_if_unseen(child)
        self.context = None  # breaks a reference cycle
        self._stop_timers()
        if self._repeat is not None:
            self._repeat.cancel()
            self._repeat = None
        if self.cancel_start is not None:
            self.cancel_start()
        self._wake()

    def _wake(self) -> None:
        for wake in tuple(self._waiters):
            wake()
            self._waiters.pop(wake, None)

    def _conclude(self, state: NodeState, value: Any, error: BaseException | None) -> CallEnded:
        """Mark the outcome as decided, and return the event that states it."""
        self.concluded, self._ends = True, time.time()
        failure = None if error is None else Failure.of(error)
        stop: Stop | None = None
        if state is NodeState.Canceled or (error is not None and error is self._overdue):
            stop = Stop(self._cause, self._reason or _CANCELLED, self.path)
        return CallEnded(self.id, state, self._ends, value, failure, stop)

    def _start_timers(self) -> None:
        if self._request.timeout is not None:
            self._start_timer(self._request.timeout, None)
        for account in self.accounts:
            if (seconds := account.seconds_left()) is not None:
                self._start_timer(seconds, account)

    def _start_timer(self, seconds: float, account: Account | None) -> None:
        timer = self._call_later(seconds, self._expire, account)
        self._timers = [*(self._timers or ()), timer]

    def _call_later(
        self, seconds: float, function: Callable[..., None], *args: Any
    ) -> asyncio.TimerHandle:
        # A cancelled timer may stay in the loop's heap for long, and the current context variables
        # would keep the node alive meanwhile. Timers cannot share one empty context: two loops in
        # two threads cannot enter the same context at once.
        context = contextvars.Context()
        return self.loop_handle.loop.call_later(seconds, function, *args, context=context)

    def _stop_timers(self) -> None:
        for timer in self._timers or ():
            timer.cancel()
        self._timers = None

    def continuation(self) -> CallRequest:
        """Return the request for a call that continues where this one ended.

        Raises:
            UsageError: it is not the call of an agent.
        """
        raise UsageError(f"{self!r} is not a call of an agent and cannot continue: call it again")

    # Recovered calls

    def note_resignation(self, error: BaseException | None) -> None:
        """Note that an agent gave up with *error*, raised by one of its calls; agents override."""

    async def _send_again(self) -> None:
        """Send the recorded values of a call that has ended to the sink of its request."""
        try:
            for value in self.record.values if self.record is not None else ():
                if self._request.sink is not None:
                    await self._request.sink(value)
        finally:
            self._settle()

    def _leave_unclaimed(self) -> None:
        """Cancel the recorded calls that were not made again, and publish a notice of them."""
        left = list(self.unclaimed.values())
        self.unclaimed = {}
        for node in left:
            reason = f"{self.function.name} did not ask for it again"
            node.cancel_on_loop(reason, cause=StopCause.Unclaimed)
        if self._reason is None:
            names = ", ".join(f"{node.function.name} (node {node.path})" for node in left)
            text = f"these calls of an earlier process were not asked for again: {names}"
            self.tree.publish(NoticeGiven(self.id, text, tuple(node.index for node in left)))


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
        failure = Failure.of(node.exception)
        log.warning("%s failed, and nobody asked for its result: %s", node, failure)
