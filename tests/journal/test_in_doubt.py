"""Calls whose end is unknown after a crash."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from journal.processes import Lives, World, failure, question_of, result
from support import wait
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    CodeFunction,
    HookDecision,
    InDoubtError,
    NodeState,
    PreToolUseEvent,
    QuestionKind,
    RunContext,
    ToolUse,
)
from treefold.core.errors import InvalidValueError


def pay_of(world: World, **options: Any) -> CodeFunction:
    return world.tool("pay", dies=True, **options)


def dies_while_paying(world: World) -> None:
    pay = pay_of(world)
    with world.runtime(pay) as runtime:
        result(runtime.invoke(pay, {"n": 3}))


def dies_while_paying_repeatably(world: World) -> None:
    pay = pay_of(world, repeatable=True)
    with world.runtime(pay) as runtime:
        result(runtime.invoke(pay, {"n": 3}))


def test_repeatable_code_is_run_again(world: World, lives: Lives):
    lives.killed(dies_while_paying_repeatably, world)
    pay = pay_of(world, repeatable=True)
    with world.runtime(pay) as runtime:
        [node] = runtime.recover()
        assert result(node) == "pay 3"
        assert runtime.questions() == []
    assert world.done("pay") == 2


@pytest.mark.parametrize("options", [{}, {"repeatable": None}, {"repeatable": False}], ids=str)
def test_other_code_is_in_doubt(world: World, lives: Lives, options: dict[str, Any]):
    lives.killed(dies_while_paying, world)
    pay = pay_of(world, **options)
    with world.runtime(pay) as runtime:
        [node] = runtime.recover()
        question = question_of(runtime)
        assert question.kind is QuestionKind.InDoubt
        assert question.kind == "in_doubt"
        assert question.node_id == node.id
        assert question.choices == ("retry", "use", "fail")
        assert "pay" in question.text
        assert node.state is NodeState.Paused
        assert world.done("pay") == 1
        runtime.answer(question.id, "retry")
        assert result(node) == "pay 3"
        assert runtime.questions() == []
    assert world.done("pay") == 2
    assert len(set(world.told("pay", "key"))) == 1


def test_a_call_in_doubt_can_be_said_to_have_returned_something(world: World, lives: Lives):
    lives.killed(dies_while_paying, world)
    pay = pay_of(world)
    with world.runtime(pay) as runtime:
        [node] = runtime.recover()
        runtime.answer(question_of(runtime).id, "use: it was paid: twice ")
        assert result(node).strip() == "it was paid: twice"
        assert node.state is NodeState.Success
    assert world.done("pay") == 1
    with world.runtime(pay) as runtime:
        [node] = runtime.list_toplevel()
        assert result(node).strip() == "it was paid: twice"


@pytest.mark.parametrize("text", ["fail", "fail: nobody knows", "Fail : nobody knows"])
def test_a_call_in_doubt_can_be_said_to_have_failed(world: World, lives: Lives, text: str):
    lives.killed(dies_while_paying, world)
    pay = pay_of(world)
    with world.runtime(pay) as runtime:
        [node] = runtime.recover()
        runtime.answer(question_of(runtime).id, text)
        error = failure(node)
        assert isinstance(error, InDoubtError)
        assert "nobody knows" in str(error) or text == "fail"
        assert node.state is NodeState.Error
    assert world.done("pay") == 1


@pytest.mark.parametrize("text", ["", "yes", "again", "retry now", "fail nobody", "use"])
def test_what_answers_nothing_leaves_the_question_open(world: World, lives: Lives, text: str):
    lives.killed(dies_while_paying, world)
    pay = pay_of(world)
    with world.runtime(pay) as runtime:
        [node] = runtime.recover()
        question = question_of(runtime)
        with pytest.raises(InvalidValueError, match="retry"):
            runtime.answer(question.id, text)
        assert runtime.questions() == [question]
        runtime.answer(question.id, "retry")
        assert result(node) == "pay 3"


# --- the text of a result is read as the annotation says


@dataclass
class Receipt:
    number: int
    items: list[str]


def typed(world: World, kind: Any) -> CodeFunction:
    async def buy(ctx: RunContext) -> Any:
        world.add("buy")
        world.die()

    buy.__annotations__["return"] = kind
    return CodeFunction(callable=buy)


def dies_while_buying(world: World) -> None:
    buy = typed(world, Any)
    with world.runtime(buy) as runtime:
        result(runtime.invoke(buy))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (str, "use: 12", "12"),
        (str, 'use: "quoted"', '"quoted"'),
        (str, "use: {}", "{}"),
        (int, "use: 12", 12),
        (list[int], "use: [1, 2]", [1, 2]),
        (Receipt, 'use: {"number": 1, "items": ["a"]}', Receipt(1, ["a"])),
        (dict[str, int], 'use: {"a": 1}', {"a": 1}),
        (bool, "use: true", True),
    ],
)
def test_a_result_that_is_given_is_read_as_the_annotation_says(
    world: World, lives: Lives, kind: Any, text: str, value: Any
):
    lives.killed(dies_while_buying, world)
    buy = typed(world, kind)
    with world.runtime(buy) as runtime:
        [node] = runtime.recover()
        runtime.answer(question_of(runtime).id, text)
        assert result(node) == value
        assert type(result(node)) is type(value)


@pytest.mark.parametrize("text", ["use: twelve", "use: [1, 2", 'use: "12 apples"'])
def test_a_result_that_does_not_fit_is_no_answer(world: World, lives: Lives, text: str):
    lives.killed(dies_while_buying, world)
    buy = typed(world, int)
    with world.runtime(buy) as runtime:
        [node] = runtime.recover()
        with suppress(InvalidValueError):  # or somebody is asked again
            runtime.answer(question_of(runtime).id, text)
        runtime.answer(question_of(runtime).id, "use: 12")
        assert result(node) == 12
    assert world.done("buy") == 1


# --- code that may call others


def composite(world: World, **options: Any) -> CodeFunction:
    step = world.tool("step", dies=True, repeatable=True)

    async def compose(ctx: RunContext) -> str:
        world.add("compose")
        return await ctx.invoke(step)

    return CodeFunction(callable=compose, uses=[step], **options)


def dies_in_a_call_below(world: World) -> None:
    compose = composite(world)
    with world.runtime(compose) as runtime:
        result(runtime.invoke(compose))


def test_code_that_may_call_others_is_run_again(world: World, lives: Lives):
    lives.killed(dies_in_a_call_below, world)
    compose = composite(world)
    with world.runtime(compose) as runtime:
        [node] = runtime.recover()
        assert result(node) == "step 0"
        assert runtime.questions() == []
    assert world.all_done == {"compose": 2, "step": 2}


def dies_in_a_call_below_what_cannot_be_repeated(world: World) -> None:
    compose = composite(world, repeatable=False)
    with world.runtime(compose) as runtime:
        result(runtime.invoke(compose))


def test_code_that_may_call_others_and_cannot_be_repeated_is_in_doubt(world: World, lives: Lives):
    lives.killed(dies_in_a_call_below_what_cannot_be_repeated, world)
    compose = composite(world, repeatable=False)
    with world.runtime(compose) as runtime:
        [node] = runtime.recover()
        question = question_of(runtime)
        assert (question.kind, question.node_id) == (QuestionKind.InDoubt, node.id)
        assert world.all_done == {"compose": 1, "step": 1}
        runtime.answer(question.id, "retry")
        assert result(node) == "step 0"
    assert world.all_done == {"compose": 2, "step": 2}


def test_what_is_in_doubt_above_may_be_settled_without_its_calls(world: World, lives: Lives):
    lives.killed(dies_in_a_call_below_what_cannot_be_repeated, world)
    compose = composite(world, repeatable=False)
    with world.runtime(compose) as runtime:
        [node] = runtime.recover()
        runtime.answer(question_of(runtime).id, 'use: "given"')
        assert "given" in result(node)
        assert all(one.state.final for one in runtime.get_subtree(node.id))
    assert world.all_done == {"compose": 1, "step": 1}


# --- each run has its own decision


def retries_and_dies(world: World) -> None:
    pay = pay_of(world)
    with world.runtime(pay) as runtime:
        [node] = runtime.recover()
        world.add("asked", id=question_of(runtime).id)
        runtime.answer(question_of(runtime).id, "retry")
        result(node)


def test_a_crash_after_a_retry_began_asks_again(world: World, lives: Lives):
    lives.killed(dies_while_paying, world)
    lives.killed(retries_and_dies, world)
    lives.killed(retries_and_dies, world)
    assert world.done("pay") == 3
    pay = pay_of(world)
    with world.runtime(pay) as runtime:
        [node] = runtime.recover()
        question = question_of(runtime)
        assert question.id not in world.told("asked", "id")
        assert len(set(world.told("asked", "id"))) == 2
        runtime.answer(question.id, "retry")
        assert result(node) == "pay 3"
    keys = world.told("pay", "key")
    assert (len(keys), len(set(keys))) == (4, 1)


def looks_and_dies(world: World) -> None:
    pay = pay_of(world)
    with world.runtime(pay):
        world.add("asked", id=world.kept_questions()[0].id)
        world.die()


def test_a_question_that_nobody_answered_is_the_same_after_each_crash(world: World, lives: Lives):
    lives.killed(dies_while_paying, world)
    for _ in range(3):
        lives.killed(looks_and_dies, world)
    assert len(set(world.told("asked", "id"))) == 1
    pay = pay_of(world)
    with world.runtime(pay) as runtime:
        [node] = runtime.recover()
        [question] = wait(runtime.questions)
        assert [question.id] == list(set(world.told("asked", "id")))
        runtime.answer(question.id, "use: paid")
        assert result(node) == "paid"
    assert world.done("pay") == 1


# --- calls of agents


def buyer(world: World) -> AgentFunction:
    return AgentFunction(
        "buyer", "", user_prompt_template="Buy.", uses=[pay_of(world), world.tool("look")]
    )


def result_shown(request: Any) -> str:
    part = request.transcript[-1]
    return f"{part.content} {part.is_error}"


CALLS = [[ToolUse("1", "pay", {"n": 3})], result_shown]


def dies_while_an_agent_pays(world: World) -> None:
    agent = buyer(world)
    with world.runtime(agent, models=world.model(*CALLS)) as runtime:
        result(runtime.invoke(agent))


@pytest.mark.parametrize(
    ("text", "told", "paid"),
    [("retry", "pay 3", 2), ("use: it was paid", "it was paid", 1), ("fail", "InDoubtError", 1)],
)
def test_an_agent_is_told_what_was_decided(
    world: World, lives: Lives, text: str, told: str, paid: int
):
    lives.killed(dies_while_an_agent_pays, world)
    agent = buyer(world)
    with world.runtime(agent, models=world.model(*CALLS)) as runtime:
        [node] = runtime.recover()
        question = question_of(runtime)
        assert runtime.get_view(question.node_id).path == "1.1"
        runtime.answer(question.id, text)
        assert result(node).startswith(told)
    assert world.done("pay") == paid
    assert world.done("request") == 2


async def approving(event: PreToolUseEvent) -> HookDecision:
    return HookDecision(ask="May it pay?")


def dies_before_the_approval(world: World) -> None:
    agent = buyer(world)
    hooks: Any = {HOOK_PRE_TOOL_USE: [approving]}
    with world.runtime(agent, models=world.model(*CALLS), hooks=hooks) as runtime:
        runtime.invoke(agent)
        world.add("asked", id=world.kept_questions()[0].id)
        world.die()


@pytest.mark.parametrize(("text", "told"), [("allow", "pay 3"), ("deny: no", "DeniedError")])
def test_a_call_that_waited_for_an_approval_is_not_in_doubt(
    world: World, lives: Lives, text: str, told: str
):
    lives.killed(dies_before_the_approval, world)
    agent = buyer(world)
    hooks: Any = {HOOK_PRE_TOOL_USE: [approving]}
    with world.runtime(agent, models=world.model(*CALLS), hooks=hooks) as runtime:
        [node] = runtime.recover()
        question = question_of(runtime)
        assert question.kind is QuestionKind.Approval
        assert [question.id] == world.told("asked", "id")
        runtime.answer(question.id, text)
        assert result(node).startswith(told)
    assert world.done("pay") == (text == "allow")


def dies_after_the_approval(world: World) -> None:
    agent = buyer(world)
    hooks: Any = {HOOK_PRE_TOOL_USE: [approving]}
    with world.runtime(agent, models=world.model(*CALLS), hooks=hooks) as runtime:
        node = runtime.invoke(agent)
        runtime.answer(question_of(runtime).id, args={"n": 5})
        result(node)


def test_a_call_that_was_approved_and_had_begun_is_in_doubt(world: World, lives: Lives):
    lives.killed(dies_after_the_approval, world)
    assert world.told("pay", "n") == [5]
    agent = buyer(world)
    hooks: Any = {HOOK_PRE_TOOL_USE: [approving]}
    with world.runtime(agent, models=world.model(*CALLS), hooks=hooks) as runtime:
        [node] = runtime.recover()
        question = question_of(runtime)
        assert question.kind is QuestionKind.InDoubt
        runtime.answer(question.id, "retry")
        assert result(node).startswith("pay 5")
    assert world.told("pay", "n") == [5, 5]
