"""Turns among other turns: several readers, leases, changed options, and a life after failure."""

import asyncio
import gc
from contextlib import closing
from typing import Any

import pytest

from chat_helpers import (
    ANTHROPIC,
    Assistant,
    User,
    add,
    asked,
    heard,
    serving,
    text_of,
    written,
)
from treefold import (
    AgentNode,
    AgentOptions,
    Client,
    Limits,
    ModelProviderException,
    ModelText,
    Runtime,
    ToolUse,
    ToolUseBlock,
    UserText,
)
from treefold.core.errors import UsageError
from treefold.models import AnthropicModel
from treefold.testing import HANGS, ScriptedModel, ScriptedRequest

ADDING = ToolUse("1", "add", {"a": 1, "b": 2})


def options(*script: Any, **changes: Any) -> AgentOptions:
    return AgentOptions("You help.", ScriptedModel(*script), tools=[add], **changes)


async def test_every_reader_comes_to_the_end_when_the_turn_does():
    async with Client(options(HANGS)) as client, asyncio.timeout(60):
        await client.query("Hello.")
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(heard(client)) for _ in range(3)]
            for _ in range(50):  # until they wait
                await asyncio.sleep(0)
            await client.interrupt()
    assert [reader.result() for reader in readers] == [[], [], []]


async def test_whoever_reads_of_a_call_may_ask_a_model_himself():
    found: list[Any] = []
    async with (
        asyncio.timeout(60),
        Runtime(limits=Limits(concurrent_requests=1)),
        Client(options(ADDING, "It is 3.", auto_execute_tools=True)) as client,
        Client(options("Go ahead. ")) as other,
    ):
        await client.query("1 + 2?")
        async for block in client.receive_messages():
            found.append(block)
            if isinstance(block, ToolUseBlock):
                found += await asked(other, "Shall I?")
    assert text_of(found) == "Go ahead. It is 3."


async def test_options_that_are_changed_count_from_the_next_query_on():
    first, second = ScriptedModel("one"), ScriptedModel("two", name="second")
    async with Client(AgentOptions("Be brief.", first)) as client:
        await asked(client, "1")
        client.options.model, client.options.system_prompt = second, "Be long."
        await asked(client, "2")
        assert isinstance(client.node, AgentNode)
        assert client.node.model == "second"
    assert second.requests == [
        ScriptedRequest("Be long.", (), (UserText("1"), ModelText("one"), UserText("2")))
    ]


async def test_a_turn_is_not_made_again_behind_the_back_of_its_client(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with (
        serving(protocol=ANTHROPIC) as server,
        Runtime() as runtime,
        Client(
            AgentOptions("You help.", AnthropicModel("claude-opus-4-1", base_url=server.url))
        ) as client,
    ):
        with pytest.raises(ModelProviderException, match="needs a key"):
            await asked(client, "Hello.")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-key")
        [node] = runtime.list_toplevel()
        with pytest.raises(UsageError, match="query"):
            await runtime.resume(node.id)
    assert client.history == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_conversation_survives_the_loop_that_was_closed_under_it():
    client = Client(options("Hello.", HANGS, "Good."))

    async def begin():
        await Runtime(limits=Limits(concurrent_requests=1)).__aenter__()
        await asked(client, "Hi.")
        await client.query("Are you there?")

    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(begin())
    asyncio.run(asked(client, "How are you?"))
    assert written(client.history) == [
        User("Hi."),
        Assistant("Hello."),
        User("How are you?"),
        Assistant("Good."),
    ]
    gc.collect()  # what is left of the turn complains here, and not in another test
