"""Tools, hooks and agents that a function defines: each call of the function has its own."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest

from treefold import (
    Agent,
    AgentRegistry,
    CallGraphError,
    HookRegistry,
    Runtime,
    Tool,
    ToolHook,
    ToolRegistry,
    ToolUse,
    Turn,
    agent,
    hook,
    registries,
    tool,
)
from treefold.testing import ScriptedModel


def make_search(user: str) -> Tool[[], Any, str]:
    @tool
    async def search() -> str:
        return f"found for {user}"

    return search


async def test_a_factory_of_tools_may_be_called_twice():
    with registries():
        one, two = make_search("ada"), make_search("bob")
        assert [await one(), await two()] == ["found for ada", "found for bob"]
        assert [await one.run(), await two.run()] == ["found for ada", "found for bob"]


async def test_requests_that_are_served_at_once_find_their_own_tools_by_name():
    both = asyncio.Barrier(2)

    async def serve(user: str) -> str:
        make_search(user)
        await both.wait()
        return await Turn("search").returning()

    with registries():
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            served = [group.create_task(serve(user)) for user in ("ada", "bob")]
        assert [task.result() for task in served] == ["found for ada", "found for bob"]


def test_names_that_are_registered_after_a_factory_was_called_twice_are_for_all():
    def names() -> list[str]:
        return [one.name for one in ToolRegistry.all()]

    with registries():
        elsewhere = copy_context()
        first = make_search("ada")
        second = make_search("bob")
        exec("@tool\nasync def late() -> None: ...", {"tool": tool, "__name__": "late"})
        assert names() == elsewhere.run(names) == ["search", "late"]
        assert ToolRegistry.get("search") is second
        assert elsewhere.run(ToolRegistry.get, "search") is first
        ToolRegistry.clear()
        assert names() == elsewhere.run(names) == []


def test_many_calls_of_a_factory_leave_nothing_behind():
    with registries():
        for user in range(1000):
            make_search(str(user))
        assert len(ToolRegistry.all()) == 1


def test_a_top_level_tool_stays_what_others_find():
    namespace: dict[str, Any] = {"tool": tool, "__name__": "top"}
    with registries():
        exec("@tool\nasync def search() -> str: return 'top'", namespace)
        own = make_search("ada")
        assert ToolRegistry.get("search") is own

        ToolRegistry.unregister("search")
        assert ToolRegistry.get("search") is namespace["search"]


def test_two_definitions_in_one_function_are_refused():
    def define() -> None:
        @tool
        async def search() -> None: ...  # pyright: ignore[reportRedeclaration]

        @tool
        async def search() -> None: ...  # noqa: F811 - the mistake

    with registries():
        with pytest.raises(ValueError, match="'search' is taken"):
            define()
        with pytest.raises(ValueError, match="'search' is taken"):
            define()


def make_clerk(user: str) -> Agent:
    return Agent("clerk", f"Works for {user}.", [make_search(user)])


async def test_a_factory_of_queue_agents_may_be_called_twice():
    with registries():
        one, two = make_clerk("ada"), make_clerk("bob")
        assert AgentRegistry.get("clerk") is two
        await one.put(Turn(one.tools[0]))
        assert [value async for _, value in one.run()] == ["found for ada"]
        assert two.turns == []


async def test_a_branch_of_a_name_may_be_made_by_each_call_of_a_function():
    def branch(clerk: Agent) -> Agent:
        return clerk.branch("second")

    with registries():
        clerk = make_clerk("ada")
        assert branch(clerk) is not branch(clerk)


def test_hooks_of_a_function_fire_for_its_own_calls():
    seen: list[str] = []

    def define(user: str) -> Tool[[], Any, str]:
        @hook(ToolHook.AFTER_INVOKE)
        async def note(result: str) -> None:
            seen.append(f"{user}: {result}")

        return make_search(user)

    with registries():
        define("ada")
        asyncio.run(define("bob")())
        assert len(HookRegistry.all()) == 1
    assert seen == ["bob: found for bob"]


def make_agent(user: str) -> Any:
    @tool
    async def search() -> str:
        return f"found for {user}"

    @agent(uses=[search])
    def answer(question: str) -> str:
        return f"{user} asks: {question}"

    return answer


def scripted() -> ScriptedModel:
    return ScriptedModel(lambda request: "Done." if _has_result(request) else _ask())


def _has_result(request: Any) -> bool:
    return "found for" in str(request)


def _ask() -> ToolUse:
    return ToolUse("1", "search", {})


@pytest.mark.parametrize("specs", [list, lambda: [make_agent("first")]])
async def test_one_runtime_runs_the_agents_of_every_request(specs: Callable[[], list[Any]]):
    with registries():
        async with Runtime(specs(), models=scripted()) as runtime:
            nodes = [runtime.invoke(make_agent(user), {"question": "?"}) for user in ("ada", "bob")]
            for node in nodes:
                await node
            assert [node.children[0].outputs for node in nodes] == [
                "found for ada",
                "found for bob",
            ]
            kept = dict(runtime.invocable_functions)
            await runtime.invoke(make_agent("eve"), {"question": "?"})
            assert runtime.invocable_functions == kept


async def test_two_tools_of_one_name_in_one_agent_are_refused():
    with registries():
        runtime = Runtime([make_agent("first")], models=scripted())

        @agent(uses=[make_search("ada"), make_search("bob")])
        def confused(question: str) -> str:
            return question

        with pytest.raises(CallGraphError, match="two functions are called 'search'"):
            runtime.invoke(confused, {"question": "?"})
        runtime.close()
