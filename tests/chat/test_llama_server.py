"""A client talks to a real llama.cpp server by its address, as to any other server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ramify import (
    AgentOptions,
    Client,
    ModelProviderException,
    NodeState,
    Runtime,
    TextBlock,
    query,
    tool,
)
from ramify.models import Retry
from ramify.models.local.llama import LlamaServer


@tool("add", "Add two numbers", {"a": int, "b": int})
def add(args: dict[str, int]) -> int:
    return args["a"] + args["b"]


@pytest.fixture(scope="module")
def server(smollm2: Path) -> Iterator[LlamaServer]:
    server = LlamaServer.start(smollm2)
    yield server
    server.close()


def options(server: LlamaServer, **more: object) -> AgentOptions:
    again = Retry([0.1] * 3)  # it closes connections that have been idle
    given: dict[str, object] = {"max_tokens": 24, "temperature": 0.0, "retry": again}
    return AgentOptions(
        "You are a helpful assistant.",
        "smollm2",
        server.base_url,
        api_key=server.api_key,
        **(given | more),  # pyright: ignore[reportArgumentType]
    )


async def heard(client: Client) -> list[str]:
    async with asyncio.timeout(60):
        blocks = [block async for block in client.receive_messages()]
    assert all(isinstance(block, TextBlock) for block in blocks)
    return [block.text for block in blocks if isinstance(block, TextBlock)]


async def test_a_conversation_is_streamed_and_remembered(server: LlamaServer):
    async with Runtime() as runtime, Client(options(server)) as client:
        await client.query("What is the capital of France?")
        first = await heard(client)
        await client.query("And of Italy?")
        second = await heard(client)
        turns = runtime.list_toplevel()
    assert len(first) > 3  # it streams
    assert "Paris" in "".join(first)
    assert "Rome" in "".join(second)
    assert [message["role"] for message in client.history] == ["user", "assistant"] * 2
    assert [turn.state for turn in turns] == [NodeState.Success] * 2
    assert client.usage.input > 0
    assert client.usage.output > 0


async def test_query_asks_one_question(server: LlamaServer):
    async with asyncio.timeout(60):
        messages = [message async for message in query("What is 1 + 1?", options(server))]
    assert len(messages) > 1
    assert all(len(message.content) == 1 for message in messages)


async def test_an_answer_is_interrupted_and_the_chat_goes_on(server: LlamaServer):
    async with Client(options(server, max_tokens=2000)) as client:
        await client.query("Tell me a very long story about the sea.")
        told = ""
        async with asyncio.timeout(60):
            async for block in client.receive_messages():
                assert isinstance(block, TextBlock)
                told += block.text
                if len(told) > 40:
                    await client.interrupt()
        assert client.history[-1] == {"role": "assistant", "content": told}
        await client.query("What is the capital of France?")
        async for _ in client.receive_messages():
            break
    assert len(client.history) == 4


async def test_tools_may_be_offered_whatever_the_model_makes_of_them(server: LlamaServer):
    given = options(server, tools=[add], auto_execute_tools=True, max_tool_iterations=2)
    async with Client(given) as client, asyncio.timeout(60):
        await client.query("What is 25 + 17?")
        async for _ in client.receive_messages():
            pass
        await client.query("Thank you.")
        async for _ in client.receive_messages():
            pass
    assert client.turn_count == 2


async def test_a_wrong_key_is_told(server: LlamaServer):
    given = options(server)
    given.api_key = "sk-wrong"
    async with Client(given) as client:
        await client.query("Hello")
        with pytest.raises(ModelProviderException) as failure:
            await heard(client)
    assert failure.value.status == 401
    assert "sk-wrong" not in str(failure.value)
