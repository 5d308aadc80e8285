"""What the history shows between a response and the next request."""

from typing import Any

import pytest

from chat_helpers import Assistant, Result, User, add, asked, call, written
from treefold import AgentOptions, Client, ModelProviderException, ModelText, ToolUse
from treefold.testing import HANGS, ScriptedFailure, ScriptedModel

ADDING = ToolUse("1", "add", {"a": 1, "b": 2})
ASKED = [User("1 + 2?"), Assistant("", (call("1", "add", a=1, b=2),))]


def client_of(*script: Any, **changes: Any) -> Client:
    return Client(AgentOptions("You help.", ScriptedModel(*script), tools=[add], **changes))


@pytest.mark.parametrize("edited", [False, True])
async def test_a_result_that_is_given_again_is_the_one_that_counts(*, edited: bool):
    async with client_of(ADDING, "It is 3.") as client:
        await asked(client, "1 + 2?")
        await client.add_tool_result("1", 4)
        if edited:
            client.message_history[0]["content"] = "1 + 2 = ?"
        await client.add_tool_result("1", 3)
        assert written(client.history[-1:]) == [Result("1", 3)]
        await asked(client, "")
        assert written(client.history[-2:]) == [Result("1", 3), Assistant("It is 3.")]


async def test_a_failed_request_does_not_answer_calls_that_nobody_answered():
    async with client_of(ADDING, ScriptedFailure(500), "It is 3.") as client:
        await asked(client, "1 + 2?")
        with pytest.raises(ModelProviderException):
            await asked(client, "Well?")
        assert written(client.history) == ASKED
        await client.add_tool_result("1", 3)
        await asked(client, "")
        assert written(client.history) == [*ASKED, Result("1", 3), Assistant("It is 3.")]


async def test_a_fork_does_not_have_the_prompt_that_waits_for_its_answer():
    async with client_of("Hello.", HANGS) as client:
        await asked(client, "Hi.")
        await client.query("Well?")
        assert len(client.history) == 3
        async with await client.fork() as branch:
            assert written(branch.history) == [User("Hi."), Assistant("Hello.")]


async def test_what_is_done_to_a_copy_of_the_history_does_not_change_it():
    async with client_of(ADDING) as client:
        await asked(client, "1 + 2?")
        client.history[0]["content"] = "no"
        client.history[1]["tool_calls"].clear()
        assert written(client.history) == ASKED


async def test_a_message_written_by_hand_can_be_changed_in_place_after_it_was_sent():
    model = ScriptedModel("a", "b")
    async with Client(AgentOptions("You help.", model)) as client:
        client.message_history = [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
        ]
        await asked(client, "x")
        client.message_history[1]["content"] = "changed"
        await asked(client, "y")
    assert model.requests[1].transcript[1] == ModelText("changed")
