"""Long runs over HTTP: windows that fill up, prompts that are edited, models that fail."""

import itertools
import json
import os
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pytest

from treefold import (
    AgentFunction,
    CodeFunction,
    Compaction,
    Edit,
    MemoryStore,
    Node,
    RunContext,
    Runtime,
)
from treefold.events import ConversationOpened
from treefold.models import Failover
from treefold.testing import replay
from wire.protocols import PROTOCOLS, Protocol
from wire.replies import Reply
from wire.server import Request

WINDOW: Final = 4_000  # tokens
STEPS: Final = 500 if os.environ.get("TREEFOLD_CRASH") == "exhaustive" else 80
OPENAI, ANTHROPIC, GEMINI = PROTOCOLS


def look(ctx: RunContext, place: int) -> str:
    return f"in {place} there is " + "a cup " * (20 if place % 10 else 20_000)


LOOK: Any = CodeFunction(
    callable=look, args={"type": "object", "properties": {"place": {"type": "integer"}}}
)


class Working:
    """What a model says that looks at one place after another, and sums up when asked to."""

    def __init__(self, protocol: Protocol, steps: int) -> None:
        self._protocol = protocol
        self.places = iter(range(1, steps + 1))

    def __call__(self, request: Request) -> Reply:
        protocol = self._protocol
        if b"You sum up the work" in request.body:
            return protocol.text("The summary.")
        place = next(self.places, None)
        if place is None:
            return protocol.text("Nothing.")
        # The protocol numbers calls that have no id.
        id = f"toolu_{place}" if protocol is ANTHROPIC else f"call_{place}"
        return protocol.calls((id, "look", json.dumps({"place": place})))


def search(**options: Any) -> AgentFunction[Any, Any]:
    return AgentFunction(
        "search",
        "Searches.",
        system_prompt="You search.",
        user_prompt_template="Look everywhere.",
        uses=[LOOK],
        max_steps=10_000,
        **options,
    )


def compactions(runtime: Runtime, node: Node) -> list[int]:
    """Return the numbers of the responses after which the conversation was compacted."""
    opened = [e for e in runtime.events(node).read() if isinstance(e, ConversationOpened)]
    epochs = [event.epoch for event in opened if event.node == node.id]
    return [epoch.bare for epoch in epochs if epoch.why == "compaction"]


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_run_of_many_steps_fits_into_a_small_window(protocol: Protocol, *, is_known: bool):
    agent = search(compaction=Compaction())
    async with protocol.server(window=WINDOW, expects={"window"}) as server:
        server.on_request = Working(protocol, STEPS)
        model: Any = protocol.model(server)
        if is_known:
            model.profile = _with_window(model.profile)
        store = MemoryStore()
        async with Runtime([agent], models=model, store=store) as runtime:
            node = runtime.invoke(agent)
            assert await node == "Nothing."
            found = compactions(runtime, node)
    # The window that is stated is exact, and sizes are estimates.
    assert server.refusals["window"] <= 1
    assert len(found) >= STEPS // 40
    assert all(after - before >= 10 for before, after in pairwise([0, *found]))
    said = [part for part in node.get_transcript() if type(part).__name__ == "ToolUse"]
    assert len(said) == STEPS
    assert replay([agent], store).divergence is None


def _with_window(profile: Any) -> Any:
    return replace(profile, context_window=WINDOW)


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("edit", [Edit(system="You find."), None])
async def test_a_fork_goes_on_where_thinking_is_bound_to_what_precedes_it(
    protocol: Protocol, at: int, edit: Edit | None
):
    agent = search()
    async with protocol.server() as server:
        server.on_request = Working(protocol, 3)
        async with Runtime([agent], models=protocol.model(server), store=MemoryStore()) as runtime:
            node = runtime.invoke(agent)
            assert await node == "Nothing."
            server.on_request = Working(protocol, 0)
            again = runtime.fork(node, at=at, edit=edit)
            assert await again == "Nothing."
    assert server.refusals.total() == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [pair for pair in itertools.product(PROTOCOLS, PROTOCOLS) if pair[0] is not pair[1]],
    ids=str,
)
@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("status", [401, 429, 529])
async def test_a_model_of_another_provider_goes_on(
    first: Protocol, second: Protocol, at: int, status: int
):
    made: list[int] = []

    def looked(ctx: RunContext, place: int) -> str:
        made.append(place)
        return "a cup"

    tool: Any = CodeFunction(name="look", desc="Looks.", callable=looked)
    async with first.server() as one, second.server() as two:
        working = Working(first, 3)
        failing: list[Request] = []

        def fail(request: Request) -> Reply:
            if len(one.requests) > at:
                failing.append(request)
                return first.failure(status)
            return working(request)

        one.on_request = fail
        two.on_request = _after(Working(second, 3), at)
        model = Failover(first.model(one), second.model(two))
        agent = AgentFunction(
            "search",
            "Searches.",
            user_prompt_template="Look.",
            uses=[tool],
            default_model=model,
        )
        async with Runtime([agent]) as runtime:
            assert await runtime.invoke(agent) == "Nothing."
    assert made == [1, 2, 3]
    assert len(failing) == 1
    assert one.refusals.total() == two.refusals.total() == 0


def _after(working: Working, steps: int) -> Any:
    """Return *working* after so many steps."""
    for _ in range(steps):
        next(working.places)
    return working
