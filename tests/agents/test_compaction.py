"""An agent whose context window is nearly full goes on with a summary of what came before."""

from collections.abc import Sequence
from typing import Any

from treefold import (
    AgentFunction,
    CodeFunction,
    Compaction,
    Node,
    RunContext,
    Runtime,
    ToolUse,
    UserText,
    agent,
)
from treefold.events import ConversationOpened, Epoch
from treefold.testing import ScriptedModel
from treefold.testing.scripted import ScriptedRequest

WINDOW = 4_000


def look(ctx: RunContext, place: int) -> str:
    return f"in {place} there is " + "a cup " * 40


LOOK = CodeFunction(callable=look, repeatable=True)


def working(steps: int) -> ScriptedModel:
    """Return a model that looks at so many places, and sums up when it is asked to."""

    def reply(request: ScriptedRequest) -> Any:
        if "sum up" in request.system:
            return f"summary {len(request.transcript[-1].text)}"
        done = places.pop(0) if places else None
        return "done" if done is None else ToolUse(f"call_{done}", "look", {"place": done})

    places = list(range(1, steps + 1))
    return ScriptedModel(reply, context_window=WINDOW)


def summaries(node: Node) -> list[Node]:
    return [child for child in node.children if child.function.name == "summarize"]


def epochs(runtime: Runtime, node: Node) -> Sequence[Epoch]:
    opened = [e for e in runtime.events(node).read() if isinstance(e, ConversationOpened)]
    return [event.epoch for event in opened if event.node == node.id and event.epoch.why]


def searching(**options: Any) -> AgentFunction[Any, str]:
    @agent(uses=[LOOK], compaction=Compaction(**options), max_steps=1000)
    def search() -> str:
        """Search."""
        return "Look everywhere, and never at the moon."

    return search


def test_a_long_run_is_summed_up_and_goes_on():
    model, search = working(60), searching()
    with Runtime([search], models=model) as runtime:
        node = runtime.invoke(search)
        assert node.result(20) == "done"
        assert len(summaries(node)) == 2
        found = epochs(runtime, node)
        assert len(found) == len(summaries(node))
    for request in model.requests:
        if "sum up" not in request.system:
            assert request.transcript[0] == UserText("Look everywhere, and never at the moon.")
    assert sum(isinstance(part, ToolUse) for part in node.get_transcript()) == 60
