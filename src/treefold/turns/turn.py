"""A turn: one planned call of a tool, and its outcome."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from types import TracebackType
from typing import Any, Generic, Self, cast
from uuid import uuid4

from typing_extensions import TypeVar

from treefold.core.call_request import CallRequest
from treefold.core.errors import (
    InvalidValueError,
    SafeExecutionError,
    SerializationError,
    TurnTimeoutError,
    WrongRunMethodError,
)
from treefold.core.from_file import FromFile
from treefold.core.function import Function, checked_function, checked_tags, checked_timeout
from treefold.core.plain import from_plain, required_key, to_plain
from treefold.core.states import NodeState
from treefold.runtime.ambient import context_on
from treefold.runtime.calls.node import CallNode
from treefold.runtime.loops.cancellation import wait_until
from treefold.turns.deferred import is_deferred, resolve
from treefold.turns.hooks import Hook, HookPoint, HookRegistry, TurnHook, fire
from treefold.turns.memory import ContextItem
from treefold.turns.rendezvous import Rendezvous
from treefold.turns.run_guard import RunGuard, StreamRef, guarded_stream
from treefold.turns.tools import Tool, ToolRegistry

T = TypeVar("T", default=Any)

_MUTABLE_WHILE_RUNNING = frozenset({"start_time", "end_time", "output", "stop_reason", "metadata"})


class StopReason(Enum):
    """How a turn ended.

    Example:
        >>> StopReason("timeout")
        <StopReason.TIMEOUT: 'timeout'>
    """

    COMPLETED = "completed"
    TIMEOUT = "timeout"
    ERROR = "error"
    CANCELLED = "cancelled"


class Turn(Generic[T]):
    """A call to make: a tool, its arguments and a timeout.

    ``Turn[int]``, for annotations, is a turn whose values are int; plain ``Turn`` leaves their type
    open.

    Arguments are given by name in *kwargs* or by position in *args*; those that the tool does not
    take are ignored. Values that are functions without parameters are called when the turn runs.
    While it runs, only its times, output, stop reason and metadata can be set.

    Attributes:
        tool: the Function to run; the constructor also takes the name of a registered tool.
        timeout: the seconds that it may take, 60 by default; None for no limit.
        metadata: a dict for your own use.
        tags: labels by which global hooks select turns.
        start_time, end_time: when it last ran.
        stop_reason: how the last run ended.
        output: the result of the last run; for a stream the list of its values.

    Example:
        >>> import asyncio
        >>> from treefold import Turn, registries, tool
        >>> with registries():
        ...     @tool
        ...     async def add(a: int, b: int) -> int:
        ...         return a + b
        ...     turn = Turn("add", kwargs={"a": 1, "b": lambda: 2})
        >>> asyncio.run(turn.returning()), turn.stop_reason
        (3, <StopReason.COMPLETED: 'completed'>)
    """

    before_run = HookPoint(TurnHook.BEFORE_RUN)
    after_run = HookPoint(TurnHook.AFTER_RUN)
    on_timeout = HookPoint(TurnHook.ON_TIMEOUT)
    on_error = HookPoint(TurnHook.ON_ERROR)
    on_complete = HookPoint(TurnHook.ON_COMPLETE)

    tool: Function
    args: list[Any]
    kwargs: dict[str, Any]
    timeout: float | None
    metadata: dict[str, Any]
    tags: frozenset[str]
    hooks: list[Hook]
    run_guard: RunGuard
    # Those of a turn that has not run.
    stop_reason: StopReason | None = None
    output: Any = None
    # Seconds since 1970: a datetime is made when somebody asks for it.
    _started: float | None = None
    _ended: float | None = None
    _uuid: str | None = None

    def __init__(
        self,
        tool: str | Function,
        timeout: float | None = 60,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tags: Iterable[str] | None = None,
    ) -> None:
        # A number of seconds and no list is the usual case, which costs nothing so.
        if args is not None or not isinstance(timeout, int | float):
            _refuse_misplaced(timeout, args)
        self.__dict__.update(
            tool=_resolve_tool(tool),
            timeout=checked_timeout(timeout, "a turn"),
            args=list(args or ()),
            kwargs=dict(kwargs or {}),
            metadata=dict(metadata or {}),
            tags=checked_tags(tags, "a turn"),
            hooks=[],
            run_guard=RunGuard(),
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_running and name not in _MUTABLE_WHILE_RUNNING:
            raise SafeExecutionError(
                f"cannot set {name!r} while {self!r} is running; wait until it has ended"
            )
        super().__setattr__(name, value)

    def set_outcome(self, **attributes: Any) -> None:
        """Set stop reason or output of a run, without the check of ``__setattr__``."""
        self.__dict__.update(attributes)

    def mark_start(self) -> None:
        """Note that a run starts now, and forget the outcome of the last one."""
        self.__dict__.update(_started=time.time(), _ended=None, stop_reason=None, output=None)

    def mark_end(self) -> None:
        """Note that the run ends now."""
        self.__dict__["_ended"] = time.time()

    def __repr__(self) -> str:
        return f"<Turn of {getattr(self.tool, 'name', None)}>"

    @property
    def start_time(self) -> datetime | None:
        """When it last started to run."""
        return None if self._started is None else datetime.fromtimestamp(self._started, UTC)

    @start_time.setter
    def start_time(self, time: datetime | None) -> None:
        self.__dict__["_started"] = None if time is None else time.timestamp()

    @property
    def end_time(self) -> datetime | None:
        """When its last run ended; None while it runs."""
        return None if self._ended is None else datetime.fromtimestamp(self._ended, UTC)

    @end_time.setter
    def end_time(self, time: datetime | None) -> None:
        self.__dict__["_ended"] = None if time is None else time.timestamp()

    @property
    def uuid(self) -> str:
        """The unique id of this turn."""
        found = self._uuid or str(uuid4())
        self.__dict__["_uuid"] = found
        return found

    @property
    def _is_running(self) -> bool:
        return self.run_guard.held

    # Running

    async def returning(self) -> T:
        """Run a single-value tool and return its value.

        Raises:
            WrongRunMethodError: the tool streams its values.
            SafeExecutionError: the turn is running.
            TurnTimeoutError: it took longer than ``timeout``.
        """
        if self.tool.streams:
            raise WrongRunMethodError(
                f"{self.tool.name!r} streams its values: use 'async for value in turn.yielding()'"
            )
        async with TurnRun(self) as run:
            return await run.result()

    def yielding(self) -> AsyncGenerator[T, None]:
        """Run a streaming tool and yield each value as it is produced.

        Leaving the loop early cancels the tool.

        Raises:
            WrongRunMethodError: the tool returns a single value.
            SafeExecutionError: the turn is running.
            TurnTimeoutError: the whole run took longer than ``timeout``.
        """
        if not self.tool.streams:
            raise WrongRunMethodError(
                f"{self.tool.name!r} returns a single value: use 'await turn.returning()'"
            )
        return guarded_stream(self._yielding)

    async def _yielding(self, stream: StreamRef) -> AsyncGenerator[Any, None]:
        async with TurnRun(self, stream) as run:
            async for value in run:
                yield value  # noqa: ASYNC119 - the event loop closes a stream that was dropped

    # Copying and saving

    def copy(self) -> Self:
        """Return a new turn with the same tool, arguments and hooks, which has not run."""
        copy = type(self)(self.tool, self.timeout, self.args, self.kwargs, self.metadata, self.tags)
        copy.hooks.extend(self.hooks)
        return copy

    def to_dict(self) -> dict[str, Any]:
        """Return the turn as plain data, without its hooks.

        Raises:
            SerializationError: an argument, the metadata or the output has no JSON form.
        """
        what = f"of {self!r}"
        for name, value in [*enumerate(self.args), *self.kwargs.items()]:
            if is_deferred(value):
                raise SerializationError(
                    f"argument {name!r} {what} is a function that is called when the turn runs and"
                    " cannot be saved: give a value, or fix the argument with @tool(...)"
                )
        return {
            "uuid": self.uuid,
            "tool_name": ToolRegistry.name_of(self.tool),
            "args": [_dump_argument(v, f"argument {i} {what}") for i, v in enumerate(self.args)],
            "kwargs": {
                k: _dump_argument(v, f"argument {k!r} {what}") for k, v in self.kwargs.items()
            },
            "metadata": to_plain(self.metadata, f"the metadata {what}"),
            "tags": sorted(self.tags),
            "timeout": to_plain(self.timeout, f"the timeout {what}"),
            "start_time": self.start_time.isoformat() if self.start_time else None,
            "end_time": self.end_time.isoformat() if self.end_time else None,
            "stop_reason": self.stop_reason.value if self.stop_reason else None,
            "output": _dump_output(self.output, f"the output {what}"),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Turn":
        """Restore a turn from ``to_dict()``; its tool is looked up by name."""
        function = _resolve_tool(required_key(data, "tool_name", cls))
        types = {p.name: p.annotation for p in function.parameters.items}
        positional = itertools.chain(types.values(), itertools.repeat(Any))
        turn = cls(
            function,
            data.get("timeout", 60),
            [_load_argument(k, v) for v, k in zip(data.get("args", ()), positional, strict=False)],
            {k: _load_argument(types.get(k, Any), v) for k, v in data.get("kwargs", {}).items()},
            data.get("metadata"),
            data.get("tags"),
        )
        turn.start_time = _time(data.get("start_time"))
        turn.end_time = _time(data.get("end_time"))
        stop_reason = data.get("stop_reason")
        turn.__dict__.update(
            _uuid=data.get("uuid"),
            stop_reason=None if stop_reason is None else StopReason(stop_reason),
            output=_load_output(
                list[function.output_type] if function.streams else function.output_type,
                data.get("output"),
            ),
        )
        return turn


class TurnRun:
    """One run of a turn, from acquiring its guard to releasing it.

    It is not a generator, so that ``Agent.run`` can step through it: where one generator iterates
    over another, the garbage collector or the shutdown of the event loop may close the inner one
    while the outer one is using it.
    """

    def __init__(self, turn: Turn, stream: StreamRef | None = None) -> None:
        self._turn = turn
        self._stream = stream
        self._values: Rendezvous | None = None
        self._node: CallNode | None = None
        self._timed_out_early = False  # while the arguments were resolved, before the node
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Self:
        turn = self._turn
        while (released := turn.run_guard.take(turn, self._loop, self._stream)) is not None:
            await released
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        turn = self._turn
        try:
            if error is not None:
                await self._fail(error)
        finally:
            turn.mark_end()
            try:
                if turn.hooks or HookRegistry.ever_used:
                    await fire(turn, TurnHook.ON_COMPLETE, turn, turn.stop_reason)
            except BaseException as failure:
                cancelled = not isinstance(failure, Exception)
                turn.set_outcome(
                    stop_reason=StopReason.CANCELLED if cancelled else StopReason.ERROR
                )
                raise
            finally:
                turn.run_guard.release()

    async def result(self) -> Any:
        """Run to the end and return the value."""
        node = await self._start(None)
        output = await node
        await self._complete(output)
        return output

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        node, values = self._node, self._values
        if node is None or values is None:
            values = self._values = Rendezvous()
            node = await self._start(values.put)
            node.add_end_callback(values.close)
        async for value in values:
            return value
        await self._complete(await node)
        raise StopAsyncIteration

    async def _start(self, sink: Callable[[Any], Awaitable[None]] | None) -> CallNode:
        turn = self._turn
        turn.mark_start()
        if turn.hooks or HookRegistry.ever_used:
            await fire(turn, TurnHook.BEFORE_RUN, turn)
        args, kwargs, timeout = turn.args, turn.kwargs, turn.timeout
        if any(map(callable, args)) or any(map(callable, kwargs.values())):
            args, kwargs, timeout = await self._resolve_arguments()
        # Tools take the arguments of a turn unchecked; other functions validate them.
        request = CallRequest(
            turn.tool,
            turn.tool.parameters.bind(args, kwargs),
            timeout,
            checked=isinstance(turn.tool, Tool),
            sink=sink,
        )
        self._node = context_on(self._loop).start_here(request)
        return self._node

    async def _resolve_arguments(self) -> tuple[list[Any], dict[str, Any], float | None]:
        """Return the arguments with deferred ones called, and the rest of the timeout."""
        turn, loop = self._turn, self._loop
        started = loop.time()
        limit = asyncio.timeout(turn.timeout)
        try:
            async with limit:
                args = [await resolve(value) for value in turn.args]
                kwargs = {name: await resolve(value) for name, value in turn.kwargs.items()}
        except TimeoutError:
            self._timed_out_early = limit.expired()
            raise
        spent = loop.time() - started
        return args, kwargs, None if turn.timeout is None else max(0.0, turn.timeout - spent)

    async def _complete(self, output: Any) -> None:
        turn = self._turn
        turn.set_outcome(output=output, stop_reason=StopReason.COMPLETED)
        if turn.hooks or HookRegistry.ever_used:
            await fire(turn, TurnHook.AFTER_RUN, turn, output)

    async def _fail(self, error: BaseException) -> None:
        """Set the stop reason for *error*, and cancel the node if it still runs."""
        turn, node = self._turn, self._node
        turn.set_outcome(stop_reason=StopReason.CANCELLED)
        timed_out, cancelled = self._timed_out_early, not isinstance(error, Exception)
        if node is not None:
            await _cancel_and_wait(node)
            if error is node.exception:
                timed_out = node.timed_out
                cancelled = node.state is NodeState.Canceled
        if timed_out:
            turn.set_outcome(stop_reason=StopReason.TIMEOUT)
            await fire(turn, TurnHook.ON_TIMEOUT, turn)
            raise TurnTimeoutError(
                f"the turn of {turn.tool.name!r} took longer than {turn.timeout} s; give it a"
                " longer timeout, or None"
            ) from None
        if cancelled or not isinstance(error, Exception):
            return
        turn.set_outcome(stop_reason=StopReason.ERROR)
        if isinstance(error, TypeError) and node is not None:
            _note_ignored_arguments(error, turn, node)
        await fire(turn, TurnHook.ON_ERROR, turn, error)


async def _cancel_and_wait(node: CallNode) -> None:
    """Cancel *node* and wait until it has ended, even if this task is cancelled meanwhile."""
    node.cancel_on_loop("its turn was cancelled")
    await wait_until(lambda: node.state.final, node.ended)


def _refuse_misplaced(timeout: object, args: object) -> None:
    """Raise InvalidValueError if arguments of the tool stand where others are expected."""
    if isinstance(timeout, dict | list | tuple):
        name = "kwargs" if isinstance(timeout, dict) else "args"
        raise InvalidValueError(
            f"the timeout of a turn is in seconds or None, not {timeout!r}; the arguments of its"
            f" tool are given as {name}={timeout!r}"
        )
    if isinstance(args, dict | str):
        raise InvalidValueError(
            f"the args of a turn are a list of values, not {args!r}; values by name are kwargs="
        )


def _resolve_tool(tool: str | Function) -> Function:
    if isinstance(tool, str):
        return ToolRegistry.get(tool)
    # A tool is the usual case, and isinstance is slow for abstract classes.
    return tool if type(tool) is Tool else checked_function(tool, "a turn")


def _note_ignored_arguments(error: TypeError, turn: Turn, node: CallNode) -> None:
    """Add a note on arguments that the tool does not take: one may be a missing one misspelt."""
    if ignored := turn.kwargs.keys() - node.inputs.keys():
        names = ", ".join(map(repr, sorted(ignored)))
        error.add_note(f"{turn.tool.name} does not take {names}, which the turn gave")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _dump_argument(value: Any, what: str) -> Any:
    """Return an argument as plain data; a FromFile is tagged, to be restored as one."""
    match value:
        case FromFile(path):
            return {"$from_file": os.fspath(path)}
        case {"$from_file": _} | {"$plain": _}:  # user data that looks like a tag
            return {"$plain": to_plain(value, what)}
        case _:
            return to_plain(value, what)


def _load_argument(annotation: Any, value: Any) -> Any:
    match value:
        case {"$from_file": path}:
            return FromFile(path)
        case {"$plain": data}:
            return from_plain(annotation, data)
        case _:
            return from_plain(annotation, value)


def _dump_output(value: Any, what: str) -> Any:
    """Return an output as plain data; turns and context items are tagged, to be restored."""
    match value:
        case Turn():
            return {"$turn": value.to_dict()}
        case ContextItem():
            return {"$context_item": value.to_dict()}
        case list():
            return [_dump_output(item, what) for item in cast("list[Any]", value)]
        case _ if _is_tagged(value):  # user data that looks like a tag
            return {"$plain": to_plain(value, what)}
        case _:
            return to_plain(value, what)


def _load_output(annotation: Any, value: Any) -> Any:
    match value:
        case {"$turn": data}:
            return Turn.from_dict(data)
        case {"$context_item": data}:
            return ContextItem.from_dict(data)
        case {"$plain": data}:
            return data
        case [*items] if any(_is_tagged(item) for item in items):
            return [_load_output(Any, item) for item in items]
        case _:
            return from_plain(annotation, value)


def _is_tagged(value: Any) -> bool:
    match value:
        case {"$turn": _} | {"$context_item": _} | {"$plain": _}:
            return True
        case _:
            return False
