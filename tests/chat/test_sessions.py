"""Sessions: conversations that are saved as they go, and forked."""

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
    heard,
    options,
    serving,
    text_of,
    told,
    written,
)
from treefold import AgentOptions, Client, SessionConflictError, SessionStore
from wire import anthropic_wire
from wire.protocols import PROTOCOLS, Protocol

HELLO = [User("I am Ada."), Assistant("Hello, Ada.")]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


def names(store: Path) -> list[str]:
    with SessionStore(store) as opened:
        return sorted(info.name for info in opened.list())


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def begin(given: AgentOptions, store: Any, name: str = "trip") -> None:
    async with Client(given, session=name, store=store) as client:
        await asked(client, "I am Ada.")


async def test_a_session_goes_on_where_it_ended(protocol: Protocol, store: Path):
    script = [protocol.text("Hello, ", "Ada."), protocol.text("Ada.")]
    async with serving(*script, protocol=protocol) as server:
        given = options(server, protocol)
        await begin(given, store)
        async with Client(given, session="trip", store=store) as client:
            assert written(client.history) == HELLO
            assert text_of(await asked(client, "Who am I?")) == "Ada."
    assert told(server.requests[1], protocol) == [*HELLO, User("Who am I?")]


async def test_going_on_later_sends_the_very_same_as_going_on_at_once(
    protocol: Protocol, store: Path
):
    script = [protocol.calls(adding("a")), protocol.text("42."), protocol.text("Yes.")]
    async with serving(*script, *script, protocol=protocol) as server:
        given = options(server, protocol, tools=[add], auto_execute_tools=True)
        async with Client(given) as client:
            await asked(client, "25 + 17?")
            await asked(client, "Sure?")
        async with Client(given, session="sum", store=store) as client:
            await asked(client, "25 + 17?")
        async with Client(given, session="sum", store=store) as client:
            await asked(client, "Sure?")
    assert server.requests[5].json == server.requests[2].json


async def test_signed_thoughts_are_saved_with_the_rest(store: Path):
    first = anthropic_wire.message(
        anthropic_wire.Thinking(["Hm."], "U0lHTkVE"), anthropic_wire.Text(["Hello, Ada."])
    )
    async with serving(first, ANTHROPIC.text("Ada."), protocol=ANTHROPIC) as server:
        given = options(server, ANTHROPIC)
        await begin(given, store)
        async with Client(given, session="trip", store=store) as client:
            await asked(client, "Who am I?")
    assert server.requests[1].json["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "U0lHTkVE"},
        {"type": "text", "text": "Hello, Ada."},
    ]


async def test_every_exchange_is_saved_as_it_comes(store: Path):
    async with serving(OPENAI.text("Hello, Ada."), OPENAI.text("Ada.")) as server:
        given = options(server)
        lost = Client(given, session="trip", store=store)  # which is never closed in time
        await asked(lost, "I am Ada.")
        async with Client(given, session="trip", store=store) as client:
            assert written(client.history) == HELLO
        await lost.close()


async def test_a_failed_turn_is_not_saved(store: Path):
    async with serving(OPENAI.text("Hello, Ada."), OPENAI.failure(500)) as server:
        given = options(server)
        async with Client(given, session="trip", store=store) as client:
            await asked(client, "I am Ada.")
            with pytest.raises(Exception, match="It failed"):
                await asked(client, "Who am I?")
        async with Client(given, session="trip", store=store) as client:
            assert written(client.history) == HELLO


async def test_calls_and_results_are_saved_one_by_one(protocol: Protocol, store: Path):
    script = [protocol.calls(adding("a"), adding("b", 1, 1)), protocol.text("42 and 2.")]
    async with serving(*script, protocol=protocol) as server:
        given = options(server, protocol, tools=[add])
        async with Client(given, session="sum", store=store) as client:
            await asked(client, "Add.")
            await client.add_tool_result("a", 42, "add")
        async with Client(given, session="sum", store=store) as client:
            await client.add_tool_result("b", 2, "add")
            await client.query("")
            assert text_of(await heard(client)) == "42 and 2."
    assert told(server.requests[1], protocol) == [
        User("Add."),
        Assistant("", (call("a", "add", a=25, b=17), call("b", "add", a=1, b=1))),
        Result("a", 42),
        Result("b", 2),
    ]


@pytest.mark.parametrize("other", PROTOCOLS, ids=str)
async def test_a_session_goes_on_with_a_model_of_another_provider(
    protocol: Protocol, other: Protocol, store: Path
):
    script = [protocol.calls(adding("a")), protocol.text("It is 42.")]
    async with serving(*script, protocol=protocol) as server:
        given = options(server, protocol, tools=[add], auto_execute_tools=True)
        async with Client(given, session="sum", store=store) as client:
            await asked(client, "25 + 17?")
    said = [
        User("25 + 17?"),
        Assistant("", (call("a", "add", a=25, b=17),)),
        Result("a", 42),
        Assistant("It is 42."),
    ]
    async with serving(other.text("Sure."), other.text("Yes."), protocol=other) as server:
        given = options(server, other, tools=[add])
        async with Client(given, session="sum", store=store) as client:
            assert written(client.history) == said
            await asked(client, "Sure?")
            await asked(client, "Really?")
    sent = [*said, User("Sure?"), Assistant("Sure."), User("Really?")]
    assert [told(request, other) for request in server.requests] == [sent[:5], sent]


async def test_a_fork_goes_on_from_the_same_point_and_both_are_independent(
    protocol: Protocol, store: Path
):
    script = [protocol.text(text) for text in ("Hello, Ada.", "Left.", "Right.", "L2.", "R2.")]
    async with serving(*script, protocol=protocol) as server:
        given = options(server, protocol)
        async with Client(given, session="trip", store=store) as client:
            await asked(client, "I am Ada.")
            async with await client.fork("other") as branch:
                assert written(branch.history) == HELLO
                await asked(client, "Go left.")
                await asked(branch, "Go right.")
                await asked(client, "More.")
                await asked(branch, "More.")
        left = [*HELLO, User("Go left."), Assistant("Left."), User("More.")]
        right = [*HELLO, User("Go right."), Assistant("Right."), User("More.")]
        assert told(server.requests[3], protocol) == left
        assert told(server.requests[4], protocol) == right
        async with Client(given, session="trip", store=store) as client:
            assert written(client.history) == [*left, Assistant("L2.")]
        async with Client(given, session="other", store=store) as client:
            assert written(client.history) == [*right, Assistant("R2.")]
    assert names(store) == ["other", "trip"]


async def test_a_fork_without_a_name_is_not_saved(store: Path):
    async with (
        serving(OPENAI.text("Hello, Ada."), OPENAI.text("Ada.")) as server,
        Client(options(server), session="trip", store=store) as client,
    ):
        await asked(client, "I am Ada.")
        async with await client.fork() as branch:
            await asked(branch, "Who am I?")
        assert written(client.history) == HELLO
    assert told(server.requests[1]) == [*HELLO, User("Who am I?")]
    assert names(store) == ["trip"]


async def test_a_client_without_a_session_can_be_forked_too():
    async with serving(OPENAI.text("Hello, Ada."), OPENAI.text("Ada.")) as server:
        async with Client(options(server)) as client:
            await asked(client, "I am Ada.")
            async with await client.fork() as branch:
                await asked(branch, "Who am I?")
        assert written(client.history) == HELLO
    assert written(branch.history) == [*HELLO, User("Who am I?"), Assistant("Ada.")]


async def test_a_store_lists_deletes_and_forks(store: Path):
    async with serving(*[OPENAI.text("Hello, Ada.") for _ in range(3)]) as server:
        given = options(server)
        await begin(given, store, "one")
        await begin(given, store, "two")
        with SessionStore(store) as opened:
            opened.fork("one", "three")
            opened.delete("one")
        assert names(store) == ["three", "two"]
        async with Client(given, session="three", store=store) as client:
            assert written(client.history) == HELLO
        async with Client(given, session="one", store=store) as client:
            assert client.history == []


async def test_a_store_may_be_shared_by_clients(store: Path):
    async with serving(OPENAI.text("Hello, Ada."), OPENAI.text("Hello, Ada.")) as server:
        given = options(server)
        opened = SessionStore(store)
        await begin(given, opened, "one")
        await begin(given, opened, "two")
        opened.close()
    assert names(store) == ["one", "two"]


async def test_sessions_of_one_store_do_not_mix(store: Path):
    async with serving(OPENAI.text("Hello, Ada."), OPENAI.text("Who?")) as server:
        given = options(server)
        await begin(given, store, "one")
        async with Client(given, session="two", store=store) as client:
            await asked(client, "Who am I?")
    assert told(server.requests[1]) == [User("Who am I?")]


async def test_a_second_client_that_writes_the_same_session_is_told(store: Path):
    async def both() -> None:
        async with (
            Client(given, session="trip", store=store) as first,
            Client(given, session="trip", store=store) as second,
        ):
            await asked(first, "I am Ada.")
            await asked(second, "I am Bob.")

    async with serving(OPENAI.text("Hello, Ada."), OPENAI.text("Hello, Bob.")) as server:
        given = options(server)
        with pytest.raises(SessionConflictError):
            await both()
        async with Client(given, session="trip", store=store) as client:
            assert written(client.history) == HELLO


async def test_without_a_store_sessions_are_in_the_data_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("XDG_DATA_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    async with serving(OPENAI.text("Hello, Ada.")) as server:
        given = options(server)
        await begin(given, None)
        assert files_in(tmp_path)
        async with Client(given, session="trip") as client:
            assert written(client.history) == HELLO


async def test_an_edited_history_is_what_is_saved(store: Path):
    script = [OPENAI.text("Hello, Ada."), OPENAI.text("two"), OPENAI.text("three")]
    async with serving(*script) as server:
        given = options(server)
        async with Client(given, session="trip", store=store) as client:
            await asked(client, "I am Ada.")
            client.message_history = []
            await asked(client, "2")
        async with Client(given, session="trip", store=store) as client:
            await asked(client, "3")
    assert told(server.requests[2]) == [User("2"), Assistant("two"), User("3")]


async def test_a_text_that_was_interrupted_is_gone_on_from(protocol: Protocol, store: Path):
    script = [protocol.text("Hello, ", "Ada."), protocol.text("Ada.")]
    async with serving(*script, protocol=protocol) as server:
        given = options(server, protocol)
        async with Client(given, session="trip", store=store) as client:
            await client.query("I am Ada.")
            async for _ in client.receive_messages():
                await client.interrupt()
            before = written(client.history)
            await asked(client, "Who am I?")
        async with Client(given, session="trip", store=store) as client:
            assert written(client.history) == [*before, User("Who am I?"), Assistant("Ada.")]
