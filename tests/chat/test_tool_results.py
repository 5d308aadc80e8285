"""What a model is told of its calls, and when that is safe."""

from pathlib import Path
from typing import Any

from chat_helpers import (
    ANTHROPIC,
    Assistant,
    Result,
    User,
    add,
    asked,
    call,
    fail,
    options,
    serving,
    told,
    written,
)
from treefold import AgentOptions, Client, ToolResultBlock, ToolUse, ToolUseError, UserMessage
from treefold.testing import ScriptedModel


async def test_a_result_is_saved_as_soon_as_it_is_given(tmp_path: Path):
    def opened(*script: Any) -> Client:
        chosen = AgentOptions("You help.", ScriptedModel(*script), tools=[add])
        return Client(chosen, session="s", store=tmp_path / "chat.db")

    async with opened(ToolUse("1", "add", {"a": 1, "b": 2})) as client:
        await asked(client, "1 + 2?")
        await client.add_tool_result("1", 3)
        async with opened() as other:
            assert written(other.history) == [
                User("1 + 2?"),
                Assistant("", (call("1", "add", a=1, b=2),)),
                Result("1", 3),
            ]


async def test_of_a_very_long_exception_the_middle_is_left_out():
    model = ScriptedModel(ToolUse("1", "fail", {"why": "x" * 5000}), "Sorry.")
    chosen = AgentOptions("You help.", model, tools=[fail], auto_execute_tools=True)
    async with Client(chosen) as client:
        _, error, _ = await asked(client, "Go.")
    assert isinstance(error, ToolUseError)
    assert error.error == f"{'x' * 2000}\n[... 1,000 characters left out ...]\n{'x' * 2000}"


async def test_calls_whose_ids_differ_in_odd_letters_only_are_still_told_apart():
    function = {"name": "add", "arguments": "{}"}
    calls = [{"id": id, "type": "function", "function": function} for id in ("a.b", "a_b")]
    async with (
        serving(ANTHROPIC.text("Fine."), protocol=ANTHROPIC) as server,
        Client(options(server, ANTHROPIC, tools=[add])) as client,
    ):
        client.message_history = [
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a.b", "content": "1"},
            {"role": "tool", "tool_call_id": "a_b", "content": "2"},
            {"role": "assistant", "content": "Three."},
        ]
        await asked(client, "Well?")
    assert told(server.requests[0], ANTHROPIC) == [
        User("Hi."),
        Assistant("", (call("a_b", "add"), call("a_b_1", "add"))),
        Result("a_b", 1),
        Result("a_b_1", 2),
        Assistant("Three."),
        User("Well?"),
    ]


async def test_a_result_that_is_given_as_an_object_is_written_as_json():
    async with Client(AgentOptions("You help.", ScriptedModel())) as client:
        client.message_history = [UserMessage([ToolResultBlock("1", {"sum": None})])]
        assert client.history == [{"role": "tool", "tool_call_id": "1", "content": '{"sum": null}'}]
