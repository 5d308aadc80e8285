"""The request for a call, and what the framework's own functions see of the call that starts."""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from treefold.core.budget import Budget
from treefold.core.decisions import Rules
from treefold.core.deps import DepsSource
from treefold.core.function import Function, Node, RunContext
from treefold.core.states import NodeState

# Is awaited before a call runs, with the context of the call; returns the arguments to run it with.
# An exception that it raises is the outcome of the call.
Gate = Callable[[RunContext], Awaitable[Mapping[str, Any]]]


class CallRequest(Struct):
    """A function, its arguments, and the options of the call."""

    function: Function
    args: Mapping[str, Any]
    timeout: float | None = None
    tied_with: Node | None = None
    checked: bool = False  # the arguments are passed on without validation
    sink: Callable[[Any], Awaitable[None]] | None = None  # receives the values that the call sends
    model: Any = None  # for this call only
    budget: Budget | None = None
    tool_use_id: str | None = None  # the model's own id of the call
    gate: Gate | None = None
    rules: Rules | None = None  # for models in the call and below it, in addition to those above
    # The permissions that bind a recorded tree, of a top-level call; None: those of the runtime.
    levels: Sequence[Rules] | None = None
    # A name of the call, if an agent makes it to prepare its next request.
    prepares: str | None = None
    prior: Any = None  # what an agent continues: a PriorConversation, or the turn of a chat
    key: str | None = None  # given by the caller
    continues: int | None = None  # the recorded call that it repeats
    queue: str = ""  # of a work engine; for top-level calls
    priority: int = 0  # in that queue
    deps: DepsSource | None = None  # for top-level calls; otherwise those of the runtime
    call_key: str = ""  # identifies the call among those of its parent, if there is a journal


class StartedCall(Protocol):
    """The node of a call that ``RunContext.start`` started, as agents and ensembles see it."""

    asked_for: bool  # whether its outcome has been asked for; if not, a failure is logged
    exception: BaseException | None

    @property
    def state(self) -> NodeState:
        """Whether it waits, runs, is paused, or how it ended."""
        ...

    @property
    def outputs(self) -> Any:
        """The value that it returned; None before."""
        ...

    def cancel(self, reason: str = ...) -> None:
        """Cancel it and every call below it."""
        ...

    def add_end_callback(self, wake: Callable[[], object]) -> None:
        """Call *wake* on the loop when the call ends, or at once if it has ended."""
        ...

    def when_answering(self, wake: Callable[[], None]) -> None:
        """Call *wake* on the loop when its model has begun to answer, or when the call ends."""
        ...

    def __await__(self) -> Generator[Any, None, Any]: ...


class Concluded(Exception):  # noqa: N818 - not an error: it carries the value of the call
    """Raised by a gate when the call need not run because its value is known."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value
