"""The message about what an answer took."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chat_helpers import add, serving, until_failure
from treefold import (
    AgentOptions,
    AssistantMessage,
    Client,
    ModelProviderException,
    ResultMessage,
    TextBlock,
    ToolUse,
    query,
)
from treefold.models import OpenAIModel
from treefold.testing import ScriptedFailure, ScriptedModel
from wire import openai_wire


def script() -> ScriptedModel:
    return ScriptedModel(ToolUse("c", "add", {"a": 1, "b": 2}), "Three.")


async def test_it_is_not_there_unless_asked_for():
    read = [message async for message in query("?", AgentOptions("", ScriptedModel("Three.")))]
    assert read == [AssistantMessage([TextBlock("Three.")])]


async def test_query_ends_with_it():
    options = AgentOptions("", script(), tools=[add], auto_execute_tools=True, result_message=True)
    *_, text, last = [message async for message in query("1 + 2?", options)]
    assert text == AssistantMessage([TextBlock("Three.")])
    assert isinstance(last, ResultMessage)
    assert (last.subtype, last.is_error, last.num_turns) == ("success", False, 2)
    assert (last.session_id, last.result, last.content) == (None, "Three.", [])
    assert last.duration_ms >= 0
    assert last.total_cost_usd is None  # nobody knows the price of a script


async def test_it_covers_all_turns_of_an_iteration(tmp_path: Path):
    options = AgentOptions("", script(), tools=[add], result_message=True)
    async with Client(options, session="sum", store=tmp_path / "chats.db") as client:
        await client.query("1 + 2?")
        read: list[Any] = []
        async for block in client.receive_messages():
            read.append(block)
            if block.type == "tool_use":
                await client.add_tool_result(block.id, 3)
                await client.query("")
        assert [block.type for block in read] == ["tool_use", "text", "result"]
        last = read[-1]
        assert (last.num_turns, last.session_id, last.result) == (2, "sum", "Three.")
        assert last.usage == client.usage


async def test_it_has_the_price():
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0, "total_tokens": 1_000_000}
    async with serving(openai_wire.text("Three.", usage=usage)) as server:
        model = OpenAIModel("gpt-4o", base_url=f"{server.url}/v1", price=lambda _: Decimal("2.5"))
        options = AgentOptions("", model, result_message=True)
        *_, last = [message async for message in query("?", options)]
    assert isinstance(last, ResultMessage)
    assert (last.total_cost_usd, last.usage.input) == (2.5, 1_000_000)


async def test_a_failure_is_in_it_and_raised_after_it():
    options = AgentOptions("", ScriptedModel(ScriptedFailure(400, "no")), result_message=True)
    async with Client(options) as client:
        with pytest.raises(ModelProviderException):
            await client.query("?")  # before there is anything to read
    script = ScriptedModel(ToolUse("c", "add", {"a": 1, "b": 2}), ScriptedFailure(400, "no"))
    options = AgentOptions("", script, tools=[add], auto_execute_tools=True, result_message=True)
    async with Client(options) as client:
        await client.query("1 + 2?")
        read, failure = await until_failure(client)
    assert isinstance(failure, ModelProviderException)
    last = read[-1]
    assert (last.subtype, last.is_error, last.num_turns, last.result) == ("error", True, 1, None)


async def test_an_interrupted_answer_is_no_error():
    options = AgentOptions("", script(), tools=[add], auto_execute_tools=True, result_message=True)
    async with Client(options) as client:
        await client.query("1 + 2?")
        read: list[Any] = []
        async for block in client.receive_messages():
            read.append(block)
            if block.type == "tool_use":
                await client.interrupt()
        last = read[-1]
    assert (last.subtype, last.is_error, last.result) == ("interrupted", False, None)


async def test_an_answer_that_another_prompt_supersedes_is_no_error():
    options = AgentOptions("", script(), tools=[add], auto_execute_tools=True, result_message=True)
    async with Client(options) as client:
        await client.query("1 + 2?")
        read: list[Any] = []
        async for block in client.receive_messages():
            read.append(block)
            if block.type == "tool_use":
                await client.query("Never mind.")
    assert [block.type for block in read] == ["tool_use", "result"]
    assert (read[-1].subtype, read[-1].is_error) == ("interrupted", False)


async def test_what_an_answer_took_is_told_once():
    options = AgentOptions("", ScriptedModel("One."), result_message=True)
    async with Client(options) as client:
        await client.query("Count.")
        first = [type(one).__name__ async for one in client.receive_messages()]
        second = [one async for one in client.receive_messages()]
    assert (first, second) == (["TextBlock", "ResultMessage"], [])
