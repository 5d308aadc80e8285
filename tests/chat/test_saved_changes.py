"""A history that was changed after the last answer, and a client that is closed then."""

from typing import Any

from treefold import AgentOptions, Client, SessionStore
from treefold.testing import ScriptedModel


async def converse(store: SessionStore, model: ScriptedModel, prompt: str) -> Client:
    client = Client(AgentOptions("Be brief.", model), session="trip", store=store)
    async with client:
        await client.query(prompt)
        async for _ in client.receive_messages():
            pass
    return client


async def read(store: SessionStore) -> list[dict[str, Any]]:
    async with Client(AgentOptions("", ScriptedModel()), session="trip", store=store) as client:
        return client.history


async def test_what_was_changed_after_the_last_answer_is_saved_when_the_client_is_closed():
    written = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    for changed in ([], written):
        with SessionStore(":memory:") as store:
            await converse(store, ScriptedModel("In Rome."), "Where to?")
            client = Client(AgentOptions("", ScriptedModel()), session="trip", store=store)
            async with client:
                client.message_history = changed
            assert await read(store) == changed
            await converse(store, ScriptedModel("Soon."), "When?")
            assert [message["content"] for message in await read(store)] == [
                *(message["content"] for message in changed),
                "When?",
                "Soon.",
            ]


async def test_a_client_that_was_only_made_and_closed_leaves_its_session_as_it_was():
    with SessionStore(":memory:") as store:
        await converse(store, ScriptedModel("In Rome."), "Where to?")
        [before] = store.list()
        await Client(AgentOptions("", ScriptedModel()), session="trip", store=store).close()
        assert store.list() == [before]
        assert len(await read(store)) == 2
