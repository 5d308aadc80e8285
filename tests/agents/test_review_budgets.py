"""Budgets inside budgets, and what becomes of them when something goes wrong."""

from decimal import Decimal
from typing import Any

from agent_scripts import run_agent
from ramify import (
    AgentFunction,
    Budget,
    BudgetExceeded,
    CodeFunction,
    TokenUsage,
    ToolUse,
)
from ramify.testing import ScriptedModel, ScriptedRequest


def looking(request: ScriptedRequest) -> Any:
    return ToolUse(f"a{len(request.transcript)}", "look")


def looker(**options: Any) -> AgentFunction:
    look = CodeFunction(name="look", callable=lambda ctx: "nothing")
    return AgentFunction("looker", "", user_prompt_template="Look.", uses=[look], **options)


async def test_a_last_call_stays_within_budgets_that_allow_none():
    model = ScriptedModel(looking)
    agent = looker(budget=Budget(calls=2, last_call=True))
    node = await run_agent(agent, models=model, budget=Budget(calls=2))
    assert isinstance(node.exception, BudgetExceeded)
    assert len(model.requests) == 2


async def test_a_price_that_cannot_be_told_costs_neither_the_answer_nor_the_budget():
    def price(usage: TokenUsage) -> Decimal:
        raise LookupError("no such model")

    node = await run_agent(looker(), models=ScriptedModel("done", price=price))
    assert (node.outputs, node.cost) == ("done", None)


async def test_no_request_is_made_when_the_time_is_over():
    model = ScriptedModel("too late")
    node = await run_agent(looker(), models=model, budget=Budget(seconds=0))
    assert isinstance(node.exception, BudgetExceeded)
    assert node.exception.limit == "0 s are over"
    assert model.requests == []


async def test_a_result_that_does_not_fit_into_the_budget_is_not_sent():
    read = CodeFunction(name="read", callable=lambda ctx: "x" * 100_000)
    model = ScriptedModel(ToolUse("1", "read"), "too much", usage=TokenUsage(input=100))
    agent = AgentFunction("reader", "", user_prompt_template="Read it.", uses=[read])
    node = await run_agent(agent, models=model, budget=Budget(tokens=10_000))
    assert isinstance(node.exception, BudgetExceeded)
    assert len(model.requests) == 1
