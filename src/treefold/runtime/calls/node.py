"""``CallNode``: one call, from its request to its end.

A node is the record of its call, the task that runs it, those who wait for it, and the calls that
it has made. It is changed only on its runtime's loop; ``result``, ``cancel`` and ``await`` may be
used in any thread and switch to that loop themselves.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from treefold.core.address import address
from treefold.core.call_keys import of_content
from treefold.core.call_request import CallRequest
from treefold.core.errors import (
    ClosedError,
    FencedError,
    IllegalTransitionError,
    InvalidValueError,
    TooLargeError,
    UsageError,
)
from treefold.core.escaping import one_line
from treefold.core.events import (
    CallEnded,
    CallPaused,
    CallReopened,
    CallResumed,
    Event,
    Failure,
    ValueSent,
)
from treefold.core.function import Node, RunContext
from treefold.core.record import CallRecord
from treefold.core.said import SaidMessage
from treefold.core.states import CANCELED, ERROR, NodeState
from treefold.runtime.calls.awaited_node import Wake
from treefold.runtime.calls.budgets import Account
from treefold.runtime.calls.cancellable_node import CancellableNode, RemoteCancel
from treefold.runtime.calls.cancellation import Cancellation
from treefold.runtime.calls.child_calls import ChildCalls
from treefold.runtime.calls.outcome import Outcome, end_of, raised_in
from treefold.runtime.calls.stage import ENDED, ENDING, REQUESTED, RESENDING, Stage
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.loops.timers import AnyTimer
from treefold.runtime.trees.bags import SessionBag
from treefold.runtime.trees.question_board import QuestionBoard
from treefold.runtime.trees.tree import Recorder, Tree

log = logging.getLogger(__name__)


class CallNode(CancellableNode):  # noqa: PLR0904 - most of the public methods are properties
    """A call: its record, its stage and task, its waiters and its child calls.

    Args:
        record: of the call, which was made just now or in an earlier process.
        request: the function, arguments and options; of a recorded call, what the journal has.
    """

    # How far this process is with the call is its ``stage``, and nothing else says it:
    #
    #     Requested --> Scheduled --> Running --> Joining --> Ending --> Ended
    #
    # A call without children goes from Running to Ending. Every stage before Ending may become
    # Ending: the call is cancelled, Ctrl-C stops it, or another process has ended it. Ended becomes
    # Requested when the call has to run again, or Resending, and that Ended again, when its
    # recorded values have to be sent again. ``stage.py`` has the table, ``advance`` checks it.
    #
    # Invariants, between two callbacks of the loop:
    # - ``record.state`` is final in Resending and Ended only: an outcome that has to be saved is
    #   not shown before.
    # - ``task`` is set from Scheduled to Ending, and in Resending unless a pause postpones that. It
    #   is not set in Requested and Ended.
    # - ``conclusion`` is set from Ending on, ``exception`` as well if the call did not succeed.
    # - ``context`` is set while there is a task that may run the function.
    # - ``_waiters`` is empty in Ended: each was called once, and who comes later is called at once.
    # - ``running`` of the parent's calls is the number of those that are not Ended. A parent waits
    #   in Joining until it is 0, and makes no calls from Ending on: no call outlives its caller.

    # Two are not set here: "conversation" is for agents, and "unread" for calls whose tree is read
    # later (``unread_nodes``), which become the one or the other.

    __slots__ = (
        "__weakref__",
        "_cancellation",
        "_pauses",
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
        "id",
        "loop_handle",
        "on_unstarted_end",
        "parent",
        "record",
        "remote_cancel",
        "repeated",
        "request",
        "stage",
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
        self.on_unstarted_end: Callable[[], None] | None = None  # called if it ends unstarted
        self.parent = parent  # pyright: ignore[reportIncompatibleMethodOverride]
        self.child_calls: ChildCalls[CallNode] | None = None  # made for the first one
        self._waiters: dict[Wake, bool] = {}
        self._traceback: TracebackType | None = None
        self.conclusion = ended = record.ended  # the event that states its outcome
        self._pauses = 0  # how many begin_pause calls have not been ended
        self.repeated = 0  # how many values it will send that are recorded already
        self._cancellation: Cancellation | None = None  # made when it is first cancelled
        self.timers: list[AnyTimer] | tuple[()] = ()
        self.remote_cancel: RemoteCancel | None = None  # of a call that another process runs
        if ended is not None:
            self.exception = raised_in(ended)
            self.asked_for = True  # in the earlier process
        # At last, because other threads may read the outcome of a call that has ended.
        self.stage = REQUESTED if ended is None else ENDED
        if parent is not None:
            siblings = parent.calls
            siblings.nodes.append(self)
            siblings.running += ended is None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {self.function.name} {self.state}>"

    # Its stage

    def advance(self, stage: Stage) -> None:
        """Enter *stage*; nothing else changes it.

        Raises:
            IllegalTransitionError: *stage* does not follow the one that the call is in.
        """
        before = self.stage
        if stage not in before.next:
            raise IllegalTransitionError(f"{self!r} cannot go from {before.name} to {stage.name}")
        if (stage is ENDED or before is ENDED) and self.parent is not None:
            # Ctrl-C is delivered at calls: there is none here, so the number stays right.
            siblings = self.parent.child_calls
            assert siblings is not None  # this is one of them
            siblings.running += -1 if stage is ENDED else 1
        self.stage = stage

    @property
    def is_concluded(self) -> bool:
        """Whether its outcome is decided; perhaps it has to be saved before it can be seen."""
        return self.stage >= ENDING

    @property
    def has_recorded_end(self) -> bool:
        """Whether it has ended, and that is durable.

        Calls are ended without a record, for others to resume, once their journal is closed.
        """
        journal = self.tree.journal
        return self.has_ended and journal is not None and not journal.is_closed

    @property
    def is_under_way(self) -> bool:
        """Whether it has been started by this process and has not ended."""
        return REQUESTED < self.stage < ENDED

    @property
    def is_requesting(self) -> bool:
        """Whether a request to a model is under way; only agents send any."""
        return False

    @property
    def knows_all(self) -> bool:
        """Whether its arguments are not needed any more: an earlier process has used them."""
        return False

    @property
    def bag(self) -> SessionBag:
        """The objects of this node, which live as long as its tree."""
        return self.tree.bag_of(self.id)

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
        if self.is_concluded or (self.child_calls is not None and self.child_calls.closed):
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

    def say(self, said: SaidMessage) -> None:
        """Have a message delivered to the agent whose call this is; on the loop.

        Raises:
            UsageError: it is too late, or nobody here reads messages.
        """
        raise UsageError(
            f"{self!r} takes no messages: say it to the call of an agent, and to a chat through its"
            " client"
        )

    def continuation(self) -> CallRequest:
        """Return the request for a call that continues where this one ended.

        Raises:
            UsageError: it is not the call of an agent.
        """
        raise UsageError(f"{self!r} is not a call of an agent and cannot continue: call it again")

    async def send(self, value: Any) -> None:
        """Publish a value of this call, and pass it to the sink of its request."""
        if self.is_concluded:
            raise ClosedError(
                f"{self.function.name} ({address(self.path)}) has ended; it sends no more"
            )
        if self.repeated:
            self.repeated -= 1
        else:
            self.tree.publish(ValueSent(self.id, value))
            # A call that sends quickly waits for the journal, so that others need not wait longer.
            if (journal := self.tree.journal) is not None and journal.is_behind:
                await journal.saved(self)
        if self.request.sink is not None:
            await self.request.sink(value)

    # Pausing it

    def begin_pause(self, reason: str, *, show: Callable[[Event], object] | None = None) -> None:
        """Enter Paused if it runs; each call of this needs a matching ``end_pause``.

        The change is passed to *show*, if given, instead of being published.
        """
        if self.record.state is NodeState.Running:
            (show or self.tree.publish)(CallPaused(self.id, self.tree.now(), reason))
            self.tree.paused.add(self)
        self._pauses += 1

    def end_pause(self, *, show: Callable[[Event], object] | None = None) -> None:
        """End one pause; the call runs again when none is left."""
        self._pauses -= 1
        if not self._pauses and self.record.state is NodeState.Paused:
            self.tree.paused.discard(self)
            (show or self.tree.publish)(CallResumed(self.id, self.tree.now()))

    # Its timers

    def start_timer(self, seconds: float, function: Callable[..., None], *args: Any) -> None:
        """Call *function* after a delay, unless the call has ended or its timers are stopped."""
        self.timers = [*self.timers, self.loop_handle.call_later(seconds, function, *args)]

    def stop_timers(self) -> None:
        """Stop the timers of ``start_timer``."""
        for timer in self.timers:
            timer.cancel()
        self.timers = ()

    # Ending it

    def end(self, outcome: Outcome) -> None:
        """End the call with *outcome*, unless its outcome was decided before; wake its waiters."""
        if self.stage < ENDING:
            self.tree.publish(self._conclude(outcome))
            self.settle()
        elif self.stage is not ENDED:  # otherwise it was ended early, by Ctrl-C
            self._show_outcome()

    def record_outcome(self, journal: Recorder, outcome: Outcome) -> None:
        """Record the outcome in the journal, without publishing it yet.

        A result or exception that the journal refuses is replaced by the error that says why.
        """
        try:
            journal.record(self.tree.id, self._conclude(outcome))
        except (TooLargeError, InvalidValueError) as error:
            error.__cause__ = outcome[2]
            journal.record(self.tree.id, self._conclude((ERROR, None, error)))

    async def end_saved(self, journal: Recorder) -> None:
        """End the call, and publish its outcome, when that is saved."""
        try:
            await journal.saved(self)
        except FencedError as error:
            self.end_fenced(error)
        finally:
            if self.stage is not ENDED:
                self._show_outcome()

    def end_fenced(self, error: FencedError) -> None:
        """End the call here: another process drives the journal, and decides its outcome."""
        if self.stage is ENDED:
            return
        waits = self.record.state is NodeState.Waiting
        self._conclude((CANCELED if waits else ERROR, None, error))
        self._show_outcome()

    def _conclude(self, outcome: Outcome) -> CallEnded:
        """Decide the outcome, and return the event that states it."""
        ended, error = end_of(self.record, outcome, self._cancellation, self.tree.now()), outcome[2]
        self.exception = error
        self._traceback = None if error is None else error.__traceback__
        self.conclusion = ended
        self.advance(ENDING)
        return ended

    def _show_outcome(self) -> None:
        """Let the outcome be seen, if it is not yet, and settle the call."""
        if not self.record.state.final:
            assert self.conclusion is not None  # the call is Ending
            self.tree.show(self.conclusion)
        self.settle()

    def settle(self) -> None:
        """Mark the call as ended, release what it holds, and wake its waiters."""
        self.advance(ENDED)
        try:
            self.task = None
            self.context = None  # breaks a reference cycle
            if self.record.state is ERROR and self.parent is not None:
                self.parent.calls.failed += 1
            if self.tree.paused:
                self.tree.paused.discard(self)
            # Of a call that another process runs, that process knows who asked for its result.
            is_here = self.remote_cancel is None
            if is_here and self.child_calls is not None and self.child_calls.failed:
                for child in self.child_calls.nodes:
                    report_if_unseen(child)
            if self.timers:
                self.stop_timers()
            if self._cancellation is not None:
                self._cancellation.repeat_at(None)
            if self.on_unstarted_end is not None:
                self.on_unstarted_end()
        finally:
            self.wake()

    def end_unrun(self) -> None:
        """End a call whose task does not: it has none, or one that has not begun."""
        self.waiting_on = None
        if self.stage is RESENDING:
            self.settle()
            return
        if self.parent is not None:
            self.parent.suspend_if_loop_ends()
        outcome, journal, loop = self.cancelled_outcome(), self.tree.journal, self.loop_handle.loop
        if journal is None or not loop.is_running():
            self.end(outcome)
            return
        self.record_outcome(journal, outcome)
        self.board.forget_old(self.id)
        task = loop.create_task(self._end_last(journal), name=f"end of {self.function.name}")
        if self.stage is ENDING:  # the loop does not start tasks eagerly, or it waits
            self.task = task
            task.add_done_callback(self._show_if_never_begun)

    def end_if_never_begun(self, task: "asyncio.Task[None]") -> None:
        """End the call if its task was cancelled before its first line."""
        if self.stage is RESENDING:
            self.settle()
        elif self.stage < ENDING:
            self.suspend_if_loop_ends()
            self.end(self.cancelled_outcome())

    def _show_if_never_begun(self, _task: "asyncio.Task[None]") -> None:
        """End the call if the task that was to end it was cancelled before its first line."""
        if self.stage is ENDING:
            self._show_outcome()

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

    # Calls of an earlier or another process

    def follow(self, event: CallEnded | CallReopened) -> None:
        """Note that the call, which another process runs, has ended or runs again."""
        if isinstance(event, CallReopened):
            if self.has_ended:
                self._run_again()
        elif not self.is_concluded:
            self.conclusion, self.exception = event, raised_in(event)
            self.advance(ENDING)
            self.settle()

    def attach(self, request: CallRequest) -> None:
        """Attach a new request to a recovered call that another process runs."""
        self.request, self.function = request, request.function

    def reopen(self) -> None:
        """Reopen an ended call: it must run again, because its outcome cannot be restored."""
        self.tree.publish(CallReopened(self.id, self.tree.now()))
        self._run_again()
        for child in self.children:
            self.expect_again(child)

    def _run_again(self) -> None:
        self.advance(REQUESTED)
        self.conclusion = self.exception = self._traceback = None


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
    if node.state is ERROR and node.exception is not None and not node.asked_for:
        node.asked_for = True  # log it once
        failure = one_line(node.tree.as_written(str(Failure.of(node.exception))))
        log.warning("%s failed, and nobody asked for its result: %s", node, failure)
