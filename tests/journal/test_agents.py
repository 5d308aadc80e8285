"""Agents that are resumed from a journal."""

import time
from typing import Any

from agent_scripts import worker
from journal.processes import Lives, World, result
from support import wait
from treefold import (
    AgentException,
    AgentFunction,
    CodeFunction,
    Ensemble,
    ModelText,
    NodeState,
    RunContext,
    ThinkMore,
    ToolResult,
    ToolUse,
    UserText,
)
from treefold.testing import HANGS, ScriptedRequest
from treefold.toolbox import raise_exception
from view_trees import flat


def results(request: ScriptedRequest) -> str:
    return ", ".join(p.content for p in request.transcript if isinstance(p, ToolResult))


# --- one agent, step by step

STEPS = [
    [ToolUse("1", "look", {"n": 1})],
    [
        ToolUse("2", "look", {"n": 2}),
        ToolUse("3", "drop", {"n": 3}),
        ToolUse("4", "look", {"n": 4}),
    ],
    results,
]


def one_agent(world: World, *, parallel: bool = False) -> AgentFunction:
    look, drop = world.tool("look"), world.tool("drop", dies=True, repeatable=True)
    return worker("boss", look, drop, parallel_tools=parallel)


def dies_in_its_second_step(world: World) -> None:
    boss = one_agent(world)
    with world.runtime(boss, models=world.model(*STEPS)) as runtime:
        result(runtime.invoke(boss))


def test_an_agent_goes_on_from_its_responses_and_its_results(world: World, lives: Lives):
    lives.killed(dies_in_its_second_step, world)
    assert world.all_done == {"request": 2, "look": 2, "drop": 1}
    boss = one_agent(world)
    with world.runtime(boss, models=world.model(*STEPS)) as runtime:
        [node] = runtime.recover()
        assert result(node) == "look 1, look 2, drop 3, look 4"
        view = runtime.get_view(node.id)
        assert [(v.path, v.fn, v.sequence) for v in view.children] == [
            ("1.1", "look", 1),
            ("1.2", "look", 2),
            ("1.3", "drop", 2),
            ("1.4", "look", 2),
        ]
        assert list(view.transcript) == [
            UserText("I am boss."),
            ToolUse("1", "look", {"n": 1}),
            ToolResult("1", "look 1"),
            ToolUse("2", "look", {"n": 2}),
            ToolUse("3", "drop", {"n": 3}),
            ToolUse("4", "look", {"n": 4}),
            ToolResult("2", "look 2"),
            ToolResult("3", "drop 3"),
            ToolResult("4", "look 4"),
            ModelText("look 1, look 2, drop 3, look 4"),
        ]
    assert world.all_done == {"request": 3, "look": 3, "drop": 2}


def dies_in_a_parallel_step(world: World) -> None:
    boss = one_agent(world, parallel=True)
    with world.runtime(boss, models=world.model(*STEPS)) as runtime:
        result(runtime.invoke(boss))


def test_an_agent_whose_calls_run_at_once_goes_on_too(world: World, lives: Lives):
    lives.killed(dies_in_a_parallel_step, world)
    boss = one_agent(world, parallel=True)
    with world.runtime(boss, models=world.model(*STEPS)) as runtime:
        [node] = runtime.recover()
        while not node.state.final:
            for question in runtime.questions():  # what else was under way
                runtime.answer(question.id, "retry")
            time.sleep(0.001)
        assert result(node) == "look 1, look 2, drop 3, look 4"
    assert world.done("request") == 3
    assert world.done("drop") == 2


def dies_in_a_request(world: World) -> None:
    boss = one_agent(world)

    def dies(request: ScriptedRequest) -> str:
        world.die()
        return ""

    with world.runtime(boss, models=world.model(STEPS[0], dies)) as runtime:
        result(runtime.invoke(boss))


def test_a_request_without_a_response_is_made_again(world: World, lives: Lives):
    lives.killed(dies_in_a_request, world)
    assert world.all_done == {"request": 2, "look": 1}
    boss = one_agent(world)
    with world.runtime(boss, models=world.model(*STEPS)) as runtime:
        [node] = runtime.recover()
        assert result(node) == "look 1, look 2, drop 3, look 4"
    assert world.all_done == {"request": 4, "look": 3, "drop": 1}


def dies_when_its_results_were_sent(world: World) -> None:
    boss = one_agent(world)
    with world.runtime(boss, models=world.model(STEPS[0], HANGS)) as runtime:
        node = runtime.invoke(boss)
        wait(lambda: world.kinds(node).count("RequestSent") == 2)
        world.die()


def test_calls_whose_results_were_sent_already_are_none_that_nobody_asks_for(
    world: World, lives: Lives
):
    lives.killed(dies_when_its_results_were_sent, world)
    boss = one_agent(world)
    with world.runtime(boss, models=world.model(*STEPS)) as runtime:
        [node] = runtime.recover()
        assert result(node) == "look 1, look 2, drop 3, look 4"
        assert runtime.get_view(node.id).notices == ()
    assert world.all_done == {"request": 4, "look": 3, "drop": 1}


# --- failures are results, too


def failing_tools(world: World) -> AgentFunction:
    def fail(ctx: RunContext) -> None:
        world.add("fail")
        raise ValueError("no such thing")

    quitter = worker("quitter", raise_exception)
    drop = world.tool("drop", dies=True, repeatable=True)
    return worker("boss", CodeFunction(callable=fail), quitter, drop)


def failing_script(request: ScriptedRequest) -> Any:
    first = request.transcript[0]
    assert isinstance(first, UserText)
    if "quitter" in first.text:
        return [ToolUse("q", "raise_exception", {"msg": "it is empty"})]
    done = [p for p in request.transcript if isinstance(p, ToolResult)]
    names = ["fail", "quitter", "nothing", "drop"]
    return [ToolUse(str(len(done)), names[len(done)])] if len(done) < 4 else results(request)


def dies_after_failures(world: World) -> None:
    boss = failing_tools(world)
    with world.runtime(boss, models=world.model(*[failing_script] * 9)) as runtime:
        result(runtime.invoke(boss))


def test_failures_that_an_agent_was_told_of_are_not_made_again(world: World, lives: Lives):
    lives.killed(dies_after_failures, world)
    before = world.all_done
    assert before == {"request": 5, "fail": 1, "drop": 1}
    boss = failing_tools(world)
    with world.runtime(boss, models=world.model(*[failing_script] * 9)) as runtime:
        [node] = runtime.recover()
        said = result(node)
        assert said.startswith("ValueError: no such thing, AgentException: it is empty, there is")
        assert said.endswith("drop 0")
        quitter = runtime.get_subtree(node.id)[2]
        assert quitter.state is NodeState.Error
        assert isinstance(quitter.exception, AgentException)
        assert quitter.exception.message == "it is empty"
    assert world.all_done == {"request": 6, "fail": 1, "drop": 2}


# --- agents below agents, and what is made of agents


def nested(world: World) -> AgentFunction:
    drop = world.tool("drop", dies=True, repeatable=True)
    leaf = worker("leaf", world.tool("look"), drop)
    return worker("boss", worker("sub", leaf))


def nested_script(request: ScriptedRequest) -> Any:
    first = request.transcript[0]
    assert isinstance(first, UserText)
    name = first.text.split()[2].rstrip(".")
    done = sum(isinstance(p, ToolResult) for p in request.transcript)
    calls = {"boss": ["sub"], "sub": ["leaf"], "leaf": ["look", "drop"]}[name]
    return [ToolUse(str(done), calls[done])] if done < len(calls) else f"{name}: {results(request)}"


def dies_three_levels_down(world: World) -> None:
    boss = nested(world)
    with world.runtime(boss, models=world.model(*[nested_script] * 9)) as runtime:
        result(runtime.invoke(boss))


def test_agents_below_agents_go_on_where_they_were(world: World, lives: Lives):
    lives.killed(dies_three_levels_down, world)
    assert world.all_done == {"request": 4, "look": 1, "drop": 1}
    boss = nested(world)
    with world.runtime(boss, models=world.model(*[nested_script] * 9)) as runtime:
        [node] = runtime.recover()
        assert result(node) == "boss: sub: leaf: look 0, drop 0"
        assert len(flat(runtime.get_view(node.id))) == 5
    assert world.all_done == {"request": 7, "look": 1, "drop": 2}


def wrapped(world: World) -> list[Any]:
    drop = world.tool("drop", dies=True, repeatable=True)
    return [ThinkMore(worker("thinker", drop)), Ensemble(worker("voter", drop), {"a": 2})]


def wrapped_script(request: ScriptedRequest) -> Any:
    first = request.transcript[0]
    assert isinstance(first, UserText)
    if "<answer" in first.text and len(request.transcript) == 1:
        return [ToolUse("1", "drop", {"n": 9})]
    return "again" if "<answer" in first.text else "once"


def dies_thinking_more(world: World) -> None:
    thinker, _ = wrapped(world)
    with world.runtime(thinker, models=world.model(*[wrapped_script] * 9)) as runtime:
        result(runtime.invoke(thinker))


def dies_reconciling(world: World) -> None:
    _, voter = wrapped(world)
    model = world.model(*[wrapped_script] * 9)
    with world.runtime(voter, models={"a": model}) as runtime:
        result(runtime.invoke(voter))


def test_an_agent_that_thinks_more_does_not_think_the_same_twice(world: World, lives: Lives):
    lives.killed(dies_thinking_more, world)
    assert world.all_done == {"request": 2, "drop": 1}
    thinker, _ = wrapped(world)
    with world.runtime(thinker, models=world.model(*[wrapped_script] * 9)) as runtime:
        [node] = runtime.recover()
        assert result(node) == "again"
        assert runtime.get_view(node.id).notices == ()
    assert world.all_done == {"request": 3, "drop": 2}


def test_the_members_of_an_ensemble_are_not_asked_again(world: World, lives: Lives):
    lives.killed(dies_reconciling, world)
    assert world.all_done == {"request": 3, "drop": 1}
    _, voter = wrapped(world)
    with world.runtime(voter, models={"a": world.model(*[wrapped_script] * 9)}) as runtime:
        [node] = runtime.recover()
        assert result(node) == "again"
        assert len(runtime.get_view(node.id).children) == 3
        assert runtime.get_view(node.id).notices == ()
    assert world.all_done == {"request": 4, "drop": 2}


# --- what they have spent


def dies_with_usage(world: World) -> None:
    boss = one_agent(world)
    with world.runtime(boss, models=world.model(*STEPS)) as runtime:
        node = runtime.invoke(boss)
        result(node)


def test_what_was_spent_before_counts_as_spent(world: World, lives: Lives):
    lives.killed(dies_with_usage, world)
    boss = one_agent(world)
    with world.runtime(boss, models=world.model(*STEPS)) as runtime:
        [node] = runtime.recover()
        result(node)
        view = runtime.get_view(node.id)
        assert (view.usage, view.total_usage) == (node.usage, node.total_usage)
        assert (view.cost, view.total_cost) == (node.cost, node.total_cost)
