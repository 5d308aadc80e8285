"""The history of a client: it can be read, saved elsewhere, edited and cut."""

import json
from typing import Any

import pytest

from chat_helpers import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    SYSTEM,
    Assistant,
    Result,
    User,
    add,
    adding,
    asked,
    call,
    options,
    serving,
    text_of,
    told,
    written,
)
from treefold import Client
from wire import Stall, anthropic_wire, gemini_wire, stream
from wire.protocols import PROTOCOLS, Protocol

CALLS = [{"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}]
ASKED = {"role": "user", "content": "1 + 2?"}
CALLING = {"role": "assistant", "content": "", "tool_calls": CALLS}
DONE = {"role": "tool", "tool_call_id": "a", "name": "add", "content": "3"}
SAID = {"role": "assistant", "content": "It is 3."}
SUM = [
    User("1 + 2?"),
    Assistant("", (call("a", "add", a=1, b=2),)),
    Result("a", 3),
    Assistant("It is 3."),
]


async def test_messages_are_those_of_openai_without_the_system_prompt(protocol: Protocol):
    script = [protocol.calls(adding("a", 1, 2)), protocol.text("It is ", "3.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add], auto_execute_tools=True)) as client,
    ):
        assert client.history == []
        await asked(client, "1 + 2?")
        [user, assistant, result, answer] = client.history
    assert user == {"role": "user", "content": "1 + 2?"}
    assert assistant.keys() == {"role", "content", "tool_calls"}
    assert [(one["id"], one["type"]) for one in assistant["tool_calls"]] == [("a", "function")]
    assert result == {"role": "tool", "tool_call_id": "a", "name": "add", "content": "3"}
    assert answer == {"role": "assistant", "content": "It is 3."}


async def test_the_history_is_a_copy():
    async with serving(OPENAI.text("one"), OPENAI.text("two")) as server:
        async with Client(options(server)) as client:
            await asked(client, "1")
            client.history.clear()
            client.history.append({"role": "user", "content": "never said"})
            await asked(client, "2")
        assert told(server.requests[1]) == [User("1"), Assistant("one"), User("2")]


async def test_an_agent_can_keep_what_it_needs(protocol: Protocol):
    script = [protocol.calls(adding("a")), protocol.text("42.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add], auto_execute_tools=True)) as client,
    ):
        await asked(client, "25 + 17?")
        saved = json.loads(json.dumps({"h": client.history, "m": client.turn_metadata}))
    assert written(saved["h"]) == written(client.history)
    assert saved["m"] == {"turn_count": 1}


@pytest.mark.parametrize("other", PROTOCOLS, ids=str)
async def test_a_history_that_was_kept_can_be_gone_on_from_with_any_model(
    protocol: Protocol, other: Protocol
):
    script = [protocol.calls(adding("a")), protocol.text("It is 42.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add], auto_execute_tools=True)) as client,
    ):
        await asked(client, "25 + 17?")
        saved = json.loads(json.dumps(client.history))
    async with (
        serving(other.text("Sure."), protocol=other) as server,
        Client(options(server, other, tools=[add])) as client,
    ):
        client.message_history = saved
        assert client.history == saved
        assert text_of(await asked(client, "Sure?")) == "Sure."
    assert told(server.requests[0], other) == [
        User("25 + 17?"),
        Assistant("", (call("a", "add", a=25, b=17),)),
        Result("a", 42),
        Assistant("It is 42."),
        User("Sure?"),
    ]


async def test_a_history_can_be_given_and_added_to(protocol: Protocol):
    async with (
        serving(protocol.text("Yes."), protocol=protocol) as server,
        Client(options(server, protocol, tools=[add])) as client,
    ):
        client.message_history = [ASKED, CALLING]
        client.message_history.append(DONE)
        client.message_history.append(SAID)
        await asked(client, "Sure?")
        assert written(client.history) == [*SUM, User("Sure?"), Assistant("Yes.")]
    assert told(server.requests[0], protocol) == [*SUM, User("Sure?")]


async def test_messages_can_be_taken_out_and_changed_in_place(protocol: Protocol):
    script = [protocol.text("one"), protocol.text("two"), protocol.text("three")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol)) as client,
    ):
        await asked(client, "1")
        await asked(client, "2")
        del client.message_history[:2]
        client.message_history[0]["content"] = "two?"
        await asked(client, "3")
    assert told(server.requests[2], protocol) == [User("two?"), Assistant("two"), User("3")]


@pytest.mark.parametrize(
    ("history", "kept"),
    [
        ([DONE, SAID], ["It is 3."]),
        ([ASKED, CALLING], ["1 + 2?"]),
        ([ASKED, CALLING, SAID], ["1 + 2?", "It is 3."]),
        ([CALLING, DONE, SAID], ["It is 3."]),
        ([SAID], ["It is 3."]),
        ([ASKED, ASKED | {"content": "Please."}], ["1 + 2?", "Please."]),
        ([ASKED, SAID, SAID | {"content": "Really."}], ["1 + 2?", "It is 3.", "Really."]),
        ([ASKED, {"role": "assistant", "content": ""}], ["1 + 2?"]),
        ([ASKED, CALLING, DONE, DONE, SAID], ["1 + 2?", "It is 3."]),
    ],
    ids=[
        "a result without its call",
        "a call without a result",
        "a call without a result in the middle",
        "a call at the beginning",
        "the assistant first",
        "two of the user",
        "two of the assistant",
        "an empty one",
        "a result twice",
    ],
)
async def test_a_history_that_no_provider_would_take_is_mended(
    protocol: Protocol, history: list[dict[str, Any]], kept: list[str]
):
    script = [protocol.text("Fine."), protocol.text("Still.")]
    async with (
        serving(*script, protocol=protocol) as server,  # which checks that it was mended
        Client(options(server, protocol, tools=[add])) as client,
    ):
        client.message_history = history
        assert text_of(await asked(client, "And now?")) == "Fine."
        assert text_of(await asked(client, "Still?")) == "Still."
    first, second = (told(request, protocol) for request in server.requests)
    if first[-1] == User("And now?"):
        assert second[len(first) :] == [Assistant("Fine."), User("Still?")]
    texts = " ".join(str(one.text) for one in first if not isinstance(one, Result))
    if history[0]["role"] == "user":  # what comes before the first prompt may have to go
        assert all(text in texts for text in kept)
    assert texts.endswith("And now?")


async def test_thoughts_are_sent_back_as_they_came_as_long_as_nobody_edits():
    thought = anthropic_wire.Thinking(["Hm. ", "Hm."], "U0lHTkVE")
    first = anthropic_wire.message(
        thought, anthropic_wire.ToolUse("a", "add", ['{"a":1,"b":2}']), stop_reason="tool_use"
    )
    async with (
        serving(first, ANTHROPIC.text("3."), ANTHROPIC.text("Yes."), protocol=ANTHROPIC) as server,
        Client(options(server, ANTHROPIC, tools=[add], auto_execute_tools=True)) as client,
    ):
        await asked(client, "1 + 2?")
        await asked(client, "Sure?")
    for request in server.requests[1:]:
        assert request.json["messages"][1]["content"][0] == {
            "type": "thinking",
            "thinking": "Hm. Hm.",
            "signature": "U0lHTkVE",
        }


async def test_signatures_of_gemini_are_sent_back_as_they_came():
    parts = [gemini_wire.call("add", {"a": 1, "b": 2}, "a", "c2lnbmVk")]
    first = gemini_wire.chunk(parts, "STOP", gemini_wire.USAGE)
    script = [gemini_wire.reply(first), GEMINI.text("3.")]
    async with (
        serving(*script, protocol=GEMINI) as server,
        Client(options(server, GEMINI, tools=[add], auto_execute_tools=True)) as client,
    ):
        await asked(client, "1 + 2?")
    assert server.requests[1].json["contents"][1] == {"role": "model", "parts": parts}


async def test_the_system_prompt_is_in_every_request_and_never_in_the_history():
    async with (
        serving(OPENAI.text("one"), OPENAI.text("two")) as server,
        Client(options(server)) as client,
    ):
        await asked(client, "1")
        await asked(client, "2")
        assert SYSTEM not in json.dumps(client.history)
    assert [request.json["messages"][0]["content"] for request in server.requests] == [SYSTEM] * 2


async def test_the_prompts_of_unread_queries_stay_in_the_history(protocol: Protocol):
    silent = stream(Stall())
    async with (
        serving(silent, silent, protocol.text("Fine."), protocol=protocol) as server,
        Client(options(server, protocol)) as client,
    ):
        await client.query("One.")
        await client.query("Two.")
        assert text_of(await asked(client, "Three.")) == "Fine."
        assert written(client.history) == [
            User("One."),
            User("Two."),
            User("Three."),
            Assistant("Fine."),
        ]
    said = [one for one in told(server.requests[2], protocol) if isinstance(one, User)]
    assert "\n\n".join(one.text for one in said) == "One.\n\nTwo.\n\nThree."


async def test_the_prompt_of_an_unread_query_is_there_after_the_client_is_closed():
    async with serving(stream(Stall())) as server:
        async with Client(options(server)) as client:
            await client.query("One.")
        assert written(client.history) == [User("One.")]
