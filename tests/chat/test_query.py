"""`query()`: one prompt and one streamed answer, over real HTTP."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from chat_helpers import (
    ANTHROPIC,
    OPENAI,
    SYSTEM,
    Assistant,
    Result,
    User,
    add,
    adding,
    after,
    call,
    options,
    serving,
    text_of,
    told,
)
from treefold import (
    AgentOptions,
    AssistantMessage,
    ModelProviderException,
    ResultMessage,
    TextBlock,
    ToolUseBlock,
    ToolUseError,
    query,
)
from treefold.models import Retry
from wire import Wait, openai_wire
from wire.openai_wire import MODEL
from wire.protocols import Protocol


async def messages(prompt: str, given: AgentOptions) -> list[AssistantMessage | ResultMessage]:
    async with asyncio.timeout(60):
        return [message async for message in query(prompt, given)]


def blocks(*found: Any) -> list[AssistantMessage]:
    return [AssistantMessage(content=[block]) for block in found]


async def test_each_delta_is_a_message_of_its_own_with_the_new_text_only():
    async with serving(OPENAI.text("Hel", "lo", "!")) as server:
        found = await messages("Hi", options(server))
    assert found == blocks(TextBlock("Hel"), TextBlock("lo"), TextBlock("!"))
    assert [message.role for message in found] == ["assistant"] * 3


async def test_finished_calls_follow_the_text_each_in_a_message_of_its_own():
    reply = openai_wire.calls([adding("c1", 1, 2), adding("c2", 3, 4)], ["Let me ", "see."])
    async with serving(reply) as server:
        found = await messages("Add", options(server, tools=[add]))
    assert found == blocks(
        TextBlock("Let me "),
        TextBlock("see."),
        ToolUseBlock("c1", "add", {"a": 1, "b": 2}),
        ToolUseBlock("c2", "add", {"a": 3, "b": 4}),
    )


async def test_it_is_an_async_generator_and_takes_its_arguments_by_name():
    async with serving(OPENAI.text("ok")) as server:
        result = query(prompt="Hello", options=options(server))
        assert isinstance(result, AsyncGenerator)
        assert server.requests == []  # nothing is asked before anybody listens
        async with asyncio.timeout(60):
            assert [message async for message in result] == blocks(TextBlock("ok"))
        assert len(server.requests) == 1


async def test_the_request_is_the_one_of_the_document():
    async with serving(OPENAI.text("ok")) as server:
        await messages("Hello", options(server))
    [request] = server.requests
    body = request.json
    body.pop("stream_options", None)
    assert body == {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "Hello"},
        ],
        "max_tokens": 4096,
        "temperature": 0.7,
        "stream": True,
    }
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")


async def test_the_request_is_made_by_the_sdk_of_openai_with_the_key_of_the_options():
    async with serving(OPENAI.text("ok"), OPENAI.text("ok")) as server:
        await messages("Hello", options(server))
        await messages("Hello", options(server, api_key="sk-mine"))
    headers = [request.headers for request in server.requests]
    assert [one["authorization"] for one in headers] == ["Bearer not-needed", "Bearer sk-mine"]
    assert all(one["user-agent"].startswith("AsyncOpenAI/Python") for one in headers)


async def test_settings_of_the_options_are_sent():
    async with serving(OPENAI.text("ok")) as server:
        await messages("Hello", options(server, model="qwen2.5", max_tokens=7, temperature=0.0))
    body = server.requests[0].json
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("qwen2.5", 7, 0.0)


async def test_without_max_tokens_the_provider_decides():
    async with serving(OPENAI.text("ok")) as server:
        await messages("Hello", options(server, max_tokens=None))
    assert "max_tokens" not in server.requests[0].json


async def test_tools_are_sent_in_the_format_of_openai():
    async with serving(OPENAI.text("ok")) as server:
        await messages("Hello", options(server, tools=[add]))
    assert server.requests[0].json["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "add",
                "description": "Add two numbers.",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                    "required": ["a", "b"],
                },
            },
        }
    ]


async def test_a_call_that_cannot_be_parsed_is_a_message_of_its_own_too():
    async with serving(OPENAI.calls(("c1", "add", "[25, 17]"))) as server:
        found = await messages("Add", options(server, tools=[add]))
    error = "Invalid JSON: an object is needed, not a list"
    assert found == blocks(ToolUseError(error, raw_data="[25, 17]"))


async def test_calls_are_only_told_of_unless_they_are_to_be_made():
    async with serving(OPENAI.calls(adding("c1"))) as server:
        found = await messages("Add", options(server, tools=[add]))
    assert found == blocks(ToolUseBlock("c1", "add", {"a": 25, "b": 17}))
    assert len(server.requests) == 1


async def test_calls_are_made_if_the_options_say_so(protocol: Protocol):
    script = [protocol.calls(adding("c1")), protocol.text("It is ", "42.")]
    async with serving(*script, protocol=protocol) as server:
        given = options(server, protocol, tools=[add], auto_execute_tools=True)
        found = [message.content[0] for message in await messages("25 + 17?", given)]
    assert found[-3:] == [
        ToolUseBlock("c1", "add", {"a": 25, "b": 17}),
        TextBlock("It is "),
        TextBlock("42."),
    ]
    assert told(server.requests[1], protocol) == [
        User("25 + 17?"),
        Assistant("", (call("c1", "add", a=25, b=17),)),
        Result("c1", 42),
    ]


async def test_the_first_block_comes_while_the_server_holds_back_the_rest(protocol: Protocol):
    rest = asyncio.Event()
    reply = after(protocol.text("one ", "two ", "three"), "one ", Wait(rest))
    async with serving(reply, protocol=protocol) as server, asyncio.timeout(60):
        found = query("Count.", options(server, protocol))
        assert await anext(found) == AssistantMessage([TextBlock("one ")])
        assert not rest.is_set()
        rest.set()
        assert [m async for m in found] == blocks(TextBlock("two "), TextBlock("three"))


async def test_leaving_it_early_closes_the_stream_and_raises_nothing(protocol: Protocol):
    reply = after(protocol.text("one ", "two ", "three"), "one ", Wait(asyncio.Event()))
    async with serving(reply, protocol=protocol) as server, asyncio.timeout(60):
        found = query("Count.", options(server, protocol))
        async for message in found:
            assert message == AssistantMessage([TextBlock("one ")])
            break
        await found.aclose()
        await server.disconnected.wait()
    assert server.in_flight == 0


async def test_one_that_is_cancelled_closes_its_stream():
    said = asyncio.Event()

    async def listen() -> None:
        async for _ in query("Count.", options(server)):
            said.set()

    reply = after(OPENAI.text("one ", "two "), "one ", Wait(asyncio.Event()))
    async with serving(reply) as server, asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(listen())
        await said.wait()
        task.cancel()
        await server.disconnected.wait()
    assert server.in_flight == 0


async def test_queries_at_the_same_time_do_not_mix():
    async with serving() as server:
        server.on_request = lambda request: OPENAI.text(
            *f"you said {request.json['messages'][-1]['content']}"
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(messages(f"n{n}", options(server))) for n in range(10)]
        texts = [text_of(m.content[0] for m in task.result()) for task in tasks]
    assert texts == [f"you said n{n}" for n in range(10)]


async def test_one_query_knows_nothing_of_another():
    async with serving(OPENAI.text("one"), OPENAI.text("two")) as server:
        given = options(server)
        await messages("First", given)
        await messages("Second", given)
    assert [told(request) for request in server.requests] == [[User("First")], [User("Second")]]


async def test_a_failure_of_the_provider_comes_out_of_the_loop():
    async with serving(OPENAI.failure(401, "wrong key")) as server:
        with pytest.raises(ModelProviderException, match="wrong key") as caught:
            await messages("Hello", options(server))
    assert caught.value.status == 401


async def test_a_server_that_cannot_call_functions_just_talks():
    refused = OPENAI.failure(400, "registry.ollama.ai/library/gemma does not support tools")
    async with serving(refused, OPENAI.text("Just text.")) as server:
        found = await messages("Hello", options(server, tools=[add]))
    assert found == blocks(TextBlock("Just text."))
    assert "tools" not in server.requests[1].json


async def test_it_works_with_a_model_of_another_provider():
    async with serving(ANTHROPIC.text("Bon", "jour"), protocol=ANTHROPIC) as server:
        model = ANTHROPIC.model(server, retry=Retry([]))
        found = await messages("Hi", AgentOptions(system_prompt=SYSTEM, model=model))
    assert found == blocks(TextBlock("Bon"), TextBlock("jour"))
