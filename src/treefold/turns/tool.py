"""Tools: coroutine functions and async generators with hooks, a lock, a name and a schema."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import aclosing, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, ParamSpec, Self, TypeAlias, TypeVar, cast, overload

from treefold.core.code import CodeFunction, send_all
from treefold.core.errors import (
    SerializationError,
    UnregisteredToolError,
    UsageError,
)
from treefold.core.function import Function, RunContext
from treefold.core.signature import Kind, Signature, name_of, underlying
from treefold.runtime.ambient import current_context
from treefold.turns.definition import ToolOptions, ToolType
from treefold.turns.hooks import Hook, HookPoint, HookRegistry, ToolHook, fire
from treefold.turns.late import with_fixed
from treefold.turns.lock import CrossLoopLock
from treefold.turns.origin import origin_of
from treefold.turns.owned import ClosedStream, OwnedStream
from treefold.turns.registry import Registry

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", bound=Awaitable[Any] | AsyncIterator[Any])
S = TypeVar("S", bound=Awaitable[Any] | AsyncIterator[Any])


_held: ContextVar[frozenset[object]] = ContextVar("treefold.held", default=frozenset())


@dataclass(slots=True)
class ToolMetadata:
    """What a tool is called, what it does, and when it last ran.

    The two times always belong to one run, the one that started last: each run of a turn or a
    node has its own times there.

    Example:
        >>> ToolMetadata("fetch", "Fetch a page.").dict()["start_time"] is None
        True
    """

    name: str
    description: str
    start_time: datetime | None = None
    end_time: datetime | None = None

    def dict(self) -> dict[str, str | None]:
        """Return the metadata as plain data, times as ISO strings."""
        return {
            "name": self.name,
            "description": self.description,
            "start_time": self.start_time.isoformat() if self.start_time else None,
            "end_time": self.end_time.isoformat() if self.end_time else None,
        }


class _ToolRegistry(Registry["AnyTool"]):
    """The tools, by name.

    Example:
        >>> from treefold import ToolRegistry, registries, tool
        >>> with registries():
        ...     @tool
        ...     async def fetch(url: str) -> str: ...
        ...     ToolRegistry.get("fetch"), ToolRegistry.all() == [fetch]
        (<Tool fetch>, True)
    """

    def definitions(self) -> list[dict[str, Any]]:
        """Return the ``doc_tree()`` of every tool that is not a subtool."""
        return [tool.doc_tree() for tool in self.all() if tool.parent is None]

    def name_of(self, function: Function) -> str:
        """Return the name under which *function* will be found again.

        Raises:
            SerializationError: it will not be; only what ``@tool`` registered can be.
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
    """What ``@tool(...)`` and ``@parent.subtool(...)`` are: makers of tools."""

    def __init__(self, options: ToolOptions, parent: "AnyTool | None" = None) -> None:
        self._options = options
        self._parent = parent

    def __call__(self, fn: Callable[P, R]) -> "Tool[P, R]":
        """Make a tool of *fn*, and register it by its name."""
        self._options.check(fn)
        made = Tool[P, R](fn, self._options, self._parent)
        replaced = ToolRegistry.register(made.name, made, origin_of(fn))
        if self._parent is not None:
            others = [tool for tool in self._parent.subtools if tool is not replaced]
            self._parent.subtools[:] = [*others, made]
        return made


class FixingDecorator(ToolDecorator):
    """The same with fixed arguments: callers need not give those, which types cannot say."""

    def __call__(self, fn: Callable[P, R]) -> "Tool[..., R]":
        return super().__call__(fn)


class Tool(CodeFunction, Generic[P, R]):
    """An async function that runs with hooks and, if asked for, one call at a time.

    Made by ``@tool``, or as ``Tool(name, description, input_schema, handler)`` of a function that
    takes all arguments as one dict. Calling it gives what the function gives: something to await,
    or to iterate over if it is an async generator. Arguments that it does not take are left out.

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

    by_hand: ClassVar["type[AnyTool]"]  # what Tool(name, description, ...) makes

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        by_hand = "handler" in kwargs or (bool(args) and isinstance(args[0], str))
        kind: Any = Tool.by_hand if cls is Tool and by_hand else cls
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
        self, fn: Callable[..., Any], options: ToolOptions, parent: "AnyTool | None" = None
    ) -> None: ...

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._define(*args, **kwargs)

    def _define(
        self,
        fn: Callable[..., Any],
        options: ToolOptions,
        parent: "AnyTool | None" = None,
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
        )
        self.metadata = ToolMetadata(short, self.description)
        self.hooks: list[Hook] = []
        self.lock: asyncio.Lock | None = CrossLoopLock() if options.lock else None
        self.subtools: list[AnyTool] = []
        self._holder: object | None = None  # stands for the call that has the lock, if no stream
        self.__name__ = self.name
        self.__doc__ = underlying(fn).__doc__
        self.__wrapped__ = fn

    def _read_signature(self) -> Signature:
        return Signature(self.name, self.callable, fixed=self._fixed)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function with hooks and lock, outside any node."""
        return self._begun(self.parameters.bind(args, kwargs))

    def _begun(self, values: dict[str, Any]) -> R:
        if self.streams:
            return cast("R", ClosedStream(self._stream(values, None), self.name))
        call = self._once(values, None)
        call.__qualname__ = self.name  # what Python says was never awaited
        return cast("R", call)

    async def execute(self, arguments: Mapping[str, Any]) -> Any:
        """Call it with *arguments* by name, unchecked; a stream gives the list of its values.

        Like any direct call it runs with hooks and lock, outside any node.
        """
        values = self._taken(arguments)
        if not self.streams:
            return await self._once(values, None)
        async with aclosing(self._stream(values, None)) as stream:
            return [value async for value in stream]

    @property
    def handler(self) -> Callable[[Mapping[str, Any]], Any]:
        """The function that takes all arguments as one dict, without hooks if there is such."""
        return self.execute

    def _taken(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the function is called with when it is given *arguments*."""
        return self.parameters.bind((), arguments)

    async def run(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        if self.kind is Kind.STREAM:
            return await send_all(ctx, self._stream(dict(args), ctx))
        return await self._once(dict(args), ctx)

    async def _once(self, values: dict[str, Any], ctx: RunContext | None) -> Any:
        started = self._begin()
        try:
            values = await self._prepare(values, ctx)
            try:
                if self.lock is None:
                    result = await self._signature.call(values)
                else:
                    result = await self._alone(self.lock, values)
            except Exception as error:
                await fire(self, ToolHook.ON_ERROR, exc=error)
                raise
            await fire(self, ToolHook.AFTER_INVOKE, result)
            return result
        finally:
            self._finish(started)

    async def _alone(self, lock: asyncio.Lock, values: dict[str, Any]) -> Any:
        held = _held.get()
        if self._holder in held:
            raise UsageError(
                f"tool {self.name!r} has lock=True and called itself, and would wait for itself for"
                " ever; leave the lock out, or move what it repeats into a function of its own"
            )
        async with lock:
            self._holder = object()
            token = _held.set(held | {self._holder})  # the calls that it makes inherit this
            try:
                return await self._signature.call(values)
            finally:
                _held.reset(token)
                self._holder = None

    async def _stream(
        self, values: dict[str, Any], ctx: RunContext | None
    ) -> AsyncGenerator[Any, None]:
        started = self._begin()
        given: list[Any] = []
        try:
            values = await self._prepare(values, ctx)
            failure: Exception | None = None
            async with self.lock or nullcontext(), OwnedStream() as stream:
                while True:
                    try:
                        value = await stream.next(self._signature.call, values)
                    except StopAsyncIteration:
                        break
                    except Exception as error:  # noqa: BLE001 - raised below, outside the lock
                        failure = error
                        break
                    given.append(value)
                    await fire(self, ToolHook.ON_YIELD, value)
                    try:
                        yield value  # noqa: ASYNC119 - closed by ClosedStream or its consumer
                    except GeneratorExit:  # he has had enough
                        break
            if failure is not None:
                await fire(self, ToolHook.ON_ERROR, exc=failure)
                raise failure
            await fire(self, ToolHook.AFTER_INVOKE, given)
        finally:
            self._finish(started)

    async def _prepare(self, values: dict[str, Any], ctx: RunContext | None) -> dict[str, Any]:
        """Add fixed and injected arguments, and tell the hooks."""
        if self._fixed:
            values = await with_fixed(self._fixed, values, f"tool {self.name!r}")
        if self._signature.injected:
            self._signature.inject(values, ctx or current_context())
        if self.hooks or not HookRegistry.empty():
            await fire(self, ToolHook.BEFORE_INVOKE, **self._signature.with_defaults(values))
        return values

    def _begin(self) -> datetime:
        started = self.metadata.start_time = datetime.now(UTC)
        self.metadata.end_time = None
        return started

    def _finish(self, started: datetime) -> None:
        if self.metadata.start_time is started:  # no later run has taken its place
            self.metadata.end_time = datetime.now(UTC)

    @overload
    def subtool(self, fn: Callable[Q, S], /) -> "Tool[Q, S]": ...

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
        **fixed_kwargs: Any,
    ) -> ToolDecorator: ...

    def subtool(
        self,
        fn: Callable[Q, S] | None = None,
        /,
        *,
        lock: bool = False,
        tags: Iterable[str] | None = None,
        type: ToolType = ToolType.ACTION,
        uses: Iterable[Function] = (),
        repeatable: bool | None = None,
        **fixed_kwargs: Any,
    ) -> "Tool[Q, S] | ToolDecorator":
        """Make the decorated function a tool under this one, registered as ``parent.child``."""
        options = ToolOptions(lock, tags, type, tuple(uses), repeatable, fixed_kwargs)
        decorate = ToolDecorator(options, self)
        return decorate if fn is None else decorate(fn)

    def doc_tree(self) -> dict[str, Any]:
        """Return name and description, and those of all subtools, as plain data."""
        return {
            "name": self.metadata.name,
            "description": self.metadata.description,
            "subtools": [subtool.doc_tree() for subtool in self.subtools],
        }


AnyTool: TypeAlias = Tool[Any, Any]
