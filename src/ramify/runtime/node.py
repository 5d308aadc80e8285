"""One call from request to end: its state, its children, and what it spends.

Whatever changes a node happens on its runtime's loop; ``result``, ``cancel`` and ``await`` may be
used from anywhere and go there by themselves.
"""

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from ramify.core.agent_errors import BudgetExceeded
from ramify.core.decisions import Rules
from ramify.core.errors import (
    CallTimeoutError,
    CancellationException,
    ClosedError,
    InvalidValueError,
    RecursionDepthError,
    UsageError,
)
from ramify.core.events import (
    ArgumentsEdited,
    CallEnded,
    CallPaused,
    CallRequested,
    CallResumed,
    CallStarted,
    Failure,
    ValueSent,
)
from ramify.core.from_file import FromFile
from ramify.core.function import Node, RunContext
from ramify.core.states import NodeState, check_transition
from ramify.core.usage import TokenUsage
from ramify.runtime.awaited_node import AwaitedNode
from ramify.runtime.bags import SessionBag
from ramify.runtime.call_request import CallRequest
from ramify.runtime.desk import Desk
from ramify.runtime.files import read_files
from ramify.runtime.home import Home
from ramify.runtime.spending import Account, Spent
from ramify.runtime.tree import Tree

log = logging.getLogger(__name__)

# A cancelled timer may stay in the loop's heap for long; its variables would keep the node there.
_NO_VARIABLES = contextvars.Context()


class CallNode(AwaitedNode):  # noqa: PLR0904 - most of them say what it is
    """A call, run as one task.

    When its function is done, the node waits for the children that still run (having cancelled
    them if it failed), so that no call outlives its caller. What the function returned or raised
    is the outcome, whatever happens while waiting.
    """

    __slots__ = (
        "__weakref__",
        "_closing",
        "_failures",
        "_index",
        "_next_sequence",
        "_overdue",
        "_parent",
        "_reason",
        "_request",
        "_returned",
        "_running",
        "_started",
        "_stops",
        "_task",
        "_timers",
        "accounts",
        "children",
        "desk",
        "id",
        "inputs",
        "leave",
        "sequence",
        "spent",
        "state",
        "tool_use_id",
        "tree",
    )

    def __init__(
        self,
        id: int,
        request: CallRequest,
        *,
        parent: "CallNode | None",
        tree: Tree,
        home: Home,
        desk: Desk,
    ) -> None:
        super().__init__(home)
        self.id = id
        self.function = request.function
        self.inputs = request.args
        self.state = NodeState.Waiting
        self.tool_use_id = request.tool_use_id
        self.tree = tree
        self.desk = desk
        self.spent: Spent | None = None
        self.accounts: tuple[Account, ...] = ()
        self.leave: Callable[[], None] | None = None  # what to do if it ends before it began
        self.asked_for = request.sink is not None
        self._parent = parent
        self._request = request
        self.children: list[CallNode] = []
        self._running = 0  # how many children have not ended
        self._next_sequence = 1
        self._closing = False  # its children are being cancelled, and there will be no more
        self._task: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] | None = None
        self._overdue: Exception | None = None  # why its time is over
        self._reason: str | None = None  # why it is being cancelled
        self._failures = 0  # how many children have failed
        self._stops = 0  # for how many reasons it waits for a person
        self._returned = False  # its function is done; only children may still run
        self._started: float | None = None
        if parent is None:
            self._index = self.sequence = tree.number
        else:
            parent._adopt(self, request.tied_with)
        above = None if parent is None else parent.id
        name = request.function.name
        tree.publish(
            CallRequested(
                id, above, self._index, self.sequence, name, request.args, request.tool_use_id
            )
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {self.function.name} {self.state}>"

    # What it is

    @property
    def parent(self) -> "CallNode | None":
        return self._parent

    @property
    def path(self) -> str:
        numbers: list[str] = []
        node: CallNode | None = self
        while node is not None:
            numbers.append(str(node._index))
            node = node._parent
        return ".".join(reversed(numbers))

    @property
    def started_at(self) -> datetime | None:
        return None if self._started is None else datetime.fromtimestamp(self._started, UTC)

    @property
    def ended_at(self) -> datetime | None:
        return None if self._ended is None else datetime.fromtimestamp(self._ended, UTC)

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
    def rules(self) -> Rules | None:
        """What the models in it and below may not do, beside what rules above say."""
        return self._request.rules

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it took too long."""
        return isinstance(self._overdue, CallTimeoutError)

    def get_children(self) -> list[Node | list[Node]]:
        batches: dict[int, list[Node]] = {}
        for child in list(self.children):
            batches.setdefault(child.sequence, []).append(child)
        return [batch if len(batch) > 1 else batch[0] for batch in batches.values()]

    @property
    def bag(self) -> SessionBag:
        """The objects that live as long as its tree."""
        return self.tree.bag_of(self.id)

    # Running it

    def start(self, context: RunContext) -> None:
        """Begin to run, as a task that has a copy of the context variables here."""
        if self._ended is not None:  # cancelled before it came to this
            return
        self.context = context
        self.leave = None
        task = self.home.loop.create_task(self._drive(context), name=self.function.name)
        if self.state is NodeState.Waiting:
            self._task = task
            task.add_done_callback(self._never_began)

    def _never_began(self, task: "asyncio.Task[None]") -> None:
        if self._ended is None:
            self._end(*self._given_up())

    async def _drive(self, context: RunContext) -> None:
        RunContext.active.set(context)
        if self._task is None:  # the loop starts its tasks eagerly
            self._task = asyncio.current_task()
        else:
            self._task.remove_done_callback(self._never_began)
        self._enter(NodeState.Running)
        self._started = now = time.time()
        self.tree.publish(CallStarted(self.id, now))
        outcome: tuple[NodeState, Any, BaseException | None]
        try:
            if self._request.timeout is not None or self.accounts:
                self._start_timers()
            outcome = NodeState.Success, await self._work(context), None
        except asyncio.CancelledError:
            outcome = self._given_up()
        except BaseException as error:
            if self._ends_the_loop(error):
                raise
            outcome = NodeState.Error, None, error  # whatever a function raises is the outcome
        self._returned = True
        if self._running:
            await self._join(cancel=outcome[0] is not NodeState.Success)
        if self._timers is not None:
            self._stop_timers()
        try:
            if self._parent is None and not self.tree.kept:
                await self.tree.close_bags()
        finally:
            self._end(*outcome)

    async def _work(self, context: RunContext) -> Any:
        args, request = self.inputs, self._request
        if request.gate is not None or self.function.uses_recursion:
            args = await self._let_through()
        for value in args.values():
            if type(value) is FromFile:
                args = await read_files(args, self.function.name)
                break
        if not request.checked:
            args = self.function.parameters.validate(args)
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
        """Whether *error* is not the function's own, so that nothing can be waited for any more."""
        if not isinstance(error, KeyboardInterrupt):
            return not self.home.loop.is_running()  # it has ended, and Python drops what is left
        for child in self.children:
            child.cancel_here("interrupted")
        if self._task is not None:
            self._task.add_done_callback(lambda task: task.exception())  # nobody else looks at it
        self._end(NodeState.Error, None, error)
        return True

    async def send(self, value: Any) -> None:
        """Publish a value of this call, and hand it to whoever consumes them."""
        if self._ended is not None:
            raise ClosedError(
                f"{self.function.name} (node {self.path}) has ended; it sends no more"
            )
        self.tree.publish(ValueSent(self.id, value))
        if self._request.sink is not None:
            await self._request.sink(value)

    # Waiting for a person

    def stop(self, reason: str) -> None:
        """Be Paused from now on; each stop wants its own ``go_on``."""
        self._stops += 1
        if self.state is NodeState.Running:
            self._enter(NodeState.Paused)
            self.tree.publish(CallPaused(self.id, time.time(), reason))

    def go_on(self) -> None:
        """Take back one ``stop``."""
        self._stops -= 1
        if not self._stops and self.state is NodeState.Paused:
            self._enter(NodeState.Running)
            self.tree.publish(CallResumed(self.id, time.time()))

    # Ending it

    def cancel(self, reason: str = "cancelled") -> None:
        if self._ended is None:
            self.home.tell(self._cancel_or_insist, reason)

    def _cancel_or_insist(self, reason: str) -> None:
        self.cancel_here(reason, insist=self._reason is not None)

    def cancel_here(self, reason: str, *, insist: bool = False) -> None:
        """Cancel, on the runtime's own loop, every task of the subtree at once.

        A node that is being cancelled already is left to clean up in peace, with all below it,
        unless somebody insists.
        """
        stack: list[tuple[CallNode, str]] = [(self, reason)]
        while stack:
            node, why = stack.pop()
            if node._ended is not None or (node._reason is not None and not insist):
                continue
            node._reason = node._reason or why
            below = f"{node.function.name} was cancelled: {reason}"
            stack.extend((child, below) for child in node.children)
            if node._task is not None:
                node._task.cancel()
            if node.state is NodeState.Waiting:  # its task will not get to its first line
                node._end(*node._given_up())

    def _expire(self, account: Account | None) -> None:
        """Be cancelled because time is over: that of *account*, or of the call itself."""
        error: Exception
        if account is None:
            reason = f"it took longer than {self._request.timeout} s"
            error = CallTimeoutError(f"{self.function.name} (node {self.path}): {reason}")
        else:
            reason = f"{account.budget.seconds:g} s are over"
            error = BudgetExceeded(reason, account.owner or self, account.name)
        if self._reason is None and not self._returned:
            self._overdue = error
        self.cancel_here(reason)

    def _given_up(self) -> tuple[NodeState, None, BaseException]:
        if self._overdue is not None:
            return NodeState.Error, None, self._overdue
        name, reason = self.function.name, self._reason or "its task was cancelled"
        return NodeState.Canceled, None, CancellationException(name, self.path, reason)

    async def _join(self, *, cancel: bool) -> None:
        """Wait for the children that still run; the outcome stands, whatever happens meanwhile."""
        insist = False
        while self._running:
            if cancel:
                self._closing = True
                reason = self._reason or f"{self.function.name} ended without it"
                for child in self.children:
                    child.cancel_here(reason, insist=insist)
            try:
                async with asyncio.timeout(self.home.patience if cancel else None):
                    for child in self.children:
                        await child.ended()
            except asyncio.CancelledError:
                cancel = True
            except TimeoutError:
                insist = True

    def _end(self, state: NodeState, value: Any, error: BaseException | None) -> None:
        if state is NodeState.Success and self.state is NodeState.Paused:
            self._enter(NodeState.Running)  # it asked something, and went on without the answer
        self.outputs = value
        self.exception = error
        self._traceback = None if error is None else error.__traceback__
        self._enter(state)  # now other threads may look at them
        now = time.time()
        failure = None if error is None else Failure.of(error)
        self.tree.publish(CallEnded(self.id, state, now, value, failure))
        self._ended = now
        self._task = None
        if self._failures:
            for child in self.children:
                report_if_unseen(child)
        self.context = None  # or the two would keep each other alive
        if self._timers is not None:
            self._stop_timers()
        if self.leave is not None:
            self.leave()
        if self._parent is not None:
            self._parent._child_ended(failed=state is NodeState.Error)
        waiters, self._waiters = self._waiters, {}
        for wake in waiters:
            wake()

    def _start_timers(self) -> None:
        if self._request.timeout is not None:
            self._start_timer(self._request.timeout, None)
        for account in self.accounts:
            if (seconds := account.seconds_left()) is not None:
                self._start_timer(seconds, account)

    def _start_timer(self, seconds: float, account: Account | None) -> None:
        loop = self.home.loop
        timer = loop.call_at(loop.time() + seconds, self._expire, account, context=_NO_VARIABLES)
        self._timers = [*(self._timers or ()), timer]

    def _stop_timers(self) -> None:
        for timer in self._timers or ():
            timer.cancel()
        self._timers = None

    def _enter(self, state: NodeState) -> None:
        check_transition(self.state, state)
        if self.state is NodeState.Paused:
            self.tree.paused.discard(self)
        self.state = state
        if state is NodeState.Paused:
            self.tree.paused.add(self)

    def continued(self) -> CallRequest:
        """Return the request for a call that goes on where this one ended.

        Raises:
            UsageError: there is nothing to go on with.
        """
        raise UsageError(f"{self!r} is no call of an agent, and cannot go on: call it again")

    # Its children

    def _adopt(self, child: "CallNode", tied_with: Node | None) -> None:
        if self._ended is not None or self._closing:
            raise ClosedError(
                f"{self.function.name} (node {self.path}) has ended and can make no more calls;"
                " await what it starts before it returns"
            )
        if tied_with is None:
            child.sequence = self._next_sequence
            self._next_sequence += 1
        elif isinstance(tied_with, Node) and tied_with.parent is self:
            child.sequence = tied_with.sequence
        else:
            raise InvalidValueError(
                f"{tied_with!r} was called by another node; only siblings can be tied"
            )
        self.children.append(child)
        self._running += 1
        child._index = len(self.children)

    def _child_ended(self, *, failed: bool) -> None:
        self._running -= 1
        self._failures += failed


class CodeNode(CallNode):
    """A call of Python code.

    Example:
        >>> from ramify import CodeFunction, CodeNode, Runtime
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
