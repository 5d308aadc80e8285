"""Sessions when the store is in the way: full, written by somebody else, or not read yet."""

import asyncio
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from chat_helpers import Assistant, Result, User, add, asked, call, heard, written
from treefold import AgentOptions, Client, Runtime, ToolUse
from treefold.core.errors import SessionConflictError, StoreError
from treefold.testing import ScriptedModel

ADDING = ToolUse("1", "add", {"a": 1, "b": 2})
ASKED = [User("1 + 2?"), Assistant("", (call("1", "add", a=1, b=2),))]
HELLO = [User("Hi."), Assistant("Hello.")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


def options(*script: Any, **changes: Any) -> AgentOptions:
    return AgentOptions("You help.", ScriptedModel(*script), tools=[add], **changes)


@contextmanager
def full(path: Path) -> Generator[None]:
    """Let nothing be added to the file."""
    refuse = "CREATE TRIGGER full BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'full'); END"
    with closing(sqlite3.connect(path)) as database:
        database.execute(refuse)
        yield
        database.execute("DROP TRIGGER full")


async def saved(path: Path, session: str = "s") -> list[Any]:
    async with Client(options(), session=session, store=path) as client:
        return written(client.history)


@pytest.mark.parametrize("way", ["raise", "pause"])
async def test_a_response_that_cannot_be_saved_is_kept_and_saved_later(path: Path, way: Any):
    async with (
        asyncio.timeout(60),
        Runtime(on_provider_failure=way) as runtime,
        Client(options("Hello.", "Good."), session="s", store=path) as client,
    ):
        with full(path):
            await client.query("Hi.")
            with pytest.raises(StoreError, match="full"):
                await heard(client)
            assert written(client.history) == HELLO
            with pytest.raises(StoreError, match="full"):  # before another is paid for
                await client.query("How are you?")
        await asked(client, "How are you?")
        assert runtime.questions() == []
    assert await saved(path) == [*HELLO, User("How are you?"), Assistant("Good.")]


async def test_who_was_overtaken_can_go_on_beside_the_other_and_loses_nothing(path: Path):
    client = Client(options("one", "two", "three"), session="s", store=path)
    await asked(client, "1")
    async with Client(options("else"), session="s", store=path) as other:
        await asked(other, "2")
    await client.query("2")
    with pytest.raises(SessionConflictError):
        await heard(client)
    mine = [User("1"), Assistant("one"), User("2"), Assistant("two")]
    async with await client.fork("mine") as branch:
        assert await saved(path, "mine") == written(branch.history) == mine
        await asked(branch, "3")
    assert await saved(path, "mine") == [*mine, User("3"), Assistant("three")]
    assert await saved(path) == [*mine[:3], Assistant("else")]
    await client.close()  # which was told already


async def test_a_result_can_be_given_to_a_session_that_was_only_just_named(path: Path):
    async with Client(options(ADDING), session="s", store=path) as client:
        await asked(client, "1 + 2?")
    client = Client(options("It is 3."), session="s", store=path)
    await client.add_tool_result("1", 3)
    await asked(client, "")
    assert written(client.history) == [*ASKED, Result("1", 3), Assistant("It is 3.")]
    await client.close()


async def test_a_history_given_before_the_session_is_read_is_the_one_that_counts(path: Path):
    async with Client(options("Hello."), session="s", store=path) as client:
        await asked(client, "Hi.")
    client = Client(options("Fine."), session="s", store=path)
    client.message_history = [{"role": "user", "content": "Yes."}]
    await asked(client, "Well?")
    await client.close()
    assert await saved(path) == [User("Yes.\n\nWell?"), Assistant("Fine.")]


async def test_a_session_is_read_once_however_many_ask_for_it(path: Path):
    async with Client(options("Hello."), session="s", store=path) as client:
        await asked(client, "Hi.")
    client = Client(options(), session="s", store=path)
    async with asyncio.TaskGroup() as group:
        forks = [group.create_task(client.fork()) for _ in range(5)]
    branches = [fork.result() for fork in forks]
    assert [written(one.history) for one in (client, *branches)] == [HELLO] * 6
    await client.close()


async def test_the_list_of_messages_is_the_same_before_and_after_the_session_is_read(path: Path):
    async with Client(options("Hello."), session="s", store=path) as client:
        await asked(client, "Hi.")
    client = Client(options("Fine."), session="s", store=path)
    messages = client.message_history
    async with client:
        assert written(messages) == HELLO
