"""Tool calls that the client makes itself, over real HTTP."""

import asyncio
import logging
from typing import Any

import pytest

from chat_helpers import (
    OPENAI,
    Assistant,
    Result,
    User,
    add,
    adding,
    after,
    asked,
    call,
    fail,
    failed,
    failing,
    heard,
    joined,
    options,
    serving,
    text_of,
    told,
    written,
)
from support import settle
from treefold import (
    HOOK_POST_TOOL_USE,
    AgentOptions,
    Client,
    PostToolUseEvent,
    TextBlock,
    ToolUseBlock,
    ToolUseError,
    tool,
)
from wire import Wait, openai_wire
from wire.protocols import Protocol


@tool("multiply", "Multiply two numbers.", {"a": int, "b": int})
async def multiply(args: dict[str, Any]) -> int:
    return args["a"] * args["b"]


def automatic(server: Any, protocol: Protocol | None = None, **changes: Any) -> AgentOptions:
    given = {"tools": [add, multiply, fail], "auto_execute_tools": True, **changes}
    return options(server, protocol, **given)


async def test_tools_are_run_until_the_model_only_talks(protocol: Protocol):
    script = [
        protocol.calls(adding("a")),
        protocol.calls(("b", "multiply", '{"a":42,"b":3}')),
        protocol.text("It is ", "126."),
    ]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(automatic(server, protocol, max_tool_iterations=10)) as client,
    ):
        found = await asked(client, "What's 25 + 17, then multiply by 3?")
    assert [block for block in joined(found) if block.type != "thinking"] == [
        ToolUseBlock("a", "add", {"a": 25, "b": 17}),
        ToolUseBlock("b", "multiply", {"a": 42, "b": 3}),
        TextBlock("It is 126."),
    ]
    said = [
        User("What's 25 + 17, then multiply by 3?"),
        Assistant("", (call("a", "add", a=25, b=17),)),
        Result("a", 42),
        Assistant("", (call("b", "multiply", a=42, b=3),)),
        Result("b", 126),
        Assistant("It is 126."),
    ]
    assert [told(request, protocol) for request in server.requests] == [
        said[:1],
        said[:3],
        said[:5],
    ]
    assert written(client.history) == said


def test_tools_are_not_run_unless_that_is_asked_for_and_five_times_at_most():
    given = AgentOptions(system_prompt="x", model="m", base_url="http://localhost:1/v1")
    assert (given.auto_execute_tools, given.max_tool_iterations) == (False, 5)


async def test_the_calls_of_one_response_are_all_run_and_answered_in_order(protocol: Protocol):
    script = [
        protocol.calls(adding("a", 1, 2), failing("b"), adding("c", 3, 4)),
        protocol.text("Done."),
    ]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(automatic(server, protocol)) as client,
    ):
        await asked(client, "Go.")
    assert told(server.requests[1], protocol)[2:] == [
        Result("a", 3),
        failed("b", "no such city", "fail"),
        Result("c", 7),
    ]


async def test_text_before_a_call_is_yielded_before_it():
    script = [openai_wire.calls([adding("a")], ["Let me ", "add."]), OPENAI.text("42")]
    async with serving(*script) as server, Client(automatic(server)) as client:
        found = await asked(client, "25 + 17?")
    assert joined(found) == [
        TextBlock("Let me add."),
        ToolUseBlock("a", "add", {"a": 25, "b": 17}),
        TextBlock("42"),
    ]
    assert told(server.requests[1])[1] == Assistant("Let me add.", (call("a", "add", a=25, b=17),))


async def test_a_call_is_yielded_before_it_is_made():
    made: list[Any] = []

    @tool("note", "Note.", {"n": int})
    async def note(args: dict[str, Any]) -> None:
        made.append(args["n"])

    script = [OPENAI.calls(("a", "note", '{"n":1}'), ("b", "note", '{"n":2}')), OPENAI.text("ok")]
    async with (
        serving(*script) as server,
        Client(automatic(server, tools=[note])) as client,
        asyncio.timeout(60),
    ):
        await client.query("Go.")
        async for block in client.receive_messages():
            if isinstance(block, ToolUseBlock):
                await settle()
                assert block.input["n"] not in made
    assert made == [1, 2]


async def test_no_tool_is_run_before_the_response_is_complete():
    made, rest = list[Any](), asyncio.Event()

    @tool("note", "Note.", {"n": int})
    async def note(args: dict[str, Any]) -> None:
        made.append(args["n"])

    first = OPENAI.calls(("a", "note", '{"n":1}'), ("b", "note", '{"n":2}'))
    held = after(first, '{"n":2}', Wait(rest))
    async with (
        serving(held, OPENAI.text("ok")) as server,
        Client(automatic(server, tools=[note])) as client,
        asyncio.timeout(60),
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(asked(client, "Go."))
        await server.arrived.wait()
        await settle()
        assert made == []
        rest.set()
        await task
        assert made == [1, 2]


async def test_the_first_text_comes_while_the_server_holds_back_the_rest(protocol: Protocol):
    rest = asyncio.Event()
    last = after(protocol.text("It is ", "42", "."), "It is ", Wait(rest))
    async with (
        serving(protocol.calls(adding("a")), last, protocol=protocol) as server,
        Client(automatic(server, protocol)) as client,
        asyncio.timeout(60),
    ):
        await client.query("25 + 17?")
        blocks = client.receive_messages()
        async for block in blocks:
            if isinstance(block, TextBlock):
                break
        else:
            pytest.fail("no text")
        assert block == TextBlock("It is ")
        assert not rest.is_set()
        rest.set()


async def test_the_first_text_of_a_response_with_calls_is_not_held_back_either():
    rest = asyncio.Event()
    first = after(openai_wire.calls([adding("a")], ["Let me ", "add."]), "Let me ", Wait(rest))
    async with (
        serving(first, OPENAI.text("42")) as server,
        Client(automatic(server)) as client,
        asyncio.timeout(60),
    ):
        await client.query("25 + 17?")
        blocks = client.receive_messages()
        assert await anext(blocks) == TextBlock("Let me ")
        rest.set()
        assert joined([block async for block in blocks])[-1] == TextBlock("42")


async def test_an_unknown_tool_is_an_error_block_and_the_model_is_told(protocol: Protocol):
    script = [protocol.calls(("a", "subtract", '{"a":1}')), protocol.text("Sorry.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(automatic(server, protocol)) as client,
    ):
        found = await asked(client, "Go.")
    errors = [block for block in found if isinstance(block, ToolUseError)]
    assert errors == [ToolUseError("Tool 'subtract' not found in registry", raw_data=str({"a": 1}))]
    assert text_of(found) == "Sorry."
    said = [
        User("Go."),
        Assistant("", (call("a", "subtract", a=1),)),
        failed("a", "Tool 'subtract' not found in registry", "subtract"),
    ]
    assert told(server.requests[1], protocol) == said
    assert written(client.history) == [*said, Assistant("Sorry.")]


async def test_a_raising_tool_is_an_error_block_and_the_model_is_told(protocol: Protocol):
    script = [protocol.calls(failing("a")), protocol.text("Sorry.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(automatic(server, protocol)) as client,
    ):
        found = await asked(client, "Go.")
    errors = [block for block in found if isinstance(block, ToolUseError)]
    assert errors == [ToolUseError("no such city", raw_data=str({"why": "no such city"}))]
    assert text_of(found) == "Sorry."
    said = [
        User("Go."),
        Assistant("", (call("a", "fail", why="no such city"),)),
        failed("a", "no such city", "fail"),
    ]
    assert told(server.requests[1], protocol) == said
    assert written(client.history) == [*said, Assistant("Sorry.")]


@pytest.mark.parametrize("auto", [False, True], ids=["manual", "automatic"])
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"a": 25, "b"', "Expecting ':' delimiter: line 1 column 14 (char 13)"),
        ("[25, 17]", "an object is needed, not a list"),
    ],
)
async def test_arguments_that_are_no_json_object_are_an_error_block_that_says_why(
    *, auto: bool, arguments: str, reason: str
):
    script = [OPENAI.calls(("a", "add", arguments)), OPENAI.text("Oh.")]
    async with (
        serving(*script) as server,
        Client(options(server, tools=[add], auto_execute_tools=auto)) as client,
    ):
        found = [*await asked(client, "25 + 17?"), *await asked(client, "Well?")]
    errors = [block for block in found if isinstance(block, ToolUseError)]
    assert errors == [ToolUseError(f"Invalid JSON: {reason}", raw_data=arguments)]
    assert text_of(found) == "Oh."
    assert told(server.requests[1]) == [User("25 + 17?\n\nWell?")]
    assert all("tool_calls" not in message for message in client.history)


async def test_hooks_after_a_call_are_given_the_structured_error():
    seen: list[PostToolUseEvent] = []

    async def note(event: PostToolUseEvent) -> None:
        seen.append(event)

    script = [OPENAI.calls(failing("a"), ("b", "subtract", "{}")), OPENAI.text("ok")]
    async with (
        serving(*script) as server,
        Client(automatic(server, hooks={HOOK_POST_TOOL_USE: [note]})) as client,
    ):
        await asked(client, "Go.")
    assert [(event.tool_use_id, event.tool_name, event.tool_result) for event in seen] == [
        ("a", "fail", {"error": "no such city", "tool": "fail"}),
        (
            "b",
            "subtract",
            {"error": "Tool 'subtract' not found in registry", "tool": "subtract"},
        ),
    ]


async def test_max_tool_iterations_ends_a_loop_that_would_never_end(
    protocol: Protocol, caplog: pytest.LogCaptureFixture
):
    made: list[Any] = []

    @tool("again", "Again.", {"n": int})
    async def again(args: dict[str, Any]) -> str:
        made.append(args["n"])
        return f"did {args['n']}"

    script = [protocol.calls((f"c{n}", "again", f'{{"n":{n}}}')) for n in (1, 2)]
    async with (
        serving(*script, protocol.text("Enough."), protocol=protocol) as server,
        Client(automatic(server, protocol, tools=[again], max_tool_iterations=2)) as client,
    ):
        with caplog.at_level(logging.WARNING):
            found = await asked(client, "Go on and on.")
        assert [b.id for b in found if isinstance(b, ToolUseBlock)] == ["c1", "c2"]
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert (made, len(server.requests)) == ([1, 2], 2)
        assert text_of(await asked(client, "Stop.")) == "Enough."
    said = [
        User("Go on and on."),
        Assistant("", (call("c1", "again", n=1),)),
        Result("c1", "did 1"),
        Assistant("", (call("c2", "again", n=2),)),
        Result("c2", "did 2"),
        User("Stop."),
    ]
    assert told(server.requests[2], protocol) == said
    assert made == [1, 2]


async def test_after_max_tool_iterations_it_can_be_continued(protocol: Protocol):
    script = [protocol.calls(adding("a")), protocol.text("42.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(automatic(server, protocol, max_tool_iterations=1)) as client,
    ):
        await asked(client, "25 + 17?")
        await client.query("")
        assert text_of(await heard(client)) == "42."
    assert told(server.requests[1], protocol) == [
        User("25 + 17?"),
        Assistant("", (call("a", "add", a=25, b=17),)),
        Result("a", 42),
    ]


async def test_the_results_of_a_request_that_failed_are_sent_with_the_next(protocol: Protocol):
    made: list[Any] = []

    @tool("count", "Count.", {})
    async def count(args: dict[str, Any]) -> int:
        made.append(args)
        return len(made)

    script = [
        protocol.calls(("a", "count", "{}")),
        protocol.failure(500, "out of order"),
        protocol.text("One."),
    ]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(automatic(server, protocol, tools=[count])) as client,
    ):
        with pytest.raises(Exception, match="out of order"):
            await asked(client, "Count.")
        assert text_of(await asked(client, "And?")) == "One."
    assert told(server.requests[2], protocol) == [
        User("Count."),
        Assistant("", (call("a", "count"),)),
        Result("a", 1),
        User("And?"),
    ]
    assert made == [{}]
