"""Runtimes that ask a person for more instead of raising BudgetExceeded."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from journal.processes import World, failure, question_of, result
from support import wait
from treefold import (
    AgentFunction,
    Budget,
    BudgetExceeded,
    CancellationException,
    CodeFunction,
    NodeState,
    QuestionKind,
    RunContext,
    Runtime,
    TokenUsage,
    ToolUse,
    attach,
)
from treefold.core.errors import InvalidValueError, UsageError
from treefold.testing import ScriptedModel, replay

PATIENCE: Final = 60  # seconds


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def steps_of(world: World, steps: int, **options: Any) -> tuple[AgentFunction, ScriptedModel]:
    """An agent that needs so many requests, and its model."""
    look = world.tool("look", repeatable=True)
    agent = AgentFunction("find", "Finds.", user_prompt_template="Find.", uses=[look], **options)

    def reply(request: Any) -> Any:
        made = sum(isinstance(part, ToolUse) for part in request.transcript)
        world.add("paid", n=made)
        return "found" if made == steps - 1 else ToolUse(f"{made}", "look", {"n": made})

    return agent, ScriptedModel(reply, usage=TokenUsage(input=80, output=20))


@pytest.mark.parametrize("place", ["call", "function", "runtime"])
def test_a_person_is_asked_for_more(world: World, place: str):
    budget = Budget(calls=2)
    given = {place: budget}
    agent, model = steps_of(world, 5, budget=given.get("function"))
    with world.runtime(
        agent, models=model, on_budget="pause", budget=given.get("runtime")
    ) as runtime:
        node = runtime.invoke(agent, key="a", budget=given.get("call"))
        question = question_of(runtime)
        owner = "the runtime" if place == "runtime" else "find (run 1)"
        assert question.kind is QuestionKind.Budget
        assert question.text == (
            f"the budget of {owner} is used up: 2 of 2 requests to models are made or under way;"
            " answer with the new budget, such as 'calls=4', or with 'cancel'"
        )
        assert node.state is NodeState.Paused
        for wrong in ("", "more", "calls=many", "usd=-1", "calls=1.5"):
            with pytest.raises(InvalidValueError):
                runtime.answer(question.id, wrong)
        runtime.answer(question.id, "calls=3")
        again = question_of(runtime)
        assert "3 of 3 requests" in again.text
        runtime.answer(again.id, "tokens=1, calls=5")
        assert result(node) == "found"
    assert world.told("paid", "n") == list(range(5))
    replay([agent], world.file).check()


def test_a_person_who_says_no_cancels_the_call_that_the_budget_belongs_to(world: World):
    agent, _ = steps_of(world, 5)
    boss = AgentFunction("boss", "Leads.", user_prompt_template="Lead.", uses=[agent])

    def reply(request: Any) -> Any:
        if request.transcript[0].text == "Lead.":
            return ToolUse("1", "find")
        return ToolUse("2", "look")

    with world.runtime(boss, models=ScriptedModel(reply), on_budget="pause") as runtime:
        node = runtime.invoke(boss, key="a", budget=Budget(calls=2))
        runtime.answer(question_of(runtime).id, "cancel")
        error = failure(node)
        assert isinstance(error, CancellationException)
        assert "the budget of boss (run 1) is used up" in str(error)
        assert runtime.questions() == []
        assert runtime.invoke(boss, key="a") is node  # a person has decided


def test_many_requests_ask_one_question(world: World):
    name = AgentFunction("name_it", "Names.", user_prompt_template="Name it.")

    async def all_of_them(ctx: RunContext) -> list[str]:
        async def one() -> str:
            return await ctx.invoke(name)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one()) for _ in range(6)]
        return [task.result() for task in tasks]

    work = CodeFunction(callable=all_of_them, uses=[name])
    with world.runtime(work, models=ScriptedModel(*["Tom"] * 6), on_budget="pause") as runtime:
        node = runtime.invoke(work, budget=Budget(calls=2))
        wait(
            lambda: sum(one.state is NodeState.Paused for one in runtime.get_subtree(node.id)) == 4
        )
        runtime.answer(question_of(runtime).id, "calls=3")
        wait(
            lambda: sum(one.state is NodeState.Paused for one in runtime.get_subtree(node.id)) == 3
        )
        runtime.answer(question_of(runtime).id, "calls=6")
        assert result(node) == ["Tom"] * 6


def test_another_request_asks_if_the_one_that_asked_is_cancelled(world: World):
    name = AgentFunction("name_it", "Names.", user_prompt_template="Name it.")

    async def any_of_them(ctx: RunContext) -> str:
        nodes = [ctx.invoke(name) for _ in range(2)]
        try:
            return await nodes[0]
        except CancellationException:
            return await nodes[1]

    work = CodeFunction(callable=any_of_them, uses=[name])
    with world.runtime(work, models=ScriptedModel("Tom"), on_budget="pause") as runtime:
        node = runtime.invoke(work, budget=Budget(calls=0))
        wait(
            lambda: sum(one.state is NodeState.Paused for one in runtime.get_subtree(node.id)) == 2
        )
        first = question_of(runtime)
        runtime.cancel(first.node_id)
        second = wait(lambda: [one for one in runtime.questions() if one.id != first.id])
        assert second[0].node_id != first.node_id
        runtime.answer(second[0].id, "calls=1")
        assert result(node) == "Tom"


def test_the_answer_holds_after_the_end_of_the_process_and_in_forks(world: World):
    agent, model = steps_of(world, 5)

    async def lead(ctx: RunContext) -> str:
        first = await ctx.invoke(agent)
        return f"{first} {await ctx.ask('Enough?')}"

    boss = CodeFunction(callable=lead, uses=[agent])
    options: dict[str, Any] = {"models": model, "on_budget": "pause"}
    with world.runtime(boss, **options) as runtime:
        node = runtime.invoke(boss, budget=Budget(calls=2))
        question_of(runtime)
    with attach(world.file) as observer:
        [question] = observer.questions()
        observer.answer(question.id, "calls=3")
    with world.runtime(boss, **options) as runtime:
        question = question_of(runtime)
        assert "3 of 3" in question.text
        runtime.answer(question.id, "calls=5")
        wait(lambda: [one for one in runtime.questions() if one.kind is QuestionKind.Human])
    with world.runtime(boss, **options) as runtime:
        [node] = runtime.recover()
        [question] = runtime.questions()
        runtime.answer(question.id, "yes")
        assert result(node) == "found yes"
        # A fork after the answers has the budget that they gave, and no more.
        found = next(one for one in runtime.get_subtree(node.id) if one.function is agent)
        forked = runtime.fork(found, at=4)
        human = wait(lambda: [one for one in runtime.questions() if one.kind is QuestionKind.Human])
        runtime.answer((human or [])[0].id, "yes")
        assert result(forked) == "found yes"
    assert world.told("paid", "n") == [0, 1, 2, 3, 4, 4]


def test_resuming_with_a_budget_answers_the_question(world: World):
    agent, model = steps_of(world, 3)
    with world.runtime(agent, models=model, on_budget="pause") as runtime:
        node = runtime.invoke(agent, budget=Budget(calls=1))
        question_of(runtime)
        with pytest.raises(UsageError):
            runtime.resume(node.id)
        runtime.resume(node.id, budget=Budget(calls=2))
        assert "2 of 2" in question_of(runtime).text
        with attach(world.file) as observer:
            wait(observer.questions)
            observer.resume(node.id, budget=Budget(calls=3))
            assert result(node) == "found"


def test_what_is_asked_is_an_option():
    with pytest.raises(InvalidValueError, match="on_budget must be 'raise' or 'pause'"):
        Runtime(on_budget="ask")  # pyright: ignore[reportArgumentType]


def test_time_that_is_over_is_not_asked_for(world: World):
    agent = AgentFunction("find", "Finds.", user_prompt_template="Find.")
    with world.runtime(agent, models=ScriptedModel("found"), on_budget="pause") as runtime:
        node = runtime.invoke(agent, budget=Budget(seconds=0))
        assert isinstance(failure(node), BudgetExceeded)
