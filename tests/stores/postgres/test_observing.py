"""Observers and chats of a journal in PostgreSQL, given as a URL."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from chat_helpers import Assistant, User, asked, written
from shared_stores import LEASE, TreeWriter, info, wait_until
from support import blocked_runtime
from treefold import AgentOptions, Client, MemoryStore, Runtime, SessionStore, SqliteStore, attach
from treefold.core.code import CodeFunction
from treefold.core.errors import InvalidValueError, StoreError, UsageError
from treefold.core.function import RunContext
from treefold.core.store import Batch, Entry
from treefold.runtime.durable.tree_reader import read_events
from treefold.stores import export_tree
from treefold.stores.opening import open_store
from treefold.stores.postgres import PostgresStore
from treefold.testing import ScriptedModel, replay
from treefold.testing.store_suite import asks


async def work(ctx: RunContext, n: int) -> int:
    return 2 * n


WORK = CodeFunction(callable=work)


def recorded(tmp_path: Path) -> list[Entry]:
    """Return the entries of a real run, with their texts."""
    store = MemoryStore()
    with Runtime([WORK], store=store) as runtime:
        assert runtime.invoke(WORK, {"n": 4}).result() == 8
    export_tree(store, 1, tmp_path / "run.jsonl")
    return store.entries(1)


def test_a_url_opens_a_postgres_store_and_a_path_a_file(journal_url: str, tmp_path: Path):
    store = open_store(journal_url)
    assert isinstance(store, PostgresStore)
    store.close()
    with open_store(tmp_path / "run.db") as file:  # pyright: ignore
        assert isinstance(file, SqliteStore)
    memory = MemoryStore()
    assert open_store(memory) is memory
    with pytest.raises(StoreError, match="there is no such file"):
        open_store(tmp_path / "nowhere.db", create=False)
    with pytest.raises(InvalidValueError, match="store must be"):
        open_store(7)  # pyright: ignore


@pytest.mark.parametrize("make", [SqliteStore, SessionStore])
def test_a_file_is_not_named_like_a_url(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValueError, match="got postgresql://host/db; give that") as raised:
        make("postgresql://me:s3cret@host/db?password=s3cret")
    assert "s3cret" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "treefold.stores.postgres.store", None)
    with pytest.raises(UsageError, match=r"pip install 'treefold\[postgres\]'"):
        open_store("postgresql://localhost/db")


def test_a_call_is_known_to_observers_of_its_process_as_soon_as_it_is_made(journal_url: str):
    with (
        blocked_runtime(WORK, store=journal_url) as runtime,
        attach(journal_url) as observer,
    ):
        first, second = (runtime.invoke(WORK, {"n": n}).id for n in range(2))
        assert observer.trees_of([first, second, 4711]) == {first: first, second: second}
        third = runtime.invoke(WORK, {"n": 3}).id
        assert observer.get_view(third).inputs == {"n": 3}
        assert runtime.invoke(WORK, {"n": 4}).id == observer.trees()[-1].id


def test_an_observer_sees_a_tree_grow_and_hears_of_it_at_once(journal_url: str, tmp_path: Path):
    entries = recorded(tmp_path)
    with PostgresStore(journal_url) as store, attach(journal_url) as observer:
        store.join(info("worker 7"), lease=LEASE)
        tree = TreeWriter(store, 1)
        tree.entries = entries[:1]
        tree.write()
        assert observer.get_view(1).state == "waiting"
        assert (observer.is_driven, observer.interrupted()) == (True, {})
        [row] = observer.trees()
        assert (row.driven, row.owner) == (True, "worker 7")
        watch = observer.watch(1, as_of_seq=observer.get_view(1).update_seqnum, timeout=30)
        reading = iter(watch)
        took, view = list[float](), observer.get_view(1)
        for entry in entries[1:]:
            tree.entries = [entry]
            begun = time.monotonic()
            tree.write()
            view = next(reading)
            took.append(time.monotonic() - begun)
        assert view.outputs == 8
        # Not with the next poll, which may be a second away.
        assert min(took) < 0.5
        events = read_events(store, 1)
        assert [type(event).__name__ for event in events][:1] == ["CallRequested"]


def test_a_tree_whose_worker_has_left_is_interrupted_if_it_has_begun(
    journal_url: str, tmp_path: Path
):
    entries = recorded(tmp_path)
    with attach_after(journal_url) as observer, PostgresStore(journal_url) as store:
        store.join(info(), lease=LEASE)
        for number, own in ((1, entries[:2]), (2, [])):
            tree = TreeWriter(store, number)
            tree.entries = own or tree.entries
            tree.write()
        parked = TreeWriter(store, 3)
        parked.entries.append(asks("3-1", 2))
        parked.write()
        assert observer.interrupted() == {}
        store.leave()
        assert observer.interrupted().keys() == {1}
        assert [frame.state for frame in observer.stack(1)] == ["interrupted"]
        store.join(info(), lease=LEASE)
        assert store.cluster.drives.adopt(1) is not None
        assert observer.interrupted() == {}


def attach_after(url: str) -> Any:
    PostgresStore(url).close()
    return attach(url)


def test_commands_go_to_the_owner_of_the_tree(journal_url: str, tmp_path: Path):
    entries = recorded(tmp_path)
    with PostgresStore(journal_url) as store, attach(journal_url) as observer:
        store.join(info(), lease=LEASE)
        tree = TreeWriter(store, 1)
        tree.entries = entries[:2]
        tree.write()
        observer.cancel(1)
        observer.cancel(1)  # a call may ignore the first
        observer.pause(1)
        observer.pause(1)
        observer.resume(1)
        key = observer.fork(1)
        bodies = [json.loads(message.body)["do"] for message in store.inbox(drives=[1])]
        assert bodies == ["cancel", "cancel", "pause", "resume", "fork"]
        assert observer.forked(key) is None
        store.broadcast(json.dumps({"refused": key, "why": "not today"}))

        def is_refused() -> bool:
            try:
                return observer.forked(key) is not None
            except UsageError as error:
                return str(error) == "not today"

        wait_until(is_refused)


def test_a_recorded_run_is_replayed_from_a_url(journal_url: str, tmp_path: Path):
    entries = recorded(tmp_path)
    with PostgresStore(journal_url) as store:
        store.join(info(), lease=LEASE)
        tree = TreeWriter(store, 1)
        tree.entries = entries
        tree.write()
    assert replay([WORK], journal_url).divergence is None


def test_a_fork_is_read_with_its_source(journal_url: str, tmp_path: Path):
    memory = MemoryStore()
    with Runtime([WORK], store=memory) as runtime:
        node = runtime.invoke(WORK, {"n": 4})
        assert node.result() == 8
        assert runtime.fork(node).result() == 8
    with PostgresStore(journal_url) as store, attach(journal_url) as observer:
        batches = [Batch(ownership=None, entries=memory.entries(tree)) for tree in (1, 2)]
        assert all(isinstance(place, int) for place in store.append(batches))
        assert observer.get_view(2).outputs == 8
        export_tree(store, 2, tmp_path / "fork.jsonl")
        assert [row.source for row in store.trees()] == [0, 1]


async def test_a_chat_is_saved_in_the_database(journal_url: str):
    def client(*answers: str) -> Client:
        options = AgentOptions("You help.", ScriptedModel(*answers))
        return Client(options, session="trip", store=journal_url)

    async with asyncio.timeout(60):
        async with client("Hello.") as chat:
            await asked(chat, "Hi.")
        async with client("Paris.") as chat:
            assert written(chat.history) == [User("Hi."), Assistant("Hello.")]
            await asked(chat, "Where?")
            async with await chat.fork("by train") as fork:
                assert len(fork.history) == 4
    with PostgresStore(journal_url) as store:
        assert {found.name: found.exchanges for found in store.sessions.list()} == {
            "trip": 2,
            "by train": 2,
        }
        assert store.cluster.members.workers() == []
