"""Ensemble and ThinkMore around agents of any kind."""

from typing import Any, cast

import pytest

from agent_scripts import asked, run
from treefold import (
    AgentFunction,
    Ensemble,
    Function,
    FunctionArg,
    Runtime,
    ThinkMore,
    TreefoldError,
    agent,
)
from treefold.testing import ScriptedModel


def greet() -> AgentFunction:
    return AgentFunction("greet", "", user_prompt_template="Say hello.")


async def test_an_agent_with_an_argument_called_answer_thinks_more():
    @agent
    def grade(question: str, answer: str) -> str:
        return f"Grade the answer {answer!r} to {question!r}."

    model = ScriptedModel("C", "B", "A")
    args = {"question": "2 + 2?", "answer": "4"}
    node = await run(ThinkMore(grade, rounds=2), args, models=model)
    assert node.outputs == "A"
    assert all(asked(one).startswith("Grade the answer '4' to '2 + 2?'.") for one in model.requests)
    assert "<answer>\nB\n</answer>" in asked(model.requests[2])


async def test_an_agent_with_an_argument_called_candidates_can_be_an_ensemble():
    elect = AgentFunction(
        "elect", "", args=[FunctionArg("candidates", str)], user_prompt_template="{candidates}?"
    )
    model = ScriptedModel("Ann", "Bob", "Ann")
    node = await run(Ensemble(elect, {"x": 2}), {"candidates": "Ann, Bob"}, models={"x": model})
    assert node.outputs == "Ann"
    assert asked(model.requests[2]).startswith("Ann, Bob?\n")


@pytest.mark.parametrize("wrap", [ThinkMore, lambda agent: Ensemble(agent, {"x": 2})])
def test_what_is_no_agent_cannot_be_wrapped(wrap: Any):
    with pytest.raises(TreefoldError, match="needs an AgentFunction, not 'greet'"):
        wrap(cast("Any", "greet"))


def wrappings(agent: AgentFunction) -> list[list[Function]]:
    return [
        [ThinkMore(agent, name="first"), ThinkMore(agent, rounds=2, name="second")],
        [Ensemble(agent, {"x": 2}, name="first"), Ensemble(agent, {"x": 3}, name="second")],
    ]


@pytest.mark.parametrize("wrapped", wrappings(greet()))
def test_one_agent_may_be_wrapped_twice_under_two_names(wrapped: list[Function]):
    boss = AgentFunction("boss", "", user_prompt_template="Work.", uses=wrapped)
    runtime = Runtime([boss], models={"x": ScriptedModel()})
    assert {"first", "second", "greet"} < set(runtime.invocable_functions)


async def test_answers_are_shown_as_they_are_to_who_reconciles_them():
    model = ScriptedModel("{count}", "{candidates}", "done")
    await run(Ensemble(greet(), {"x": 2}), models={"x": model})
    told = asked(model.requests[2])
    assert '<answer number="1">\n{count}\n</answer>' in told
    assert '<answer number="2">\n{candidates}\n</answer>' in told
