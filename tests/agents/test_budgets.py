"""Budgets inside budgets, and what becomes of them when something goes wrong."""

from decimal import Decimal
from typing import Any

import pytest

from agent_scripts import StagedModel, ended, run_agent, until
from treefold import (
    AgentFunction,
    Budget,
    BudgetExceeded,
    CodeFunction,
    NodeState,
    RunContext,
    Runtime,
    TokenUsage,
    ToolUse,
)
from treefold.core.agent_errors import UnknownPriceError
from treefold.core.errors import CallTimeoutError
from treefold.testing import HANGS, ScriptedFailure, ScriptedModel, ScriptedRequest


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


def a_dollar_per_token(usage: TokenUsage) -> Decimal:
    return Decimal(usage.total)


async def test_the_seconds_of_a_runtime_go_on_from_its_first_call():
    hanging = ScriptedModel(HANGS)
    model = ScriptedModel("too late")
    budget = Budget(seconds=0.05)
    async with Runtime(models=model, budget=budget) as runtime:
        first = await ended(runtime.invoke(looker(), model=hanging))
        second = await ended(runtime.invoke(looker()))
    assert isinstance(first.exception, BudgetExceeded)
    assert isinstance(second.exception, BudgetExceeded)
    assert model.requests == []


async def test_requests_that_are_under_way_count_for_a_budget():
    model = StagedModel(ScriptedModel(lambda _: "done"), held=True)
    agent = AgentFunction("agent", "", user_prompt_template="Go.")

    async def work(ctx: RunContext) -> list[NodeState]:
        nodes = [ctx.invoke(agent) for _ in range(4)]
        await until(lambda: sum(node.state is NodeState.Error for node in nodes) == 2)
        model.gate.set()
        return [(await ended(node)).state for node in nodes]

    together = CodeFunction(callable=work, uses=[agent])
    async with Runtime([together], models=model) as runtime:
        node = await ended(runtime.invoke(together, budget=Budget(calls=2)))
    assert node.outputs == [NodeState.Success] * 2 + [NodeState.Error] * 2
    assert len(model.script.requests) == 2


@pytest.mark.parametrize("budget", [Budget(tokens=1), Budget(usd=1)])
async def test_a_request_that_just_fits_is_made(budget: Budget):
    model = ScriptedModel("done", price=a_dollar_per_token)
    agent = AgentFunction("agent", "", user_prompt_template="Go.")
    node = await run_agent(agent, models=model, budget=budget)
    assert node.outputs == "done"


async def test_a_call_that_is_resumed_keeps_its_model_and_has_its_budget_anew():
    model = ScriptedModel(ToolUse("1", "look"), ScriptedFailure(400), looking)
    async with Runtime(models=ScriptedModel("another")) as runtime:
        node = await ended(runtime.invoke(looker(), model=model, budget=Budget(calls=3)))
        resumed = await ended(runtime.resume(node.id))
    assert isinstance(resumed.exception, BudgetExceeded)
    assert resumed.exception.node is resumed
    assert len(model.requests) == 2 + 3


async def test_a_call_that_is_resumed_may_take_as_long_as_the_first():
    model = ScriptedModel(ScriptedFailure(400), HANGS)
    async with Runtime(models=model) as runtime:
        node = await ended(runtime.invoke(looker(), timeout=0.1))
        resumed = await ended(runtime.resume(node.id))
    assert isinstance(resumed.exception, CallTimeoutError)


async def test_a_model_without_a_price_is_not_asked_on_a_budget_in_dollars():
    model = ScriptedModel("done")
    node = await run_agent(looker(budget=Budget(usd=100)), models=model)
    assert isinstance(node.exception, UnknownPriceError)
    assert model.requests == []


async def test_a_system_prompt_that_does_not_fit_into_the_budget_is_not_sent():
    model = ScriptedModel("done")
    agent = looker(system_prompt="x" * 4000, budget=Budget(tokens=500))
    node = await run_agent(agent, models=model)
    assert isinstance(node.exception, BudgetExceeded)
    assert model.requests == []


async def test_a_budget_of_the_runtime_is_exceeded_by_the_top_level_call():
    agent = looker()

    async def work(ctx: RunContext) -> str:
        return await ctx.invoke(agent)

    working = CodeFunction(callable=work, uses=[agent])
    async with Runtime([working], models=ScriptedModel(looking), budget=Budget(calls=1)) as runtime:
        node = await ended(runtime.invoke(working))
    assert isinstance(node.exception, BudgetExceeded)
    assert node.exception.node is node
