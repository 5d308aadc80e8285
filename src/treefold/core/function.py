"""``Function``, ``Node`` and ``RunContext``: what can be called, one call, and what a call sees.

Code, agents and ensembles are all Functions. Each call of one is a Node. A running call sees its
RunContext and nothing else of the framework. The three refer to each other, so they share a module;
it does not know how they are run.
"""

import inspect
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from importlib import import_module
from typing import Any, ClassVar, Final, Generic, Protocol, Self, cast, overload

from typing_extensions import ParamSpec, TypeVar

from treefold.core.agent_errors import AgentException
from treefold.core.budget import Budget
from treefold.core.display import Displayed
from treefold.core.errors import DefinitionError, InvalidValueError
from treefold.core.events import Event
from treefold.core.frames import Frame
from treefold.core.json_schema import without_defaults
from treefold.core.parameter import JsonSchema
from treefold.core.parameters import Parameters
from treefold.core.question import Answer, QuestionKind
from treefold.core.states import NodeState
from treefold.core.transcript import TranscriptPart
from treefold.core.usage import TokenUsage


class Injected(ABC):
    """A type whose parameters the framework fills in; they are not in the schema."""

    @classmethod
    @abstractmethod
    def current(cls) -> Self | None:
        """Return the object that belongs to the running call, if there is one."""


T = TypeVar("T")
Q = ParamSpec("Q")
# The arguments of a function, and the value of a call. Both have defaults, so that plain
# ``Function`` and ``Node`` mean any of them.
P = ParamSpec("P", default=...)
R_co = TypeVar("R_co", default=Any, covariant=True)
# What ``ctx.deps`` is. The default is not Any: mypy would see the overloads of decorators as
# ambiguous for a plain ``RunContext``.
Deps_co = TypeVar("Deps_co", default=object, covariant=True)

FEWEST_CHARS: Final = 300  # of a result, for a model
DEFAULT_QUEUE = "default"  # of calls that any worker may run

NO_DEFAULT: Final[Any] = object()  # of a question

# Whether a person has to approve a call that a model asks for: True, why, or code that decides it
# from the arguments that the model wrote, by returning one of these.
Ask = bool | str | Callable[[Mapping[str, Any]], bool | str | Awaitable[bool | str | None] | None]

_LONGEST = sys.float_info.max
_NO_TAGS: frozenset[str] = frozenset()


def checked_tags(tags: Iterable[str] | None, owner: str) -> frozenset[str]:
    """Return *tags* as a set.

    Raises:
        DefinitionError: they are not strings.
    """
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
    """Return *timeout* if it is a number of seconds or None; a number as an int or a float.

    Raises:
        InvalidValueError: it is not.
    """
    if timeout is None or (isinstance(timeout, int | float) and 0 <= timeout <= _LONGEST):
        # Journals cannot have a subclass of float, such as numpy's, nor what is computed with it.
        return timeout if timeout is None or type(timeout) is int else float(timeout)
    raise InvalidValueError(f"the timeout of {owner} is in seconds or None, not {timeout!r}")


def checked_function(thing: object, wanted_by: str) -> "Function":
    """Return *thing* if it is a Function.

    Raises:
        DefinitionError: it is not; the message says what to pass instead.
    """
    if isinstance(thing, Function):
        return cast("Function", thing)
    if isinstance(thing, str):
        remedy = f"give the function itself, or ToolRegistry.get({thing!r})"
    elif inspect.iscoroutine(thing) or isinstance(cast("Any", thing), AsyncGenerator):
        name = getattr(thing, "__qualname__", "it")
        remedy = f"give the function itself: '{name}', without calling it"
    elif inspect.isfunction(thing) and not _is_async(thing):
        remedy = (
            "make it an async function and decorate it with @tool, or let it take 'ctx: RunContext'"
            " first and wrap it in CodeFunction(callable=...)"
        )
    else:
        remedy = "decorate it with @tool, or wrap it in CodeFunction(callable=...)"
    if inspect.iscoroutine(thing):
        # Suppress Python's warning that it was never awaited.
        thing.close()
    raise DefinitionError(f"{wanted_by} needs a Function, which {thing!r} is not: {remedy}")


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def checked_functions(things: object, wanted_by: str) -> "tuple[Function, ...]":
    """Return *things* as a tuple if all of them are Functions.

    Raises:
        DefinitionError: one is not, or *things* is not iterable.
    """
    if not isinstance(things, Iterable) or isinstance(things, str):
        raise DefinitionError(f"{wanted_by} needs a list of Functions, not {things!r}")
    return tuple([checked_function(thing, wanted_by) for thing in cast("Iterable[Any]", things)])


class SessionScope(Enum):
    """Which bag: that of the top-level call, of the parent, or of the call itself.

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

    def find(self, model_ref: Any) -> Any:
        """Return the Model that *model_ref* refers to: a Model, a Provider, a name or None."""
        ...

    def is_unchosen(self, model_ref: Any) -> bool:
        """Whether *model_ref* refers to the default, and the program has chosen none."""
        ...


class Function(ABC, Generic[P, R_co]):  # noqa: PLR0904 - most are parts of the definition
    """Anything that can be called. It holds no state of particular calls.

    ``Function[[str], int]`` takes a str and returns an int; decorators and constructors infer both.

    Example:
        >>> from treefold import CodeFunction
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> CodeFunction(callable=add).input_schema["required"]
        ['a', 'b']
    """

    trained_as: str | None = None  # the name of a tool that some models were trained to use
    is_agent: bool = False  # whether its calls talk to a model
    asks_people: bool = False  # whether its calls wait for a person
    ends_its_caller: bool = False  # whether an agent that calls it ends
    # The schema of an answer that replaces a call, for models that cannot call functions.
    answer_schema: JsonSchema | None = None
    # If calling it returns the result of an agent: the keys that lead to it in the arguments.
    result_path: tuple[str, ...] | None = None

    def __init__(  # noqa: PLR0913 - a definition has many parts, each by its name
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
        remote: bool | str = False,
        ask: Ask = False,
        max_result_chars: int | None = None,
    ) -> None:
        if budget is not None and not isinstance(budget, Budget):
            raise InvalidValueError(f"the budget of {name} is a Budget(...), not {budget!r}")
        self._name = name
        self._description = desc
        self.tags = checked_tags(tags, f"function {name!r}")
        self.repeatable = repeatable  # None: not specified
        self.uses_recursion = uses_recursion  # whether it may call itself
        self.max_depth = max_depth  # how many calls of it may be nested
        if not isinstance(max_depth, int) or max_depth < 1:
            raise InvalidValueError(f"max_depth={max_depth!r} of {name}: give 1 or more")
        self.budget = budget  # of each call, including all calls below it
        if not isinstance(remote, bool | str):
            raise InvalidValueError(
                f"remote={remote!r} of {name}: give True, False or the name of a queue"
            )
        # In a shared store, calls of it are run by any worker that serves this queue; "" for none.
        self.queue = DEFAULT_QUEUE if remote is True else (remote or "")
        if not (isinstance(ask, bool) or (isinstance(ask, str) and ask.strip()) or callable(ask)):
            raise InvalidValueError(
                f"ask={ask!r} of {name}: give True, why a person is asked, or a function that"
                " decides it from the arguments"
            )
        self.ask = ask
        if max_result_chars is not None and not (
            isinstance(max_result_chars, int) and max_result_chars >= FEWEST_CHARS
        ):
            raise InvalidValueError(
                f"max_result_chars={max_result_chars!r} of {name}: give {FEWEST_CHARS} or more"
            )
        # How much of a result a model gets at once; None: not specified.
        self.max_result_chars = max_result_chars
        self._uses = checked_functions(uses, f"the 'uses' of {name}")
        self.made_at = time.time()  # a source file that was changed later is not its source

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def name(self) -> str:
        """The name that people and models call it by."""
        return self._name

    @property
    def description(self) -> str:
        """What it does; a model reads this to decide whether to call it."""
        return self._description

    @property
    def may_repeat(self) -> bool:
        """Whether a call that a crash interrupted may run again without asking a person.

        If ``repeatable`` is None, this is True for code that calls other functions: their results
        are recorded, and only the code between the calls runs again.
        """
        return bool(self.may_call) if self.repeatable is None else self.repeatable

    @property
    def uses(self) -> Sequence["Function"]:
        """The functions that this one may call."""
        return self._uses

    @property
    def may_call(self) -> Sequence["Function"]:
        """Every function that it may call, including itself if it may recurse."""
        return (*self.uses, self) if self.uses_recursion else self.uses

    @property
    def takes_messages(self) -> bool:
        """Whether people may say something to a call of it while it runs."""
        return False

    @property
    def own_functions(self) -> Sequence["Function"]:
        """Functions that only its own calls can call."""
        return ()

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """The parameters that a caller fills in."""

    @property
    def input_schema(self) -> JsonSchema:
        """The parameters as a JSON schema."""
        return self.parameters.json_schema

    def to_openai_format(self) -> JsonSchema:
        """Return the definition of the tool for OpenAI and compatible servers."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.input_schema,
            },
        }

    def interface(self) -> JsonSchema:
        """Return what a model is told about it, without what differs between machines."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": without_defaults(self.input_schema),
        }

    def definition(self) -> Mapping[str, Any]:
        """Return what decides what its calls do, by part; the version of a function is made of it.

        The names of the parts are words for people and begin with different letters. The values are
        callables, whose source counts, and data.
        """
        return {"code": type(self).run_call}

    def faults(self, models: "ModelFinder") -> list[str]:
        """Return what is wrong with its definition, given these *models*."""
        return []

    @property
    def is_plain(self) -> bool:
        """Whether its definition was checked completely when it was created."""
        return not self.is_agent and not self.uses

    @property
    def output_type(self) -> Any:
        """The annotation of the result of a call; ``Any`` if there is none."""
        return Any

    @property
    def streams(self) -> bool:
        """Whether a call sends values one by one."""
        return False

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name.

        Raises:
            TypeError: there are too many, or one is given twice.
        """
        if not args:
            return dict(kwargs)
        names = self.parameters.positional
        if len(args) > len(names):
            most = f"{len(names)} positional argument{'' if len(names) == 1 else 's'}"
            raise TypeError(f"{self.name}() takes {most}, and {len(args)} were given")
        bound = dict(zip(names, args, strict=False))
        if twice := bound.keys() & kwargs:
            raise TypeError(f"{self.name}() got multiple values for {', '.join(sorted(twice))}")
        return bound | dict(kwargs)

    @overload
    def run(self, *args: P.args, **kwargs: P.kwargs) -> "Node[R_co]": ...

    # A ParamSpec and another parameter cannot be combined.
    @overload
    def run(self, *args: Any, deps: object, **kwargs: Any) -> "Node[R_co]": ...

    def run(self, *args: Any, **kwargs: Any) -> "Node[R_co]":
        """Start a call in the runtime that is active here, and return its node: await it.

        In a call it is a child of that call. Elsewhere it is a top-level call of the Runtime whose
        ``async with`` block this is, or else of a runtime without a store. *deps* are its
        dependencies, as in ``Runtime.invoke``, unless the function has a parameter of that name.

        Raises:
            UsageError: no event loop runs here; use ``run_sync``.

        Example:
            >>> import asyncio
            >>> from treefold import CodeFunction
            >>> def add(ctx, a: int, b: int) -> int:
            ...     return a + b
            >>> async def main() -> int:
            ...     return await CodeFunction(callable=add).run(a=1, b=2)
            >>> asyncio.run(main())
            3
        """
        deps = self._take_deps(kwargs)
        return _ambient().current_context().invoke(self, self.bind(args, kwargs), deps=deps)

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Event, None]:
        """Start a call as ``run`` does, and yield its events and those of all calls below it.

        They are the events of ``Runtime.events``: text that arrives and the typed result so far
        (``ResponseStreamed``), calls, questions; the last is the ``CallEnded`` of the call. If it
        failed, its exception is raised after that. Leaving the iteration early cancels the call.

        Raises:
            UsageError: no event loop runs here.

        Example:
            >>> import asyncio
            >>> from contextlib import aclosing
            >>> from treefold import agent
            >>> from treefold.events import CallEnded, ResponseStreamed
            >>> from treefold.testing import ScriptedModel
            >>> @agent(model=ScriptedModel("Good morning!"))
            ... def greet() -> str:
            ...     return "Greet me."
            >>> async def main():
            ...     async with aclosing(greet.stream()) as events:
            ...         async for event in events:
            ...             match event:
            ...                 case ResponseStreamed(text=text):
            ...                     print(text, end="|")
            ...                 case CallEnded(outputs=outputs):
            ...                     print("it said", outputs)
            >>> asyncio.run(main())
            Good |morning!|it said Good morning!
        """
        node = self.run(*args, **kwargs)
        try:
            async for event in _ambient().current_context().runtime.events(node):
                yield event
        finally:
            if not node.state.final:
                node.cancel("nobody reads its events any more")
        await node

    @overload
    def run_sync(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def run_sync(self, *args: Any, deps: object, **kwargs: Any) -> R_co: ...

    def run_sync(self, *args: Any, **kwargs: Any) -> R_co:
        """Run a call to its end, and return its value or raise its exception.

        In the sync code of a call it is a child of that call. Elsewhere it is a top-level call of
        the Runtime whose ``with`` block this is, or else of one of its own, without a store. *deps*
        as in ``run``.

        Raises:
            BlockingCallError: an event loop runs here, which this would block; await ``run``.

        Example:
            >>> from treefold import CodeFunction
            >>> def add(ctx, a: int, b: int) -> int:
            ...     return a + b
            >>> CodeFunction(callable=add).run_sync(a=1, b=2)
            3
        """
        deps = self._take_deps(kwargs)
        return _ambient().run_sync(self, self.bind(args, kwargs), deps)

    def _take_deps(self, kwargs: dict[str, Any]) -> Any:
        """Remove the dependencies of a call from its arguments by name, and return them."""
        if "deps" not in kwargs or any(one.name == "deps" for one in self.parameters.items):
            return None
        return kwargs.pop("deps")

    @abstractmethod
    async def run_call(self, ctx: "RunContext[Any]", args: Mapping[str, Any]) -> Any:
        """Run one call; *args* have been validated."""


def _ambient() -> Any:
    """Return the module that knows the runtime of the code that runs here.

    It is in a higher layer, and imported by its name when a program uses ``run`` or ``run_sync``;
    nothing else here depends on it.
    """
    return import_module("treefold.runtime.ambient")


class Node(Displayed, ABC, Generic[R_co]):  # noqa: PLR0904 - most of the public methods are properties
    """One call, live or past; ``Node[int]`` is a call that returns an int.

    ``await node`` returns its value in any event loop, ``node.result()`` in any thread. Code that
    made the call and stops awaiting it (``asyncio.timeout``, a cancelled task) cancels it. There is
    one exception: a top-level call in a store continues until ``cancel()`` is called.

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
    exception: BaseException | None
    waiting_on: "Node | None"

    @property
    def fn(self) -> str:
        """The name of its function."""
        return self.function.name

    @property
    @abstractmethod
    def inputs(self) -> Mapping[str, Any]:
        """The arguments, by name."""

    @property
    @abstractmethod
    def outputs(self) -> Any:
        """The value that it returned; None before."""

    @property
    @abstractmethod
    def state(self) -> NodeState:
        """Whether it waits, runs, is paused, or how it ended."""

    @property
    @abstractmethod
    def index(self) -> int:
        """Its number among the calls of its parent, or among the trees."""

    @property
    @abstractmethod
    def sequence(self) -> int:
        """Its number among its siblings; calls asked for in parallel share one."""

    @property
    @abstractmethod
    def tool_use_id(self) -> str | None:
        """The model's own name for the call, if a model made it."""

    @property
    @abstractmethod
    def parent(self) -> "Node | None":
        """The call that made it; None for a top-level call."""

    @property
    @abstractmethod
    def path(self) -> str:
        """Its path in the tree, such as "1.3.2"; the same on every run of the same program."""

    @property
    @abstractmethod
    def started_at(self) -> datetime | None:
        """When it started to run."""

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
        """The cost of its own requests in US dollars; None if a price is not known."""

    @property
    @abstractmethod
    def total_cost(self) -> Decimal | None:
        """The cost of it and every call below it in US dollars; None if a price is not known."""

    def get_transcript(self) -> list[TranscriptPart]:
        """Return its conversation with a model; an empty list if it is not an agent's call."""
        return []

    @property
    @abstractmethod
    def children(self) -> "Sequence[Node]":
        """Its child calls in order, flat."""

    @abstractmethod
    def get_children(self) -> "list[Node | list[Node]]":
        """Return its child calls in order; calls asked for in parallel share an inner list."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> R_co:
        """Block until it has ended; return its value or raise its exception.

        Raises:
            TimeoutError: it has not ended within *timeout* seconds; it continues to run.
            BlockingCallError: called on the loop that runs it.
        """

    @abstractmethod
    def cancel(self, reason: str = "cancelled") -> None:
        """Cancel it and every call below it. Return at once; do nothing if it has ended."""

    @abstractmethod
    def __await__(self) -> Generator[Any, None, R_co]: ...

    def __dir__(self) -> Iterable[str]:
        # What the runtime keeps on a node beside these is not for programs.
        return [*dir(Node), *Node.__annotations__]


class RunContext(Injected, Generic[Deps_co]):  # noqa: PLR0904 - the last five are not for programs
    """Everything that a running function sees of the framework.

    A parameter annotated ``RunContext`` receives the context of the call; ``RunContext[Database]``
    says what ``ctx.deps`` is.

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
            UsageError: the context belongs to a runtime, outside any call.
        """

    @property
    @abstractmethod
    def runtime(self) -> Any:
        """The Runtime that runs the call (``Any``, because that class is in a higher layer)."""

    @property
    @abstractmethod
    def deps(self) -> Deps_co:
        """The dependencies of the run: what ``deps=`` of the call or of the Runtime gives.

        Raises:
            UsageError: there are none.
            ClosedError: the run has ended in this process.
        """

    @abstractmethod
    def invoke(
        self,
        function: Function[..., T],
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        tied_with: Node | None = None,
        model: Any = None,
        budget: Budget | None = None,
        key: str | None = None,
    ) -> Node[T]:
        """Start a call of *function* as a child of this one and return its node at once.

        An invalid argument becomes an InvalidArgumentsError (a ValueError) of that node.

        Args:
            function: the function to call.
            args: its arguments, by name.
            timeout: in seconds.
            tied_with: a call that was asked for in parallel; both share its sequence number.
            model: for this call of an agent only: a Model, its name, or a Provider.
            budget: for the call and all calls below it.
            key: identifies the call in a journal after a crash; by default, function and arguments
                do.

        Raises:
            CallGraphError: *function* is not among the ``uses`` of this one.
            ClosedError: this call has ended, or the runtime was closed.
            InvalidValueError: an option has an invalid value.
        """

    def call(self, function: Function[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> Node[T]:
        """Start a call with these arguments, which type checkers check; else as ``invoke``."""
        return self.invoke(function, function.bind(args, kwargs))

    @abstractmethod
    def post_exception(self, error: AgentException) -> None:
        """End the agent with *error* as soon as the calls that it asked for are done.

        The agent is this call itself or, if this call is not an agent's, its caller.

        Raises:
            UsageError: neither is an agent; raise the exception instead.
        """

    @property
    @abstractmethod
    def idempotency_key(self) -> str:
        """A key that is unique to this call, and the same whenever it runs again.

        Pass it to a service that ignores repeated requests with the same key.
        """

    @overload
    async def ask(
        self,
        text: str,
        choices: Sequence[str] = (),
        *,
        default: str = ...,
        expires: float | timedelta | datetime | None = None,
        to: str = "",
        escalate: Mapping[str, float | timedelta | datetime] | None = None,
    ) -> str: ...

    @overload
    async def ask(
        self,
        kind: type[T],
        text: str,
        /,
        *,
        default: T = ...,
        expires: float | timedelta | datetime | None = None,
        to: str = "",
        escalate: Mapping[str, float | timedelta | datetime] | None = None,
    ) -> T: ...

    # Checkers do not agree yet on what the type of Literal["a"] or int | None is.
    @overload
    async def ask(
        self,
        kind: Any,
        text: str,
        /,
        *,
        default: Any = ...,
        expires: float | timedelta | datetime | None = None,
        to: str = "",
        escalate: Mapping[str, float | timedelta | datetime] | None = None,
    ) -> Any: ...

    @abstractmethod
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
        """Ask a person, and wait for the answer, for days if necessary.

        ``ask("Deploy?", ["yes", "no"])`` returns one of the choices, or any text without them.
        ``ask(Report, "How was it?")`` returns a value of that type, which is any that pydantic can
        describe: a model, a Literal, bool, int, date, list[str].

        Meanwhile the lease is released and the node is Paused. The question is listed by
        ``runtime.questions()`` and answered with ``runtime.answer()``.

        Args:
            default: the answer if no person answers in time; forms begin with it.
            expires: when that is: seconds or a timedelta from now, or a datetime. It holds in
                whichever process runs the call then.
            to: who is asked, a name of your own; see ``Runtime(notify=...)``.
            escalate: who is asked later if there is no answer, and when.

        Raises:
            QuestionExpiredError: there was no answer in time, and there is no default.
            ClosedError: this call has ended.
        """

    @abstractmethod
    async def sleep(self, duration: float | timedelta) -> None:
        """Sleep for that time, in seconds or as a timedelta, for weeks if necessary.

        With a store the time is recorded: the process may end meanwhile, and the call continues in
        whichever runs then. The lease is released, and the node is Paused.

        Raises:
            ClosedError: this call has ended.
        """

    @abstractmethod
    async def sleep_until(self, time: datetime) -> None:
        """Sleep until that time, which needs a time zone; else as ``sleep``."""

    @abstractmethod
    def give_up_lease(self) -> None:
        """Release the lease, so that other calls may send model requests.

        The next request here acquires a lease again.
        """

    @property
    @abstractmethod
    def has_lease(self) -> bool:
        """Whether this call holds a lease, so that a model request need not wait for others."""

    @abstractmethod
    def lease_released(self) -> AbstractAsyncContextManager[None]:
        """Release the lease while this call waits for something else.

        The next request of this call, or of those above it, acquires a lease again.
        """

    @abstractmethod
    def get_or_put(
        self, scope: SessionScope, namespace: str, key: str, factory: Callable[[], T]
    ) -> T:
        """Return the object under *namespace* and *key* in the bag of *scope*.

        If there is none, *factory* creates it.

        Raises:
            NoParentSessionError: the parent's bag was asked for at top level.
        """

    @abstractmethod
    async def send(self, value: Any) -> None:
        """Send a value before the end of the call; wait until its consumer has received it."""

    @abstractmethod
    async def in_thread(self, function: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> T:
        """Run sync code in a worker thread with the context variables of this call."""

    # For agents, chats and other functions of the framework itself

    @abstractmethod
    def start(self, request: Any) -> Any:
        """Start the call that *request* asks for, and return its node; programs use ``invoke``.

        (``Any``, because CallRequest and StartedCall are in a higher layer.)
        """

    @property
    @abstractmethod
    def conversation(self) -> Any:
        """The AgentConversation of this call, for the implementation of agents.

        (``Any``, because AgentConversation is in a higher layer.)

        Raises:
            UsageError: this is not a call of an agent.
        """

    @abstractmethod
    def frames(self) -> list[Frame]:
        """Return the calls from the top-level one to this one, for ``error.locate``."""

    @abstractmethod
    async def ask_person(
        self, kind: QuestionKind, text: str, choices: Sequence[str] = (), key: str | None = None
    ) -> Answer:
        """Ask a question of any *kind*, and return the whole answer; programs use ``ask``.

        If a question with the same *key* was answered in an earlier process, that answer is
        returned at once. By default the key is derived from *text*.
        """

    @abstractmethod
    def on_loop(
        self, function: Callable[Q, Awaitable[T]], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> T:
        """Run async code on the loop of this call, and block this thread until it is done.

        It is cancelled when the call ends. This is the opposite of ``in_thread``, for functions of
        the framework that sync code may call.
        """
