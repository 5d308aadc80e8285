"""An agent runs a queue of turns, to which its tools can add."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, cast

from treefold.core.errors import (
    CompletionCheckReturnError,
    DefinitionError,
    DuplicateNameError,
    InvalidValueError,
    UnregisteredAgentError,
)
from treefold.core.function import Function, checked_function, checked_tags
from treefold.core.origin import origin_of_instance
from treefold.core.plain import required_key
from treefold.runtime.loops.loop_handle import threadsafe_resolver
from treefold.turns.hooks import AgentHook, Hook, HookPoint, fire
from treefold.turns.memory import ContextItem, ContextPool, ContextQueue, MemoryScope
from treefold.turns.registry import Registry, registries
from treefold.turns.run_guard import RunGuard, StreamRef, guarded_stream
from treefold.turns.tool_options import ToolType
from treefold.turns.tools import Tool, ToolRegistry
from treefold.turns.turn import Turn, TurnRun

AgentRegistry: "Registry[Agent]" = Registry(
    "agent", UnregisteredAgentError, "make it first: Agent(name, description, tools)"
)


# Options of agents that a model carries out.
_OF_MODELS: Final = frozenset({
    "default_model",
    "instructions",
    "max_steps",
    "max_turns",
    "model",
    "output_type",
    "returns",
    "system",
    "system_prompt",
    "user_prompt_template",
    "uses",
})


class Agent:
    """Turns: a queue agent, without a model: it runs queued turns in order and yields their values.

    It is no function that a model carries out: that is an AgentFunction, which ``@agent`` makes.

    A Turn that a tool returns or yields is queued, a ContextItem is stored in the agent's context,
    and any other value is yielded by ``run()`` as ``(turn, value)``. A turn leaves the queue when
    it has completed; one that raised, or whose stream you left early, stays first and starts again
    with the next ``run()``.

    Attributes:
        tools: the tools that its turns may run, including their subtools.
        context_queue: the latest items that its tools returned, ten by default.
        context_pool: the items with an id that its tools returned.
        turns: the queue, next turn first.

    Example:
        >>> import asyncio
        >>> from treefold import Agent, Turn, registries, tool
        >>> async def main():
        ...     with registries():
        ...         @tool
        ...         async def greet(name: str) -> str:
        ...             return f"Hello, {name}!"
        ...         agent = Agent("greeter", "Greets people", [greet])
        ...         await agent.put(Turn("greet", kwargs={"name": "World"}))
        ...         return [value async for turn, value in agent.run()]
        >>> asyncio.run(main())
        ['Hello, World!']
    """

    before_turn = HookPoint(AgentHook.BEFORE_TURN)
    after_turn = HookPoint(AgentHook.AFTER_TURN)
    on_turn_value = HookPoint(AgentHook.ON_TURN_VALUE)
    before_put = HookPoint(AgentHook.BEFORE_PUT)
    after_put = HookPoint(AgentHook.AFTER_PUT)
    on_pause = HookPoint(AgentHook.ON_PAUSE)
    on_resume = HookPoint(AgentHook.ON_RESUME)

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Refuse what is meant for ``@agent``; a subclass may take what it likes."""
        if cls.__init__ is not Agent.__init__:
            return super().__new__(cls)
        if len(args) == 1 and not options and callable(args[0]):
            raise DefinitionError(
                "Agent(name, description, tools) is a queue of turns, and decorates nothing; an"
                " agent that a model carries out is made by @agent, in lower case"
            )
        if meant := sorted(options.keys() & _OF_MODELS):
            raise DefinitionError(
                f"Agent has no {', '.join(meant)}: it is a queue of turns, without a model; what a"
                " model carries out is made by @agent(...) or AgentFunction(...)"
            )
        return super().__new__(cls)

    def __init__(
        self,
        name: str,
        description: str,
        tools: Sequence[Function],
        context_pool: ContextPool | None = None,
        context_queue: ContextQueue | None = None,
        tags: Iterable[str] | None = None,
    ) -> None:
        for thing, kind in ((context_pool, ContextPool), (context_queue, ContextQueue)):
            if not isinstance(thing, kind | None):
                raise DefinitionError(f"agent {name!r} needs a {kind.__name__}, got {thing!r}")
        if isinstance(tools, Function | str):
            raise DefinitionError(f"agent {name!r} needs a list of tools: [{tools}]")
        self.name = name
        self.description = description
        self.tools = [checked_function(function, f"agent {name!r}") for function in tools]
        self.tags = checked_tags(tags, f"agent {name!r}")
        self.hooks: list[Hook] = []
        self.context_pool = ContextPool() if context_pool is None else context_pool
        self.context_queue = ContextQueue(limit=10) if context_queue is None else context_queue
        self._tools_by_name = _by_name(name, self.tools)
        self._turns: deque[Turn] = deque()
        self._guard = RunGuard()
        self._paused = False
        self._resume_waiter: asyncio.Future[None] | None = None
        AgentRegistry.register(name, self, origin_of_instance(self))

    def __repr__(self) -> str:
        return f"<Agent {self.name}, a queue of {len(self._turns)} turns>"

    @property
    def turns(self) -> list[Turn]:
        """The turns that have not completed, next turn first."""
        return list(self._turns)

    # The queue

    async def put(self, turn: Turn) -> None:
        """Append *turn* to the queue.

        Raises:
            InvalidValueError: it has no tool, or one that this agent does not have (a ValueError).
        """
        if not isinstance(turn, Turn):
            raise InvalidValueError(f"{turn!r} is not a Turn; write agent.put(Turn(tool, ...))")
        function = turn.tool
        if function is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise InvalidValueError(f"a turn put to agent {self.name!r} has no tool; set its tool")
        if self._tools_by_name.get(function.name) is not function:
            raise InvalidValueError(
                f"agent {self.name!r} does not have tool {function.name!r}, or has another one of"
                f" that name; it has {', '.join(self._tools_by_name) or 'none'}"
            )
        await fire(self, AgentHook.BEFORE_PUT, self, turn)
        self._turns.append(turn)
        await fire(self, AgentHook.AFTER_PUT, self, turn)

    async def send(self, agent_name: str, turn: Turn) -> None:
        """Append *turn* to the queue of the agent registered as *agent_name*."""
        await AgentRegistry.get(agent_name).put(turn)

    def remove(self, turn: Turn) -> None:
        """Remove *turn* from the queue, for example because it fails each time."""
        if turn not in self._turns:
            raise InvalidValueError(f"{turn!r} is not in the queue of agent {self.name!r}")
        self._turns.remove(turn)

    # Running

    def run(self) -> AsyncGenerator[tuple[Turn, Any], None]:
        """Run the queued turns; yield ``(turn, value)`` for each value as it is produced.

        Ends when the queue is empty or a completion check returned True. Exceptions of tools
        propagate. Leaving the loop early cancels the turn that is running.

        Raises:
            SafeExecutionError: the agent is running.
            CompletionCheckReturnError: a completion check returned something other than a bool.
        """
        return guarded_stream(self._run)

    async def _run(self, stream: StreamRef) -> AsyncGenerator[tuple[Turn, Any], None]:
        loop = asyncio.get_running_loop()
        while (released := self._guard.take(self, loop, stream)) is not None:
            await released
        try:
            while turn := await self._next_turn():
                if turn.tool.streams:
                    async with TurnRun(turn, stream) as run:
                        while (value := await self._next_value(turn, run)) is not _END:
                            if _is_for_caller(value):
                                yield turn, value  # noqa: ASYNC119 - the event loop closes it
                    self._dequeue(turn)
                    await fire(self, AgentHook.AFTER_TURN, self, turn)
                else:
                    value = await self._single_value(turn)
                    done = self._is_done(turn)
                    if _is_for_caller(value):
                        yield turn, value
                    if done:
                        break
        finally:
            self._guard.release()

    async def _next_turn(self) -> Turn | None:
        if not self._turns:
            return None
        if self._paused:
            await self._wait_for_resume()
        await fire(self, AgentHook.BEFORE_TURN, self)
        if self._paused:  # the hook may have paused it
            await self._wait_for_resume()
        return self._turns[0] if self._turns else None

    async def _single_value(self, turn: Turn) -> Any:
        with MemoryScope(self.context_queue, self.context_pool):
            value = await turn.returning()
        self._dequeue(turn)
        await self._route(turn, value)
        await fire(self, AgentHook.AFTER_TURN, self, turn)
        return value

    async def _next_value(self, turn: Turn, run: TurnRun) -> Any:
        with MemoryScope(self.context_queue, self.context_pool):
            value = await anext(run, _END)
        if value is not _END:
            await self._route(turn, value)
        return value

    def _dequeue(self, turn: Turn) -> None:
        if turn in self._turns:  # unless a hook or tool removed it
            self._turns.remove(turn)

    async def _route(self, turn: Turn, value: Any) -> None:
        """Queue *value* if it is a Turn, store it if it is a ContextItem; then fire the hook."""
        match value:
            case Turn():
                await self.put(cast("Turn", value))
            case ContextItem(id=None):
                await self.context_queue.append(value)
            case ContextItem():
                await self.context_pool.add(value)
            case _:
                pass
        await fire(self, AgentHook.ON_TURN_VALUE, self, turn, value)

    def _is_done(self, turn: Turn) -> bool:
        if getattr(turn.tool, "type", None) is not ToolType.COMPLETION_CHECK:
            return False
        if not isinstance(turn.output, bool):
            raise CompletionCheckReturnError(
                f"completion check {turn.tool.name!r} returned {turn.output!r}; it must return"
                " True or False"
            )
        return turn.output

    # Pausing

    @property
    def is_paused(self) -> bool:
        """Whether it starts no further turn until ``resume()``."""
        return self._paused

    def pause(self) -> None:
        """Start no further turn; the running one is finished. Thread-safe.

        ``run()`` waits until ``resume()`` is called, also in an agent restored from a save.
        """
        self._paused = True

    def resume(self) -> None:
        """Continue after ``pause()``. Thread-safe."""
        self._paused = False
        waiter = self._resume_waiter
        if waiter is not None:
            threadsafe_resolver(waiter)()

    async def _wait_for_resume(self) -> None:
        await fire(self, AgentHook.ON_PAUSE, self)
        while self._paused:
            self._resume_waiter = asyncio.get_running_loop().create_future()
            if self._paused:  # another thread may have resumed it in the meantime
                await self._resume_waiter
        self._resume_waiter = None
        await fire(self, AgentHook.ON_RESUME, self)

    # Copying and saving

    def branch(
        self,
        name: str,
        description: str | None = None,
        tools: Sequence[Function] | None = None,
    ) -> Self:
        """Return a new, independent agent of the same class that continues from here.

        It has copies of the queued turns, the context, the hooks and the tags.
        """
        branch = type(self)(
            name,
            self.description if description is None else description,
            self.tools if tools is None else tools,
            self.context_pool.branch(),
            self.context_queue.branch(),
            self.tags,
        )
        branch.hooks.extend(self.hooks)
        branch._turns.extend(turn.copy() for turn in self._turns)
        return branch

    def to_dict(self) -> dict[str, Any]:
        """Return the agent as plain data: its tools by name, its queue and its context.

        Raises:
            SerializationError: a queued turn or a context item has no JSON form.
        """
        return {
            "name": self.name,
            "description": self.description,
            "tool_names": [ToolRegistry.name_of(function) for function in self.tools],
            "queue": [turn.to_dict() for turn in self._turns],
            "context_pool": self.context_pool.to_dict(),
            "context_queue": self.context_queue.to_dict(),
            "tags": sorted(self.tags),
            "is_paused": self._paused,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Restore an agent from ``to_dict()``, and register it in place of one of the same name.

        Raises:
            UnregisteredToolError: a tool is not registered; import its module first.
        """
        name = required_key(data, "name", cls)
        pool, queue = data.get("context_pool"), data.get("context_queue")
        # In a scope of its own, so that it replaces an agent of that name only once complete.
        with registries():
            agent = cls(
                name,
                required_key(data, "description", cls),
                [ToolRegistry.get(name) for name in required_key(data, "tool_names", cls)],
                None if pool is None else ContextPool.from_dict(pool),
                None if queue is None else ContextQueue.from_dict(queue),
                data.get("tags"),
            )
            agent._turns.extend(Turn.from_dict(turn) for turn in data.get("queue", ()))
            agent._paused = data.get("is_paused", False)
        AgentRegistry.replace(name, agent)
        return agent


_END = object()


def _is_for_caller(value: Any) -> bool:
    return not isinstance(value, Turn | ContextItem)


def _by_name(agent: str, tools: Iterable[Function]) -> dict[str, Function]:
    """Return *tools* and their subtools by name."""
    found: dict[str, Function] = {}
    for function in _with_subtools(tools):
        if found.setdefault(function.name, function) is not function:
            raise DuplicateNameError(f"agent {agent!r} has two tools called {function.name!r}")
    return found


def _with_subtools(tools: Iterable[Function]) -> Iterator[Function]:
    for function in tools:
        yield function
        if isinstance(function, Tool):
            yield from _with_subtools(function.subtools)
