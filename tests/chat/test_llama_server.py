"""A real llama.cpp server, asked by its address as any other server.

It announces keep-alive and closes each connection after a streamed answer. No retries are allowed
here, so a request that such a connection loses fails its test.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from treefold import (
    AgentFunction,
    AgentOptions,
    Client,
    ModelProviderException,
    NodeState,
    Runtime,
    TextBlock,
    UserText,
    query,
    tool,
)
from treefold.models import OpenAIModel, Profile, Retry
from treefold.models.local.llama import LlamaServer


@tool("add", "Add two numbers", {"a": int, "b": int})
def add(args: dict[str, int]) -> int:
    return args["a"] + args["b"]


@pytest.fixture(scope="module")
def server(smollm2: Path) -> Iterator[LlamaServer]:
    server = LlamaServer.start(smollm2)
    yield server
    server.close()


def options(server: LlamaServer, **more: object) -> AgentOptions:
    given: dict[str, object] = {"max_tokens": 24, "temperature": 0.0, "retry": Retry(())}
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


def model(server: LlamaServer, max_tokens: int) -> OpenAIModel:
    return OpenAIModel(
        "smollm2",
        base_url=server.base_url,
        api_key=server.api_key,
        profile=Profile(max_tokens=max_tokens, temperature=0.0),
        retry=Retry(()),
    )


async def test_thirty_requests_back_to_back_need_no_retry(server: LlamaServer):
    asked = model(server, 2)
    async with asyncio.timeout(120):
        for _ in range(30):
            session = asked.open()
            async for _ in session.send(UserText("Hi")):
                pass
            assert session.transcript[-1] != UserText("Hi")


async def test_agents_need_no_retry_one_after_the_other_and_six_at_once(server: LlamaServer):
    worker = AgentFunction("worker", "", user_prompt_template="Say hello.")
    async with asyncio.timeout(120), Runtime([worker], models=model(server, 64)) as runtime:
        for at_once in (1, 1, 1, 6):
            nodes = [runtime.invoke(worker, {}) for _ in range(at_once)]
            for node in nodes:
                await node
        assert all(node.state is NodeState.Success for node in runtime.list_toplevel())


class City(BaseModel):
    is_large: bool
    in_europe: bool


async def test_an_agent_without_functions_returns_a_result_of_a_type(server: LlamaServer):
    judge = AgentFunction(
        "judge",
        "",
        system_prompt="You know the cities of the world.",
        user_prompt_template="Tell me about Paris.",
        returns=City,
    )
    async with asyncio.timeout(60), Runtime([judge], models=model(server, 40)) as runtime:
        node = runtime.invoke(judge, {})
        assert isinstance(await node, City)
        assert runtime.get_view(node.id).notices == ()


async def test_a_chat_of_many_turns_needs_no_retry(server: LlamaServer):
    async with Client(options(server, max_tokens=2)) as client:
        for _ in range(6):
            await client.query("Hi")
            await heard(client)
    assert client.turn_count == 6


async def test_a_wrong_key_is_told(server: LlamaServer):
    given = options(server)
    given.api_key = "sk-wrong"
    async with Client(given) as client:
        with pytest.raises(ModelProviderException) as failure:
            await client.query("Hello")
    assert failure.value.status == 401
    assert "sk-wrong" not in str(failure.value)
