"""What a reader is given of streams that take an unusual turn."""

import pytest

from chat_helpers import add, asked, joined, options, serving, text_of, until_failure
from treefold import Client, ModelProviderException, TextBlock, ThinkingBlock, ToolUseDelta
from treefold.models import Retry
from wire import openai_wire
from wire.replies import Cut, stream


@pytest.mark.parametrize("pieces", [["It is", " 4."], ["It is 4."]])
async def test_an_answer_without_the_thinking_that_was_expected_is_still_an_answer(
    pieces: list[str],
):
    async with (
        serving(openai_wire.text(*pieces)) as server,
        Client(options(server, model="deepseek-r1")) as client,
    ):
        blocks = await asked(client, "2 + 2?")
        assert text_of(blocks) == "It is 4."
        assert client.history[-1] == {"role": "assistant", "content": "It is 4."}


async def test_thinking_that_was_expected_is_not_said_again_as_text():
    async with (
        serving(openai_wire.text("2 and", " 2\n</think>\n\n", "It is 4.")) as server,
        Client(options(server, model="deepseek-r1")) as client,
    ):
        blocks = joined(await asked(client, "2 + 2?"))
        assert blocks == [ThinkingBlock("2 and 2"), TextBlock("It is 4.")]


async def test_fragments_of_a_call_never_come_twice():
    whole = openai_wire.calls([("1", "add", '{"a":1,', '"b":2}')])
    broken = stream(*whole.steps[:2], Cut())
    async with (
        serving(broken) as server,
        Client(options(server, tools=[add], tool_use_deltas=True, retry=Retry([0, 0]))) as client,
    ):
        await client.query("1 + 2?")
        found, error = await until_failure(client)
        assert isinstance(error, ModelProviderException)
        assert [type(one) for one in found] == [ToolUseDelta, ToolUseDelta]
        assert client.history == []


async def test_a_call_that_broke_off_unseen_is_asked_for_again():
    whole = openai_wire.calls([("1", "add", '{"a":1,', '"b":2}')])
    broken = stream(*whole.steps[:2], Cut())
    async with (
        serving(broken, whole) as server,
        Client(options(server, tools=[add], retry=Retry([0]))) as client,
    ):
        [call] = await asked(client, "1 + 2?")
        assert call.input == {"a": 1, "b": 2}
