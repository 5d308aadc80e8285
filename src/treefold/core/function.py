"""What can be called, what a call is, and what a running call may ask for.

Code, agents and ensembles are all Functions; each call of one is a Node; while it runs it sees its
RunContext and nothing else of the framework. The three name each other, so they live together.
Who runs them is not this module's business.
"""

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, ParamSpec, Protocol, Self, TypeVar, cast

from treefold.core.agent_errors import AgentException
from treefold.core.budget import Budget
from treefold.core.errors import DefinitionError, InvalidValueError
from treefold.core.parameter import JsonSchema
from treefold.core.parameters import Parameters
from treefold.core.states import NodeState
from treefold.core.transcript import TranscriptPart
from treefold.core.usage import TokenUsage


class Injected(ABC):
    """A type whose parameters are filled in by the framework and left out of the schema."""

    @classmethod
    @abstractmethod
    def current(cls) -> Self | None:
        """Return the object that belongs to the running call, if there is one."""


T = TypeVar("T")
Q = ParamSpec("Q")

_LONGEST = sys.float_info.max
_NO_TAGS: frozenset[str] = frozenset()


def checked_tags(tags: Iterable[str] | None, owner: str) -> frozenset[str]:
    """Return *tags* as a set."""
    if tags is None:
        return _NO_TAGS
    found: frozenset[Any] = frozenset(tags)
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in found):
        raise DefinitionError(
            f"the tags of {owner} must be a list or set of strings, not {tags!r}; 'tags' is"
            " reserved for them"
        )
    return found


def checked_timeout(timeout: float | None, owner: str) -> float | None:
    """Return *timeout*, which is in seconds or None."""
    if timeout is None or (isinstance(timeout, int | float) and 0 <= timeout <= _LONGEST):
        return timeout
    raise InvalidValueError(f"the timeout of {owner} is in seconds or None, not {timeout!r}")


def checked_function(thing: object, wanted_by: str) -> "Function":
    """Return *thing* if it is a Function; otherwise say what to give instead."""
    if isinstance(thing, Function):
        return thing
    if isinstance(thing, str):
        remedy = f"give the function itself, or ToolRegistry.get({thing!r})"
    elif inspect.iscoroutine(thing) or isinstance(cast("Any", thing), AsyncGenerator):
        name = getattr(thing, "__qualname__", "it")
        remedy = f"give the function itself: '{name}', without calling it"
    else:
        remedy = "decorate it with @tool, or wrap it in CodeFunction(callable=...)"
    if inspect.iscoroutine(thing):
        thing.close()  # it will not be awaited, which is not what there is to complain of
    raise DefinitionError(f"{wanted_by} needs a Function, which {thing!r} is not: {remedy}")


def checked_functions(things: object, wanted_by: str) -> "tuple[Function, ...]":
    """Return *things* if they are Functions, one after the other."""
    if not isinstance(things, Iterable) or isinstance(things, str):
        raise DefinitionError(f"{wanted_by} needs a list of Functions, not {things!r}")
    return tuple([checked_function(thing, wanted_by) for thing in cast("Iterable[Any]", things)])


class SessionScope(Enum):
    """Whose bag: the root's, the parent's, or the call's own.

    Example:
        >>> from treefold import CodeFunction, Runtime, SessionScope
        >>> def remember(ctx) -> list:
        ...     return ctx.get_or_put(SessionScope.TopLevel, "example", "notes", lambda: ["first"])
        >>> with Runtime() as runtime:
        ...     runtime.invoke(CodeFunction(callable=remember)).result()
        ['first']
    """

    TopLevel = "top_level"
    Parent = "parent"
    Self = "self"


class ModelFinder(Protocol):
    """Finds the models that agents refer to."""

    @property
    def has_default(self) -> bool:
        """Whether there is a model for agents that name none."""
        ...

    @property
    def chooses_default(self) -> bool:
        """Whether the program has set that model."""
        ...

    def find(self, model_ref: Any) -> Any:
        """Return the Model that *model_ref* refers to: a Model, a Provider, a name or None."""
        ...


class Function(ABC):
    """Anything that can be called. Nothing about a particular call is stored on it.

    Example:
        >>> from treefold import CodeFunction
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> CodeFunction(callable=add).input_schema["required"]
        ['a', 'b']
    """

    trained_as: str | None = None  # the tool that some models were trained on, if it is one
    is_agent: bool = False  # whether a call of it talks to a model
    asks_people: bool = False  # whether a call of it waits for a person
    ends_its_caller: bool = False  # whether the agent that calls it gives up
    # The schema of an answer that may stand for a call, where a model cannot call functions.
    answer_schema: JsonSchema | None = None

    def __init__(
        self,
        name: str,
        desc: str,
        *,
        uses: Iterable["Function"] = (),
        tags: Iterable[str] | None = None,
        repeatable: bool | None = None,
        uses_recursion: bool = False,
        max_depth: int = 10,
        budget: Budget | None = None,
    ) -> None:
        if budget is not None and not isinstance(budget, Budget):
            raise InvalidValueError(f"the budget of {name} is a Budget(...), not {budget!r}")
        self._name = name
        self._description = desc
        self.tags = checked_tags(tags, f"function {name!r}")
        self.repeatable = repeatable  # None: nobody has said
        self.uses_recursion = uses_recursion  # whether a call of it may call it again
        self.max_depth = max_depth  # how many calls of it may be under way inside each other
        if not isinstance(max_depth, int) or max_depth < 1:
            raise InvalidValueError(f"max_depth={max_depth!r} of {name}: give 1 or more")
        self.budget = budget  # what each call of it may spend, with all below it
        self._uses = checked_functions(uses, f"the 'uses' of {name}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def name(self) -> str:
        """What it is called, by people and by models."""
        return self._name

    @property
    def description(self) -> str:
        """What it does, for whoever decides to call it."""
        return self._description

    @property
    def may_repeat(self) -> bool:
        """Whether a call that was cut off may be made again without asking anybody.

        Unless it was said, that goes for code that calls other functions: what those gave is known,
        and only the code between the calls runs again.
        """
        return bool(self.may_call) if self.repeatable is None else self.repeatable

    @property
    def uses(self) -> Sequence["Function"]:
        """The functions that this one may call."""
        return self._uses

    @property
    def may_call(self) -> Sequence["Function"]:
        """Every function that a call of it may call, itself included if it may."""
        return (*self.uses, self) if self.uses_recursion else self.uses

    @property
    def own_functions(self) -> Sequence["Function"]:
        """Functions that only its own calls can call; nobody else knows them."""
        return ()

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """What a caller gives."""

    @property
    def input_schema(self) -> JsonSchema:
        """The parameters as a JSON schema."""
        return self.parameters.json_schema

    def to_openai_format(self) -> JsonSchema:
        """Return it as OpenAI and compatible servers want to be told of it."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.input_schema,
            },
        }

    def faults(self, models: "ModelFinder") -> list[str]:
        """Return what is wrong with it, if it is to talk to these *models*."""
        return []

    @property
    def is_plain(self) -> bool:
        """Whether nothing can be wrong with it that was not found when it was made."""
        return not self.is_agent and not self.uses

    @property
    def output_type(self) -> Any:
        """The annotation of what a call gives back; ``Any`` where nothing is said."""
        return Any

    @property
    def streams(self) -> bool:
        """Whether a call gives values one by one."""
        return False

    @abstractmethod
    async def run(self, ctx: "RunContext", args: Mapping[str, Any]) -> Any:
        """Do the work of one call whose arguments have been checked."""


class Node(ABC):
    """One call, under way or past.

    ``await node`` gives its value from any event loop, ``node.result()`` from any thread. Code that
    made the call and stops awaiting it (``asyncio.timeout``, a cancelled task) cancels it. There is
    one exception: a top-level call in a store continues, and has to be cancelled by ``cancel()``.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(CodeFunction(callable=add), {"a": 1, "b": 2})
        ...     node.result(), node.path, node.state.value
        (3, '1', 'success')
    """

    __slots__ = ()

    id: int
    function: Function
    inputs: Mapping[str, Any]
    outputs: Any
    exception: BaseException | None
    state: NodeState
    sequence: int
    waiting_on: "Node | None"
    tool_use_id: str | None  # the model's own name for the call, if a model made it

    @property
    @abstractmethod
    def parent(self) -> "Node | None":
        """The call that made it; None for a top-level call."""

    @property
    @abstractmethod
    def path(self) -> str:
        """Its place in the tree ("1.3.2"): the same each time the same program runs."""

    @property
    @abstractmethod
    def started_at(self) -> datetime | None:
        """When it began to run."""

    @property
    @abstractmethod
    def ended_at(self) -> datetime | None:
        """When it ended."""

    @property
    @abstractmethod
    def usage(self) -> TokenUsage:
        """The tokens of its own requests to a model."""

    @property
    @abstractmethod
    def total_usage(self) -> TokenUsage:
        """The tokens of it and of every call below it."""

    @property
    @abstractmethod
    def cost(self) -> Decimal | None:
        """US dollars for its own requests; None if a price is not known."""

    @property
    @abstractmethod
    def total_cost(self) -> Decimal | None:
        """US dollars for it and every call below it; None if a price is not known."""

    def get_transcript(self) -> list[TranscriptPart]:
        """Return all that it and a model said to each other; nothing, if it is no agent's call."""
        return []

    @abstractmethod
    def get_children(self) -> "list[Node | list[Node]]":
        """Return the calls it made, in order; calls asked for in parallel share an inner list."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> Any:
        """Block until it has ended; return its value or raise its exception.

        Raises:
            TimeoutError: it has not ended in *timeout* seconds; it goes on.
            BlockingCallError: called on the loop that runs it.
        """

    @abstractmethod
    def cancel(self, reason: str = "cancelled") -> None:
        """Cancel it, and every call it made. Returns at once; does nothing if it has ended."""

    @abstractmethod
    def __await__(self) -> Generator[Any, None, Any]: ...


class RunContext(Injected):
    """All that a running function sees of the framework.

    A parameter annotated ``RunContext`` receives the one of the call.

    Example:
        >>> import asyncio
        >>> from treefold import RunContext, Runtime, registries, tool
        >>> async def main():
        ...     with registries():
        ...         @tool
        ...         async def double(n: int) -> int:
        ...             return 2 * n
        ...         @tool(uses=[double])
        ...         async def quadruple(ctx: RunContext, n: int) -> int:
        ...             return await ctx.invoke(double, {"n": await ctx.invoke(double, {"n": n})})
        ...         async with Runtime() as runtime:
        ...             return await runtime.invoke(quadruple, {"n": 3})
        >>> asyncio.run(main())
        12
    """

    __slots__ = ()

    active: ClassVar[ContextVar["RunContext"]] = ContextVar("treefold.active")

    @classmethod
    def current(cls) -> "RunContext | None":  # pyright: ignore[reportIncompatibleMethodOverride]
        return RunContext.active.get(None)

    @property
    @abstractmethod
    def node(self) -> Node:
        """The call that this context belongs to.

        Raises:
            UsageError: it belongs to a runtime, outside any call.
        """

    @property
    @abstractmethod
    def runtime(self) -> Any:
        """The Runtime that runs the call (``Any``, because that class stands above this one)."""

    @abstractmethod
    def invoke(
        self,
        function: Function,
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        tied_with: Node | None = None,
        model: Any = None,
        budget: Budget | None = None,
        key: str | None = None,
    ) -> Node:
        """Start a call of *function* as a child of this one and return its node at once.

        A wrong argument is an InvalidArgumentsError (a ValueError) of that node. *timeout* is in
        seconds. A call tied with another was asked for in parallel and shares its number. *model*
        is for this call of an agent only: a model, its name, or a Provider. *budget* is for the
        call and all below it. After a crash, a journal knows the call by its *key*, or else by what
        is called with which arguments.

        Raises:
            CallGraphError: *function* is not among the ``uses`` of this one.
            ClosedError: this call has ended, or the runtime was closed.
            InvalidValueError: an option is not what it should be.
        """

    @abstractmethod
    def post_exception(self, error: AgentException) -> None:
        """End the agent of this call with *error*, when the calls that it asked for are done.

        That is the agent that this call is one of, or the one that made this call.

        Raises:
            UsageError: there is no such agent; raise the exception instead.
        """

    @property
    @abstractmethod
    def idempotency_key(self) -> str:
        """A text that is the same whenever this very call is run again, and no other call's.

        Give it to a service that does nothing twice for the same key.
        """

    @abstractmethod
    async def ask(self, text: str, choices: Sequence[str] = ()) -> str:
        """Ask a person, and wait for the answer, for days if need be.

        The lease for requests to models is given up meanwhile, and the node is Paused. Whoever
        reads ``runtime.questions()`` may answer.

        Raises:
            ClosedError: this call has ended.
        """

    @abstractmethod
    def give_up_lease(self) -> None:
        """Let others make requests to models; the next request here takes a lease again."""

    @property
    @abstractmethod
    def has_lease(self) -> bool:
        """Whether a request to a model could be made here without waiting for others."""

    @abstractmethod
    def lease_released(self) -> AbstractAsyncContextManager[None]:
        """Let others make requests to models while this call waits for something else.

        The next request of this call, or of those above it, takes a lease again.
        """

    @abstractmethod
    def get_or_put(
        self, scope: SessionScope, namespace: str, key: str, factory: Callable[[], T]
    ) -> T:
        """Return what the bag of *scope* holds under *namespace* and *key*, made if need be.

        Raises:
            NoParentSessionError: the parent's bag was asked for at top level.
        """

    @abstractmethod
    async def send(self, value: Any) -> None:
        """Give out a value before the end; waits until whoever consumes the values took it."""

    @abstractmethod
    async def in_thread(self, function: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> T:
        """Run sync code in a worker thread that has the context variables of this call."""
