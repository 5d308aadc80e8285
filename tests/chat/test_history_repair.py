"""Histories that were cut or changed where something stood that no message shows."""

from typing import Any

import pytest

from chat_helpers import (
    ANTHROPIC,
    OPENAI,
    SYSTEM,
    Assistant,
    User,
    add,
    asked,
    options,
    serving,
    told,
)
from treefold import Client
from treefold.chat.history import ChatHistory
from treefold.core.errors import InvalidValueError
from wire import anthropic_wire, openai_wire
from wire.protocols import Protocol


async def test_what_was_said_of_an_unusable_call_goes_with_the_question_that_led_to_it():
    unusable = openai_wire.calls([("1", "add", "{oops")])
    async with (
        serving(unusable, openai_wire.text("ok"), openai_wire.text("fine")) as server,
        Client(options(server, tools=[add])) as client,
    ):
        await asked(client, "first")
        await asked(client, "second")
        del client.message_history[0]
        await asked(client, "third")
    assert told(server.requests[-1], OPENAI) == [User("second"), Assistant("ok"), User("third")]


async def test_a_response_that_came_in_two_parts_may_be_cut_between_them():
    one = anthropic_wire.Thinking(["Hm."]), anthropic_wire.Text(["one"])
    first = anthropic_wire.message(*one, stop_reason="pause_turn")
    script = [first, ANTHROPIC.text("two"), ANTHROPIC.text("three")]
    async with (
        serving(*script, protocol=ANTHROPIC) as server,
        Client(options(server, ANTHROPIC)) as client,
    ):
        await asked(client, "Count.")
        assert client.message_history.pop() == {"role": "assistant", "content": "two"}
        await asked(client, "Go on.")
    assert told(server.requests[-1], ANTHROPIC) == [
        User("Count."),
        Assistant("one"),
        User("Go on."),
    ]


QUESTION = {"role": "user", "content": "1 + 2?"}
RESULT = {"role": "tool", "tool_call_id": "a", "name": "add", "content": "3"}
ANSWER = {"role": "assistant", "content": "It is 3."}
KIND = {"role": "system", "content": "Be kind."}
PLEASE = {"role": "user", "content": "Please."}


@pytest.mark.parametrize(
    "history",
    [
        [RESULT],
        [ANSWER, RESULT],
        [QUESTION, RESULT, PLEASE],
        [QUESTION, {"role": "assistant", "content": ""}],
        [{"role": "user", "content": [{"type": "text", "text": "1 + 2?"}]}],
        [KIND, QUESTION],
        [QUESTION, KIND],
        [QUESTION, KIND, PLEASE],
        [QUESTION, ANSWER, KIND, PLEASE, KIND],
    ],
    ids=lambda history: " ".join(message["role"] for message in history),
)
async def test_the_history_stays_as_it_was_written_however_it_is_repaired_when_it_is_sent(
    protocol: Protocol, history: list[dict[str, Any]]
):
    async with (
        serving(protocol.text("ok"), protocol=protocol) as server,
        Client(options(server, protocol, tools=[add])) as client,
    ):
        client.message_history = history
        await asked(client, "Well?")
        assert client.history == [
            *history,
            {"role": "user", "content": "Well?"},
            {"role": "assistant", "content": "ok"},
        ]


async def test_a_message_of_the_system_is_sent_wherever_it_is_and_after_a_change_too():
    script = [openai_wire.text(text) for text in ("one", "two", "three")]
    async with serving(*script) as server, Client(options(server)) as client:
        client.message_history = [QUESTION, KIND, PLEASE]
        await asked(client, "Well?")
        await asked(client, "And?")
        client.message_history[-1]["content"] = "changed"
        await asked(client, "So?")
        assert client.message_history[1] == KIND
    system = {"role": "system", "content": f"{SYSTEM}\n\nBe kind."}
    asking = {"role": "user", "content": "1 + 2?\n\nPlease.\n\nWell?"}
    assert [request.json["messages"][:2] for request in server.requests] == [[system, asking]] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "user", "content": 5},
        {"role": "robot", "content": "hi"},
        {"content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        {"role": "assistant", "tool_calls": 3},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        "hi",
        None,
    ],
)
async def test_what_is_no_message_is_the_fault_of_whoever_wrote_it(wrong: Any):
    async with (
        serving(openai_wire.text("ok")) as server,
        Client(options(server, tools=[add])) as client,
    ):
        client.message_history.append(wrong)
        with pytest.raises(InvalidValueError):
            await client.query("Hello.")
        assert client.message_history.pop() == wrong
        await asked(client, "Hello.")
        assert server.left == 0


def test_a_change_costs_no_more_than_twice_when_the_history_is_twice_as_long():
    def work(turns: int) -> int:
        """Count what is compared when the last of many answers to the same prompt is changed."""
        conversation, compared = ChatHistory(), 0

        class Answer(str):
            __slots__ = ()
            __hash__ = str.__hash__

            def __eq__(self, other: object) -> bool:
                nonlocal compared
                compared += 1
                return str.__eq__(self, other)

        for number in range(turns):
            conversation.messages.append({"role": "user", "content": "Go on."})
            conversation.messages.append({"role": "assistant", "content": Answer(number)})
        conversation.catch_up()
        conversation.messages[-1]["content"] = "changed"
        compared = 0
        conversation.catch_up()
        return compared

    assert work(400) < 3 * work(200)
