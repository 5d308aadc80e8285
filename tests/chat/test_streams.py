"""What a reader is given of streams that take an unusual turn."""

import pytest

from documents.chat_stage import asked, joined, options, serving, text_of
from ramify import Client, TextBlock, ThinkingBlock
from wire import openai_wire


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
