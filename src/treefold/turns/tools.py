"""Tools: coroutine functions and async generators with a name, a schema, hooks and a lock."""

import asyncio
import inspect
import logging
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
)
from contextlib import aclosing, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import CoroutineType
from typing import Any, ClassVar, Concatenate, Generic, Self, TypeAlias, cast, overload

from typing_extensions import TypeVar

from treefold.core.code import CodeFunction, send_all
from treefold.core.errors import (
    SerializationError,
    UnregisteredToolError,
    UsageError,
)
from treefold.core.function import Ask, Function, P, Q, R_co, RunContext, T
from treefold.core.origin import origin_of
from treefold.core.signature import Kind, Signature, name_of, underlying
from treefold.runtime.ambient import current_context
from treefold.turns.deferred import add_fixed_arguments
from treefold.turns.hooks import Hook, HookPoint, HookRegistry, ToolHook, fire
from treefold.turns.lock import CrossLoopLock
from treefold.turns.registry import Registry
from treefold.turns.streams import OwnedStream, SelfClosingStream
from treefold.turns.tool_options import ToolOptions, ToolType

log = logging.getLogger(__name__)

C_co = TypeVar("C_co", default=Any, covariant=True)  # what calling a tool directly returns


class Untyped:
    """A type that no parameter has; only a parameter without a type accepts it."""


# The locked calls that the current one was made from, directly or not, to find a deadlock.
_lock_owners: ContextVar[frozenset[object]] = ContextVar(
    "treefold.lock_owners", default=frozenset()
)


@dataclass(slots=True)
class ToolMetadata:
    """Name and docstring of a tool, and when it last ran.

    ``description`` is the whole docstring; ``tool.description``, which a model reads, leaves out
    what its schema says about the parameters. Both times belong to the run that started last; each
    turn and each node has the times of its own run.

    Example:
        >>> ToolMetadata("fetch", "Fetch a page.").dict()["start_time"] is None
        True
    """

    name: str
    description: str
    # Seconds since 1970: a datetime is made when somebody asks for it.
    started: float | None = None
    ended: float | None = None

    @property
    def start_time(self) -> datetime | None:
        """When the run that started last did so."""
        return None if self.started is None else datetime.fromtimestamp(self.started, UTC)

    @property
    def end_time(self) -> datetime | None:
        """When that run ended; None while it runs."""
        return None if self.ended is None else datetime.fromtimestamp(self.ended, UTC)

    def dict(self) -> dict[str, str | None]:
        """Return the metadata as plain data, times as ISO strings."""
        return {
            "name": self.name,
            "description": self.description,
            "start_time": self.start_time.isoformat() if self.start_time else None,
            "end_time": self.end_time.isoformat() if self.end_time else None,
        }


class _ToolRegistry(Registry["Tool[Any, Any, Any]"]):
    """The registered tools, by name.

    Example:
        >>> from treefold import ToolRegistry, registries, tool
        >>> with registries():
        ...     @tool
        ...     async def fetch(url: str) -> str: ...
        ...     ToolRegistry.get("fetch"), fetch in ToolRegistry.all()
        (<Tool fetch>, True)
    """

    def definitions(self) -> list[dict[str, Any]]:
        """Return the ``doc_tree()`` of every tool that is not a subtool."""
        return [tool.doc_tree() for tool in self.all() if tool.parent is None]

    def name_of(self, function: Function) -> str:
        """Return the name under which *function* is registered.

        Raises:
            SerializationError: it is not; only a tool that ``@tool`` made of a signature is.
        """
        if not any(tool is function for tool in self.all()):
            raise SerializationError(
                f"{function!r} is not in the ToolRegistry and could not be found again by its name;"
                " only what is registered can be saved: a tool that @tool made of its signature"
            )
        return function.name


ToolRegistry = _ToolRegistry(
    "tool", UnregisteredToolError, "import the module that decorates it with @tool first"
)


class ToolDecorator:
    """The decorator that ``@tool(...)`` and ``@parent.subtool(...)`` evaluate to."""

    def __init__(self, options: ToolOptions, parent: "Tool | None" = None) -> None:
        self._options = options
        self._parent = parent

    # The first one is for a function whose first parameter has no type: it could be anything.
    @overload
    def __call__(self, fn: Callable[Concatenate[Untyped, ...], Any], /) -> "Tool": ...

    @overload
    def __call__(
        self, fn: Callable[Concatenate[RunContext[Any], Q], Awaitable[T]], /
    ) -> "CoroutineTool[Q, T]": ...

    @overload
    def __call__(self, fn: Callable[Q, Awaitable[T]], /) -> "CoroutineTool[Q, T]": ...

    @overload
    def __call__(
        self, fn: Callable[Concatenate[RunContext[Any], Q], AsyncIterator[T]], /
    ) -> "StreamTool[Q, T]": ...

    @overload
    def __call__(self, fn: Callable[Q, AsyncIterator[T]], /) -> "StreamTool[Q, T]": ...

    def __call__(self, fn: Callable[..., Any], /) -> "Tool":
        """Make a tool of *fn* and register it by its name."""
        self._options.check(fn)
        made = Tool[..., Any, Any](fn, self._options, self._parent)
        siblings = [] if self._parent is None else self._parent.subtools
        is_free = all(tool.name != made.name for tool in siblings)
        replaced = ToolRegistry.register(made.name, made, origin_of(fn), may_hide=is_free)
        if self._parent is not None:
            others = [tool for tool in self._parent.subtools if tool is not replaced]
            self._parent.subtools[:] = [*others, made]
        return made


class PartialToolDecorator:
    """The same with fixed arguments, as in ``functools.partial``.

    Callers may omit the fixed arguments, which a ParamSpec cannot express.
    """

    def __init__(self, options: ToolOptions) -> None:
        self._decorate = ToolDecorator(options)

    @overload
    def __call__(self, fn: Callable[..., Awaitable[T]], /) -> "CoroutineTool[..., T]": ...

    @overload
    def __call__(self, fn: Callable[..., AsyncIterator[T]], /) -> "StreamTool[..., T]": ...

    def __call__(self, fn: Callable[..., Any], /) -> "Tool":
        """Make a tool of *fn* and register it by its name."""
        return self._decorate(fn)


class Tool(CodeFunction[P, R_co], Generic[P, C_co, R_co]):
    """An async function that runs with hooks and, with ``lock=True``, one call at a time.

    Made by ``@tool``, or by ``Tool(name, description, input_schema, handler)`` of a function that
    takes all arguments as one dict. Calling it returns what the function returns: an awaitable, or
    an async iterator if it is an async generator. Arguments that it does not take are ignored.

    Example:
        >>> import asyncio
        >>> from treefold import registries, tool
        >>> with registries():
        ...     @tool(tags=["math"])
        ...     async def double(n: int) -> int:
        ...         "Double a number."
        ...         return 2 * n
        >>> asyncio.run(double(21)), double.name, double.description, set(double.tags)
        (42, 'double', 'Double a number.', {'math'})
    """

    before_invoke = HookPoint(ToolHook.BEFORE_INVOKE)
    on_yield = HookPoint(ToolHook.ON_YIELD)
    after_invoke = HookPoint(ToolHook.AFTER_INVOKE)
    on_error = HookPoint(ToolHook.ON_ERROR)

    # The class of Tool(name, description, ...); set by dict_tool.py, which imports this module.
    dict_tool: ClassVar["type[Tool]"]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        has_handler = "handler" in kwargs or (bool(args) and isinstance(args[0], str))
        kind: Any = Tool.dict_tool if cls is Tool and has_handler else cls
        return super().__new__(kind)

    @overload
    def __init__(
        self,
        name: str,
        description: str,
        input_schema: Mapping[str, Any],
        handler: Callable[..., Any],
    ) -> None: ...

    @overload
    def __init__(
        self, fn: Callable[..., Any], options: ToolOptions, parent: "Tool | None" = None
    ) -> None: ...

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._define(*args, **kwargs)

    def _define(
        self,
        fn: Callable[..., Any],
        options: ToolOptions,
        parent: "Tool | None" = None,
        *,
        name: str | None = None,
        desc: str | None = None,
    ) -> None:
        self.fn = fn
        self.parent = parent
        self.type = options.type
        self._fixed = dict(options.fixed)
        short = name or name_of(fn)
        super().__init__(
            callable=fn,
            name=short if parent is None else f"{parent.name}.{short}",
            desc=desc,
            uses=options.uses,
            tags=options.tags,
            repeatable=options.repeatable,
            remote=options.remote,
            ask=options.ask,
            max_result_chars=options.max_result_chars,
        )
        # The docstring as it is; what a model reads of it is the description.
        docstring = inspect.getdoc(underlying(fn)) or "" if desc is None else desc
        self.metadata = ToolMetadata(short, docstring)
        self.hooks: list[Hook] = []
        self.lock: asyncio.Lock | None = CrossLoopLock() if options.lock else None
        self.subtools: list[Tool] = []
        self._lock_owner: object | None = None  # stands for the locked call, unless it streams
        self._has_warned = False  # that a direct call was not recorded
        self.__name__ = self.name
        self.__doc__ = underlying(fn).__doc__
        self.__wrapped__ = fn

    def read_signature(self) -> Signature:
        return Signature(self.name, self.callable, fixed=self._fixed)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> C_co:
        """Run the function with hooks and lock, outside any node."""
        return self._start(self.parameters.bind(args, kwargs))

    def _start(self, values: dict[str, Any]) -> C_co:
        if (ctx := RunContext.active.get(None)) is not None and not self._has_warned:
            self._warn_if_unrecorded(ctx)
        if self.streams:
            return cast("C_co", SelfClosingStream(self._stream(values, None), self.name))
        call = self._once(values, None)
        call.__qualname__ = self.name  # for the warning that it was never awaited
        return cast("C_co", call)

    def _warn_if_unrecorded(self, ctx: RunContext) -> None:
        """Say once that a direct call is not in the journal, if it may do harm twice."""
        try:
            caller = ctx.node.function.name
        except UsageError:
            return  # it is called outside any call
        # A context of a test may have no runtime.
        if not self.repeatable and getattr(ctx.runtime, "store", None) is not None:
            self._has_warned = True
            log.warning(
                "%s was called directly in %s, whose run has a journal: the call is not recorded,"
                " and is made again if the run is resumed; write ctx.call(%s, ...), or say that it"
                " may be repeated: @tool(repeatable=True)",
                self.name,
                caller,
                self.name,
            )

    async def execute(self, arguments: Mapping[str, Any]) -> Any:
        """Call it with *arguments* by name, without validation; a stream returns a list of values.

        Like any direct call it runs with hooks and lock, outside any node.
        """
        values = self._bound(arguments)
        if not self.streams:
            return await self._once(values, None)
        async with aclosing(self._stream(values, None)) as stream:
            return [value async for value in stream]

    @property
    def handler(self) -> Callable[[Mapping[str, Any]], Any]:
        """The function that takes all arguments as one dict; of a DictTool it runs no hooks."""
        return self.execute

    def _bound(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that the function is called with for *arguments*."""
        return self.parameters.bind((), arguments)

    def run_call(self, ctx: RunContext, args: Mapping[str, Any]) -> "CoroutineType[Any, Any, Any]":
        if self.kind is Kind.STREAM:
            return send_all(ctx, self._stream(dict(args), ctx))
        return self._once(args, ctx)

    async def _once(self, values: Mapping[str, Any], ctx: RunContext | None) -> Any:
        started = self._mark_start()
        try:
            if self._fixed or self._signature.injected or self.hooks or HookRegistry.ever_used:
                values = await self._prepare(values, ctx)
            try:
                if self.lock is None:
                    result = await self._signature.call(**values)
                else:
                    result = await self._locked_call(self.lock, values)
            except Exception as error:
                await fire(self, ToolHook.ON_ERROR, exc=error)
                raise
            if self.hooks or HookRegistry.ever_used:
                await fire(self, ToolHook.AFTER_INVOKE, result)
            return result
        finally:
            self._mark_end(started)

    async def _locked_call(self, lock: asyncio.Lock, values: Mapping[str, Any]) -> Any:
        owners = _lock_owners.get()
        if self._lock_owner in owners:
            raise UsageError(
                f"tool {self.name!r} has lock=True and called itself, which is a deadlock; remove"
                " the lock, or move the recursive part into a function of its own"
            )
        async with lock:
            self._lock_owner = object()
            # The calls that it makes inherit this context variable.
            token = _lock_owners.set(owners | {self._lock_owner})
            try:
                return await self._signature.call(**values)
            finally:
                _lock_owners.reset(token)
                self._lock_owner = None

    async def _stream(
        self, values: dict[str, Any], ctx: RunContext | None
    ) -> AsyncGenerator[Any, None]:
        started = self._mark_start()
        yielded: list[Any] = []
        try:
            values = await self._prepare(values, ctx)
            failure: Exception | None = None
            async with self.lock or nullcontext(), OwnedStream() as stream:
                while True:
                    try:
                        value = await stream.next(partial(self._signature.call, **values))
                    except StopAsyncIteration:
                        break
                    except Exception as error:  # noqa: BLE001 - raised below, outside the lock
                        failure = error
                        break
                    yielded.append(value)
                    await fire(self, ToolHook.ON_YIELD, value)
                    try:
                        yield value  # noqa: ASYNC119 - closed by SelfClosingStream or its consumer
                    except GeneratorExit:  # the consumer left the loop
                        break
            if failure is not None:
                await fire(self, ToolHook.ON_ERROR, exc=failure)
                raise failure
            await fire(self, ToolHook.AFTER_INVOKE, yielded)
        finally:
            self._mark_end(started)

    async def _prepare(self, given: Mapping[str, Any], ctx: RunContext | None) -> dict[str, Any]:
        """Return what is *given* and fixed and injected arguments, after firing BEFORE_INVOKE."""
        values = await add_fixed_arguments(self._fixed, given, f"tool {self.name!r}")
        if self._signature.injected:
            self._signature.inject(values, ctx or current_context())
        if self.hooks or HookRegistry.ever_used:
            await fire(self, ToolHook.BEFORE_INVOKE, **self._signature.with_defaults(values))
        return values

    def _mark_start(self) -> float:
        started = self.metadata.started = time.time()
        self.metadata.ended = None
        return started

    def _mark_end(self, started: float) -> None:
        if self.metadata.started is started:  # no later run has started
            self.metadata.ended = time.time()

    @overload
    def subtool(self, fn: Callable[Concatenate[Untyped, ...], Any], /) -> "Tool": ...

    @overload
    def subtool(
        self, fn: Callable[Concatenate[RunContext[Any], Q], Awaitable[T]], /
    ) -> "CoroutineTool[Q, T]": ...

    @overload
    def subtool(self, fn: Callable[Q, Awaitable[T]], /) -> "CoroutineTool[Q, T]": ...

    @overload
    def subtool(
        self, fn: Callable[Concatenate[RunContext[Any], Q], AsyncIterator[T]], /
    ) -> "StreamTool[Q, T]": ...

    @overload
    def subtool(self, fn: Callable[Q, AsyncIterator[T]], /) -> "StreamTool[Q, T]": ...

    @overload
    def subtool(
        self,
        /,
        *,
        lock: bool = False,
        tags: Iterable[str] | None = None,
        type: ToolType = ToolType.ACTION,
        uses: Iterable[Function] = (),
        repeatable: bool | None = None,
        remote: bool | str = False,
        ask: Ask = False,
        max_result_chars: int | None = None,
        **fixed_kwargs: Any,
    ) -> ToolDecorator: ...

    def subtool(  # noqa: PLR0913 - the options of @tool
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        lock: bool = False,
        tags: Iterable[str] | None = None,
        type: ToolType = ToolType.ACTION,
        uses: Iterable[Function] = (),
        repeatable: bool | None = None,
        remote: bool | str = False,
        ask: Ask = False,
        max_result_chars: int | None = None,
        **fixed_kwargs: Any,
    ) -> "Tool | ToolDecorator":
        """Make the decorated function a tool under this one, registered as ``parent.child``."""
        options = ToolOptions(
            lock, tags, type, tuple(uses), repeatable, remote, ask, max_result_chars, fixed_kwargs
        )
        decorate = ToolDecorator(options, self)
        return decorate if fn is None else decorate(fn)

    def doc_tree(self) -> dict[str, Any]:
        """Return name and description of this tool and all its subtools as plain data."""
        return {
            "name": self.metadata.name,
            "description": self.metadata.description,
            "subtools": [subtool.doc_tree() for subtool in self.subtools],
        }


# A tool of an ``async def``, and one of an async generator, whose calls return all its values.
CoroutineTool: TypeAlias = Tool[Q, Coroutine[Any, Any, T], T]
StreamTool: TypeAlias = Tool[Q, AsyncGenerator[T, None], list[T]]
