"""Each run of a turn is a node, and a node owns what it started."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from treefold import (
    Agent,
    CodeFunction,
    Function,
    Node,
    NodeState,
    RunContext,
    Runtime,
    Tool,
    Turn,
    tool,
)


def add_tool() -> Tool[Any, Any]:
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    return add


def test_a_tool_is_a_function() -> None:
    made = add_tool()

    assert isinstance(made, CodeFunction)
    assert isinstance(made, Function)


async def test_the_turns_of_an_agent_make_nodes() -> None:
    made = add_tool()
    agent = Agent("clerk", "", [made])

    async with asyncio.timeout(60), Runtime() as runtime:
        for number in range(2):
            await agent.put(Turn(made, args=[number, 1]))
        async for _ in agent.run():
            pass
        views = [runtime.get_view(node.id) for node in runtime.list_toplevel()]

    assert [(view.fn, view.outputs) for view in views] == [("add", 1), ("add", 2)]


async def test_a_failed_turn_is_a_node_in_error() -> None:

    @tool
    async def fail() -> None:
        raise ConnectionError("no network")

    async with asyncio.timeout(60), Runtime() as runtime:
        with pytest.raises(ConnectionError):
            await Turn(fail).returning()
        [node] = runtime.list_toplevel()

    assert (node.state, type(node.exception)) == (NodeState.Error, ConnectionError)


def collected(reference: "weakref.ref[Node]") -> bool:
    gc.collect()
    return reference() is None


async def test_nothing_of_a_call_is_stored_on_the_function() -> None:
    both = asyncio.Barrier(2)

    @tool
    async def echo(word: str, ctx: RunContext) -> tuple[str, Any]:
        await both.wait()
        return word, ctx.node.inputs["word"]

    turns = [Turn(echo, args=[word]) for word in "ab"]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(turn.returning()) for turn in turns]

    assert [task.result() for task in tasks] == [("a", "a"), ("b", "b")]
    assert [turn.output for turn in turns] == [("a", "a"), ("b", "b")]
