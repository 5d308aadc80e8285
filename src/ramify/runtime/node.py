"""One call from request to end: its state, its children, and who waits for it.

Whatever changes a node happens on its runtime's loop; ``result``, ``cancel`` and ``await`` may be
used from anywhere and go there by themselves.
"""

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any

from ramify.core.errors import (
    CallTimeoutError,
    CancellationException,
    ClosedError,
    InvalidValueError,
    UsageError,
)
from ramify.core.events import CallEnded, CallRequested, CallStarted, Failure, ValueSent
from ramify.core.function import Node, RunContext
from ramify.core.states import NodeState, check_transition
from ramify.runtime.bags import SessionBag
from ramify.runtime.home import Home, settle, settle_from_anywhere
from ramify.runtime.request import Request
from ramify.runtime.tree import Tree

log = logging.getLogger(__name__)

# A cancelled timer may stay in the loop's heap for long; its variables would keep the node there.
_NO_VARIABLES = contextvars.Context()


class CodeNode(Node):
    """A call, run as one task.

    When its function is done, the node waits for the children that still run (having cancelled
    them if it failed), so that no call outlives its caller. What the function returned or raised
    is the outcome, whatever happens while waiting.

    Example:
        >>> from ramify import CodeFunction, CodeNode, Runtime
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(CodeFunction(name="three", callable=lambda ctx: 3))
        ...     node.result(), isinstance(node, CodeNode)
        (3, True)
    """

    __slots__ = (
        "__weakref__",
        "_awaited",
        "_closing",
        "_ended",
        "_failures",
        "_index",
        "_next_sequence",
        "_parent",
        "_reason",
        "_request",
        "_returned",
        "_running",
        "_started",
        "_task",
        "_timer",
        "_traceback",
        "_waiters",
        "asked_for",
        "children",
        "context",
        "exception",
        "function",
        "home",
        "id",
        "inputs",
        "outputs",
        "sequence",
        "state",
        "timed_out",
        "tree",
        "waiting_on",
    )

    def __init__(
        self,
        id: int,
        request: Request,
        *,
        parent: "CodeNode | None",
        tree: Tree,
        home: Home,
    ) -> None:
        self.id = id
        self.context: RunContext | None = None
        self.function = request.function
        self.inputs = request.args
        self.outputs = None
        self.exception = None
        self.state = NodeState.Waiting
        self._parent = parent
        self.waiting_on = None
        self.timed_out = False
        self.tree = tree
        self._request = request
        self.home = home
        self.children: list[CodeNode] = []
        self._running = 0  # how many children have not ended
        self._next_sequence = 1
        self._awaited = 0  # how often its caller waits for it just now
        self._closing = False  # its children are being cancelled, and there will be no more
        self._waiters: dict[Callable[[], None], None] = {}  # in order, and quick to leave
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._traceback: TracebackType | None = None
        self._reason: str | None = None  # why it is being cancelled
        self._failures = 0  # how many children have failed
        self.asked_for = request.sink is not None  # somebody wants to know what comes of it
        self._returned = False  # its function is done; only children may still run
        self._started: float | None = None
        self._ended: float | None = None
        if parent is None:
            self._index = self.sequence = tree.number
        else:
            parent._adopt(self, request.tied_with)
        above = None if parent is None else parent.id
        name = request.function.name
        tree.publish(CallRequested(id, above, self._index, self.sequence, name, request.args))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {self.function.name} {self.state}>"

    # What it is

    @property
    def parent(self) -> "CodeNode | None":
        return self._parent

    @property
    def path(self) -> str:
        numbers: list[str] = []
        node: CodeNode | None = self
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

    def get_children(self) -> list[Node | list[Node]]:
        batches: dict[int, list[Node]] = {}
        for child in list(self.children):
            batches.setdefault(child.sequence, []).append(child)
        return [batch if len(batch) > 1 else batch[0] for batch in batches.values()]

    @property
    def bag(self) -> SessionBag:
        """The objects that live as long as its tree."""
        return self.tree.bag_of(self.id)

    # Waiting for it

    def result(self, timeout: float | None = None) -> Any:
        self.asked_for = True
        if self._ended is None:
            caller = self._caller()
            ended = threading.Event()
            self.home.forbid_waiting(f"result() of {self.function.name!r}")
            self.home.tell(self.when_ended, ended.set)
            if caller is not None:
                caller.waiting_on = self
            try:
                if not self.home.wait(ended, timeout):
                    self.home.tell(self._wake_no_more, ended.set)
                    raise TimeoutError(
                        f"{self.function.name} (node {self.path}) has not ended in {timeout} s;"
                        " it goes on: wait again, or cancel it"
                    )
            finally:
                if caller is not None and caller.waiting_on is self:
                    caller.waiting_on = None
        return self._outcome()

    def __await__(self) -> Generator[Any, None, Any]:
        self.asked_for = True
        if self._ended is None:
            caller = self._caller()
            loop = asyncio.get_running_loop()
            ended = loop.create_future()
            at_home = loop is self.home.loop
            wake = partial(settle, ended) if at_home else settle_from_anywhere(ended)
            self.home.tell(self.when_ended, wake)
            if caller is not None:
                caller.waiting_on = self
                self._awaited += 1
            try:
                yield from ended
            except asyncio.CancelledError:
                self.home.tell(self._wake_no_more, wake)
                # Who asked for the call has given it up, unless he waits for it elsewhere too.
                # Others only look on.
                if caller is not None and self._awaited == 1:
                    self.home.tell(self.cancel_here, "its caller stopped waiting for it")
                raise
            finally:
                if caller is not None:
                    self._awaited -= 1
                    if caller.waiting_on is self:
                        caller.waiting_on = None
        return self._outcome()

    def _caller(self) -> "CodeNode | None":
        """Return the parent, if it is the one that is asking."""
        asking = RunContext.active.get(None)
        if asking is None:
            return None
        if asking is self.context:
            raise UsageError(f"{self.function.name} (node {self.path}) cannot wait for itself")
        parent = self._parent
        return parent if parent is not None and asking is parent.context else None

    def when_ended(self, wake: Callable[[], None]) -> None:
        """Have *wake* called on the loop when it ends, or now if it has."""
        if self._ended is None:
            self._waiters[wake] = None
        else:
            wake()

    async def ended(self) -> None:
        """Wait on the runtime's own loop until it has ended, whatever came of it."""
        if self._ended is None:
            ended = self.home.loop.create_future()
            self.when_ended(partial(settle, ended))
            await ended

    def _wake_no_more(self, wake: Callable[[], None]) -> None:
        self._waiters.pop(wake, None)

    def _outcome(self) -> Any:
        if self.exception is None:
            return self.outputs
        raise self.exception.with_traceback(self._traceback)

    # Running it

    def start(self, context: RunContext) -> None:
        """Begin to run, as a task that has a copy of the context variables here."""
        if self._ended is not None:  # cancelled before it came to this
            return
        self.context = context
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
        request = self._request
        outcome: tuple[NodeState, Any, BaseException | None]
        try:
            if request.timeout is not None:
                self._start_timer(request.timeout)
            args = request.args
            if not request.checked:
                args = self.function.parameters.validate(args)
            outcome = NodeState.Success, await self.function.run(context, args), None
        except asyncio.CancelledError:
            outcome = self._given_up()
        except BaseException as error:
            if self._ends_the_loop(error):
                raise
            outcome = NodeState.Error, None, error  # whatever a function raises is the outcome
        self._returned = True
        if self._running:
            await self._join(cancel=outcome[0] is not NodeState.Success)
        self._stop_timer()
        try:
            if self._parent is None and not self.tree.kept:
                await self.tree.close_bags()
        finally:
            self._end(*outcome)

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
        stack: list[tuple[CodeNode, str]] = [(self, reason)]
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

    def _expire(self) -> None:
        self.timed_out = self._reason is None and not self._returned
        self.cancel_here(f"it took longer than {self._request.timeout} s")

    def _given_up(self) -> tuple[NodeState, None, BaseException]:
        name, reason = self.function.name, self._reason or "its task was cancelled"
        if self.timed_out:
            return NodeState.Error, None, CallTimeoutError(f"{name} (node {self.path}): {reason}")
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
        self._enter(state)
        self.outputs = value
        self.exception = error
        self._traceback = None if error is None else error.__traceback__
        now = time.time()
        failure = None if error is None else Failure.of(error)
        self.tree.publish(CallEnded(self.id, state, now, value, failure))
        self._ended = now
        self._task = None
        if self._failures:
            for child in self.children:
                report_if_unseen(child)
        self.context = None  # or the two would keep each other alive
        self._stop_timer()
        if self._parent is not None:
            self._parent._child_ended(failed=state is NodeState.Error)
        waiters, self._waiters = self._waiters, {}
        for wake in waiters:
            wake()

    def _start_timer(self, timeout: float) -> None:
        loop = self.home.loop
        self._timer = loop.call_at(loop.time() + timeout, self._expire, context=_NO_VARIABLES)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _enter(self, state: NodeState) -> None:
        check_transition(self.state, state)
        self.state = state

    # Its children

    def _adopt(self, child: "CodeNode", tied_with: Node | None) -> None:
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


def report_if_unseen(node: CodeNode) -> None:
    """Log that *node* failed if nobody has asked for its result, because now nobody will."""
    if node.state is NodeState.Error and node.exception is not None and not node.asked_for:
        node.asked_for = True  # once is enough
        failure = Failure.of(node.exception)
        log.warning("%s failed, and nobody asked for its result: %s", node, failure)
