"""Calls that are not as they should be, and hooks above hooks."""

from typing import Any

from chat_helpers import add, asked, by_name
from treefold import (
    AgentOptions,
    AssistantMessage,
    Client,
    HookDecision,
    Runtime,
    TextBlock,
    ToolUse,
    ToolUseBlock,
    ToolUseError,
    UserText,
)
from treefold.testing import ScriptedModel


def options(model: ScriptedModel, **changes: Any) -> AgentOptions:
    return AgentOptions("You help.", model, tools=[add], **changes)


async def test_a_call_of_a_tool_that_is_not_there_is_shown_before_its_failure():
    model = ScriptedModel(ToolUse("1", "ad", {"a": 1}), "Sorry.")
    async with Client(options(model, auto_execute_tools=True)) as client:
        assert await asked(client, "1 + 2?") == [
            ToolUseBlock("1", "ad", {"a": 1}),
            ToolUseError("Tool 'ad' not found in registry", "{'a': 1}"),
            TextBlock("Sorry."),
        ]


async def test_the_arguments_of_a_call_in_the_history_may_be_anything():
    function = {"name": "add", "arguments": '{"a": '}
    calls = [{"id": "1", "type": "function", "function": function}]
    async with Client(options(ScriptedModel())) as client:
        client.message_history = [{"role": "assistant", "content": "", "tool_calls": calls}]
        assert client.messages == [AssistantMessage([ToolUseBlock("1", "add", {})])]


async def test_a_result_without_its_call_and_without_a_name_is_told_of():
    model = ScriptedModel("Fine.")
    async with Client(options(model)) as client:
        client.message_history = [{"role": "tool", "tool_call_id": "1", "content": "3"}]
        await asked(client, "Well?")
    told = "[The result of an earlier call of a function: 3]\n\nWell?"
    assert [request.transcript for request in model.requests] == [(UserText(told),)]


async def test_the_history_has_the_letters_of_a_call_as_the_model_wrote_them():
    async with Client(options(ScriptedModel(ToolUse("1", "add", {"a": "fünf"})))) as client:
        await asked(client, "5 + 2?")
        [call] = client.history[-1]["tool_calls"]
        assert call["function"] == {"name": "add", "arguments": '{"a": "fünf"}'}


async def test_of_two_hooks_that_change_a_call_the_one_that_is_nearer_has_the_last_word():
    seen: list[dict[str, Any]] = []

    async def outer(event: Any) -> HookDecision:
        return HookDecision(modified_input={"a": 10, "b": 1})

    async def inner(event: Any) -> HookDecision:
        seen.append(event.tool_input)
        return HookDecision(modified_input={**event.tool_input, "b": 5})

    model = ScriptedModel(ToolUse("1", "add", {"a": 1, "b": 2}), "Done.")
    changes = {"auto_execute_tools": True, "hooks": by_name(pre=[inner])}
    async with Runtime(hooks=by_name(pre=[outer])), Client(options(model, **changes)) as client:
        shown, _ = await asked(client, "1 + 2?")
        assert (seen, shown, client.history[2]["content"]) == (
            [{"a": 10, "b": 1}],
            ToolUseBlock("1", "add", {"a": 10, "b": 5}),
            "15",
        )
