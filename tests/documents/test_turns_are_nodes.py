"""What DESIGN §1 promises of turns: each run is a node, and a node owns what it started."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from ramify import (
    Agent,
    CodeFunction,
    Function,
    Node,
    NodeState,
    RunContext,
    Runtime,
    StopReason,
    Tool,
    Turn,
    TurnTimeoutError,
    tool,
)


def add_tool() -> Tool[Any, Any]:
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    return add


def test_a_tool_is_a_function() -> None:
    """§1: "`Tool` is the `CodeFunction` that `@tool` makes"."""
    made = add_tool()

    assert isinstance(made, CodeFunction)
    assert isinstance(made, Function)


async def test_a_turn_makes_a_node() -> None:
    """§1: "`Turn.returning()`, a `Client` turn and `ctx.invoke()` all make nodes"."""
    async with asyncio.timeout(5), Runtime() as runtime:
        await Turn(add_tool(), kwargs={"a": 1, "b": 2}).returning()
        [node] = runtime.list_toplevel()
        view = runtime.get_view(node.id)

    assert (view.fn, dict(view.inputs), view.outputs) == ("add", {"a": 1, "b": 2}, 3)
    assert (view.state, view.path) == (NodeState.Success, "1")


async def test_the_turns_of_an_agent_make_nodes() -> None:
    """§1: "so one viewer shows all three faces"."""
    made = add_tool()
    agent = Agent("clerk", "", [made])

    async with asyncio.timeout(5), Runtime() as runtime:
        for number in range(2):
            await agent.put(Turn(made, args=[number, 1]))
        async for _ in agent.run():
            pass
        views = [runtime.get_view(node.id) for node in runtime.list_toplevel()]

    assert [(view.fn, view.outputs) for view in views] == [("add", 1), ("add", 2)]


async def test_a_failed_turn_is_a_node_in_error() -> None:
    """§1: "A node ends in Success with a value or in Error with a cause"."""

    @tool
    async def fail() -> None:
        raise ConnectionError("no network")

    async with asyncio.timeout(5), Runtime() as runtime:
        with pytest.raises(ConnectionError):
            await Turn(fail).returning()
        [node] = runtime.list_toplevel()

    assert (node.state, type(node.exception)) == (NodeState.Error, ConnectionError)


async def test_a_turn_and_a_call_made_by_a_tool_are_children_of_its_node() -> None:
    """§1: "parent, children"; "code may call all of them"."""
    made = add_tool()

    @tool
    async def twice(ctx: RunContext) -> list[int]:
        return [
            await ctx.invoke(made, {"a": 1, "b": 1}),
            await Turn(made, args=[2, 2]).returning(),
        ]

    async with asyncio.timeout(5), Runtime() as runtime:
        values = await Turn(twice).returning()
        [node] = runtime.list_toplevel()
        view = runtime.get_view(node.id)

    assert values == [2, 4]
    assert [(child.path, child.fn, child.outputs) for child in view.children] == [
        ("1.1", "add", 2),
        ("1.2", "add", 4),
    ]


async def test_a_timeout_ends_the_calls_that_the_tool_made() -> None:
    """§1: "cancelling a node cancels its subtree"."""
    ended: list[str] = []

    @tool
    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("child")

    @tool
    async def parent(ctx: RunContext) -> None:
        await ctx.invoke(child)

    before = asyncio.all_tasks()
    async with asyncio.timeout(5):
        with pytest.raises(TurnTimeoutError):
            await Turn(parent, timeout=0.01).returning()

    assert ended == ["child"]
    assert asyncio.all_tasks() == before


async def test_a_child_that_nobody_awaited_does_not_outlive_the_turn() -> None:
    """§1: "a child never outlives its parent"."""
    ended: list[str] = []
    started = asyncio.Event()

    @tool
    async def child() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("child")

    @tool
    async def parent(ctx: RunContext) -> str:
        ctx.invoke(child)
        await started.wait()
        return "done"

    before = asyncio.all_tasks()
    turn = Turn(parent, timeout=0.1)
    async with asyncio.timeout(5):
        try:
            await turn.returning()
        except TurnTimeoutError:  # the parent may wait for its child, or cancel it
            assert turn.stop_reason is StopReason.TIMEOUT

    assert ended == ["child"]
    assert asyncio.all_tasks() == before


def collected(reference: "weakref.ref[Node]") -> bool:
    gc.collect()
    return reference() is None


async def test_a_finished_tree_that_nobody_holds_is_gone() -> None:
    """§1: the ambient Runtime "keeps no finished tree that nobody holds"."""
    nodes: list[weakref.ref[Node]] = []

    @tool
    async def work(ctx: RunContext) -> None:
        nodes.append(weakref.ref(ctx.node))

    for _ in range(3):
        await Turn(work).returning()
    await asyncio.sleep(0)

    assert [collected(node) for node in nodes] == [True] * 3


async def test_a_finished_tree_is_gone_while_other_timers_wait() -> None:
    """§1: "keeps no finished tree that nobody holds", in a program that has a timer running."""
    nodes: list[weakref.ref[Node]] = []

    @tool
    async def work(ctx: RunContext) -> None:
        nodes.append(weakref.ref(ctx.node))

    async with asyncio.timeout(5):
        for _ in range(3):
            await Turn(work).returning()
        await asyncio.sleep(0)
        gone = [collected(node) for node in nodes]

    assert gone == [True] * 3


async def test_nothing_of_a_call_is_stored_on_the_function() -> None:
    """§1: "Nothing about a particular call is stored on it": two calls at once stay apart."""
    both = asyncio.Barrier(2)

    @tool
    async def echo(word: str, ctx: RunContext) -> tuple[str, Any]:
        await both.wait()
        return word, ctx.node.inputs["word"]

    turns = [Turn(echo, args=[word]) for word in "ab"]
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        tasks = [group.create_task(turn.returning()) for turn in turns]

    assert [task.result() for task in tasks] == [("a", "a"), ("b", "b")]
    assert [turn.output for turn in turns] == [("a", "a"), ("b", "b")]
