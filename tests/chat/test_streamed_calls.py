"""How streamed calls are put together, and what can go wrong."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

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
    entries,
    failed,
    heard,
    joined,
    options,
    search,
    serving,
    text_of,
    told,
    written,
)
from treefold import (
    HOOK_STOP,
    AgentOptions,
    Client,
    HookDecision,
    SqliteStore,
    TextBlock,
    ToolUseBlock,
    ToolUseDelta,
    ToolUseError,
)
from wire import anthropic_wire, openai_wire, stream
from wire.openai_wire import completion
from wire.protocols import Protocol


def entry(index: int = 0, id: str | None = None, **function: Any) -> dict[str, Any]:
    return {"index": index, **({"id": id} if id else {}), "function": function}


def searching(server: Any, **changes: Any) -> AgentOptions:
    return options(server, tools=[search, add], **changes)


async def test_the_stream_of_the_document_is_one_call():
    reply = completion(
        entries(entry(0, "call_abc", name="search", arguments='{"q": "par')),
        entries(entry(0, arguments='is"}')),
        finish="tool_calls",
    )
    async with serving(reply) as server, Client(searching(server)) as client:
        assert await asked(client, "Paris?") == [ToolUseBlock("call_abc", "search", {"q": "paris"})]


async def test_calls_are_put_together_by_their_index():
    reply = completion(
        entries(entry(0, "a", name="search", arguments=""), entry(1, "b", name="add")),
        entries(entry(1, arguments='{"a":1,')),
        entries(entry(0, arguments='{"q":'), entry(1, arguments='"b":2}')),
        entries(entry(0, arguments='"x"}')),
        finish="tool_calls",
    )
    async with serving(reply) as server, Client(searching(server)) as client:
        assert await asked(client, "Go.") == [
            ToolUseBlock("a", "search", {"q": "x"}),
            ToolUseBlock("b", "add", {"a": 1, "b": 2}),
        ]


async def test_only_complete_calls_are_yielded_unless_more_is_asked_for():
    reply = openai_wire.calls([("a", "search", '{"q":', '"x"}')], ["Let me ", "see."])
    async with serving(reply) as server, Client(searching(server)) as client:
        assert [type(block) for block in await asked(client, "Go.")] == [
            TextBlock,
            TextBlock,
            ToolUseBlock,
        ]


async def test_the_fragments_of_a_call_can_be_watched(protocol: Protocol):
    reply = protocol.calls(("a", "add", '{"a":25,"b":17}'))
    async with (
        serving(reply, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add], tool_use_deltas=True)) as client,
    ):
        found = await asked(client, "Go.")
    deltas = [block for block in found if isinstance(block, ToolUseDelta)]
    assert "".join(delta.arguments for delta in deltas).replace(" ", "") == '{"a":25,"b":17}'
    assert {(delta.index, delta.id, delta.name) for delta in deltas if delta.arguments} == {
        (0, "a", "add")
    }
    assert {delta.type for delta in deltas} == {"tool_use_delta"}
    assert found[-1] == ToolUseBlock("a", "add", {"a": 25, "b": 17})


async def test_fragments_come_one_by_one_and_each_only_what_is_new():
    reply = openai_wire.calls([("a", "search", '{"q":', '"x', '"}'), ("b", "search", "{}")])
    async with (
        serving(reply) as server,
        Client(searching(server, tool_use_deltas=True)) as client,
    ):
        found = await asked(client, "Go.")
    deltas = [block for block in found if isinstance(block, ToolUseDelta) and block.arguments]
    assert deltas == [
        ToolUseDelta(0, "a", "search", '{"q":'),
        ToolUseDelta(0, "a", "search", '"x'),
        ToolUseDelta(0, "a", "search", '"}'),
        ToolUseDelta(1, "b", "search", "{}"),
    ]


async def test_an_endpoint_without_calls_only_gives_text():
    async with (
        serving(OPENAI.text("I ", "cannot.")) as server,
        Client(searching(server)) as client,
    ):
        assert joined(await asked(client, "Search.")) == [TextBlock("I cannot.")]


async def test_an_endpoint_that_refuses_tools_only_gives_text_from_then_on():
    refused = OPENAI.failure(400, "this model does not support tools")
    script = [refused, OPENAI.text("I cannot."), OPENAI.text("Still not.")]
    async with serving(*script) as server, Client(searching(server)) as client:
        assert text_of(await asked(client, "Search.")) == "I cannot."
        assert text_of(await asked(client, "Really?")) == "Still not."
    assert ["tools" in request.json for request in server.requests] == [True, False, False]


# --- calls that cannot be made


BROKEN = '{"q": [1,,'


@pytest.mark.parametrize("raw", [BROKEN, "not json", '["a list"]', '"a string"', "42"])
async def test_arguments_that_are_no_object_are_an_error_with_what_was_written(raw: str):
    script = [OPENAI.calls(("a", "search", raw)), OPENAI.text("Sorry.")]
    async with serving(*script) as server, Client(searching(server)) as client:
        [error] = await asked(client, "Search.")
        assert isinstance(error, ToolUseError)
        assert (error.raw_data, error.type) == (raw, "tool_use_error")
        assert error.error
        assert text_of(await asked(client, "Again.")) == "Sorry."
    assert told(server.requests[1]) == [User("Search.\n\nAgain.")]
    assert written(client.history) == [User("Search."), User("Again."), Assistant("Sorry.")]


@pytest.mark.parametrize("protocol", [OPENAI, ANTHROPIC], ids=str)
async def test_a_response_of_broken_calls_only_ends_the_automatic_loop(protocol: Protocol):
    script = [
        protocol.calls(("a", "add", '{"a": oops'), ("b", "add", '{"b": oops')),
        protocol.calls(adding("c")),
        protocol.text("42."),
    ]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add], auto_execute_tools=True)) as client,
    ):
        found = [block for block in await asked(client, "25 + 17?") if block.type != "thinking"]
        assert [getattr(block, "raw_data", None) for block in found] == ['{"a": oops', '{"b": oops']
        assert len(server.requests) == 1
        await client.query("")
        assert text_of(await heard(client)) == "42."
    assert told(server.requests[1], protocol) == [User("25 + 17?")]


async def test_a_call_without_a_name_is_an_error_that_says_so():
    reply = completion(entries(entry(0, "a", arguments='{"q":"1"}')), finish="tool_calls")
    async with serving(reply, OPENAI.text("Sorry.")) as server, Client(searching(server)) as client:
        [error] = await asked(client, "Search.")
        assert isinstance(error, ToolUseError)
        assert "name" in error.error
        assert text_of(await asked(client, "Again.")) == "Sorry."
    assert told(server.requests[1]) == [User("Search.\n\nAgain.")]


@pytest.mark.parametrize("auto", [False, True], ids=["manual", "automatic"])
async def test_errors_are_not_in_the_history_but_valid_calls_are(*, auto: bool):
    first = OPENAI.calls(("a", "search", BROKEN), ("b", "search", '{"q":"x"}'))
    async with (
        serving(first, OPENAI.text("ok")) as server,
        Client(searching(server, auto_execute_tools=auto)) as client,
    ):
        found = await asked(client, "Search.")
        if not auto:
            await client.add_tool_result("b", "found x", "search")
            await client.query("")
            found += await heard(client)
    assert [type(block) for block in found] == [ToolUseError, ToolUseBlock, TextBlock]
    assert written(client.history) == [
        User("Search."),
        Assistant("", (call("b", "search", q="x"),)),
        Result("b", "found x"),
        Assistant("ok"),
    ]
    assert told(server.requests[1]) == written(client.history)[:3]


async def test_what_one_response_left_open_is_forgotten_in_the_next():
    script = [
        completion(entries(entry(0, "a", name="search", arguments='{"q":')), finish="stop"),
        completion(entries(entry(0, "b", name="search", arguments='{"q":"2"}')), finish="stop"),
    ]
    async with serving(*script) as server, Client(searching(server)) as client:
        assert [type(block) for block in await asked(client, "1")] == [ToolUseError]
        assert await asked(client, "2") == [ToolUseBlock("b", "search", {"q": "2"})]


@pytest.mark.parametrize(
    ("cut", "args"),
    [
        ('{"q": "a", "n": [1, 2', {"q": "a", "n": [1, 2]}),
        ('{"q": "a"', {"q": "a"}),
        ('{"q": {"deep": "a', {"q": {"deep": "a"}}),
    ],
)
async def test_arguments_that_were_cut_off_are_mended_on_request(cut: str, args: dict[str, Any]):
    reply = OPENAI.calls(("a", "search", cut))
    async with serving(reply, reply, OPENAI.text("ok")) as server:
        async with Client(searching(server)) as strict:
            [error] = await asked(strict, "Search.")
        async with Client(searching(server, allow_lenient_tool_json=True)) as lenient:
            assert await asked(lenient, "Search.") == [ToolUseBlock("a", "search", args)]
            await lenient.add_tool_result("a", "done", "search")
            await lenient.query("")
            assert text_of(await heard(lenient)) == "ok"
    assert isinstance(error, ToolUseError)
    assert error.raw_data == cut
    assert told(server.requests[2])[1:] == [
        Assistant("", (("a", "search", args),)),
        Result("a", "done"),
    ]


async def test_the_next_request_after_an_error_from_claude_is_valid():
    use = anthropic_wire.ToolUse("a", "add", ['{"a": ', "oops"])
    first = anthropic_wire.message(anthropic_wire.Thinking(["Hm."]), use, stop_reason="tool_use")
    async with (
        serving(first, ANTHROPIC.text("Sorry."), protocol=ANTHROPIC) as server,
        Client(options(server, ANTHROPIC, tools=[add])) as client,
    ):
        found = await asked(client, "25 + 17?")
        assert isinstance(found[-1], ToolUseError)
        assert text_of(await asked(client, "Again.")) == "Sorry."
    assert told(server.requests[1], ANTHROPIC) == [User("25 + 17?\n\nAgain.")]


async def test_a_session_is_saved_without_calls_that_could_not_be_parsed(tmp_path: Path):
    script = [OPENAI.calls(("a", "add", "{oops"), adding("b")), OPENAI.text("42.")]
    async with serving(*script, OPENAI.text("Yes.")) as server:
        given = options(server, tools=[add], auto_execute_tools=True)
        store = SqliteStore(tmp_path / "chats.db")
        async with Client(given, store=store, session="sums") as client:
            found = await asked(client, "25 + 17?")
            assert [block.type for block in found] == ["tool_use_error", "tool_use", "text"]
        async with Client(given, store=store, session="sums") as client:
            assert text_of(await asked(client, "Really?")) == "Yes."
        store.close()
    said = [User("25 + 17?"), Assistant("", (call("b", "add", a=25, b=17),)), Result("b", 42)]
    assert told(server.requests[1]) == said
    assert told(server.requests[2]) == [*said, Assistant("42."), User("Really?")]


async def test_a_stop_hook_continues_a_turn_that_a_broken_call_has_ended():
    async def insist(event: Any) -> HookDecision | None:
        return HookDecision(modified_prompt="Try again.") if not event.continuations else None

    script = [OPENAI.calls(("a", "add", "{oops")), OPENAI.text("42.")]
    hooks = {HOOK_STOP: [insist]}
    async with (
        serving(*script) as server,
        Client(options(server, tools=[add], auto_execute_tools=True, hooks=hooks)) as client,
    ):
        assert text_of(await asked(client, "25 + 17?")) == "42."
    assert told(server.requests[1]) == [User("25 + 17?\n\nTry again.")]


# --- streams with junk in them


async def test_lines_that_cannot_be_read_are_warned_of_and_passed_over(
    caplog: pytest.LogCaptureFixture,
):
    reply = OPENAI.text("one ", "two ", "three")
    steps: list[Any] = []
    for step in reply.steps:
        steps += [b"data: {broken\n\n", step]
    with caplog.at_level(logging.WARNING):
        async with serving(stream(*steps)) as server, Client(searching(server)) as client:
            assert text_of(await asked(client, "Count.")) == "one two three"
    assert "WARNING" in {record.levelname for record in caplog.records}


async def test_malformed_responses_never_crash_the_client():
    odd = [
        b"data: {}\n\n",
        b'data: {"choices": []}\n\n',
        b'data: {"choices": null}\n\n',
        b'data: {"choices": [{}]}\n\n',
        b'data: {"choices": [{"delta": null}]}\n\n',
        b'data: {"choices": [{"delta": {"tool_calls": null, "content": 7}}]}\n\n',
        b'data: {"choices": [{"delta": {"tool_calls": [null, 3]}}]}\n\n',
        b"data: [1, 2]\n\n",
    ]
    reply = OPENAI.text("still ", "there")
    async with (
        serving(stream(*odd, *reply.steps), OPENAI.text("ok")) as server,
        Client(searching(server)) as client,
        asyncio.timeout(60),
    ):
        assert text_of(await asked(client, "Hi")) == "still there"
        assert text_of(await asked(client, "And?")) == "ok"
    assert told(server.requests[1]) == [User("Hi"), Assistant("still there"), User("And?")]


async def test_a_failed_call_is_told_in_the_form_of_the_document():
    script = [OPENAI.calls(("a", "serach", "{}")), OPENAI.text("ok")]
    async with (
        serving(*script) as server,
        Client(searching(server, auto_execute_tools=True)) as client,
    ):
        await asked(client, "Search.")
    said = "Tool 'serach' not found in registry"
    assert told(server.requests[1])[-1] == failed("a", said, "serach")
