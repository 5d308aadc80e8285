"""The RunContext of a call: what a function can ask of the framework while it runs."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from treefold.core.address import address
from treefold.core.agent_errors import AgentException
from treefold.core.budget import Budget
from treefold.core.call_keys import named
from treefold.core.call_request import CallRequest
from treefold.core.conversation import AgentConversation
from treefold.core.deps import DepsSource
from treefold.core.errors import InvalidValueError, NoParentSessionError, UsageError
from treefold.core.frames import Frame
from treefold.core.function import (
    NO_DEFAULT,
    Function,
    Node,
    RunContext,
    SessionScope,
    checked_function,
    checked_timeout,
)
from treefold.core.moments import moment_of
from treefold.core.question import Answer, QuestionKind
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.stack import frames_to
from treefold.runtime.calls.walk import root_of
from treefold.runtime.graph import check_use
from treefold.runtime.limits.leases import give_up_lease, usable_lease
from treefold.runtime.loops.threads import in_thread
from treefold.runtime.questions.ask import ask
from treefold.runtime.questions.sleep import sleep
from treefold.runtime.questions.typed import Terms, ask_for, ask_text

T = TypeVar("T")
Q = ParamSpec("Q")


class Host(Protocol):
    """The part of a runtime that calls use."""

    id: str

    def get_ctx(self) -> RunContext:
        """Return a context outside any call."""
        ...

    def lives_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it runs calls on *loop*."""
        ...


class Starter(Protocol):
    """The part of the engine that a context uses to start calls."""

    @property
    def runtime(self) -> Host:
        """What calls see as their runtime."""
        ...

    def start(
        self, request: CallRequest, parent: CallNode | None, *, is_here: bool = False
    ) -> CallNode:
        """Start the call that *request* asks for, and return its node.

        *is_here* says that this is code of the runtime's loop.
        """
        ...


class Context(RunContext):  # noqa: PLR0904 - as many as RunContext has
    """The RunContext of one node, or of a runtime outside any call."""

    __slots__ = ("_node", "_sleeps", "_starter")

    def __init__(self, starter: Starter, node: CallNode | None) -> None:
        self._starter = starter
        self._node = node
        self._sleeps = 0  # how often the call has begun to sleep

    def __repr__(self) -> str:
        return f"<RunContext of {self._node or self.runtime}>"

    @property
    def runtime(self) -> Any:
        return self._starter.runtime

    @property
    def node(self) -> CallNode:
        if self._node is None:
            raise UsageError(
                "there is no call here, and so no node: run the function by runtime.invoke(...) or"
                " Turn(...).returning() instead of calling it directly"
            )
        return self._node

    @property
    def deps(self) -> Any:
        if (deps := self.node.tree.deps) is None:
            name = f"{self.node.function.name} ({address(self.node.path)})"
            raise UsageError(
                f"{name} asks for ctx.deps, and its run has no dependencies: give"
                " Runtime(deps=...), or deps=... with the call"
            )
        return deps.value

    @property
    def has_ended(self) -> bool:
        """Whether its call has ended and can make no more calls."""
        return self._node is not None and self._node.is_concluded

    def invoke(  # noqa: PLR0913 - options, each passed by name
        self,
        function: Function[..., T],
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        tied_with: Node | None = None,
        model: Any = None,
        budget: Budget | None = None,
        key: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        deps: Any = None,
    ) -> CallNode:
        function = checked_function(function, "a call")
        if self._node is not None:
            check_use(self._node.function, function)
        # A dict is the usual case, and isinstance is slow for abstract classes.
        if args is not None and not isinstance(args, dict) and not isinstance(args, Mapping):
            raise InvalidValueError(
                f"the arguments of {function.name} go by name, {{'name': value}}, not {args!r}"
            )
        if timeout is not None:
            timeout = checked_timeout(timeout, f"a call of {function.name}")
        if model is not None and not function.is_agent:
            raise InvalidValueError(f"model= is for agents; {function.name} is code, got {model!r}")
        if budget is not None and not isinstance(budget, Budget):
            raise InvalidValueError(f"a budget is a Budget(...), not {budget!r}")
        if key is not None:
            named(key)
        request = CallRequest(
            function, dict(args or {}), timeout, tied_with, model=model, budget=budget, key=key
        )
        if queue is not None or priority:
            _place(request, queue, priority, self._node)
        if deps is not None:
            request.deps = DepsSource.of(deps)
        return self._starter.start(request, self._node)

    def post_exception(self, error: AgentException) -> None:
        agent = self.node if self.node.function.is_agent else self.node.parent
        if not isinstance(error, AgentException):
            raise InvalidValueError(f"post_exception takes an AgentException, not {error!r}")
        if agent is None or not agent.function.is_agent:
            raise UsageError(
                f"{self.node.function.name} is not an agent and was not called by one: raise the"
                " exception instead"
            )
        agent.loop_handle.run_sync(_resign, agent, error)

    def get_or_put(
        self, scope: SessionScope, namespace: str, key: str, factory: Callable[[], T]
    ) -> T:
        return self._owner_of(scope).bag.get_or_put(namespace, key, factory)

    def _owner_of(self, scope: SessionScope) -> CallNode:
        if scope is SessionScope.Self:
            return self.node
        if scope is SessionScope.TopLevel:
            return root_of(self.node)
        if self.node.parent is None:
            raise NoParentSessionError(
                f"{self.node.function.name} was called at top level and has no parent: use"
                " SessionScope.Self or SessionScope.TopLevel"
            )
        return self.node.parent

    @property
    def idempotency_key(self) -> str:
        return f"{self.runtime.id}-{self.node.stable_id}"

    async def ask(
        self,
        text: Any,
        choices: Any = (),
        *,
        default: Any = NO_DEFAULT,
        expires: float | timedelta | datetime | None = None,
        to: str = "",
        escalate: Mapping[str, float | timedelta | datetime] | None = None,
    ) -> Any:
        terms = Terms(default, expires, to, escalate or {})
        if isinstance(text, str):
            return await ask_text(self.node, text, choices, terms)
        return await ask_for(self.node, text, choices, terms)

    async def sleep(self, duration: float | timedelta) -> None:
        if isinstance(duration, datetime):
            raise InvalidValueError(f"sleep_until(...) takes a datetime, got {duration!r}")
        await self._sleep(self._moment_of(duration, "the duration of a sleep"))

    async def sleep_until(self, time: datetime) -> None:
        if not isinstance(time, datetime):
            raise InvalidValueError(f"sleep_until takes a datetime, not {time!r}; see sleep(...)")
        await self._sleep(self._moment_of(time, "the time to sleep until"))

    def _moment_of(self, given: Any, what: str) -> float:
        return moment_of(given, what, self.node.tree.now())

    async def _sleep(self, until: float) -> None:
        # When the call is run again, its first sleep is the first of the process before.
        self._sleeps += 1
        await sleep(self.node, until, str(self._sleeps))

    def give_up_lease(self) -> None:
        if self._node is not None:
            self._node.loop_handle.run_sync(give_up_lease, self._node)

    @property
    def has_lease(self) -> bool:
        return usable_lease(self.node) is not None

    @asynccontextmanager
    async def lease_released(self) -> AsyncGenerator[None, None]:
        self.give_up_lease()
        yield

    async def send(self, value: Any) -> None:
        await self.node.send(value)

    async def in_thread(self, function: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> T:
        return await in_thread(function, *args, **kwargs)

    # For the functions of the framework itself

    def start(self, request: CallRequest) -> CallNode:
        return self._starter.start(request, self._node)

    def start_here(self, request: CallRequest) -> CallNode:
        """Do the same in code of the runtime's own loop."""
        return self._starter.start(request, self._node, is_here=True)

    @property
    def conversation(self) -> Any:
        from treefold.runtime.conversations.agent_node import (  # noqa: PLC0415 - only for agents
            AgentNode,
        )

        if isinstance(self._node, AgentNode):
            conversation: AgentConversation = self._node.conversation
            return conversation
        raise UsageError(f"{self.node.function.name} is not an agent, and has no conversation")

    def frames(self) -> list[Frame]:
        return frames_to(self.node)

    async def ask_person(
        self, kind: QuestionKind, text: str, choices: Sequence[str] = (), key: str | None = None
    ) -> Answer:
        return await ask(self.node, kind, text, choices, key)

    def on_loop(
        self, function: Callable[Q, Awaitable[T]], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> T:
        work = _until_ended(self.node, partial(function, *args, **kwargs))
        return self.node.loop_handle.run_coroutine(work)


async def _until_ended(node: CallNode, work: Callable[[], Awaitable[T]]) -> T:
    """Await *work*; it is cancelled when *node* ends."""
    task = asyncio.current_task()
    assert task is not None  # this is a coroutine
    node.add_end_callback(task.cancel)
    try:
        return await work()
    finally:
        node.remove_end_callback(task.cancel)


def _place(request: CallRequest, queue: str | None, priority: int, parent: Node | None) -> None:
    """Note the queue of a top-level call, and its priority there."""
    if parent is not None:
        raise UsageError("queue= and priority= are for top-level calls; others have remote=")
    if queue is not None and (not isinstance(queue, str) or not queue):
        raise InvalidValueError(f"queue must be the name of a queue, got {queue!r}")
    request.queue, request.priority = queue or "", priority


def _resign(agent: CallNode, error: AgentException) -> None:
    error.locate(frames_to(agent))
    agent.note_resignation(error)
