"""An agent whose conversation is compacted is killed at a commit, and goes on.

A sample of the commits: ``make crash`` takes them all.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest

from crash.program import FatalStore
from journal.processes import EXHAUSTIVE, Lives, World
from journal.test_killed_continuations import kill_of
from treefold import AgentFunction, Compaction, ModelText, Runtime, ToolUse, attach
from treefold.events import ConversationOpened, ResponseCompleted
from treefold.testing import ScriptedFailure, ScriptedModel

KEY: Final = "long"
APART: Final = 1 if EXHAUSTIVE else 7  # commits from a kill to the next
STEPS: Final = 24
WINDOW: Final = 1_200


def model_of(world: World, *, is_known: bool) -> ScriptedModel:
    """A model with a small window, which it tells or not, that looks at one place after another."""

    def reply(request: Any) -> Any:
        said = str(request.transcript)
        if len(said) > 4 * WINDOW:
            world.add("refused")
            return ScriptedFailure(400, f"maximum context length is {WINDOW} tokens")
        if "sum up" in request.system:
            world.add("paid", n=f"summary {crc32(said.encode())}")
            return "the summary"
        place = 1 + world.done("look")
        world.add("paid", n=f"look {place}")
        call = ToolUse(f"call_{place}", "look", {"n": place})
        return [ModelText("I look there. " * 12), call] if place <= STEPS else "done"

    return ScriptedModel(reply, context_window=WINDOW if is_known else None)


def search_of(world: World) -> AgentFunction[Any, Any]:
    return AgentFunction(
        "search",
        "Searches.",
        user_prompt_template="Look everywhere.",
        uses=[world.tool("look")],
        compaction=Compaction(),
    )


def run(world: World, *, is_known: bool) -> None:
    moment, _, number = kill_of(world).partition(":")
    store, search = FatalStore(str(world.file), moment, int(number or 0)), search_of(world)
    with Runtime([search], models=model_of(world, is_known=is_known), store=store) as runtime:
        node = runtime.invoke(search, key=KEY)
        while not node.state.final:
            for question in runtime.questions():
                runtime.answer(question.id, f"use: look {question.text}")
        sys.stdout.write(json.dumps({"result": node.result(), "commits": store.commits}))


def with_a_known_window(world: World) -> None:
    run(world, is_known=True)


def with_an_unknown_window(world: World) -> None:
    run(world, is_known=False)


def check(world: World, deaths: int) -> None:
    """Check what was said and what was paid for."""
    with attach(world.file) as observer:
        (tree,) = observer.trees()
        events = list(observer.events(tree.id))
    mine = [event for event in events if event.node == tree.id]
    steps = [event.step for event in mine if isinstance(event, ResponseCompleted)]
    assert steps == list(range(1, len(steps) + 1))
    # It looks once more where it was killed when it looked.
    assert STEPS < len(steps) <= STEPS + 1 + deaths
    opened = [event.epoch for event in mine if isinstance(event, ConversationOpened)]
    begun = {epoch.bare for epoch in opened if epoch.why}
    assert len(begun) >= 2
    assert all(epoch.head[0] == "Look everywhere." for epoch in opened if epoch.why)
    # A response that arrived when the process was killed was lost.
    extra = Counter(world.told("paid", "n"))
    assert sum(count - 1 for count in extra.values()) <= deaths
    assert world.done("refused") <= 1 + deaths


@pytest.mark.parametrize("program", [with_a_known_window, with_an_unknown_window])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_summary_is_paid_twice_when_the_process_is_killed(
    tmp_path: Path, lives: Lives, program: Any, moment: str
):
    whole = World(tmp_path)
    finished = json.loads(lives.ended(program, whole))
    assert finished["result"] == "done"
    check(whole, 0)
    killed = 0
    first = APART if moment == "after" else (APART + 3) // 2
    for number in range(first, finished["commits"] + 1, APART):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        world = World(folder)
        (folder / "kill").write_text(f"{moment}:{number}")
        # Commits are not quite the same each time, so it may live to see its end.
        died = lives.run(program, world).status != 0
        killed += died
        (folder / "kill").unlink()
        assert json.loads(lives.ended(program, world))["result"] == "done"
        check(world, died)
    assert killed
