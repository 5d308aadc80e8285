"""Questions that outlive the program that asked them."""

import asyncio
from typing import Any

import pytest

from journal.processes import Lives, World, answer_in_turn, question_of, result
from support import wait
from treefold import (
    AgentFunction,
    CancellationException,
    CodeFunction,
    NodeState,
    QuestionKind,
    RunContext,
    SqliteStore,
    ToolUse,
)
from treefold.core.errors import InvalidValueError, UnknownQuestionError
from treefold.toolbox import human_in_loop


def asking(world: World) -> CodeFunction:
    step = world.tool("step")

    async def ask(ctx: RunContext) -> list[str]:
        world.add("run")
        return [
            await ctx.invoke(step, {"n": 1}),
            await ctx.ask("Which colour?", ["red", "blue"]),
            await ctx.ask("And then?"),
            await ctx.ask("Which colour?", ["red", "blue"]),
            await ctx.invoke(step, {"n": 2}),
        ]

    return CodeFunction(callable=ask, uses=[step])


def dies_asking(world: World) -> None:
    ask = asking(world)
    with world.runtime(ask) as runtime:
        runtime.invoke(ask)
        world.add("question", question=repr(world.kept_questions()[0]))
        world.die()


def answers_one_and_dies(world: World) -> None:
    ask = asking(world)
    with world.runtime(ask) as runtime:
        question = question_of(runtime)
        runtime.answer(question.id, {"Which colour?": "red", "And then?": "so what"}[question.text])
        wait(lambda: [q for q in world.kept_questions() if q.id != question.id])
        world.add("question", question=repr(question_of(runtime)))
        world.die()


def test_questions_are_listed_under_the_same_ids_and_answers_reach_the_call(
    world: World, lives: Lives
):
    lives.killed(dies_asking, world)
    ask = asking(world)
    with world.runtime(ask) as runtime:
        question = question_of(runtime)
        assert [repr(question)] == world.told("question", "question")
        with pytest.raises(InvalidValueError):
            runtime.answer(question.id, "green")
        runtime.answer(question.id, "blue")
        with pytest.raises(UnknownQuestionError):
            runtime.answer(question.id, "blue")
        [node] = runtime.recover()
        then, last = answer_in_turn(runtime, "well", "red")
        assert (then.text, last.text) == ("And then?", "Which colour?")
        assert len({question.id, then.id, last.id}) == 3
        assert result(node) == ["step 1", "blue", "well", "red", "step 2"]
    assert world.done("step") == 2


def test_code_that_is_run_again_gets_the_answers_that_were_given(world: World, lives: Lives):
    lives.killed(dies_asking, world)
    lives.killed(answers_one_and_dies, world)
    lives.killed(answers_one_and_dies, world)
    questions = world.told("question", "question")
    assert len(set(questions)) == 3
    ask = asking(world)
    with world.runtime(ask) as runtime:
        question = question_of(runtime)
        assert repr(question) == questions[-1]
        runtime.answer(question.id, "blue")
        [node] = runtime.recover()
        assert result(node) == ["step 1", "red", "so what", "blue", "step 2"]
    assert world.told("step", "n") == [1, 2]


def test_nothing_of_a_parked_tree_is_started_until_an_answer_comes(world: World, lives: Lives):
    lives.killed(dies_asking, world)
    ran = world.done("run")
    ask = asking(world)
    with world.runtime(ask) as runtime:
        [node] = runtime.recover()
        question = question_of(runtime)
        step = world.tool("another")
        result(runtime.invoke(step))  # something else runs meanwhile
        assert world.done("run") == ran
        assert node.state is NodeState.Paused
        assert runtime.get_view(node.id).questions == (question,)
        runtime.answer(question.id, "red")
        wait(lambda: world.done("run") > ran)
        answer_in_turn(runtime, "then", "blue")
        assert result(node) == ["step 1", "red", "then", "blue", "step 2"]


def test_a_parked_tree_is_one_in_the_list_of_trees(world: World, lives: Lives):
    lives.killed(dies_asking, world)
    store = SqliteStore(world.file)
    [row] = store.trees()
    assert (row.function, row.open, row.parked) == ("ask", True, True)
    [question] = store.questions()
    assert [repr(question)] == world.told("question", "question")
    store.close()


def test_a_parked_tree_can_be_cancelled(world: World, lives: Lives):
    lives.killed(dies_asking, world)
    ask = asking(world)
    with world.runtime(ask) as runtime:
        [node] = runtime.recover()
        runtime.cancel(node.id, "no longer needed")
        with pytest.raises(CancellationException, match="no longer needed"):
            result(node)
        assert world.kinds(node)[-1] == "CallEnded"
        assert runtime.questions() == []
    with world.runtime(ask) as runtime:
        assert runtime.recover() == []
        assert [one.state for one in runtime.list_toplevel()] == [NodeState.Canceled]
    assert world.done("run") == 1


# --- answers that come early


def busy(world: World) -> CodeFunction:
    """Code that waits for a person and for something else, so that it is not parked."""

    async def choose(ctx: RunContext) -> str:
        return await ctx.ask("Which colour?")

    async def work(ctx: RunContext) -> str:
        world.add("work")
        if world.mortal:
            await asyncio.Event().wait()
        return "worked"

    choosing = CodeFunction(callable=choose, repeatable=True)
    working = CodeFunction(callable=work, repeatable=True)
    paying = world.tool("pay", dies=not world.done("pay"))

    async def both(ctx: RunContext, pay: bool) -> list[str]:  # noqa: FBT001 - an argument
        nodes = [ctx.invoke(working), ctx.invoke(paying if pay else choosing)]
        return [await node for node in nodes]

    return CodeFunction(callable=both, uses=[choosing, working, paying])


def dies_choosing(world: World) -> None:
    both = busy(world)
    with world.runtime(both) as runtime:
        runtime.invoke(both, {"pay": False})
        wait(lambda: world.done("work"))
        world.kept_questions()
        world.die()


async def test_an_answer_that_comes_before_the_call_asks_again_reaches_it(
    world: World, lives: Lives
):
    lives.killed(dies_choosing, world)
    both = busy(world)
    async with asyncio.timeout(60), world.runtime(both) as runtime:
        [question] = runtime.questions()
        runtime.answer(question.id, "red")  # nothing has been started yet
        [node] = runtime.recover()
        assert await node == ["worked", "red"]


def dies_busy_paying(world: World) -> None:
    both = busy(world)
    with world.runtime(both) as runtime:
        result(runtime.invoke(both, {"pay": True}))


def dies_in_doubt(world: World) -> None:
    with world.runtime(busy(world)):
        world.kept_questions()
        world.die()


async def test_a_decision_that_comes_before_the_call_asks_again_reaches_it(
    world: World, lives: Lives
):
    lives.killed(dies_busy_paying, world)
    lives.killed(dies_in_doubt, world)
    both = busy(world)
    async with asyncio.timeout(60), world.runtime(both) as runtime:
        [question] = runtime.questions()
        assert question.kind is QuestionKind.InDoubt
        runtime.answer(question.id, "retry")
        [node] = runtime.recover()
        assert await node == ["worked", "pay 0"]
    assert world.done("pay") == 2


# --- agents that ask people


def boss_of(world: World) -> AgentFunction:
    return AgentFunction(
        "boss", "", user_prompt_template="Lead.", uses=[human_in_loop, world.tool("look")]
    )


def last_result(request: Any) -> str:
    return request.transcript[-1].content


SCRIPT = [
    [ToolUse("1", "look", {"n": 1})],
    [ToolUse("2", "human_in_loop", {"question": "Which city?", "choices": ["Rome", "Oslo"]})],
    last_result,
]


def dies_while_an_agent_asks(world: World) -> None:
    boss = boss_of(world)
    with world.runtime(boss, models=world.model(*SCRIPT)) as runtime:
        runtime.invoke(boss)
        world.add("question", question=repr(world.kept_questions()[0]))
        world.die()


def test_a_question_of_an_agent_waits_for_its_answer_and_nobody_is_asked_twice(
    world: World, lives: Lives
):
    lives.killed(dies_while_an_agent_asks, world)
    boss = boss_of(world)
    with world.runtime(boss, models=world.model(*SCRIPT)) as runtime:
        question = question_of(runtime)
        assert question.kind is QuestionKind.Human
        assert [repr(question)] == world.told("question", "question")
        [node] = runtime.recover()
        assert world.done("request") == 2
        runtime.answer(question.id, "Oslo")
        assert result(node) == "Oslo"
        assert runtime.questions() == []
    assert world.all_done == {"look": 1, "question": 1, "request": 3}


async def test_a_question_of_an_agent_is_answered_in_a_loop(world: World, lives: Lives):
    lives.killed(dies_while_an_agent_asks, world)
    boss = boss_of(world)
    async with (
        asyncio.timeout(60),
        world.runtime(boss, models=world.model(*SCRIPT)) as runtime,
    ):
        [question] = runtime.questions()
        runtime.answer(question.id, "Rome")
        [node] = runtime.list_toplevel()
        assert await node == "Rome"


# --- pauses


def dies_paused(world: World) -> None:
    ask = asking(world)
    with world.runtime(ask) as runtime:
        node = runtime.invoke(ask)
        question = question_of(runtime)
        runtime.pause(node.id, "lunch")
        kept = world.kept_questions(2)
        world.add("pause", ids=sorted(q.id for q in kept), asked=question.id)
        world.die()


def test_a_pause_lasts_until_somebody_resumes(world: World, lives: Lives):
    lives.killed(dies_paused, world)
    ask = asking(world)
    with world.runtime(ask) as runtime:
        [node] = runtime.recover()
        wait(lambda: len(runtime.questions()) == 2)
        assert [sorted(q.id for q in runtime.questions())] == world.told("pause", "ids")
        [pause] = [q for q in runtime.questions() if q.kind is QuestionKind.Paused]
        assert "lunch" in pause.text
        [asked] = world.told("pause", "asked")
        runtime.answer(asked, "red")
        runtime.resume(node.id)
        answer_in_turn(runtime, "then", "blue")
        assert result(node) == ["step 1", "red", "then", "blue", "step 2"]
    assert world.told("step", "n") == [1, 2]
