"""One call from its start to its end: run, stopped, and ended after all that it called.

Whatever changes a node happens on its runtime's loop; ``result``, ``cancel`` and ``await`` may be
used from anywhere and go there by themselves.
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
from treefold.runtime.budgets import Account, Spent
from treefold.runtime.call_request import CallRequest, Concluded
from treefold.runtime.files import read_files
from treefold.runtime.loop_handle import LoopHandle
from treefold.runtime.question_board import QuestionBoard
from treefold.runtime.stated_node import StatedNode
from treefold.runtime.tree import Recorder, Tree

log = logging.getLogger(__name__)

_CANCELLED: Final = "its task was cancelled"  # by whom is not known

Outcome = tuple[NodeState, Any, BaseException | None]


class CallNode(StatedNode):
    """A call, run as one task.

    When its function is done, the node waits for the children that still run (having cancelled
    them if it failed), so that no call outlives its caller. What the function returned or raised
    is the outcome, whatever happens while waiting.
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
        "leave",
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
        self.leave: Callable[[], None] | None = None  # what to do if it ends before it began
        self.children: list[CallNode]
        self._task: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] | None = None
        self._overdue: BaseException | None = None  # why its time is over
        self._reason: str | None = None  # why it is being cancelled
        self._cause = StopCause.Cancelled
        self._confirmed = False  # it was given up, and cancelled by name after that
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
        """Whether it has been started, by this process, and has not ended."""
        return self._task is not None

    @property
    def knows_all(self) -> bool:
        """Whether it needs its arguments no more: an earlier process has made use of them."""
        return False

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it took too long."""
        if self._overdue is not None:
            return self._cause is StopCause.Timeout
        return self.stopped_by is StopCause.Timeout

    # Running it

    def start(self, context: RunContext) -> None:
        """Begin to run, as a task that has a copy of the context variables here."""
        if self._ended is not None or self.is_ending:  # cancelled before it came to this
            return
        self.context = context
        self.leave = None
        work = self._send_again() if self.state.final else self._drive(context)
        task = self.loop_handle.loop.create_task(work, name=self.function.name)
        if self._task is None and self._ended is None:  # the loop does not start tasks eagerly
            self._task = task
            task.add_done_callback(self._never_began)

    def _never_began(self, task: "asyncio.Task[None]") -> None:
        if self._ended is None and self.state.final:  # its values are not wanted any more
            self._settle()
        elif self._ended is None and not self.concluded:
            self._stay_open_if_all_ends()
            self._end(*self._given_up())

    async def _drive(self, context: RunContext) -> None:
        outcome: Outcome
        try:
            self._begin(context)
            try:
                if self._request.timeout is not None or self.accounts:
                    self._start_timers()
                outcome = NodeState.Success, await self._work(context), None
            except asyncio.CancelledError:
                self._stay_open_if_all_ends()
                outcome = self._given_up()
            except BaseException as error:
                if self._ends_the_loop(error):
                    raise
                outcome = NodeState.Error, None, error  # whatever a function raises is the outcome
            self._returned = True
            if self._running or self.unclaimed:
                await self._join(cancel=outcome[0] is not NodeState.Success)
            self._stop_timers()
            if self.tree.journal is None and (self._parent is not None or self.tree.kept):
                self._end(*outcome)
            else:
                await self._finish(outcome)
        except KeyboardInterrupt as error:  # at any line, and nothing can be waited for any more
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
        """End when that is written down, or when nothing is left of what its tree kept."""
        if (journal := self.tree.journal) is not None:
            await self._end_saved(journal, *self._written(journal, outcome))
            return
        try:
            await self.tree.close_bags()
        finally:
            self._end(*outcome)

    def _written(self, journal: Recorder, outcome: Outcome) -> tuple[Outcome, CallEnded]:
        """Have it written down what came of it; nobody sees that before it is safe.

        A result or exception that is too large for the journal is replaced by that error.
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
        """End when what came of it is safe."""
        try:
            await journal.saved(self)
        except FencedError as error:  # it is another's, and so is what comes of it
            outcome = NodeState.Error, None, error
        finally:
            self.tree.show(ended)
            self._end(*outcome)

    async def _work(self, context: RunContext) -> Any:
        args, request = self.inputs, self._request
        if request.gate is not None or self.function.uses_recursion:
            try:
                args = await self._let_through()
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

    async def _let_through(self) -> Mapping[str, Any]:
        """Return the arguments to run with, if it may run."""
        if self.function.uses_recursion:
            self._check_depth()
        if self._request.gate is not None:
            args = await self._request.gate(self)
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
        """Whether *error* is not the function's own: the loop ends, or has ended."""
        return isinstance(error, KeyboardInterrupt) or not self.loop_handle.loop.is_running()

    def _interrupt(self, error: KeyboardInterrupt) -> None:
        """End at once, whatever was just being done."""
        if self.tree.journal is not None:  # whoever opens it next goes on from here
            self.tree.journal.suspend()
        for child in self.children:
            child.cancel_on_loop("interrupted")
        if (task := asyncio.current_task()) is not None:
            task.add_done_callback(lambda task: task.exception())  # nobody else looks at it
        if self._ended is not None:
            self._wake()
        elif self.state.final:
            self._settle()
        elif self.state is NodeState.Waiting:
            self._end(*self._given_up())
        else:
            self._end(NodeState.Error, None, error)

    async def send(self, value: Any) -> None:
        """Publish a value of this call, and hand it to whoever consumes them."""
        if self._ended is not None:
            raise ClosedError(
                f"{self.function.name} (node {self.path}) has ended; it sends no more"
            )
        if self._repeated:
            self._repeated -= 1
        else:
            self.tree.publish(ValueSent(self.id, value))
            if (journal := self.tree.journal) is not None and journal.is_behind:
                await journal.saved(self)  # or all others would have to wait the longer
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
        # Code that stops waiting often cancels the call as well: that is one cancel, not two.
        self._confirmed, self._reason = True, reason  # which says more

    def cancel_on_loop(
        self, reason: str, *, insist: bool = False, cause: StopCause = StopCause.Cancelled
    ) -> None:
        """Cancel, on the runtime's own loop, every task of the subtree at once.

        A node that is being cancelled already is left to clean up in peace, with all below it,
        unless *insist*. A call that has not ended after ``patience`` seconds is cancelled again.
        """
        if self._ended is not None or (self._reason is not None and not insist):
            return
        if self._reason is None:
            self._cause = cause
        self._cancel_subtree(reason, insist=insist)
        self._repeat_later()

    def _cancel_subtree(self, reason: str, *, insist: bool, repeated: bool = False) -> None:
        stack: list[tuple[CallNode, str]] = [(self, reason)]
        unrun: list[CallNode] = []  # those that will not get to their end, callers first
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
        """Cancel again after a while: code may swallow a cancellation.

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

        Its function is over then and can swallow nothing; cancelling the task would show an outcome
        that is not saved yet.
        """
        journal = self.tree.journal
        return self.concluded and journal is not None and not journal.is_closed

    def _end_unrun(self) -> None:
        """End without having come to the first line."""
        self.waiting_on = None
        if self._parent is not None:
            self._parent._stay_open_if_all_ends()
        outcome, journal, loop = self._given_up(), self.tree.journal, self.loop_handle.loop
        if journal is None or not loop.is_running():
            self._end(*outcome)
        elif not self.concluded:
            ending = self._end_last(journal, *self._written(journal, outcome))
            self.board.forget_old(self.id)
            self._task = loop.create_task(ending, name=f"end of {self.function.name}")

    async def _end_last(self, journal: Recorder, outcome: Outcome, ended: CallEnded) -> None:
        """End after all below it."""
        try:
            for child in self.children:
                await child.ended()
        finally:  # or somebody insists
            await self._end_saved(journal, outcome, ended)

    def _expire(self, account: Account | None) -> None:
        """Be cancelled because time is over: that of *account*, or of the call itself."""
        if account is None:
            reason = f"it took longer than {self._request.timeout} s"
            error = CallTimeoutError(f"{self.function.name} (node {self.path}): {reason}")
            self.fail_with(error, reason, StopCause.Timeout)
        else:
            reason = f"{account.budget.seconds:g} s are over"
            error = BudgetExceeded(reason, account.owner or self, account.name)
            self.fail_with(error, reason, StopCause.Budget)

    def fail_with(self, error: BaseException, reason: str, cause: StopCause) -> None:
        """Be cancelled for this *reason*, and fail with *error* if nothing came of it yet."""
        if self._reason is None and not self._returned:
            self._overdue = error
        self.cancel_on_loop(reason, cause=cause)

    def _given_up(self) -> Outcome:
        if self._overdue is not None:
            return NodeState.Error, None, self._overdue
        reason = self._reason or _CANCELLED
        error = CancellationException(self.function.name, self.path, reason)
        return NodeState.Canceled, None, error

    async def _join(self, *, cancel: bool) -> None:
        """Wait for the children that still run; the outcome stands, whatever happens meanwhile."""
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
                self._stay_open_if_all_ends()
                cancel = True

    def _stay_open_if_all_ends(self) -> None:
        """Have no end written down if it is the process that ends, and nobody cancelled this."""
        journal, task = self.tree.journal, self._task
        if journal is None or self._reason is not None or task is None or not task.cancelling():
            return
        if not journal.is_closed and self.loop_handle.is_ending():
            journal.suspend()

    def _end(self, state: NodeState, value: Any, error: BaseException | None) -> None:
        if self._ended is not None:  # somebody could not wait for it any longer
            return
        if state is NodeState.Success and self.state is NodeState.Paused:
            self._enter(NodeState.Running)  # it asked something, and went on without the answer
        self.outputs = value
        self.exception = error
        self._traceback = None if error is None else error.__traceback__
        self._enter(state)  # now other threads may look at them
        if not self.concluded:
            self.tree.publish(self._conclude(state, value, error))
        self._settle()

    def _settle(self) -> None:
        """Be over, and wake those who wait for that."""
        if (parent := self._parent) is not None:
            parent._running -= 1
            parent._failures += self.state is NodeState.Error
        self._ended = self._ends  # nothing was called since: that is where Ctrl-C comes
        self._task = None
        if self._failures:
            for child in self.children:
                report_if_unseen(child)
        self.context = None  # or the two would keep each other alive
        self._stop_timers()
        if self._repeat is not None:
            self._repeat.cancel()
            self._repeat = None
        if self.leave is not None:
            self.leave()
        self._wake()

    def _wake(self) -> None:
        for wake in tuple(self._waiters):
            wake()
            self._waiters.pop(wake, None)

    def _conclude(self, state: NodeState, value: Any, error: BaseException | None) -> CallEnded:
        """Return what came of it."""
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
        # A cancelled timer may stay in the loop's heap for long, and the context variables of here
        # would keep the node alive meanwhile. One empty context for all timers will not do: two
        # loops in two threads cannot be inside the same context at once.
        context = contextvars.Context()
        return self.loop_handle.loop.call_later(seconds, function, *args, context=context)

    def _stop_timers(self) -> None:
        for timer in self._timers or ():
            timer.cancel()
        self._timers = None

    def continuation(self) -> CallRequest:
        """Return the request for a call that goes on where this one ended.

        Raises:
            UsageError: there is nothing to go on with.
        """
        raise UsageError(f"{self!r} is no call of an agent, and cannot go on: call it again")

    # What an earlier process has done

    def note_resignation(self, error: BaseException | None) -> None:
        """Take note that it gave up by what one of its calls raised."""

    async def _send_again(self) -> None:
        """Hand over the values of a call that has ended."""
        try:
            for value in self.record.values if self.record is not None else ():
                if self._request.sink is not None:
                    await self._request.sink(value)
        finally:
            self._settle()

    def _leave_unclaimed(self) -> None:
        """Say which calls of an earlier process were not made again, and let them end."""
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
    """Log that *node* failed if nobody has asked for its result, because now nobody will."""
    if node.state is NodeState.Error and node.exception is not None and not node.asked_for:
        node.asked_for = True  # once is enough
        failure = Failure.of(node.exception)
        log.warning("%s failed, and nobody asked for its result: %s", node, failure)
