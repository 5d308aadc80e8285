"""Turns of a client are nodes like any other call: in the tree, with limits and a price."""

import asyncio
from typing import Any

import pytest

from chat_helpers import (
    OPENAI,
    User,
    add,
    adding,
    after,
    asked,
    fail,
    failing,
    options,
    serving,
    text_of,
    told,
)
from journeys.roles import REPORTED, children
from treefold import (
    AgentNode,
    Budget,
    BudgetExceeded,
    Client,
    CodeFunction,
    Limits,
    NodeState,
    RunContext,
    Runtime,
    tool,
)
from wire import Stall
from wire.protocols import Protocol


async def test_each_turn_is_a_node_at_top_level(protocol: Protocol):
    script = [protocol.text("one"), protocol.text("two")]
    async with (
        serving(*script, protocol=protocol) as server,
        Runtime() as runtime,
        Client(options(server, protocol)) as client,
    ):
        await asked(client, "1")
        await asked(client, "2")
        nodes = runtime.list_toplevel()
        assert [node.function.name for node in nodes] == ["chat turn", "chat turn"]
        assert all(isinstance(node, AgentNode) for node in nodes)
        assert [node.state for node in nodes] == [NodeState.Success] * 2
        assert client.node is nodes[1]
        assert [node.usage for node in nodes] == [REPORTED[protocol.name]] * 2


async def test_calls_that_are_made_automatically_are_its_children():
    script = [OPENAI.calls(adding("a"), failing("b")), OPENAI.text("Done.")]
    async with (
        serving(*script) as server,
        Runtime() as runtime,
        Client(options(server, tools=[add, fail], auto_execute_tools=True)) as client,
    ):
        await asked(client, "Go.")
        [turn] = runtime.list_toplevel()
        made = [(node.function.name, node.tool_use_id, node.state) for node in children(turn)]
        assert made == [("add", "a", NodeState.Success), ("fail", "b", NodeState.Error)]
        assert children(turn)[0].outputs == 42
        assert turn.state is NodeState.Success


async def test_in_a_running_call_a_turn_is_a_child_of_that_call():
    async def talk(ctx: RunContext) -> str:
        async with Client(options(server)) as client:
            return text_of(await asked(client, "Hi"))

    function = CodeFunction(callable=talk)
    async with serving(OPENAI.text("Hello.")) as server, Runtime([function]) as runtime:
        node = runtime.invoke(function)
        async with asyncio.timeout(60):
            assert await node == "Hello."
        [turn] = children(node)
        assert turn.function.name == "chat turn"
        assert runtime.list_toplevel() == [node]
        assert node.total_usage == REPORTED["openai"]


async def test_an_interrupted_turn_is_a_cancelled_node_and_so_is_its_call():
    started = asyncio.Event()

    @tool("wait", "Wait.", {})
    async def wait(args: dict[str, Any]) -> None:
        started.set()
        await asyncio.Event().wait()

    async with (
        serving(OPENAI.calls(("a", "wait", "{}"))) as server,
        Runtime() as runtime,
        Client(options(server, tools=[wait], auto_execute_tools=True)) as client,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(asked(client, "Go."))
        await started.wait()
        await client.interrupt()
        await task
        [turn] = runtime.list_toplevel()
        assert [node.state for node in (turn, *children(turn))] == [NodeState.Canceled] * 2


async def test_a_failed_turn_is_a_failed_node():
    async with (
        serving(OPENAI.failure(500)) as server,
        Runtime() as runtime,
        Client(options(server)) as client,
    ):
        with pytest.raises(Exception, match="It failed"):
            await asked(client, "Hi")
        [turn] = runtime.list_toplevel()
        assert turn.state is NodeState.Error


async def test_cancelling_the_node_of_a_turn_closes_its_stream():
    held = after(OPENAI.text("Once ", "upon"), "Once ", Stall())
    async with (
        serving(held, OPENAI.text("ok")) as server,
        Runtime(),
        Client(options(server)) as client,
        asyncio.timeout(60),
    ):
        await client.query("A story.")
        blocks = client.receive_messages()
        await anext(blocks)
        assert client.node is not None
        client.node.cancel("no longer wanted")
        await server.disconnected.wait()
        await blocks.aclose()
        assert text_of(await asked(client, "Hi")) == "ok"
    assert told(server.requests[1])[-1] == User("Hi")


async def test_the_budget_of_the_runtime_counts():
    script = [OPENAI.text("one"), OPENAI.text("two")]
    async with (
        serving(*script) as server,
        Runtime(budget=Budget(tokens=18)),
        Client(options(server)) as client,
    ):
        await asked(client, "1")
        with pytest.raises(BudgetExceeded):
            await asked(client, "2")
    assert len(server.requests) == 1


async def test_a_history_that_a_program_wrote_needs_room_in_the_budget():
    written = [
        {"role": "user", "content": "What is in the report?"},
        {"role": "assistant", "content": "x" * 500_000},
    ]
    async with (
        serving(OPENAI.text("one"), OPENAI.text("two")) as server,
        Runtime(budget=Budget(tokens=100_000)),
        Client(options(server)) as client,
    ):
        client.message_history = written
        with pytest.raises(BudgetExceeded, match="125,0.. needed"):
            await asked(client, "1")
        client.message_history[1]["content"] = "x" * 300_000
        await asked(client, "1")
        # What the server has counted for that answer was another history.
        client.message_history[1]["content"] = "x" * 500_000
        with pytest.raises(BudgetExceeded, match="125,0.. needed"):
            await asked(client, "2")
    assert len(server.requests) == 1


async def test_a_response_that_was_cut_off_needs_room_in_the_budget_of_the_next():
    async with (
        serving(after(OPENAI.text("x" * 80_000, "y"), "x" * 80_000, Stall())) as server,
        Runtime(budget=Budget(tokens=15_000)),
        Client(options(server)) as client,
        asyncio.timeout(60),
    ):
        await client.query("A story.")
        async for _ in client.receive_messages():
            await client.interrupt()
        with pytest.raises(BudgetExceeded, match="20,... needed"):
            await asked(client, "2")
    assert len(server.requests) == 1


async def test_the_limits_of_the_runtime_count():
    async def talk() -> None:
        async with Client(options(server)) as client:
            await asked(client, "Hi")

    async with serving() as server, Runtime(limits=Limits(concurrent_requests=2)):
        server.on_request = lambda request: OPENAI.text("Hel", "lo")
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(talk())
    assert len(server.requests) == 8
    assert server.most_in_flight <= 2


async def test_without_a_runtime_turns_are_nodes_all_the_same():
    async with serving(OPENAI.text("ok")) as server, Client(options(server)) as client:
        await asked(client, "Hi")
        assert client.node is not None
        assert (client.node.function.name, client.node.state) == ("chat turn", NodeState.Success)
