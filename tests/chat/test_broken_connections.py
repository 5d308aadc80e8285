"""A server that breaks off: what the caller sees, and that the next request can be sent."""

import asyncio

import pytest

from chat_helpers import (
    Assistant,
    Result,
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
    until_failure,
    written,
)
from treefold import Client, ModelProviderException, TextBlock
from wire import Close, Cut, Reply, cut_after
from wire.protocols import Protocol

HELLO = [User("Hi"), Assistant("Hello.")]


@pytest.mark.parametrize("how", ["at once", "in its text", "in order", "by an error"])
async def test_a_broken_response_leaves_nothing_and_is_asked_for_again(
    protocol: Protocol, how: str
):
    text = protocol.text("one ", "two ", "three")
    broken = {
        "at once": Reply(before=(Cut(),)),
        "in its text": after(text, "one ", Cut()),
        "in order": after(text, "one ", Close()),
        "by an error": after(text, "one ", protocol.failure_event("it burns"), Close()),
    }[how]
    async with (
        serving(protocol=protocol) as server,
        Client(options(server, protocol)) as client,
    ):
        server.on_request = lambda _: protocol.text("Hello.")
        await asked(client, "Hi")
        # However often: a request that fails on a reused connection is repeated on a new one.
        server.on_request = lambda _: broken
        with pytest.raises(ModelProviderException):
            await asked(client, "Count.")
        assert written(client.history) == HELLO
        server.on_request = lambda _: protocol.text("one two three")
        assert text_of(await asked(client, "Count.")) == "one two three"
    _, first, *others = server.requests
    assert told(first, protocol) == [*HELLO, User("Count.")]
    assert others
    assert all(request.json == first.json for request in others)


async def test_what_came_before_the_break_reaches_the_caller(protocol: Protocol):
    broken = after(protocol.text("one ", "two ", "three"), "one ", Cut())
    async with (
        serving(broken, protocol=protocol) as server,
        Client(options(server, protocol)) as client,
    ):
        await client.query("Count.")
        found, error = await until_failure(client)
    assert found == [TextBlock("one ")]
    assert isinstance(error, ModelProviderException)
    assert "it" in str(error) or error.inner is not None


async def test_a_response_cut_off_anywhere_is_whole_or_nothing(protocol: Protocol):
    whole = protocol.calls(adding("a"), adding("b", 1, 1))
    sizes = range(0, len(whole.body), max(1, len(whole.body) // 12))
    for size in sizes:
        script = [cut_after(whole, size), protocol.text("ok")]
        async with (
            serving(*script, protocol=protocol) as server,
            Client(options(server, protocol, tools=[add])) as client,
        ):
            complete = True
            try:
                await asked(client, "Add.")
            except ModelProviderException:
                complete = False
                assert client.history == []
            assert text_of(await asked(client, "Well?")) == "ok"
        sent = told(server.requests[1], protocol)
        if complete:
            assert [one.id for one in sent if isinstance(one, Result)] == ["a", "b"]
        else:
            assert sent == [User("Well?")]


async def test_results_given_by_hand_are_not_lost_when_their_request_fails(protocol: Protocol):
    script = [protocol.calls(adding("a")), protocol.failure(500), protocol.text("42.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add])) as client,
        asyncio.timeout(60),
    ):
        await asked(client, "25 + 17?")
        await client.add_tool_result("a", 42, "add")
        with pytest.raises(ModelProviderException):
            await asked(client, "")
        await client.query("")
        assert text_of(await heard(client)) == "42."
    assert told(server.requests[2], protocol) == [
        User("25 + 17?"),
        Assistant("", (call("a", "add", a=25, b=17),)),
        Result("a", 42),
    ]
