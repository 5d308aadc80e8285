"""Session bags of agents, of their tools and of the code that calls them."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ended, run, run_agent, told, until, worker
from support import processes_in
from treefold import (
    CodeFunction,
    NodeState,
    NoParentSessionError,
    RunContext,
    Runtime,
    SessionScope,
    Tool,
    ToolUse,
    tool,
)
from treefold.testing import ScriptedModel
from treefold.toolbox import Bash

NUMBERS = itertools.count()


def counter(scope: SessionScope, name: str = "count") -> Tool[Any, Any]:
    """Return a tool that counts its calls in the bag of *scope*."""

    async def count(ctx: RunContext) -> int:
        numbers = ctx.get_or_put(scope, "test", "numbers", list[int])
        numbers.append(len(numbers) + 1)
        return numbers[-1]

    count.__name__ = count.__qualname__ = name
    return tool(count)


def calls(name: str, times: int) -> list[ToolUse]:
    return [ToolUse(f"call_{next(NUMBERS)}", name) for _ in range(times)]


async def test_what_an_agents_tools_keep_with_their_parent_lives_as_long_as_the_agent():
    count = counter(SessionScope.Parent)
    boss = worker("boss", count)
    model = ScriptedModel(calls("count", 2), calls("count", 1), "done", calls("count", 1), "done")
    async with Runtime([boss], models=model) as runtime:
        for _ in range(2):
            await ended(runtime.invoke(boss))
    assert [result.content for result in told(model.requests[2])] == ["1", "2", "3"]
    assert [result.content for result in told(model.requests[4])] == ["1"]  # another agent's bag


async def test_what_a_tool_keeps_with_itself_is_gone_with_the_call():
    count = counter(SessionScope.Self)
    model = ScriptedModel(calls("count", 2), "done")
    await run_agent(worker("boss", count), models=model)
    assert [result.content for result in told(model.requests[1])] == ["1", "1"]


async def test_what_is_kept_with_the_top_level_is_shared_by_all_agents_of_a_tree():
    count = counter(SessionScope.TopLevel)
    helper = worker("helper", count)
    boss = worker("boss", helper, count)
    model = ScriptedModel(
        calls("count", 1),
        calls("helper", 1),
        calls("count", 1),
        "helped",
        calls("count", 1),
        "done",
    )
    await run_agent(boss, models=model)
    results = [result.content for result in told(model.requests[-1])]
    assert results == ["1", "helped", "3"]
    assert [result.content for result in told(model.requests[3])] == ["2"]


async def test_the_three_scopes_are_the_bags_of_root_parent_and_self_below_agents_too():
    found: dict[str, tuple[object, ...]] = {}

    @tool
    async def probe(ctx: RunContext) -> None:
        found[ctx.node.path] = tuple(
            ctx.get_or_put(scope, "test", "thing", object) for scope in SessionScope
        )

    helper = worker("helper", probe)
    boss = worker("boss", helper, probe)
    model = ScriptedModel(calls("probe", 1), calls("helper", 1), calls("probe", 1), "ok", "done")
    await run_agent(boss, models=model)
    child, grandchild = found["1.1"], found["1.2.1"]
    assert child[0] is child[1]  # the parent of a child of the root is the root
    assert child[0] is not child[2]
    assert grandchild[0] is child[0]
    assert len({id(thing) for thing in grandchild}) == 3


async def test_a_top_level_call_has_no_parent_and_its_own_bag_is_that_of_the_top_level():
    def top(ctx: RunContext) -> bool:
        with pytest.raises(NoParentSessionError):
            ctx.get_or_put(SessionScope.Parent, "test", "thing", object)
        own = ctx.get_or_put(SessionScope.Self, "test", "thing", object)
        return own is ctx.get_or_put(SessionScope.TopLevel, "test", "thing", object)

    assert (await run(CodeFunction(callable=top))).outputs is True


async def test_code_receives_results_from_the_agents_it_calls_in_its_own_bag():
    @tool
    async def hand_in(ctx: RunContext, text: str) -> str:
        ctx.get_or_put(SessionScope.TopLevel, "test", "results", list[str]).append(text)
        return "thanks"

    helper = worker("helper", hand_in)

    async def top(ctx: RunContext) -> list[str]:
        results = ctx.get_or_put(SessionScope.Self, "test", "results", list[str])
        await ctx.invoke(helper)
        await ctx.invoke(helper)
        return results

    def reply(request: Any) -> Any:
        return "done" if told(request) else [ToolUse("a", "hand_in", {"text": "found"})]

    node = await run(CodeFunction(callable=top, uses=[helper]), models=ScriptedModel(reply))
    assert node.outputs == ["found", "found"]


async def test_objects_pass_between_functions_as_they_are():
    class Basket:
        def __init__(self) -> None:
            self.items: list[object] = []

    thing = object()

    @tool
    async def put(ctx: RunContext) -> str:
        ctx.get_or_put(SessionScope.Parent, "test", "basket", Basket).items.append(thing)
        return "put"

    @tool
    async def take(ctx: RunContext) -> bool:
        return ctx.get_or_put(SessionScope.Parent, "test", "basket", Basket).items == [thing]

    model = ScriptedModel([ToolUse("a", "put"), ToolUse("b", "take")], "done")
    await run_agent(worker("boss", put, take), models=model)
    assert [result.content for result in told(model.requests[1])] == ["put", "true"]


async def test_an_object_is_made_once_however_many_calls_ask_for_it_at_once():
    made: list[object] = []
    barrier = asyncio.Barrier(4)

    def make() -> object:
        made.append(object())
        return made[-1]

    @tool
    async def ask(ctx: RunContext) -> str:
        async with asyncio.timeout(60):
            await barrier.wait()
        found = await ctx.in_thread(ctx.get_or_put, SessionScope.Parent, "test", "one", make)
        return str(id(found))

    boss = worker("boss", ask, parallel_tools=True)
    model = ScriptedModel(calls("ask", 4), "done")
    await run_agent(boss, models=model)
    assert {result.content for result in told(model.requests[1])} == {str(id(made[0]))}
    assert len(made) == 1


async def test_objects_are_kept_for_a_look_until_their_tree_is_deleted():
    closed: list[str] = []

    class Resource:
        def close(self) -> None:
            closed.append("closed")

    @tool
    async def hold(ctx: RunContext) -> str:
        ctx.get_or_put(SessionScope.Parent, "test", "resource", Resource)
        return "held"

    boss = worker("boss", hold)
    async with Runtime([boss], models=ScriptedModel(calls("hold", 2), "done")) as runtime:
        node = await ended(runtime.invoke(boss))
        assert closed == []
        runtime.delete(node.id)
        await until(lambda: closed)
    assert closed == ["closed"]


# --- a shell of one's own


async def test_an_agent_has_a_persistent_shell_to_use_at_random_points_of_its_life(tmp_path: Path):
    shell = Bash(cwd=tmp_path)

    def command(id: str, text: str) -> ToolUse:
        return ToolUse(id, "bash", {"command": text})

    model = ScriptedModel(
        [command("a", "x=kept; cd /; export Y=exported")],
        [command("b", "echo $x $Y; pwd")],
        "done",
    )
    await run_agent(worker("boss", shell), models=model)
    assert told(model.requests[2])[-1].content.split() == ["kept", "exported", "/"]


async def test_what_an_agent_launched_in_the_background_can_be_read_later(tmp_path: Path):
    shell = Bash(cwd=tmp_path)
    model = ScriptedModel(
        [ToolUse("a", "bash", {"command": "(echo result > out.txt; echo $$ > done.txt) & true"})],
        [ToolUse("b", "bash", {"command": "while [ ! -e done.txt ]; do sleep 0.01; done"})],
        [ToolUse("c", "bash", {"command": "cat out.txt"})],
        "done",
    )
    await run_agent(worker("boss", shell), models=model)
    assert told(model.requests[3])[-1].content.strip() == "result"


async def test_a_sub_agent_has_another_shell_than_its_caller(tmp_path: Path):
    shell = Bash(cwd=tmp_path)
    helper = worker("helper", shell)
    boss = worker("boss", shell, helper)
    model = ScriptedModel(
        [ToolUse("a", "bash", {"command": "x=mine"})],
        [ToolUse("b", "helper")],
        [ToolUse("c", "bash", {"command": "echo [$x]"})],
        "helped",
        [ToolUse("d", "bash", {"command": "echo [$x]"})],
        "done",
    )
    await run_agent(boss, models=model)
    assert told(model.requests[3])[-1].content.strip() == "[]"
    assert told(model.requests[5])[-1].content.strip() == "[mine]"


@pytest.mark.parametrize("ending", ["deleted", "closed", "cancelled"])
async def test_no_shell_process_outlives_its_tree(ending: str, tmp_path: Path):
    shell = Bash(cwd=tmp_path)
    boss = worker("boss", shell)
    start = "sleep 300 & (setsid sleep 301 &); nohup sleep 302 >/dev/null 2>&1 & true"
    script: list[Any] = [[ToolUse("a", "bash", {"command": start})]]
    hangs = ending == "cancelled"
    script.append([ToolUse("b", "bash", {"command": "sleep 303"})] if hangs else "done")
    async with Runtime([boss], models=ScriptedModel(*script)) as runtime:
        node = runtime.invoke(boss)
        if hangs:
            await until(lambda: any("sleep 303" in line for line in processes_in(tmp_path)))
            runtime.cancel(node.id, "enough")
            await ended(node)
            assert node.state is NodeState.Canceled
        else:
            await ended(node)
            await until(lambda: any("sleep 302" in line for line in processes_in(tmp_path)))
        if ending == "deleted":
            runtime.delete(node.id)
            await until(lambda: not processes_in(tmp_path))
    assert processes_in(tmp_path) == []
