"""Hooks of a chat that replace results, and those that do not let an answer be the last."""

from pathlib import Path
from typing import Any

from chat_helpers import add, asked, heard, text_of, until_failure
from treefold import (
    AgentOptions,
    Client,
    HookDecision,
    PostToolUseEvent,
    StopEvent,
    TextBlock,
    ToolResult,
    ToolUse,
    ToolUseBlock,
)
from treefold.testing import ScriptedModel


async def hide(event: PostToolUseEvent) -> HookDecision:
    return HookDecision(modified_result=f"{event.tool_result} or so")


def script() -> ScriptedModel:
    return ScriptedModel(ToolUse("c", "add", {"a": 1, "b": 2}), "About three.")


async def test_the_model_and_the_history_have_the_result_of_the_hook(tmp_path: Path):
    model, store = script(), tmp_path / "chats.db"
    options = AgentOptions(
        "", model, tools=[add], auto_execute_tools=True, hooks={"PostToolUse": [hide]}
    )
    async with Client(options, session="sum", store=store) as client:
        await asked(client, "1 + 2?")
        assert client.history[2]["content"] == "3 or so"
    assert model.requests[1].transcript[-1] == ToolResult("c", "3 or so")
    async with Client(options, session="sum", store=store) as again:
        assert again.history[2]["content"] == "3 or so"


async def test_so_has_a_program_that_makes_the_calls_itself(tmp_path: Path):
    model, store = script(), tmp_path / "chats.db"
    options = AgentOptions("", model, tools=[add], hooks={"PostToolUse": [hide]})
    async with Client(options, session="sum", store=store) as client:
        [block] = await asked(client, "1 + 2?")
        assert isinstance(block, ToolUseBlock)
        await client.add_tool_result(block.id, 3)
        assert client.history[-1]["content"] == "3 or so"
        async with Client(options, session="sum", store=store) as again:
            assert again.history[-1]["content"] == "3 or so"
        await client.query("")
        await heard(client)
        await client.add_tool_result("other", 4, "add")
        assert [message["content"] for message in client.history[2:]] == [
            "3 or so",
            "About three.",
            "4 or so",
        ]
    assert model.requests[1].transcript[-1] == ToolResult("c", "3 or so")


def insisting(times: int) -> tuple[list[StopEvent], Any]:
    seen: list[StopEvent] = []

    async def insist(event: StopEvent) -> HookDecision | None:
        seen.append(event)
        return HookDecision(modified_prompt="Be precise.") if len(seen) <= times else None

    return seen, insist


async def test_a_stop_hook_lets_the_answer_continue():
    model = ScriptedModel(ToolUse("c", "add", {"a": 1, "b": 2}), "About three.", "Three.")
    seen, insist = insisting(1)
    options = AgentOptions(
        "", model, tools=[add], auto_execute_tools=True, hooks={"Stop": [insist]}
    )
    async with Client(options) as client:
        blocks = await asked(client, "1 + 2?")
    assert text_of(blocks) == "About three.Three."
    assert [(event.agent, event.result) for event in seen] == [
        ("chat turn", "About three."),
        ("chat turn", "Three."),
    ]
    assert [message["content"] for message in client.history[3:]] == [
        "About three.",
        "Be precise.",
        "Three.",
    ]


async def test_calls_that_are_left_to_the_program_are_no_end():
    seen, insist = insisting(0)
    options = AgentOptions("", script(), tools=[add], hooks={"Stop": [insist]})
    async with Client(options) as client:
        [block] = await asked(client, "1 + 2?")
        assert seen == []
        await client.add_tool_result(block.id, 3)
        await client.query("")
        await heard(client)
    assert [event.result for event in seen] == ["About three."]


async def test_an_exception_of_a_stop_hook_is_raised_after_the_answer():
    async def fail(event: StopEvent) -> None:
        raise RuntimeError("no")

    options = AgentOptions("", ScriptedModel("Three."), hooks={"Stop": [fail]})
    async with Client(options) as client:
        await client.query("1 + 2?")
        read, failure = await until_failure(client)
    assert (read, type(failure)) == ([TextBlock("Three.")], RuntimeError)
