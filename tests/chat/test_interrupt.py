"""Interrupting a turn, or leaving it: what is kept, and that the next request can be sent."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chat_helpers import (
    OPENAI,
    Assistant,
    Result,
    Said,
    User,
    add,
    adding,
    after,
    asked,
    call,
    heard,
    options,
    serving,
    text_of,
    told,
    written,
)
from treefold import Client, TextBlock, ToolUseBlock, tool
from wire import Reply, Stall, anthropic_wire, gemini_wire, openai_wire
from wire.protocols import Protocol

ONCE = [User("A story."), Assistant("Once ")]


async def until_text(client: Client) -> None:
    """Interrupt the turn as soon as there is text."""
    async for block in client.receive_messages():
        if isinstance(block, TextBlock):
            await client.interrupt()


async def leave_at_text(client: Client) -> None:
    """Leave the loop as soon as there is text."""
    async for block in client.receive_messages():
        if isinstance(block, TextBlock):
            break


WAYS = pytest.mark.parametrize("way", [until_text, leave_at_text])
Way = Callable[[Client], Awaitable[None]]


def held(protocol: Protocol, *pieces: str) -> Reply:
    """Return a text of which only the first piece ever comes."""
    return after(protocol.text(*pieces), pieces[0], Stall())


def thinking(protocol: Protocol) -> Reply:
    """Return a response that never gets beyond its thoughts."""
    match protocol.name:
        case "openai":
            return after(openai_wire.reasoning("Hm.", text=["Yes."]), "Hm.", Stall())
        case "anthropic":
            blocks = [anthropic_wire.Thinking(["Hm."]), anthropic_wire.Text(["Yes."])]
            return after(anthropic_wire.message(*blocks), "Hm.", Stall())
        case _:
            thought = gemini_wire.chunk([gemini_wire.thought("Hm.")])
            return gemini_wire.reply(thought, Stall())


def calling(protocol: Protocol) -> Reply:
    """Return some text, and a call of which the end never comes."""
    match protocol.name:
        case "openai":
            made = openai_wire.calls([("a", "add", '{"a":', "25}")], ["Let me see."])
            return after(made, '{"a":', Stall())
        case "anthropic":
            text, use = anthropic_wire.Text(["Let me see."]), anthropic_wire.ToolUse("a", "add")
            return after(
                anthropic_wire.message(text, use, stop_reason="tool_use"), '"name":"add"', Stall()
            )
        case _:
            parts = [gemini_wire.text("Let me see."), gemini_wire.call("add", {"a": 25}, "a")]
            chunks = [gemini_wire.chunk([part]) for part in parts]
            return gemini_wire.reply(*chunks, Stall())


@WAYS
async def test_the_text_so_far_is_kept(protocol: Protocol, way: Way):
    script = [held(protocol, "Once ", "upon ", "a time"), protocol.text("Gladly.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol)) as client,
        asyncio.timeout(60),
    ):
        await client.query("A story.")
        await way(client)
        await server.disconnected.wait()
        assert server.in_flight == 0
        assert text_of(await asked(client, "Another.")) == "Gladly."
    assert told(server.requests[1], protocol) == [*ONCE, User("Another.")]
    assert written(client.history) == [*ONCE, User("Another."), Assistant("Gladly.")]


async def test_interrupting_is_seen_in_the_history_at_once_and_the_loop_just_ends():
    async with (
        serving(held(OPENAI, "Once ", "upon")) as server,
        Client(options(server)) as client,
        asyncio.timeout(60),
    ):
        await client.query("A story.")
        found = []
        async for block in client.receive_messages():
            found.append(block)
            await client.interrupt()
            assert written(client.history) == ONCE
        assert found == [TextBlock("Once ")]
        assert await heard(client) == []


async def interrupted(client: Client, prompt: str, when: Awaitable[Any]) -> list[Any]:
    """Ask, interrupt from another task when *when* is over, and return what came by then."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(asked(client, prompt))
        await when
        for _ in range(5):  # so that what the server has sent is read
            await asyncio.sleep(0.01)
        await client.interrupt()
    return task.result()


@pytest.mark.parametrize("silent", ["before the status", "before the text", "in its thoughts"])
async def test_without_text_the_prompt_is_taken_back(protocol: Protocol, silent: str):
    text = protocol.text("Once ", "upon")
    first = {
        "before the status": Reply(before=(Stall(),)),
        "before the text": Reply(200, text.headers, (text.steps[0], Stall())),
        "in its thoughts": thinking(protocol),
    }[silent]
    if silent == "before the text" and protocol.name == "gemini":
        first = Reply(200, text.headers, (Stall(),))
    script = [protocol.text("Hello."), first, protocol.text("Gladly.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol)) as client,
    ):
        await asked(client, "Hi")
        server.arrived.clear()
        found = await interrupted(client, "A story.", server.arrived.wait())
        assert text_of(found) == ""
        assert written(client.history) == [User("Hi"), Assistant("Hello.")]
        await server.disconnected.wait()
        assert text_of(await asked(client, "A poem.")) == "Gladly."
    assert told(server.requests[2], protocol) == [
        User("Hi"),
        Assistant("Hello."),
        User("A poem."),
    ]


async def test_a_call_that_is_not_complete_is_not_kept(protocol: Protocol):
    script = [calling(protocol), protocol.text("Gladly.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add])) as client,
    ):
        found = await interrupted(client, "25 + 17?", server.arrived.wait())
        assert found == [TextBlock("Let me see.")]
        await asked(client, "Something else.")
    said: list[Said] = [User("25 + 17?"), Assistant("Let me see.")]
    assert told(server.requests[1], protocol) == [*said, User("Something else.")]
    assert written(client.history)[:2] == said


async def test_a_tool_that_runs_is_cancelled_and_its_call_answered(protocol: Protocol):
    started, ended = asyncio.Event(), list[str]()

    @tool("wait", "Wait.", {})
    async def wait(args: dict[str, Any]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("wait")

    script = [
        protocol.calls(adding("a", 1, 1), ("b", "wait", "{}"), adding("c", 2, 2)),
        protocol.text("As you like."),
    ]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add, wait], auto_execute_tools=True)) as client,
    ):
        await interrupted(client, "Go.", started.wait())
        assert ended == ["wait"]
        assert text_of(await asked(client, "Never mind.")) == "As you like."
    [user, assistant, first, second, third, prompt] = told(server.requests[1], protocol)
    made = (call("a", "add", a=1, b=1), call("b", "wait"), call("c", "add", a=2, b=2))
    assert (user, assistant) == (User("Go."), Assistant("", made))
    assert first == Result("a", 2)
    assert isinstance(second, Result)
    assert isinstance(third, Result)
    assert [(one.id, one.failed) for one in (second, third)] == [("b", True), ("c", True)]
    assert all(one.content for one in (second, third))
    assert prompt == User("Never mind.")


async def test_leaving_before_a_call_is_made_leaves_it_unmade_and_answered(protocol: Protocol):
    made: list[Any] = []

    @tool("note", "Note.", {})
    async def note(args: dict[str, Any]) -> None:
        made.append(args)

    script = [protocol.calls(("a", "note", "{}")), protocol.text("As you like.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[note], auto_execute_tools=True)) as client,
        asyncio.timeout(60),
    ):
        await client.query("Go.")
        async for block in client.receive_messages():
            if isinstance(block, ToolUseBlock):
                break
        assert text_of(await asked(client, "Never mind.")) == "As you like."
    assert made == []
    [user, assistant, result, prompt] = told(server.requests[1], protocol)
    assert (user, assistant) == (User("Go."), Assistant("", (call("a", "note"),)))
    assert isinstance(result, Result)
    assert (result.id, result.failed) == ("a", True)
    assert prompt == User("Never mind.")


@WAYS
async def test_what_was_done_before_in_the_same_turn_is_kept(protocol: Protocol, way: Way):
    script = [
        protocol.calls(adding("a")),
        held(protocol, "It is ", "42."),
        protocol.text("Yes."),
    ]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add], auto_execute_tools=True)) as client,
        asyncio.timeout(60),
    ):
        await client.query("25 + 17?")
        await way(client)
        assert text_of(await asked(client, "42?")) == "Yes."
    assert told(server.requests[2], protocol) == [
        User("25 + 17?"),
        Assistant("", (call("a", "add", a=25, b=17),)),
        Result("a", 42),
        Assistant("It is "),
        User("42?"),
    ]


async def test_results_that_were_sent_in_vain_are_sent_again(protocol: Protocol):
    script = [
        protocol.calls(adding("a")),
        Reply(before=(Stall(),)),
        protocol.text("Yes."),
    ]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add], auto_execute_tools=True)) as client,
    ):

        async def both() -> None:
            while len(server.requests) < 2:  # noqa: ASYNC110 - the server tells of the first only
                await asyncio.sleep(0.001)

        await interrupted(client, "25 + 17?", both())
        assert text_of(await asked(client, "42?")) == "Yes."
    assert told(server.requests[2], protocol) == [
        User("25 + 17?"),
        Assistant("", (call("a", "add", a=25, b=17),)),
        Result("a", 42),
        User("42?"),
    ]


async def test_interrupting_does_nothing_when_no_turn_is_under_way():
    async with serving(OPENAI.text("Hello.")) as server, Client(options(server)) as client:
        await client.interrupt()
        await asked(client, "Hi")
        before = client.history
        await client.interrupt()
        await client.interrupt()
        assert client.history == before


async def test_a_turn_that_nobody_reads_can_be_interrupted(protocol: Protocol):
    script = [held(protocol, "Once ", "upon"), protocol.text("Gladly.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol)) as client,
        asyncio.timeout(60),
    ):
        await client.query("A story.")
        await server.arrived.wait()
        await client.interrupt()
        assert text_of(await asked(client, "A poem.")) == "Gladly."
    assert told(server.requests[-1], protocol)[-1] == User("A poem.")


async def test_leaving_the_client_closes_the_stream(protocol: Protocol):
    async with serving(held(protocol, "Once ", "upon"), protocol=protocol) as server:
        async with Client(options(server, protocol)) as client, asyncio.timeout(60):
            await client.query("A story.")
            assert await anext(client.receive_messages()) == TextBlock("Once ")
        async with asyncio.timeout(60):
            await server.disconnected.wait()
