"""Leases, limits of requests and budgets."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from agent_scripts import StagedModel, agent_node, ended, run, run_agent, told, until, worker
from support import settle
from treefold import (
    Budget,
    BudgetExceeded,
    CodeFunction,
    Ensemble,
    Limits,
    Node,
    NodeState,
    Provider,
    RunContext,
    Runtime,
    TokenUsage,
    ToolUse,
    TreefoldError,
    registries,
    tool,
)
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.toolbox import human_in_loop

with registries():

    @tool
    async def look(at: str = "x") -> str:
        """Look at something."""
        return f"{at} is fine"


def always_looking(request: ScriptedRequest) -> Any:
    return [ToolUse(f"a{len(request.transcript)}", "look")]


def once(name: str) -> Callable[[ScriptedRequest], Any]:
    """Return a script that calls *name* first, and answers then."""
    return lambda request: "done" if told(request) else [ToolUse("a", name)]


class Door:
    """A tool that waits to be let through, in one of several ways."""

    def __init__(self, way: str = "held") -> None:
        self.way = way
        self.inside = asyncio.Event()
        self.go_on = asyncio.Event()
        self.had: list[bool] = []

    def tool(self) -> Any:
        @tool
        async def door(ctx: RunContext) -> str:
            """Wait at the door."""
            self.had.append(ctx.has_lease)
            if self.way == "released":
                async with ctx.lease_released():
                    self.had.append(ctx.has_lease)
                    await self._wait()
            elif self.way == "asked":
                self.inside.set()
                await ctx.ask("May I?")
            else:
                await self._wait()
            return "through"

        return door

    async def _wait(self) -> None:
        self.inside.set()
        await self.go_on.wait()


# --- leases


async def test_no_more_requests_are_in_flight_than_the_limit_allows():
    model = StagedModel(ScriptedModel(lambda request: "done"), held=True)
    boss = worker("boss")
    limits = Limits(concurrent_requests=3)
    async with Runtime([boss], models=model, limits=limits) as runtime, asyncio.timeout(60):
        nodes = [runtime.invoke(boss) for _ in range(10)]
        await until(lambda: model.in_flight == 3)
        await settle()
        assert model.in_flight == 3
        model.gate.set()
        assert [await node for node in nodes] == ["done"] * 10
    assert model.most_in_flight == 3


async def test_a_limit_may_be_shared_by_several_runtimes():
    model = StagedModel(ScriptedModel(lambda request: "done"), held=True)
    limits = Limits(concurrent_requests=2)
    boss = worker("boss")
    async with (
        Runtime([boss], models=model, limits=limits) as one,
        Runtime([boss], models=model, limits=limits) as two,
        asyncio.timeout(60),
    ):
        nodes = [runtime.invoke(boss) for runtime in (one, two) for _ in range(3)]
        await until(lambda: model.in_flight == 2)
        model.gate.set()
        for node in nodes:
            await node
    assert model.most_in_flight == 2


async def test_runtimes_without_limits_share_those_of_the_process():
    model = StagedModel(ScriptedModel(lambda request: "done"), held=True)
    boss = worker("boss")
    async with (
        Runtime([boss], models=model) as one,
        Runtime([boss], models=model) as two,
        asyncio.timeout(60),
    ):
        nodes = [runtime.invoke(boss) for runtime in (one, two) for _ in range(6)]
        await until(lambda: model.in_flight == 8)
        await settle()
        assert model.in_flight == 8
        model.gate.set()
        for node in nodes:
            await node
    assert model.most_in_flight == 8


async def test_requests_may_be_limited_by_provider():
    claude = StagedModel(
        ScriptedModel(lambda request: "done"), provider=Provider.Anthropic, held=True
    )
    gemini = StagedModel(ScriptedModel(lambda request: "done"), provider=Provider.Gemini, held=True)
    boss = worker("boss")
    limits = Limits(concurrent_requests=8, per_provider={Provider.Anthropic: 1})
    async with Runtime([boss], models=claude, limits=limits) as runtime, asyncio.timeout(60):
        nodes = [runtime.invoke(boss, model=model) for model in (claude, gemini) for _ in range(3)]
        await until(lambda: claude.in_flight == 1 and gemini.in_flight == 3)
        await settle()
        assert claude.in_flight == 1
        claude.gate.set()
        gemini.gate.set()
        for node in nodes:
            await node
    assert claude.most_in_flight == 1


async def second_task(door: Door, release: Callable[[Runtime], None]) -> tuple[int, int]:
    """Let two tasks compete for one lease while the first is at the door.

    Return how many requests the second has made by then, and in the end.
    """
    guard, other = door.tool(), ScriptedModel("second")
    first, second = worker("first", guard), worker("second", default_model=other)
    limits, model = Limits(concurrent_requests=1), ScriptedModel(once("door"))
    async with (
        Runtime([first, second], models=model, limits=limits) as runtime,
        asyncio.timeout(60),
    ):
        one = runtime.invoke(first)
        await door.inside.wait()
        two = runtime.invoke(second)
        if door.way == "held":
            await settle()
            assert runtime.get_view(two.id).status
        else:
            assert await two == "second"
        by_then = len(other.requests)
        release(runtime)
        assert await one == "done"
        assert await two == "second"
    return by_then, len(other.requests)


async def test_a_top_level_task_keeps_its_lease_while_its_functions_run():
    door = Door()
    assert await second_task(door, lambda _: door.go_on.set()) == (0, 1)
    assert door.had == [True]


async def test_a_function_that_waits_long_courteously_gives_up_the_lease():
    door = Door("released")
    assert await second_task(door, lambda _: door.go_on.set()) == (1, 1)
    assert door.had == [True, False]


async def test_who_asks_a_person_gives_up_the_lease_while_waiting():
    door = Door("asked")

    def answer(runtime: Runtime) -> None:
        [question] = runtime.questions()
        runtime.answer(question.id, "yes")

    assert await second_task(door, answer) == (1, 1)


async def test_human_in_loop_gives_up_the_lease():
    other = ScriptedModel("second")
    first, second = worker("first", human_in_loop), worker("second", default_model=other)
    model = ScriptedModel([ToolUse("a", "human_in_loop", {"question": "Go on?"})], "done")
    limits = Limits(concurrent_requests=1)
    async with (
        Runtime([first, second], models=model, limits=limits) as runtime,
        asyncio.timeout(60),
    ):
        one = runtime.invoke(first)
        [question] = await until(runtime.questions)
        assert await runtime.invoke(second) == "second"
        runtime.answer(question.id, "Yes.")
        assert await one == "done"


async def test_a_lease_that_was_given_up_is_taken_again_for_the_next_request():
    door = Door("released")
    other = StagedModel(ScriptedModel("second"), held=True)
    first, second = worker("first", door.tool()), worker("second", default_model=other)
    limits, model = Limits(concurrent_requests=1), ScriptedModel(once("door"))
    async with (
        Runtime([first, second], models=model, limits=limits) as runtime,
        asyncio.timeout(60),
    ):
        one = runtime.invoke(first)
        await door.inside.wait()
        two = runtime.invoke(second)
        await until(lambda: other.in_flight)
        door.go_on.set()
        await settle()
        assert len(model.requests) == 1  # the lease is with the other task
        other.gate.set()
        assert await two == "second"
        assert await one == "done"


async def test_a_subtree_inherits_the_lease_of_its_top_level_task():
    helper = worker("helper", look)
    boss = worker("boss", helper)
    model = ScriptedModel([ToolUse("a", "helper")], [ToolUse("b", "look")], "helped", "done")
    node = await run(boss, models=model, limits=Limits(concurrent_requests=1))
    assert node.outputs == "done"


async def test_code_has_no_lease_before_a_request_was_made_below_it():
    had: list[bool] = []
    boss = worker("boss")

    async def top(ctx: RunContext) -> Any:
        had.append(ctx.has_lease)
        return await ctx.invoke(boss)

    await run(CodeFunction(callable=top, uses=[boss]), models=ScriptedModel("done"))
    assert had == [False]


@pytest.mark.parametrize("kind", ["ensemble", "code", "batch"])
async def test_parallel_siblings_each_need_a_lease_of_their_own_and_do_not_block_each_other(
    kind: str,
):
    poets = StagedModel(ScriptedModel(lambda request: "poem"))
    poet = worker("poet", default_model=poets)

    async def both(ctx: RunContext) -> list[Any]:
        nodes = [ctx.invoke(poet) for _ in range(3)]
        return [await node for node in nodes]

    tops = {
        "ensemble": Ensemble(poet, {"poets": 3}),
        "code": CodeFunction(callable=both, uses=[poet]),
        "batch": worker("boss", poet, parallel_tools=True),
    }
    batch = ScriptedModel([ToolUse(id, "poet") for id in "abc"], "done")
    models = {"poets": poets, "default": batch}
    node = await run(tops[kind], models=models, limits=Limits(concurrent_requests=1))
    assert node.state is NodeState.Success
    assert poets.most_in_flight == 1


async def test_a_lease_is_given_back_when_a_task_fails_or_is_cancelled():
    model = StagedModel(ScriptedModel("never"), held=True)
    boss, limits = worker("boss"), Limits(concurrent_requests=1)
    async with Runtime([boss], models=model, limits=limits) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        await until(lambda: model.in_flight)
        node.cancel("enough")
        await ended(node)
        assert await runtime.invoke(boss, model=ScriptedModel("done")) == "done"


# --- budgets


async def test_a_budget_of_calls_allows_so_many_requests_to_models():
    model = ScriptedModel(always_looking)
    node = await run_agent(worker("boss", look, budget=Budget(calls=3)), models=model)
    error = node.exception
    assert isinstance(error, BudgetExceeded)
    assert isinstance(error, TreefoldError)
    assert len(model.requests) == 3
    assert error.node is node
    assert isinstance(error.limit, str)
    assert "3" in error.limit
    assert agent_node(node).get_transcript()  # the partial node can be looked at


async def test_a_budget_that_suffices_is_not_noticed():
    boss = worker("boss", look, budget=Budget(calls=2, tokens=10_000, usd=1, seconds=60))
    model = ScriptedModel([ToolUse("a", "look")], "done", price=lambda usage: Decimal("0.01"))
    node = await run_agent(boss, models=model)
    assert node.outputs == "done"


async def test_a_budget_of_tokens_stops_an_agent_that_has_used_them():
    model = ScriptedModel(always_looking, usage=TokenUsage(input=50, output=10))
    node = await run_agent(worker("boss", look, budget=Budget(tokens=100)), models=model)
    assert isinstance(node.exception, BudgetExceeded)
    assert 1 <= len(model.requests) <= 2


async def test_a_budget_in_dollars_stops_an_agent_that_has_spent_them():
    script = ScriptedModel(always_looking, usage=TokenUsage(input=1000))  # 0.015 each
    model = StagedModel(script, name="anthropic:claude-opus-4-1", provider=Provider.Anthropic)
    node = await run_agent(worker("boss", look, budget=Budget(usd=0.04)), models=model)
    assert isinstance(node.exception, BudgetExceeded)
    assert 2 <= len(script.requests) <= 3


async def test_a_budget_of_seconds_stops_an_agent_that_takes_longer():
    @tool
    async def hang() -> None:
        await asyncio.Event().wait()

    boss = worker("boss", hang, budget=Budget(seconds=0.1))
    node = await run_agent(boss, models=ScriptedModel([ToolUse("a", "hang")], "never"))
    assert isinstance(node.exception, BudgetExceeded)
    assert node.exception.node is node


async def test_a_budget_may_be_given_to_a_call():
    boss = worker("boss", look)
    model = ScriptedModel(always_looking)

    async def top(ctx: RunContext) -> str:
        try:
            await ctx.invoke(boss, budget=Budget(calls=2))
        except BudgetExceeded as error:
            return f"{error.node.path} {len(model.requests)}"
        return "?"

    code = CodeFunction(callable=top, uses=[boss])
    async with Runtime([code], models=model) as runtime, asyncio.timeout(60):
        assert await runtime.invoke(code) == "1.1 2"
        node = await ended(runtime.invoke(boss, budget=Budget(calls=1)))
        assert isinstance(node.exception, BudgetExceeded)
    assert len(model.requests) == 3


async def test_a_budget_of_a_runtime_is_for_all_its_trees():
    boss = worker("boss")
    model = ScriptedModel(lambda request: "done")
    async with Runtime([boss], models=model, budget=Budget(calls=2)) as runtime:
        nodes = [await ended(runtime.invoke(boss)) for _ in range(3)]
    assert [node.state for node in nodes] == [NodeState.Success] * 2 + [NodeState.Error]
    assert isinstance(nodes[2].exception, BudgetExceeded)
    assert len(model.requests) == 2


async def test_a_budget_is_drawn_from_by_every_descendant():
    helper = worker("helper", look)
    boss = worker("boss", helper, budget=Budget(calls=3))

    def reply(request: ScriptedRequest) -> Any:
        if request.functions == ("look",):
            return always_looking(request)
        return [ToolUse("a", "helper")]

    model = ScriptedModel(reply)
    async with Runtime([boss], models=model) as runtime:
        node = await ended(runtime.invoke(boss))
        [child] = node.get_children()
        assert isinstance(child, Node)
    assert len(model.requests) == 3
    assert isinstance(node.exception, BudgetExceeded)
    assert node.exception.node is node
    assert isinstance(child.exception, BudgetExceeded)
    assert child.exception.node is node  # whose budget it was


async def test_a_sub_agent_that_used_up_its_own_budget_is_a_tool_error_to_its_parent():
    helper = worker("helper", look, budget=Budget(calls=1))
    boss = worker("boss", helper)
    model = ScriptedModel([ToolUse("a", "helper")], [ToolUse("b", "look")], "done without")
    node = await run_agent(boss, models=model)
    assert node.outputs == "done without"
    [result] = told(model.requests[2])
    assert result.is_error
    assert result.content.startswith("BudgetExceeded: ")


async def test_one_last_call_without_functions_may_be_allowed_at_the_end():
    ran: list[str] = []

    @tool
    async def note() -> str:
        ran.append("noted")
        return "noted"

    boss = worker("boss", note, budget=Budget(calls=1, last_call=True))
    model = ScriptedModel([ToolUse("a", "note")], "as far as I came")
    node = await run_agent(boss, models=model)
    assert node.outputs == "as far as I came"
    assert len(model.requests) == 2
    assert ran == ["noted"]


async def test_a_last_call_is_the_last_even_if_the_model_wants_to_go_on():
    ran: list[str] = []

    @tool
    async def note() -> str:
        ran.append("noted")
        return "noted"

    boss = worker("boss", note, budget=Budget(calls=1, last_call=True))
    model = ScriptedModel(lambda request: [ToolUse(f"a{len(request.transcript)}", "note")])
    node = await run_agent(boss, models=model)
    assert node.state is NodeState.Error
    assert len(model.requests) == 2
    assert ran == ["noted"]


async def test_budgets_hold_for_calls_that_are_made_in_parallel():
    poet = worker("poet")

    async def many(ctx: RunContext) -> int:
        nodes = [ctx.invoke(poet) for _ in range(10)]
        done = [await ended(node) for node in nodes]
        return sum(node.state is NodeState.Success for node in done)

    model = ScriptedModel(lambda request: "poem")
    top = CodeFunction(callable=many, uses=[poet])
    async with Runtime([top], models=model) as runtime, asyncio.timeout(60):
        assert await runtime.invoke(top, budget=Budget(calls=4)) == 4
    assert len(model.requests) == 4


@pytest.mark.parametrize("budget", [{"calls": -1}, {"tokens": -5}, {"seconds": -1}, {"usd": -0.5}])
def test_a_budget_below_nothing_is_refused(budget: dict[str, Any]):
    with pytest.raises(ValueError, match=next(iter(budget))):
        Budget(**budget)
