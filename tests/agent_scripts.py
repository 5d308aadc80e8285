"""What the tests of agents share: models with a gate or a price, and waits that end."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from treefold import (
    AgentFunction,
    AgentNode,
    Function,
    Node,
    NodeView,
    Provider,
    Question,
    Runtime,
    TokenUsage,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from treefold.models import (
    Exchange,
    Model,
    ModelEvent,
    ModelSettings,
    ResponseStarted,
    Session,
)
from treefold.testing import ScriptedModel, ScriptedRequest

T = TypeVar("T")


class StagedModel(Model):
    """Plays a script under a name and a provider of its own, and can be held up.

    No request is answered before ``gate`` is open, and no more than the first event with
    something of the answer comes before ``rest`` is.
    """

    def __init__(
        self,
        script: ScriptedModel,
        *,
        name: str = "openai:staged",
        provider: Provider = Provider.OpenAI,
        held: bool = False,
    ) -> None:
        self.name = name
        self.provider = provider
        self.script = script
        self.gate = asyncio.Event()
        self.rest = asyncio.Event()
        self.rest.set()
        self.in_flight = 0
        self.most_in_flight = 0
        if not held:
            self.gate.set()

    def open(
        self,
        system: str = "",
        functions: Sequence[Function] = (),
        settings: ModelSettings | None = None,
        *,
        exchanges: Sequence[Exchange] = (),
    ) -> Session:
        return StagedSession(
            self, self.script.open(system, functions, settings, exchanges=exchanges)
        )


class WrappedSession(Session):
    """A session whose ``send`` is somebody's own; all else is that of the one inside."""

    def __init__(self, inner: Session) -> None:
        self._inner = inner

    @property
    def exchanges(self) -> Sequence[Exchange]:
        return self._inner.exchanges

    @property
    def transcript(self) -> Sequence[TranscriptPart]:
        return self._inner.transcript

    def parts(self, number: int) -> Sequence[TranscriptPart]:
        return self._inner.parts(number)

    def keep(self, text: str, *inputs: UserText | ToolResult) -> Exchange:
        return self._inner.keep(text, *inputs)

    @property
    def pending(self) -> Sequence[ToolUse]:
        return self._inner.pending

    @property
    def usage(self) -> TokenUsage:
        return self._inner.usage


class StagedSession(WrappedSession):
    """A session of a StagedModel."""

    def __init__(self, model: StagedModel, inner: Session) -> None:
        super().__init__(inner)
        self._model = model

    async def send(self, *inputs: UserText | ToolResult) -> AsyncGenerator[ModelEvent, None]:
        model = self._model
        model.in_flight += 1
        model.most_in_flight = max(model.most_in_flight, model.in_flight)
        events = self._inner.send(*inputs)
        try:
            await model.gate.wait()
            async for event in events:
                yield event
                if not isinstance(event, ResponseStarted):
                    await model.rest.wait()
        finally:
            model.in_flight -= 1
            await events.aclose()


def worker(name: str, *uses: Function, **options: Any) -> AgentFunction:
    """Return an agent whose prompt tells its name."""
    return AgentFunction(name, "", user_prompt_template=f"I am {name}.", uses=uses, **options)


async def until(condition: Callable[[], T]) -> T:
    """Wait until *condition* holds, and return what it gave."""
    async with asyncio.timeout(60):
        while not (found := condition()):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.001)
    return found


async def seen(
    runtime: Runtime, node: Node | int, condition: Callable[[NodeView], object]
) -> NodeView:
    """Watch *node* until *condition* holds of a view, and return that."""
    async with asyncio.timeout(60):
        async for view in runtime.watch(node):
            if condition(view):
                return view
    raise AssertionError("it ended without that")


async def ended(node: Node) -> Node:
    """Wait until *node* has ended, whatever came of it."""
    async with asyncio.timeout(60):
        with suppress(Exception):
            await node
    return node


async def run(function: Function, args: Mapping[str, Any] | None = None, **options: Any) -> Node:
    """Run *function* in a runtime of its own to its end, whatever comes of it."""
    async with Runtime([function], **options) as runtime:
        return await ended(runtime.invoke(function, args))


async def run_agent(
    function: Function, args: Mapping[str, Any] | None = None, **options: Any
) -> AgentNode:
    """Do the same with an agent."""
    return agent_node(await run(function, args, **options))


async def question_of(runtime: Runtime) -> Question:
    """Wait for the one open question."""
    [question] = await until(runtime.questions)
    return question


def children_of(node: Node) -> list[Node]:
    """Return the children of *node*, those that are tied included one by one."""
    found: list[Node] = []
    for child in node.get_children():
        found += child if isinstance(child, list) else [child]
    return found


def agent_node(node: Node | list[Node]) -> AgentNode:
    """Return *node*, which is one of an agent."""
    assert isinstance(node, AgentNode)
    return node


def told(request: ScriptedRequest) -> list[ToolResult]:
    """Return the results that a model was shown."""
    return [part for part in request.transcript if isinstance(part, ToolResult)]


def asked(request: ScriptedRequest) -> str:
    """Return the first thing that the user said to a model."""
    first = request.transcript[0]
    assert isinstance(first, UserText)
    return first.text
