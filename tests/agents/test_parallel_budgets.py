"""Budgets that many requests draw on at the same time: together they do not exceed them."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from agent_scripts import StagedModel, ended, until
from support import settle
from treefold import (
    AgentFunction,
    Budget,
    BudgetExceeded,
    CodeFunction,
    Limits,
    NodeState,
    RunContext,
    Runtime,
    TokenUsage,
    ToolResult,
    ToolUse,
)
from treefold.models import ModelSettings
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.testing.scripted import ScriptedEndpoint

EACH = 500  # tokens of a request, about all of them for its answer


def a_cent_per_token(usage: TokenUsage) -> Decimal:
    return Decimal(usage.total) / 100


class TalkativeModel(ScriptedModel):
    """Answers with so many tokens, in turn."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__(lambda _: "done", price=a_cent_per_token)
        self._sizes: Iterator[int] = cycle(sizes)

    def endpoint(self) -> ScriptedEndpoint:
        return ScriptedEndpoint(self._next_reply, TokenUsage(output=next(self._sizes)))


def answerer(**options: Any) -> AgentFunction:
    return AgentFunction("answerer", "", user_prompt_template="Answer.", **options)


def fan_out(agent: AgentFunction, calls: int, **options: Any) -> CodeFunction:
    """Return a function that makes *calls* at once, and returns how many were answered."""

    async def lead(ctx: RunContext) -> int:
        nodes = [await ended(node) for node in [ctx.invoke(agent) for _ in range(calls)]]
        failures = [node.exception for node in nodes if node.exception is not None]
        assert all(isinstance(failure, BudgetExceeded) for failure in failures)
        return calls - len(failures)

    return CodeFunction(callable=lead, uses=[agent], **options)


@pytest.mark.parametrize("budget", [Budget(tokens=1000), Budget(usd=10)])
@pytest.mark.parametrize("where", ["call", "function", "runtime"])
async def test_parallel_requests_do_not_overdraw_a_budget_together(budget: Budget, where: str):
    model = TalkativeModel([EACH])
    lead = fan_out(answerer(), 60, budget=budget if where == "function" else None)
    common = budget if where == "runtime" else None
    async with Runtime([lead], models=model, limits=Limits(50), budget=common) as runtime:
        node = await ended(runtime.invoke(lead, budget=budget if where == "call" else None))
    assert node.outputs == 2
    assert node.total_usage.total == 2 * EACH


async def test_trees_do_not_overdraw_the_budget_of_their_runtime_together():
    model, agent = TalkativeModel([EACH]), answerer()
    async with Runtime(
        [agent], models=model, limits=Limits(50), budget=Budget(tokens=5 * EACH - 10)
    ) as runtime:
        nodes = [await ended(node) for node in [runtime.invoke(agent) for _ in range(60)]]
    assert [node.state for node in nodes].count(NodeState.Success) == 5


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 400) | st.integers(0, 60_000), min_size=1, max_size=20),
    budget=st.integers(10, 3000) | st.integers(10, 500_000),
    inner=st.integers(10, 3000) | st.integers(10, 500_000),
    limit=st.integers(1, 50),
    bound=st.sampled_from(["unknown", "max_tokens", "longest answer", "window"]),
    unit=st.sampled_from(["tokens", "usd"]),
)
def test_a_budget_is_exceeded_by_one_answer_at_most(
    sizes: list[int], budget: int, inner: int, limit: int, bound: str, unit: str
):
    longest = max(sizes) + 1
    model, settings = TalkativeModel(sizes), None
    if bound == "max_tokens":
        settings = ModelSettings(max_tokens=longest)
    elif bound == "longest answer":
        model.profile = replace(model.profile, longest_answer=longest)
    elif bound == "window":
        model.profile = replace(model.profile, context_window=longest + 500)

    def of(amount: int) -> Budget:
        return Budget(tokens=amount) if unit == "tokens" else Budget(usd=Decimal(amount) / 100)

    lead = fan_out(answerer(settings=settings), 10, budget=of(inner))

    async def main() -> int:
        async with (
            asyncio.timeout(60),
            Runtime([lead], models=model, limits=Limits(limit), budget=of(budget)) as runtime,
        ):
            nodes = [await ended(node) for node in [runtime.invoke(lead) for _ in range(3)]]
            assert all(node.total_usage.total <= inner + max(sizes) for node in nodes)
            return sum(node.total_usage.total for node in nodes)

    assert asyncio.run(main()) <= budget + max(sizes)


@pytest.mark.parametrize("unit", ["tokens", "usd"])
async def test_long_answers_after_short_ones_exceed_a_budget_by_one_of_them_at_most(unit: str):
    long = 40_000
    model, agent = TalkativeModel([*[10] * 5, *[long] * 60]), answerer()
    budget = Budget(tokens=400_000) if unit == "tokens" else Budget(usd=4000)
    async with Runtime([agent], models=model, limits=Limits(50), budget=budget) as runtime:
        for _ in range(5):
            await runtime.invoke(agent)
        nodes = [await ended(node) for node in [runtime.invoke(agent) for _ in range(60)]]
    assert {type(node.exception) for node in nodes} == {type(None), BudgetExceeded}
    spent = 50 + sum(node.total_usage.total for node in nodes)
    assert 400_000 - 10 < spent <= 400_000 + long


async def test_answers_of_every_size_leave_little_of_a_budget_unused():
    model, agent = TalkativeModel([100, 20_000]), answerer()
    async with Runtime(
        [agent], models=model, limits=Limits(50), budget=Budget(tokens=500_000)
    ) as runtime:
        nodes = [await ended(node) for node in [runtime.invoke(agent) for _ in range(200)]]
    assert 499_900 < sum(node.total_usage.total for node in nodes) <= 520_000


async def test_a_request_alone_is_made_however_little_is_left_for_its_answer():
    agent = answerer(settings=ModelSettings(max_tokens=100_000))
    lead = fan_out(agent, 4)
    async with Runtime([lead], models=TalkativeModel([30]), budget=Budget(tokens=100)) as runtime:
        assert await runtime.invoke(lead) == 4


async def test_requests_of_a_large_budget_do_not_wait_for_each_other():
    model = StagedModel(ScriptedModel(lambda _: "done"), held=True)
    lead = fan_out(answerer(settings=ModelSettings(max_tokens=32_000)), 8)
    async with Runtime([lead], models=model, budget=Budget(tokens=300_000)) as runtime:
        node = runtime.invoke(lead)
        await until(lambda: model.in_flight == 8)
        model.gate.set()
        assert await node == 8


async def test_a_request_that_waits_for_a_budget_says_so_and_can_be_cancelled():
    model = StagedModel(ScriptedModel(lambda _: "done"), held=True)
    agent = answerer()
    async with Runtime([agent], models=model, budget=Budget(tokens=1000)) as runtime:
        first = runtime.invoke(agent)
        await until(lambda: model.in_flight == 1)
        second, third = runtime.invoke(agent), runtime.invoke(agent)
        await until(lambda: "budget of the runtime" in runtime.get_view(third.id).status)
        assert runtime.get_view(second.id).status == (
            "waits for other requests that the budget of the runtime is reserved for"
        )
        runtime.cancel(second.id)
        assert (await ended(second)).state is NodeState.Canceled
        await settle()
        assert model.in_flight == 1
        model.gate.set()
        assert [await first, await third] == ["done", "done"]


async def test_a_request_that_waits_for_a_budget_holds_no_slot_of_its_provider():
    rich, poor = answerer(), AgentFunction("poor", "", user_prompt_template="Answer.")
    model = StagedModel(ScriptedModel(lambda _: "done"), held=True)
    limits = Limits(8, per_provider={model.provider: 2})
    lead = fan_out(poor, 3, budget=Budget(tokens=100))
    async with Runtime([lead, rich], models=model, limits=limits) as runtime:
        waiting = runtime.invoke(lead)
        await until(lambda: model.in_flight == 1)
        other = runtime.invoke(rich)
        await until(lambda: model.in_flight == 2)
        model.gate.set()
        assert (await waiting, await other) == (3, "done")


async def test_agents_that_wait_for_each_other_and_for_a_budget_come_to_an_end():
    def reply(request: ScriptedRequest) -> Any:
        if request.functions and not isinstance(request.transcript[-1], ToolResult):
            return [ToolUse(str(n), "answerer") for n in range(3)]
        return "done"

    model = ScriptedModel(reply, usage=TokenUsage(input=5, output=5))
    below = answerer()
    above = AgentFunction("above", "", user_prompt_template="Lead.", uses=[below])
    async with Runtime(
        [above], models=model, limits=Limits(2), budget=Budget(tokens=400)
    ) as runtime:
        nodes = [await ended(node) for node in [runtime.invoke(above) for _ in range(12)]]
    spent = sum(node.total_usage.total for node in nodes)
    assert 380 <= spent <= 410
    failures = [node.exception for node in nodes if node.exception is not None]
    assert all(isinstance(failure, BudgetExceeded) for failure in failures)


async def test_what_was_not_answered_is_not_reserved_any_more():
    model = StagedModel(ScriptedModel(lambda _: "done"), held=True)
    agent = answerer()
    async with Runtime([agent], models=model, budget=Budget(tokens=1000)) as runtime:
        first = runtime.invoke(agent)
        await until(lambda: model.in_flight == 1)
        second = runtime.invoke(agent)
        await until(lambda: "budget" in runtime.get_view(second.id).status)
        runtime.cancel(first.id)
        await until(lambda: model.in_flight == 1 and runtime.get_view(first.id).state.final)
        model.gate.set()
        assert await second == "done"
