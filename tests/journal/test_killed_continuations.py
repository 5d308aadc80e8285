"""A run fails, its key is invoked again, and the process is killed at a commit of all that.

A sample of the commits: ``make crash`` takes them all.
"""

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from crash.program import FatalStore
from journal.processes import EXHAUSTIVE, Lives, World
from treefold import (
    AgentFunction,
    Budget,
    BudgetExceeded,
    CodeFunction,
    ModelProviderException,
    QuestionKind,
    RunContext,
    Runtime,
    ToolUse,
    attach,
)
from treefold.core.errors import UnknownQuestionError
from treefold.events import ResponseCompleted
from treefold.testing import ScriptedFailure, ScriptedModel

KEY: Final = "nightly"
APART: Final = 1 if EXHAUSTIVE else 5  # commits from a kill to the next
LOOK: Final = ToolUse("1", "look", {"n": 1})
PLANS: Final = {"Research.": [LOOK, ToolUse("2", "expert"), "found"], "Know.": [LOOK, "known"]}


def job_of(world: World) -> CodeFunction:
    look = world.tool("look")
    expert = AgentFunction("expert", "Knows.", user_prompt_template="Know.", uses=[look])
    research = AgentFunction(
        "research", "Researches.", user_prompt_template="Research.", uses=[look, expert]
    )

    async def job(ctx: RunContext) -> str:
        return await ctx.invoke(research)

    return CodeFunction(callable=job, uses=[research])


def model_of(world: World, *, fails: bool) -> ScriptedModel:
    """A model whose server is down twice, after it has answered some requests."""

    def reply(request: Any) -> Any:
        failed = world.done("failed")
        if fails and failed < 2 and world.done("paid") >= 2 + failed:
            return ScriptedFailure(503, "the server is down")
        prompt = request.transcript[0].text
        step = sum(isinstance(part, ToolUse) for part in request.transcript)
        world.add("paid", n=f"{prompt} {step}")
        return PLANS[prompt][step]

    return ScriptedModel(reply)


def answer_all(world: World, runtime: Runtime) -> None:
    """Answer as a person who gives money for one request at a time, and has no tool run again."""
    for question in runtime.questions():
        text = "use: look 1"
        if question.kind is QuestionKind.Budget:
            world.add("gave")
            text = f"calls={1 + world.done('gave')}"
        # Whoever was killed while he answered had claimed the question, for a moment.
        with suppress(UnknownQuestionError):
            runtime.answer(question.id, text)


def invoke_until_done(
    world: World,
    budgets: list[Budget | None],
    model: Any,
    on_budget: Literal["raise", "pause"] = "raise",
) -> None:
    """Invoke the key, with one budget after the other, until it has a result."""
    moment, _, number = kill_of(world).partition(":")
    store, job = FatalStore(str(world.file), moment, int(number or 0)), job_of(world)
    with Runtime([job], models=model, store=store, on_budget=on_budget) as runtime:
        for budget in budgets:
            node = runtime.invoke(job, key=KEY, budget=budget)
            while not node.state.final:
                answer_all(world, runtime)
                time.sleep(0.001)  # or the run would have half of the process
            with suppress(ModelProviderException, BudgetExceeded):
                sys.stdout.write(json.dumps({"result": node.result(), "commits": store.commits}))
                return
            world.add("failed")


def kill_of(world: World) -> str:
    file = world.folder / "kill"
    return file.read_text() if file.exists() else ""


def without_server(world: World) -> None:
    invoke_until_done(world, [None] * 9, model_of(world, fails=True))


def without_money(world: World) -> None:
    budgets: list[Budget | None] = [Budget(calls=calls) for calls in (1, 3, 3, 9)]
    invoke_until_done(world, budgets, model_of(world, fails=False))


def asking_for_money(world: World) -> None:
    invoke_until_done(world, [Budget(calls=1)], model_of(world, fails=False), "pause")


def check(world: World) -> None:
    """Check the journal, and what was done in the world."""
    with attach(world.file) as observer:
        trees = observer.trees()
        # Each failed tree is continued once, and only the last has a result.
        assert [tree.source for tree in trees] == [0, *(tree.id for tree in trees[:-1])]
        assert [tree.state.value for tree in trees] == ["error"] * (len(trees) - 1) + ["success"]
        assert {tree.key for tree in trees} == {KEY}
        events = list(observer.events(trees[-1].id))
    assert sum(isinstance(event, ResponseCompleted) for event in events) == 5
    paid = world.told("paid", "n")
    # The response that arrived when the process was killed was lost.
    assert len(paid) - len(set(paid)) <= 1
    assert world.done("look") <= 2


@pytest.mark.parametrize(("moment", "first"), [("after", 1), ("before", 3)])
@pytest.mark.parametrize("program", [without_server, without_money, asking_for_money])
def test_a_run_that_is_killed_while_it_goes_on_is_continued_once(
    tmp_path: Path, lives: Lives, program: Any, moment: str, first: int
):
    whole = World(tmp_path)
    finished = json.loads(lives.ended(program, whole))
    assert finished["result"] == "found"
    check(whole)
    assert (len(whole.told("paid", "n")), whole.done("look")) == (5, 2)
    killed = 0
    for number in range(min(first, APART), finished["commits"] + 1, APART):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        world = World(folder)
        (folder / "kill").write_text(f"{moment}:{number}")
        # Commits are not quite the same each time, so it may live to see its end.
        killed += lives.run(program, world).status != 0
        (folder / "kill").unlink()
        assert json.loads(lives.ended(program, world))["result"] == "found"
        check(world)
    assert killed
