"""Tool calls that the program makes, which is the default."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from chat_helpers import (
    OPENAI,
    Assistant,
    Result,
    Saying,
    User,
    add,
    adding,
    after,
    asked,
    call,
    heard,
    joined,
    options,
    serving,
    text_of,
    told,
    written,
)
from treefold import AgentOptions, Client, TextBlock, ToolUseBlock
from wire import Wait, openai_wire
from wire.protocols import Protocol

SUM = [
    User("25 + 17?"),
    Assistant("", (call("a", "add", a=25, b=17),)),
    Result("a", 42),
    Assistant("It is 42."),
]


def manual(server: Any, protocol: Protocol | None = None) -> AgentOptions:
    return options(server, protocol, tools=[add])


async def in_the_loop(client: Client) -> list[Any]:
    """Answer as the document does, inside the one loop."""
    found: list[Any] = []
    async for block in client.receive_messages():
        found.append(block)
        if isinstance(block, ToolUseBlock):
            result = await add.execute(block.input)
            await client.add_tool_result(block.id, result, block.name)
            await client.query("")
    return found


async def after_the_loop(client: Client) -> list[Any]:
    """Read to the end, answer, and read on."""
    found = await heard(client)
    while calls := [block for block in found if isinstance(block, ToolUseBlock)]:
        for one in calls:
            await client.add_tool_result(one.id, await add.execute(one.input), one.name)
        await client.query("")
        found = await heard(client)
    return found


async def in_a_nested_loop(client: Client) -> list[Any]:
    """Answer inside the loop, and read on in another."""
    found: list[Any] = []
    async for block in client.receive_messages():
        found.append(block)
        if isinstance(block, ToolUseBlock):
            await client.add_tool_result(block.id, await add.execute(block.input), block.name)
            await client.query("")
            found += await in_a_nested_loop(client)
    return found


STYLES = pytest.mark.parametrize("style", [in_the_loop, after_the_loop, in_a_nested_loop])
Style = Callable[[Client], Any]


@STYLES
async def test_a_call_is_made_by_the_program_and_its_result_sent(protocol: Protocol, style: Style):
    script = [protocol.calls(adding("a")), protocol.text("It is ", "42.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(manual(server, protocol)) as client,
        asyncio.timeout(60),
    ):
        await client.query("25 + 17?")
        assert text_of(await style(client)) == "It is 42."
        assert written(client.history) == SUM
    assert told(server.requests[1], protocol) == SUM[:3]
    assert len(server.requests) == 2


@STYLES
async def test_results_go_back_and_forth_as_often_as_the_model_likes(style: Style):
    script = [OPENAI.calls(adding(f"c{n}", n, n)) for n in range(3)]
    async with (
        serving(*script, OPENAI.text("Done.")) as server,
        Client(manual(server)) as client,
        asyncio.timeout(60),
    ):
        await client.query("Go.")
        assert text_of(await style(client)) == "Done."
        assert client.turn_count == 4
    assert [one for one in told(server.requests[3]) if isinstance(one, Result)] == [
        Result("c0", 0),
        Result("c1", 2),
        Result("c2", 4),
    ]


async def test_the_loop_of_the_document_gets_every_block_once():
    script = [
        openai_wire.calls([adding("a")], ["Let me ", "see."]),
        OPENAI.text("It is ", "42."),
    ]
    async with serving(*script) as server, Client(manual(server)) as client, asyncio.timeout(60):
        await client.query("25 + 17?")
        assert joined(await in_the_loop(client)) == [
            TextBlock("Let me see."),
            ToolUseBlock("a", "add", {"a": 25, "b": 17}),
            TextBlock("It is 42."),
        ]


async def test_several_calls_of_one_response_are_answered_in_one_request(protocol: Protocol):
    script = [protocol.calls(adding("a", 1, 1), adding("b", 2, 2)), protocol.text("2 and 4.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(manual(server, protocol)) as client,
        asyncio.timeout(60),
    ):
        await client.query("Add.")
        found = await in_the_loop(client)  # which asks to go on after each of them
    assert [block.id for block in found if isinstance(block, ToolUseBlock)] == ["a", "b"]
    assert text_of(found) == "2 and 4."
    assert told(server.requests[1], protocol) == [
        User("Add."),
        Assistant("", (call("a", "add", a=1, b=1), call("b", "add", a=2, b=2))),
        Result("a", 2),
        Result("b", 4),
    ]
    assert len(server.requests) == 2


async def test_results_may_be_given_in_any_order(protocol: Protocol):
    script = [protocol.calls(adding("a"), adding("b")), protocol.text("ok")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(manual(server, protocol)) as client,
    ):
        await asked(client, "Add.")
        await client.add_tool_result("b", "second", "add")
        await client.add_tool_result("a", "first", "add")
        await client.query("")
        await heard(client)
    results = [one for one in told(server.requests[1], protocol) if isinstance(one, Result)]
    assert sorted(results, key=lambda one: one.id) == [Result("a", "first"), Result("b", "second")]


async def test_the_request_that_continues_has_no_message_of_the_user():
    script = [OPENAI.calls(adding("a")), OPENAI.text("ok")]
    async with serving(*script) as server, Client(manual(server)) as client, asyncio.timeout(60):
        await client.query("25 + 17?")
        await in_the_loop(client)
    roles = [message["role"] for message in server.requests[1].json["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]


async def test_a_result_is_a_message_of_the_history():
    async with serving(OPENAI.calls(adding("a"))) as server, Client(manual(server)) as client:
        await asked(client, "25 + 17?")
        await client.add_tool_result(tool_call_id="a", content="42", name="add")
        assert client.history[-1] == {
            "role": "tool",
            "tool_call_id": "a",
            "name": "add",
            "content": "42",
        }


@pytest.mark.parametrize(
    "content", [{"temp": 72}, [1, 2], 42, 1.5, None, False, "plain", "", "größer"]
)
async def test_a_result_is_text_as_it_is_or_else_json(content: Any):
    script = [OPENAI.calls(adding("a")), OPENAI.text("ok")]
    async with serving(*script) as server, Client(manual(server)) as client:
        await asked(client, "Go.")
        await client.add_tool_result("a", content, "add")
        await client.query("")
        await heard(client)
    assert told(server.requests[1])[-1] == Result("a", content)


async def test_a_prompt_while_calls_are_unanswered_sends_what_there_is(protocol: Protocol):
    script = [protocol.calls(adding("a"), adding("b")), protocol.text("Fine.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(manual(server, protocol)) as client,
    ):
        await asked(client, "Add.")
        await client.add_tool_result("a", 42, "add")
        assert text_of(await asked(client, "Never mind the other.")) == "Fine."
    made = (call("a", "add", a=25, b=17), call("b", "add", a=25, b=17))
    [*before, last, prompt] = told(server.requests[1], protocol)
    assert before == [User("Add."), Assistant("", made), Result("a", 42)]
    assert isinstance(last, Result)
    assert (last.id, last.content) == ("b", Saying("not"))
    assert prompt == User("Never mind the other.")


async def test_calls_that_nobody_answered_do_not_spoil_the_history(protocol: Protocol):
    script = [protocol.calls(adding("a")), protocol.text("Fine."), protocol.text("Still fine.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(manual(server, protocol)) as client,
    ):
        await asked(client, "Add.")
        await asked(client, "Never mind.")
        await asked(client, "Again.")
    [user, assistant, result, *rest] = told(server.requests[2], protocol)
    assert (user, assistant) == (User("Add."), Assistant("", (call("a", "add", a=25, b=17),)))
    assert isinstance(result, Result)
    assert (result.id, result.content) == ("a", Saying("not"))
    assert rest == [User("Never mind."), Assistant("Fine."), User("Again.")]


async def test_calls_come_when_the_response_is_complete():
    rest = asyncio.Event()
    held = after(openai_wire.calls([adding("a")], ["Let me ", "see."]), '"a":25', Wait(rest))
    async with serving(held) as server, Client(manual(server)) as client, asyncio.timeout(60):
        await client.query("25 + 17?")
        blocks = client.receive_messages()
        assert [await anext(blocks), await anext(blocks)] == [
            TextBlock("Let me "),
            TextBlock("see."),
        ]
        rest.set()
        assert [block async for block in blocks] == [ToolUseBlock("a", "add", {"a": 25, "b": 17})]


async def test_the_first_text_comes_while_the_server_holds_back_the_rest(protocol: Protocol):
    rest = asyncio.Event()
    reply = after(protocol.text("one ", "two ", "three"), "one ", Wait(rest))
    async with (
        serving(reply, protocol=protocol) as server,
        Client(manual(server, protocol)) as client,
        asyncio.timeout(60),
    ):
        await client.query("Count.")
        blocks = client.receive_messages()
        assert await anext(blocks) == TextBlock("one ")
        assert not rest.is_set()
        rest.set()
        assert [block async for block in blocks] == [TextBlock("two "), TextBlock("three")]
