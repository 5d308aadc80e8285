"""Budgets that end a run, in whatever they are counted."""

import asyncio
from decimal import Decimal
from itertools import count
from typing import Any

import pytest

from agent_scripts import agent_node, ended, until
from journeys.roles import (
    REPORTED,
    Result,
    Said,
    actor,
    all_views,
    assert_same,
    call,
    children,
    playing,
    with_steps,
)
from treefold import (
    Budget,
    BudgetExceeded,
    CodeFunction,
    Function,
    NodeState,
    RunContext,
    Runtime,
    TokenUsage,
    registries,
    tool,
)
from wire import Reply, Stall, Wait
from wire.protocols import Protocol

EACH = Decimal("0.25")  # US dollars for a request, in these tests

with registries():

    @tool
    async def look(at: str = "it") -> str:
        """Look at something."""
        return f"{at} is fine"


def per_request(usage: TokenUsage) -> Decimal:
    return EACH


def after_two(protocol: Protocol, unit: str, **options: Any) -> Budget:
    """Return a budget into which two requests fit, and not a third."""
    two = 2 * REPORTED[protocol.name].total
    limits = {"calls": 2, "tokens": two + 10, "usd": Decimal("0.60")}
    return Budget(**{unit: limits[unit]}, **options)


@pytest.fixture(params=["calls", "tokens", "usd"])
def unit(request: pytest.FixtureRequest) -> str:
    return request.param


def looking(protocol: Protocol) -> Any:
    numbers = count()

    def reply(said: Said) -> Reply:
        if not said.may_call:
            return protocol.text("This far.")
        return protocol.calls(call(f"l{next(numbers)}", "look"))

    return reply


async def test_a_budget_ends_a_run(protocol: Protocol, unit: str):
    lead = actor("lead", look, budget=after_two(protocol, unit))
    async with playing(protocol, lead=looking(protocol)) as (server, play):
        model = protocol.model(server, price=per_request)
        async with Runtime([lead], models=model) as runtime:
            node = await ended(runtime.invoke(lead, {"task": "Lead."}))
            view = runtime.get_view(node.id)
            assert_same(view, node)
    error = node.exception
    assert isinstance(error, BudgetExceeded)
    assert error.node is node
    assert {"calls": "requests", "tokens": "tokens", "usd": "$"}[unit] in error.limit
    assert len(server.requests) == 2
    assert all(said.may_call for said in play.said)
    assert node.total_usage == REPORTED[protocol.name] + REPORTED[protocol.name]
    assert (view.total_cost, agent_node(node).cost) == (2 * EACH, 2 * EACH)
    assert len(children(node)) == 2  # what was paid for was done


async def test_a_last_call_lets_it_say_what_it_has_and_call_nothing(protocol: Protocol, unit: str):
    lead = actor("lead", look, budget=after_two(protocol, unit, last_call=True))
    async with playing(protocol, lead=looking(protocol)) as (server, play):
        model = protocol.model(server, price=per_request)
        async with Runtime([lead], models=model) as runtime:
            node = runtime.invoke(lead, {"task": "Lead."})
            assert await node == "This far."
            assert_same(runtime.get_view(node.id), node)
    *_, last = play.said
    assert [said.may_call for said in play.said] == [True, True, False]
    assert (last.results, last.functions) == ((Result("it is fine"),), ("look",))
    [told] = last.texts
    assert "budget" in told
    body = server.requests[-1].json
    field, value = {
        "openai": ("tool_choice", "none"),
        "anthropic": ("tool_choice", {"type": "none"}),
        "gemini": ("toolConfig", {"functionCallingConfig": {"mode": "NONE"}}),
    }[protocol.name]
    assert body[field] == value
    assert node.total_usage == sum([REPORTED[protocol.name]] * 3, TokenUsage())
    before = server.requests[-2].json
    for kept in {"tools", "system", "systemInstruction"} & body.keys():
        assert body[kept] == before[kept]


async def test_a_model_that_calls_all_the_same_in_its_last_call_is_ended(protocol: Protocol):
    lead = actor("lead", look, budget=Budget(calls=1, last_call=True))
    calls = [protocol.calls(call("l", "look"))] * 2
    async with (
        playing(protocol, lead=calls) as (server, _),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        node = await ended(runtime.invoke(lead, {"task": "Lead."}))
    assert isinstance(node.exception, BudgetExceeded)
    assert (len(server.requests), len(children(node))) == (2, 1)


async def test_a_budget_of_a_call_is_shared_by_all_below_it(protocol: Protocol, unit: str):
    scout = actor("scout", look)
    lead = actor("lead", scout)

    def program(agent: Function) -> CodeFunction:
        async def survey(ctx: RunContext) -> str:
            node = ctx.invoke(
                agent, {"task": "Survey."}, budget=after_two(protocol, unit, last_call=True)
            )
            try:
                return await node
            except BudgetExceeded as error:
                return f"{error.node is node}"

        return CodeFunction(callable=survey, uses=[agent])

    def leading(said: Said) -> Reply:
        if not said.may_call:
            return protocol.text("Led this far.")
        return protocol.calls(call("s", "scout", task="Scout."))

    survey = program(lead)
    async with playing(protocol, lead=leading, scout=looking(protocol)) as (server, play):
        model = protocol.model(server, price=per_request)
        async with Runtime([survey], models=model) as runtime:
            node = runtime.invoke(survey)
            assert await node == "Led this far."
            assert_same(runtime.get_view(node.id), node)
    # each agent has one last call of its own
    assert [(said.agent, said.may_call) for said in play.said] == [
        ("lead", True),
        ("scout", True),
        ("scout", False),
        ("lead", False),
    ]
    assert play.told("lead")[1].results == (Result("This far."),)


async def test_calls_at_the_same_time_do_not_overdraw_a_budget(protocol: Protocol):
    held = asyncio.Event()
    scout = actor("scout")
    lead = actor("lead", scout, parallel_tools=True, budget=Budget(calls=3))
    scouts = [call(f"s{n}", "scout", task=f"Scout {n}.") for n in range(4)]
    slow = with_steps(protocol.text("It ", "is ", "fine."), Wait(held))
    async with (
        playing(protocol, lead=[protocol.calls(*scouts)], scout=[slow] * 4) as (server, _),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        node = runtime.invoke(lead, {"task": "Lead."})
        await until(lambda: sum(child.state.final for child in children(node)) == 2)
        assert len(server.requests) <= 3  # two of them have been refused by now
        held.set()
        await ended(node)
        assert_same(runtime.get_view(node.id), node)
    assert len(server.requests) == 3
    assert isinstance(node.exception, BudgetExceeded)
    refused = [child for child in children(node) if isinstance(child.exception, BudgetExceeded)]
    answered = [child for child in children(node) if child.state is NodeState.Success]
    assert (len(refused), len(answered)) == (2, 2)


async def test_a_budget_of_the_runtime_is_for_all_its_calls(protocol: Protocol, unit: str):
    lead = actor("lead")
    async with playing(protocol, lead=[protocol.text("Fine.")] * 3) as (server, _):
        model = protocol.model(server, price=per_request)
        budget = after_two(protocol, unit)
        async with Runtime([lead], models=model, budget=budget) as runtime:
            assert await runtime.invoke(lead, {"task": "Lead."}) == "Fine."
            assert await runtime.invoke(lead, {"task": "Lead."}) == "Fine."
            last = await ended(runtime.invoke(lead, {"task": "Lead for once. " * 5}))
    assert isinstance(last.exception, BudgetExceeded)
    assert last.exception.node is last
    assert len(server.requests) == 2


@pytest.mark.parametrize("last_call", [False, True])
async def test_a_budget_of_seconds_ends_whatever_is_under_way(
    protocol: Protocol, *, last_call: bool
):
    scout = actor("scout")
    lead = actor("lead", scout, budget=Budget(seconds=1, last_call=last_call))
    asks = [protocol.calls(call("s", "scout", task="Scout."))]
    half = with_steps(protocol.text("one ", "two ", "three"), Stall())
    async with playing(protocol, lead=asks, scout=[half]) as (server, play):
        model = protocol.model(server)
        async with Runtime([lead], models=model) as runtime:
            node = await ended(runtime.invoke(lead, {"task": "Lead."}))
            await until(lambda: server.in_flight == 0)
            view = runtime.get_view(node.id)
            assert_same(view, node)
    error = node.exception
    assert isinstance(error, BudgetExceeded)
    assert (error.node, error.limit) == (node, "1 s are over")
    states = [one.state for one in all_views(view)]  # on a slow day it did not come to the second
    assert states == [NodeState.Error, NodeState.Canceled][: len(states)]
    assert all(said.may_call for said in play.said)
