"""The writer of a journal: what happens while it writes is written as well."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Final

import pytest

from shared_stores import info
from support import forever
from treefold import CancellationException, CodeFunction, MemoryStore, NodeState, Runtime
from treefold.core.cluster import Ownership
from treefold.core.errors import FencedError, StoreError
from treefold.core.events import CallRequested, CallStarted
from treefold.runtime.durable.drive import Drive
from treefold.runtime.durable.journal_writer import JournalWriter
from treefold.stores import Batch
from treefold.stores.postgres import PostgresStore

NO_NODE: Final[Any] = None  # no call waits for it


class Slow(MemoryStore):
    """A store that keeps nothing before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_keep = threading.Event(), threading.Event()

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        self.begun.set()
        assert self.may_keep.wait(60)
        return super().append(batches)


async def test_what_happens_during_a_long_commit_is_written_though_nothing_follows():
    store = Slow()
    store.join()
    journal = JournalWriter(store, None)
    async with asyncio.timeout(60):
        journal.record(1, CallRequested(1, None, 1, 1, "f", {}, key="#1"))
        waiting = asyncio.get_running_loop().create_task(journal.saved(NO_NODE))
        await asyncio.to_thread(store.begun.wait, 10)
        journal.record(1, CallStarted(1, 0.0))
        await asyncio.sleep(0.1)  # longer than an event is kept back
        store.may_keep.set()
        await waiting
        while len(store.entries(1)) < 2:  # noqa: ASYNC110 - nobody waits for it, that is the point
            await asyncio.sleep(0.001)
    journal.close()
    assert [entry.kind for entry in store.entries(1)] == ["CallRequested", "CallStarted"]


async def test_a_drive_that_is_lost_while_its_events_wait_does_not_stop_the_others(
    postgres_url: str,
):
    with PostgresStore(postgres_url) as store:
        store.join(info("one"), lease=60)
        journal = JournalWriter(store, None)
        lost, adopted, other = (Drive(1, Ownership(1, 1, 1)), Drive(1, None), Drive(2, None))
        journal.record(1, CallRequested(1, None, 1, 1, "f", {}, key="#1"), drive=lost)
        lost.refusal = FencedError(store.name, "another worker runs it")
        journal.forget(lost)
        # What is recorded for the same node afterwards does not count as part of it.
        journal.record(1, CallRequested(1, None, 1, 1, "g", {}, key="#1"), drive=adopted)
        journal.record(2, CallRequested(2, None, 2, 1, "h", {}, key="#2"), drive=other)
        async with asyncio.timeout(60):
            await journal.saved(NO_NODE)
        journal.close()

        assert [row.function for row in store.trees()] == ["g", "h"]
        assert (lost.written, adopted.written, other.written) == (0, 1, 1)


async def test_a_cancelled_call_is_not_shown_as_cancelled_before_that_is_written():
    class Hasty(Runtime):
        patience = 0.01

    store = Slow()
    store.may_keep.set()
    async with asyncio.timeout(60), Hasty([forever], store=store) as runtime:
        node = runtime.invoke(forever)
        await anext(view async for view in runtime.watch(node) if view.state is NodeState.Running)
        while not store.entries(node.id):  # noqa: ASYNC110 - it is written by another thread
            await asyncio.sleep(0.001)
        store.may_keep.clear()
        store.begun.clear()
        node.cancel()
        await asyncio.to_thread(store.begun.wait, 20)
        await asyncio.sleep(0.05)  # the cancel would have been repeated several times
        assert node.ended_at is None
        store.may_keep.set()
        with pytest.raises(CancellationException):
            await node


class Full(MemoryStore):
    """A store that keeps nothing."""

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        raise StoreError(self.name, "the disk is full")


def test_nobody_waits_for_what_could_not_be_written_before_the_end():
    store = Full()
    store.join()
    journal = JournalWriter(store, None)
    journal.record(1, CallRequested(1, None, 1, 1, "f", {}, key="#1"))
    with pytest.raises(StoreError, match="the disk is full"):
        journal.close()
    waiting = threading.Thread(target=journal.flush, daemon=True)
    waiting.start()
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_thread_that_cannot_be_started_once_does_not_stop_the_journal(
    monkeypatch: pytest.MonkeyPatch,
):
    refused: list[threading.Thread] = []
    start = threading.Thread.start

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "treefold journal" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    store = MemoryStore()
    three = CodeFunction(name="three", callable=lambda ctx: 3)
    with Runtime([three], store=store) as runtime:
        assert runtime.invoke(three).result(20) == 3
    assert len(refused) == 1
    assert [tree.state.value for tree in store.trees()] == ["success"]


def test_whoever_blocks_until_it_is_written_is_told_that_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
):
    store = MemoryStore()
    store.join()
    journal = JournalWriter(store, None)
    journal.record(1, CallRequested(1, None, 1, 1, "f", {}, key="#1"))

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(StoreError, match="memory: .*can't start new thread"):
            journal.flush()
    journal.flush()
    assert [entry.kind for entry in store.entries(1)] == ["CallRequested"]
    journal.close()
