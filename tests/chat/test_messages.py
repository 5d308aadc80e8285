"""Blocks and typed messages: plain dataclasses, and what they stand for."""

from dataclasses import asdict, fields, is_dataclass
from typing import Any

import pytest

import treefold
from chat_helpers import (
    ANTHROPIC,
    OPENAI,
    Assistant,
    Result,
    User,
    add,
    adding,
    asked,
    call,
    fail,
    failing,
    options,
    serving,
    text_of,
    told,
    written,
)
from treefold import (
    AssistantMessage,
    Client,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    ToolUseDelta,
    ToolUseError,
    UserMessage,
)
from wire import anthropic_wire, openai_wire
from wire.protocols import Protocol

NAMES = [
    "AgentOptions", "AssistantMessage", "Client", "HOOK_POST_TOOL_USE", "HOOK_PRE_TOOL_USE",
    "HOOK_USER_PROMPT_SUBMIT", "HookDecision", "PostToolUseEvent", "PreToolUseEvent",
    "SessionStore", "SystemMessage", "TextBlock", "ThinkingBlock", "Tool", "ToolResultBlock",
    "ToolUseBlock", "ToolUseDelta", "ToolUseError", "UserMessage", "UserPromptSubmitEvent",
    "compact_messages", "estimate_tokens", "get_base_url", "get_model", "query", "tool",
    "truncate_messages",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_names_of_the_document_can_be_imported(name: str):
    assert getattr(treefold, name) is not None
    assert name in dir(treefold)


@pytest.mark.parametrize(
    ("block", "values"),
    [
        (TextBlock("hi"), {"text": "hi", "type": "text"}),
        (
            ThinkingBlock("hm"),
            {"thinking": "hm", "signature": None, "was_text": False, "type": "thinking"},
        ),
        (
            ToolUseBlock("c", "add", {"a": 1}),
            {"id": "c", "name": "add", "input": {"a": 1}, "type": "tool_use"},
        ),
        (
            ToolUseDelta(0, "c", "add", '{"a"'),
            {"index": 0, "id": "c", "name": "add", "arguments": '{"a"', "type": "tool_use_delta"},
        ),
        (ToolUseError("bad"), {"error": "bad", "raw_data": None, "type": "tool_use_error"}),
        (
            ToolResultBlock("c", {"x": 1}),
            {"tool_use_id": "c", "content": {"x": 1}, "is_error": False, "type": "tool_result"},
        ),
        (AssistantMessage([]), {"content": [], "role": "assistant"}),
        (UserMessage("hi"), {"content": "hi", "role": "user"}),
        (SystemMessage("be brief"), {"content": "be brief", "role": "system"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_blocks_and_messages_are_plain_dataclasses(block: Any, values: dict[str, Any]):
    assert is_dataclass(type(block))
    assert asdict(block) == values
    assert [field.name for field in fields(block)] == list(values)
    assert block == type(block)(**values)


async def test_the_conversation_can_be_read_as_messages(protocol: Protocol):
    script = [protocol.calls(adding("a"), failing("b")), protocol.text("It is ", "42.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add, fail], auto_execute_tools=True)) as client,
    ):
        assert client.messages == []
        await asked(client, "25 + 17?")
        [user, calling, results, answer] = client.messages
    assert user == UserMessage("25 + 17?")
    assert isinstance(calling, AssistantMessage)
    assert [block for block in calling.content if isinstance(block, ToolUseBlock)] == [
        ToolUseBlock("a", "add", {"a": 25, "b": 17}),
        ToolUseBlock("b", "fail", {"why": "no such city"}),
    ]
    assert isinstance(results, UserMessage)
    [done, failed] = results.content
    assert isinstance(done, ToolResultBlock)
    assert isinstance(failed, ToolResultBlock)
    assert (done.tool_use_id, str(done.content), done.is_error) == ("a", "42", False)
    assert (failed.tool_use_id, failed.is_error) == ("b", True)
    assert isinstance(answer, AssistantMessage)
    assert text_of(answer.content) == "It is 42."


async def test_a_history_may_be_given_as_messages(protocol: Protocol):
    given: list[Any] = [
        UserMessage("25 + 17?"),
        AssistantMessage([TextBlock("Let me see."), ToolUseBlock("a", "add", {"a": 25, "b": 17})]),
        UserMessage([ToolResultBlock("a", "42")]),
        {"role": "assistant", "content": "It is 42."},
    ]
    async with (
        serving(protocol.text("Yes."), protocol=protocol) as server,
        Client(options(server, protocol, tools=[add])) as client,
    ):
        client.message_history = given
        await asked(client, "Sure?")
    said = [
        User("25 + 17?"),
        Assistant("Let me see.", (call("a", "add", a=25, b=17),)),
        Result("a", 42),
        Assistant("It is 42."),
        User("Sure?"),
    ]
    assert told(server.requests[0], protocol) == said
    assert written(client.history) == [*said, Assistant("Yes.")]


async def test_results_may_stand_in_the_message_that_asks_for_them(protocol: Protocol):
    given: list[Any] = [
        UserMessage("25 + 17, and 1 + 2?"),
        AssistantMessage([
            TextBlock("Let me see."),
            ToolUseBlock("a", "add", {"a": 25, "b": 17}),
            ToolUseBlock("b", "add", {"a": 1, "b": 2}),
            ToolResultBlock("a", {"sum": 42}),
            ToolResultBlock("b", "3"),
            TextBlock("42 and 3."),
        ]),
    ]
    async with (
        serving(protocol.text("Yes."), protocol=protocol) as server,
        Client(options(server, protocol, tools=[add])) as client,
    ):
        client.message_history = given
        await asked(client, "Sure?")
    assert told(server.requests[0], protocol) == [
        User("25 + 17, and 1 + 2?"),
        Assistant("Let me see.", (call("a", "add", a=25, b=17), call("b", "add", a=1, b=2))),
        Result("a", {"sum": 42}),
        Result("b", 3),
        Assistant("42 and 3."),
        User("Sure?"),
    ]


async def test_of_a_message_that_is_given_only_texts_calls_and_results_are_sent(protocol: Protocol):
    thought = ThinkingBlock("Let me see.", "U0lHTkVE")
    given: list[Any] = [
        SystemMessage("Be kind."),
        UserMessage("25 + 17?"),
        AssistantMessage([thought, ToolUseError("Invalid JSON", "{"), TextBlock("42.")]),
    ]
    async with (
        serving(protocol.text("Yes."), protocol=protocol) as server,
        Client(options(server, protocol, system_prompt="")) as client,
    ):
        client.message_history = given
        await asked(client, "Sure?")
        assert client.messages == [
            given[0],
            given[1],
            AssistantMessage([TextBlock("42.")]),
            UserMessage("Sure?"),
            AssistantMessage([TextBlock("Yes.")]),
        ]
    body = server.requests[0].body
    assert b"Be kind." in body
    assert b"Let me see." not in body
    assert b"Invalid JSON" not in body


async def test_messages_of_one_client_can_be_given_to_another(protocol: Protocol):
    script = [protocol.text("Hello, ", "Ada."), protocol.text("Ada.")]
    async with serving(*script, protocol=protocol) as server:
        given = options(server, protocol)
        async with Client(given) as first, Client(given) as second:
            await asked(first, "I am Ada.")
            second.message_history = first.messages
            await asked(second, "Who am I?")
    assert told(server.requests[1], protocol) == [
        User("I am Ada."),
        Assistant("Hello, Ada."),
        User("Who am I?"),
    ]


# --- thinking


async def test_thinking_streams_as_blocks_of_its_own():
    reply = openai_wire.reasoning("Let me ", "think.", text=["Four."])
    async with serving(reply) as server, Client(options(server)) as client:
        assert await asked(client, "2 + 2?") == [
            ThinkingBlock("Let me "),
            ThinkingBlock("think."),
            TextBlock("Four."),
        ]
        assert written(client.history) == [User("2 + 2?"), Assistant("Four.")]


async def test_thinking_of_claude_streams_and_is_kept_with_its_signature():
    thought = anthropic_wire.Thinking(["Let me ", "think."], "U0lHTkVE")
    script = [anthropic_wire.message(thought, anthropic_wire.Text(["Four."])), ANTHROPIC.text("ok")]
    async with (
        serving(*script, protocol=ANTHROPIC) as server,
        Client(options(server, ANTHROPIC)) as client,
    ):
        found = await asked(client, "2 + 2?")
        await asked(client, "Sure?")
    thoughts = [block.thinking for block in found if isinstance(block, ThinkingBlock)]
    assert "".join(thoughts) == "Let me think."
    assert len(thoughts) >= 2
    assert text_of(found) == "Four."
    assert server.requests[1].json["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "Let me think.",
        "signature": "U0lHTkVE",
    }


async def test_the_whole_text_is_told_again_when_it_turns_out_to_be_thinking():
    reply = OPENAI.text("Is it ", "four? ", "Yes.</think>", "Four.")
    async with serving(reply) as server, Client(options(server)) as client:
        found = await asked(client, "2 + 2?")
        assert found[-2:] == [
            ThinkingBlock("Is it four? Yes.", was_text=True),
            TextBlock("Four."),
        ]
        assert written(client.history)[-1] == Assistant("Four.")
