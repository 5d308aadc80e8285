"""One store for the journal of a runtime and for the chats of clients."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from chat_helpers import Assistant, User, asked, written
from treefold import (
    AgentOptions,
    Client,
    CodeFunction,
    MemoryStore,
    RunContext,
    Runtime,
    SqliteStore,
    attach,
)
from treefold.core.errors import ClosedError, InvalidValueError, StoreError
from treefold.testing import ScriptedModel

HELLO = [User("Hi."), Assistant("Hello.")]


def double(ctx: RunContext, n: int) -> int:
    return 2 * n


DOUBLE = CodeFunction(callable=double)


def client(store: Any, *answers: str) -> Client:
    return Client(AgentOptions("You help.", ScriptedModel(*answers)), session="s", store=store)


async def saved(store: Any) -> list[Any]:
    async with client(store) as found:
        return written(found.history)


@pytest.mark.parametrize("kind", [MemoryStore, lambda: SqliteStore(":memory:")])
async def test_one_store_has_the_journal_of_a_runtime_and_the_chats_in_it(
    kind: Callable[[], MemoryStore | SqliteStore],
):
    store = kind()
    async with asyncio.timeout(60), Runtime([DOUBLE], store=store) as runtime:
        assert await runtime.invoke(DOUBLE, {"n": 4}) == 8
        async with client(store, "Hello.") as chat:
            await asked(chat, "Hi.")
        assert await saved(store) == HELLO
        assert [info.exchanges for info in store.sessions.list()] == [1]
        assert len(store.trees()) == 2  # a turn of the chat is a tree, too


@pytest.mark.parametrize("given", [str, Path, SqliteStore])
async def test_one_file_has_both_while_a_runtime_owns_its_journal(
    tmp_path: Path, given: Callable[[Path], Any]
):
    path = tmp_path / "run.db"
    with ExitStack() as opened:
        store = given(path)
        if isinstance(store, SqliteStore):
            opened.enter_context(store)
        async with asyncio.timeout(60), Runtime([DOUBLE], store=path) as runtime:
            nodes = [runtime.invoke(DOUBLE, {"n": n}) for n in range(20)]
            async with client(store, "Hello.") as chat:
                await asked(chat, "Hi.")
            assert [await node for node in nodes] == [2 * n for n in range(20)]
    assert await saved(path) == HELLO
    with SqliteStore(path) as store, attach(path) as observer:
        assert [info.name for info in store.sessions.list()] == ["s"]
        assert len(observer.trees()) == 21
        assert not store.is_owned()  # which saving a chat does not need


async def test_a_client_closes_no_store_that_it_was_given(tmp_path: Path):
    with SqliteStore(tmp_path / "run.db") as store:
        for text in ("Hi.", "And?"):
            async with client(store, "Hello.") as chat:
                await asked(chat, text)
                async with await chat.fork(f"fork of {text}") as fork:
                    await fork.add_tool_result("1", "unused")
        assert len(store.sessions.list()) == 3
        assert store.trees() == []
    with pytest.raises(ClosedError, match=r"run\.db was closed; open it again"):
        store.sessions.list()


def test_a_store_without_sessions_is_refused_by_a_client(tmp_path: Path):
    for odd in (7, object(), Runtime()):
        with pytest.raises(InvalidValueError, match="or a store that has sessions, got"):
            client(odd)
    with pytest.raises(InvalidValueError, match="store= needs session="):
        Client(AgentOptions("You help.", ScriptedModel()), store=tmp_path / "run.db")
    assert not (tmp_path / "run.db").exists()


def test_a_file_that_was_moved_is_not_created_again_to_save_a_chat(tmp_path: Path):
    path = tmp_path / "run.db"
    with SqliteStore(path) as store:
        path.rename(tmp_path / "moved.db")
        with pytest.raises(StoreError, match="it was moved"):
            _ = store.sessions
        assert not path.exists()
        (tmp_path / "moved.db").rename(path)
        assert store.sessions.list() == []


def test_the_sessions_of_a_store_in_memory_live_as_long_as_they_are_used():
    sessions = MemoryStore().sessions
    sessions.open("trip")
    with MemoryStore() as store:
        store.sessions.open("other")
    assert [info.name for info in (*sessions.list(), *store.sessions.list())] == ["trip", "other"]
