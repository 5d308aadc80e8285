"""A turn: one call of a tool that somebody decided to make, and what came of it."""

import asyncio
import itertools
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from types import TracebackType
from typing import Any, Generic, Self, cast
from uuid import uuid4

from typing_extensions import TypeVar

from treefold.core.errors import (
    SafeExecutionError,
    SerializationError,
    TurnTimeoutError,
    WrongRunMethodError,
)
from treefold.core.from_file import FromFile
from treefold.core.function import Function, checked_function, checked_tags, checked_timeout
from treefold.core.plain import from_plain, required_key, to_plain
from treefold.core.states import NodeState
from treefold.runtime.ambient import current_context
from treefold.runtime.call_request import CallRequest
from treefold.runtime.node import CallNode
from treefold.turns.handoff import Handoff
from treefold.turns.hooks import Hook, HookPoint, TurnHook, fire
from treefold.turns.late import evaluated, is_late
from treefold.turns.memory import ContextItem
from treefold.turns.occupancy import Holder, Occupancy, held_by_itself
from treefold.turns.tool import Tool, ToolRegistry

T = TypeVar("T", default=Any)

_CHANGES_WHILE_RUNNING = frozenset({"start_time", "end_time", "output", "stop_reason", "metadata"})


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
    """What should happen: a tool, the arguments for it, and how long it may take.

    ``Turn[int]``, for annotations, is a turn whose values are int; plain ``Turn`` says nothing of
    them.

    The arguments go in *kwargs*, by name, or in *args*; those that the tool does not take are left
    out. Values that are functions without parameters are called when the turn runs. While it runs
    only its times, output, stop reason and metadata can be set.

    Attributes:
        tool: the Function that it runs; *tool* may also be the name of a registered one.
        timeout: how many seconds it may take, 60 if nothing is said; None for any time.
        metadata: a dict for your own use.
        tags: what global hooks can select by.
        start_time, end_time: when it last ran.
        stop_reason: how that ended.
        output: what came of it; for a stream the list of its values.

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
    start_time: datetime | None
    end_time: datetime | None
    stop_reason: StopReason | None
    output: Any
    place: Occupancy
    _uuid: str | None

    def __init__(
        self,
        tool: str | Function,
        timeout: float | None = 60,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tags: Iterable[str] | None = None,
    ) -> None:
        self.__dict__.update(
            tool=_resolved(tool),
            timeout=checked_timeout(timeout, "a turn"),
            args=list(args or ()),
            kwargs=dict(kwargs or {}),
            metadata=dict(metadata or {}),
            tags=checked_tags(tags, "a turn"),
            hooks=[],
            start_time=None,
            end_time=None,
            stop_reason=None,
            output=None,
            place=Occupancy(),
            _uuid=None,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_running and name not in _CHANGES_WHILE_RUNNING:
            raise SafeExecutionError(
                f"cannot set {name!r} while {self!r} is running; wait until it has ended"
            )
        super().__setattr__(name, value)

    def record(self, **facts: Any) -> None:
        """Take down what a run came to, which may be set while it runs."""
        self.__dict__.update(facts)

    def __repr__(self) -> str:
        return f"<Turn of {getattr(self.tool, 'name', None)}>"

    @property
    def uuid(self) -> str:
        """The name of this turn, unlike any other's."""
        found = self._uuid or str(uuid4())
        self.__dict__["_uuid"] = found
        return found

    @property
    def _is_running(self) -> bool:
        return self.place.taken

    # Running it

    async def returning(self) -> T:
        """Run a tool that gives one value, and return that value.

        Raises:
            WrongRunMethodError: the tool gives values one by one.
            SafeExecutionError: the turn is running.
            TurnTimeoutError: it took longer than ``timeout``.
        """
        if self.tool.streams:
            raise WrongRunMethodError(
                f"{self.tool.name!r} gives its values one by one: use"
                " 'async for value in turn.yielding()'"
            )
        async with TurnRun(self) as run:
            return await run.result()

    def yielding(self) -> AsyncGenerator[T, None]:
        """Run a tool that gives values one by one, and yield each as it comes.

        Leaving the loop early cancels the tool.

        Raises:
            WrongRunMethodError: the tool gives one value.
            SafeExecutionError: the turn is running.
            TurnTimeoutError: the whole run took longer than ``timeout``.
        """
        if not self.tool.streams:
            raise WrongRunMethodError(
                f"{self.tool.name!r} gives one value: use 'await turn.returning()'"
            )
        return held_by_itself(self._yielding)

    async def _yielding(self, holder: Holder) -> AsyncGenerator[Any, None]:
        async with TurnRun(self, holder) as run:
            async for value in run:
                yield value  # noqa: ASYNC119 - the loop closes what its consumer leaves

    # Keeping it

    def copy(self) -> "Turn[T]":
        """Return another turn that would do the same, with hooks, as if it had not run."""
        copy = Turn[T](self.tool, self.timeout, self.args, self.kwargs, self.metadata, self.tags)
        copy.hooks.extend(self.hooks)
        return copy

    def to_dict(self) -> dict[str, Any]:
        """Return the turn as plain data, without its hooks.

        Raises:
            SerializationError: an argument, the metadata or the output has no JSON form.
        """
        what = f"of {self!r}"
        for name, value in [*enumerate(self.args), *self.kwargs.items()]:
            if is_late(value):
                raise SerializationError(
                    f"argument {name!r} {what} is a function that is called when the turn runs; it"
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
        """Restore what ``to_dict`` gave; the tool is looked up by name."""
        function = _resolved(required_key(data, "tool_name", cls))
        types = {p.name: p.annotation for p in function.parameters.items}
        byplace = itertools.chain(types.values(), itertools.repeat(Any))
        turn = cls(
            function,
            data.get("timeout", 60),
            [_load_argument(k, v) for v, k in zip(data.get("args", ()), byplace, strict=False)],
            {k: _load_argument(types.get(k, Any), v) for k, v in data.get("kwargs", {}).items()},
            data.get("metadata"),
            data.get("tags"),
        )
        stop_reason = data.get("stop_reason")
        turn.__dict__.update(
            _uuid=data.get("uuid"),
            start_time=_time(data.get("start_time")),
            end_time=_time(data.get("end_time")),
            stop_reason=None if stop_reason is None else StopReason(stop_reason),
            output=_load_output(
                list[function.output_type] if function.streams else function.output_type,
                data.get("output"),
            ),
        )
        return turn


class TurnRun:
    """One run of a turn, from taking its place to giving it up.

    It is no generator, so that ``Agent.run`` can step through it: where one generator iterates over
    another, the garbage collector or the end of the loop may close the inner one under the outer.
    """

    def __init__(self, turn: Turn, holder: Holder | None = None) -> None:
        self._turn = turn
        self._holder = holder
        self._values: Handoff | None = None
        self._node: CallNode | None = None
        self._timed_out = False  # before there was a node

    async def __aenter__(self) -> Self:
        await self._turn.place.take(self._turn, self._holder)
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
            turn.record(end_time=datetime.now(UTC))
            try:
                await fire(turn, TurnHook.ON_COMPLETE, turn, turn.stop_reason)
            except BaseException as fault:
                cancelled = not isinstance(fault, Exception)
                turn.record(stop_reason=StopReason.CANCELLED if cancelled else StopReason.ERROR)
                raise
            finally:
                turn.place.give_up()

    async def result(self) -> Any:
        """Run to the end and return the value."""
        node = await self._start(None)
        return await self._complete(node)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        node, values = self._node, self._values
        if node is None or values is None:
            values = self._values = Handoff()
            node = await self._start(values.put)
            node.when_ended(values.close)
        async for value in values:
            return value
        await self._complete(node)
        raise StopAsyncIteration

    async def _start(self, sink: Callable[[Any], Awaitable[None]] | None) -> CallNode:
        turn = self._turn
        turn.record(start_time=datetime.now(UTC), end_time=None, stop_reason=None, output=None)
        await fire(turn, TurnHook.BEFORE_RUN, turn)
        args, kwargs, timeout = turn.args, turn.kwargs, turn.timeout
        if any(map(callable, args)) or any(map(callable, kwargs.values())):
            args, kwargs, timeout = await self._evaluated()
        # What a turn gives to a tool is passed on as it is; other functions check it.
        request = CallRequest(
            turn.tool,
            turn.tool.parameters.bind(args, kwargs),
            timeout,
            checked=isinstance(turn.tool, Tool),
            sink=sink,
        )
        self._node = current_context().start(request)
        return self._node

    async def _evaluated(self) -> tuple[list[Any], dict[str, Any], float | None]:
        """Return the arguments, those that come late called now, and the time that is left."""
        turn, loop = self._turn, asyncio.get_running_loop()
        begun = loop.time()
        limit = asyncio.timeout(turn.timeout)
        try:
            async with limit:
                args = [await evaluated(value) for value in turn.args]
                kwargs = {name: await evaluated(value) for name, value in turn.kwargs.items()}
        except TimeoutError:
            self._timed_out = limit.expired()
            raise
        spent = loop.time() - begun
        return args, kwargs, None if turn.timeout is None else max(0.0, turn.timeout - spent)

    async def _complete(self, node: CallNode) -> Any:
        turn = self._turn
        output = await node
        turn.record(output=output, stop_reason=StopReason.COMPLETED)
        await fire(turn, TurnHook.AFTER_RUN, turn, output)
        return output

    async def _fail(self, error: BaseException) -> None:
        """Record how the run was cut short, and leave nothing running."""
        turn, node = self._turn, self._node
        turn.record(stop_reason=StopReason.CANCELLED)
        timed_out, cancelled = self._timed_out, not isinstance(error, Exception)
        if node is not None:
            await _give_up(node)
            if error is node.exception:
                timed_out = node.timed_out
                cancelled = node.state is NodeState.Canceled
        if timed_out:
            turn.record(stop_reason=StopReason.TIMEOUT)
            await fire(turn, TurnHook.ON_TIMEOUT, turn)
            raise TurnTimeoutError(
                f"the turn of {turn.tool.name!r} took longer than {turn.timeout} s; give it a"
                " longer timeout, or None"
            ) from None
        if cancelled or not isinstance(error, Exception):
            return
        turn.record(stop_reason=StopReason.ERROR)
        if isinstance(error, TypeError) and node is not None:
            _note_what_was_left_out(error, turn, node)
        await fire(turn, TurnHook.ON_ERROR, turn, error)


async def _give_up(node: CallNode) -> None:
    """Cancel *node* and wait until it has ended, even if whoever waits is cancelled meanwhile."""
    node.cancel_here("its turn was given up")
    interrupted = False
    while not node.state.final:
        try:
            await node.ended()
        except asyncio.CancelledError:
            interrupted = True
    if interrupted:
        raise asyncio.CancelledError


def _resolved(tool: str | Function) -> Function:
    if isinstance(tool, str):
        return ToolRegistry.get(tool)
    return checked_function(tool, "a turn")


def _note_what_was_left_out(error: TypeError, turn: Turn, node: CallNode) -> None:
    """Tell of arguments that the tool does not take: perhaps one was meant that is missing."""
    if left_out := turn.kwargs.keys() - node.inputs.keys():
        names = ", ".join(map(repr, sorted(left_out)))
        error.add_note(f"{turn.tool.name} does not take {names}, which the turn gave")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _dump_argument(value: Any, what: str) -> Any:
    """Return an argument as plain data; one that stands in a file is marked, to come back so."""
    match value:
        case FromFile(path):
            return {"$from_file": os.fspath(path)}
        case {"$from_file": _} | {"$plain": _}:  # somebody else's, which only looks like ours
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
    """Return an output as plain data; turns and context items are marked, to come back as such."""
    match value:
        case Turn():
            return {"$turn": value.to_dict()}
        case ContextItem():
            return {"$context_item": value.to_dict()}
        case list():
            return [_dump_output(item, what) for item in cast("list[Any]", value)]
        case _ if _is_marked(value):  # somebody else's, which only looks like ours
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
        case [*items] if any(_is_marked(item) for item in items):
            return [_load_output(Any, item) for item in items]
        case _:
            return from_plain(annotation, value)


def _is_marked(value: Any) -> bool:
    match value:
        case {"$turn": _} | {"$context_item": _} | {"$plain": _}:
            return True
        case _:
            return False
