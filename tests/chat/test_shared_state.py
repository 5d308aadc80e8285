"""What is shared and what is not: histories, models that others use; and odd messages in them."""

from chat_helpers import Assistant, User, add, asked, written
from treefold import AgentOptions, Client, Runtime, ToolResultBlock, UserMessage, UserText
from treefold.testing import ScriptedModel

HELLO = [User("Hi."), Assistant("Hello.")]


async def test_a_message_that_is_changed_in_a_fork_stays_as_it_was_in_the_original():
    async with Client(AgentOptions("You help.", ScriptedModel("Hello."))) as client:
        await asked(client, "Hi.")
        async with await client.fork() as branch:
            branch.message_history[0]["content"] = "Bye."
            assert written(branch.history) == [User("Bye."), Assistant("Hello.")]
        assert written(client.history) == HELLO


async def test_options_do_not_change_a_model_that_others_use_by_the_same_name():
    model = ScriptedModel("Hello.")
    before = model.timers, model.retry
    async with Runtime(models={"mine": model}), Client(AgentOptions("", "mine", timeout=7)) as one:
        await asked(one, "Hi.")
        assert written(one.history) == HELLO
    assert (model.timers, model.retry) == before


async def test_a_result_that_is_nested_too_deeply_to_be_read_is_a_result_all_the_same():
    content = '{"error": ' + "[" * 100_000
    async with Client(AgentOptions("", ScriptedModel(), tools=[add])) as client:
        client.message_history = [{"role": "tool", "tool_call_id": "1", "content": content}]
        assert client.messages == [UserMessage([ToolResultBlock("1", content, is_error=False)])]


async def test_the_texts_of_one_message_are_lines_and_a_blank_system_message_says_nothing():
    model = ScriptedModel("Hello.")
    async with Client(AgentOptions("You help.", model)) as client:
        texts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
        client.message_history = [
            {"role": "system", "content": " \n"},
            {"role": "user", "content": texts},
        ]
        await asked(client, "three")
    [request] = model.requests
    assert (request.system, request.transcript) == (
        "You help.",
        (UserText("one\ntwo\n\nthree"),),
    )
