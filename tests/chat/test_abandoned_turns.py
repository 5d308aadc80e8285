"""Turns that nobody waits for any more, and histories that are changed while one is under way."""

import asyncio
import gc
from typing import Any

from chat_helpers import Assistant, User, by_name, heard, text_of, written
from treefold import AgentOptions, Client, NodeState, ToolUse, ToolUseBlock, tool
from treefold.testing import HANGS, ScriptedModel


def options(*script: Any, **changes: Any) -> AgentOptions:
    return AgentOptions("You help.", ScriptedModel(*script), **changes)


async def test_a_query_that_is_given_up_while_a_hook_thinks_ends_its_turn():
    entered = asyncio.Event()

    async def think(event: object) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(60), Client(options("no", hooks=by_name(prompt=[think]))) as client:
        async with asyncio.TaskGroup() as group:
            query = group.create_task(client.query("Hi."))
            await entered.wait()
            query.cancel()
        node: Any = client.node
        await node.ended()
        assert (node.state, client.history) == (NodeState.Canceled, [])


async def test_the_turn_of_a_client_that_was_forgotten_ends():
    client = Client(options(HANGS))
    async with asyncio.timeout(60):
        await client.query("Hi.")
        node: Any = client.node
        del client
        gc.collect()
        await node.ended()
    assert node.state is NodeState.Canceled


async def test_a_reader_that_leaves_does_not_take_the_turn_from_the_next_one():
    entered, go = asyncio.Event(), asyncio.Event()

    @tool("look", "Look it up.", {})
    async def look(args: dict[str, Any]) -> str:
        entered.set()
        await go.wait()
        return "42"

    script = [ToolUse("1", "look", {}), "It is 42."]
    async with (
        asyncio.timeout(60),
        Client(options(*script, tools=[look], auto_execute_tools=True)) as client,
        asyncio.TaskGroup() as group,
    ):
        await client.query("Look.")
        first = client.receive_messages()
        assert await anext(first) == ToolUseBlock("1", "look", {})
        second = group.create_task(heard(client))
        await entered.wait()
        await first.aclose()
        go.set()
    assert text_of(second.result()) == "It is 42."


async def test_what_is_written_into_the_history_while_a_response_comes_in_stays_before_it():
    async with Client(options("Fine.")) as client:
        client.message_history = [{"role": "user", "content": "Yes."}]
        await client.query("Well?")
        client.message_history.append({"role": "user", "content": "Later."})
        await heard(client)
        assert written(client.history) == [
            User("Yes."),
            User("Well?"),
            User("Later."),
            Assistant("Fine."),
        ]
