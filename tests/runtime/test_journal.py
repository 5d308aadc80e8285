"""The writer of a journal: what happens while it writes is written as well."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from ramify import MemoryStore
from ramify.core.errors import StoreError
from ramify.core.events import CallRequested, CallStarted
from ramify.runtime.journal import Journal
from ramify.stores import Entry


class Slow(MemoryStore):
    """A store that keeps nothing before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_keep = threading.Event(), threading.Event()

    def append(self, entries: Sequence[Entry]) -> int:
        self.begun.set()
        assert self.may_keep.wait(10)
        return super().append(entries)


async def no_trouble(node: object, error: StoreError) -> None:
    raise error


async def test_what_happens_during_a_long_commit_is_written_though_nothing_follows():
    store = Slow()
    store.drive()
    journal = Journal(store, None, no_trouble)
    async with asyncio.timeout(10):
        journal.record(1, CallRequested(1, None, 1, 1, "f", {}, key="#1"))
        waiting = asyncio.get_running_loop().create_task(journal.saved(None))
        await asyncio.to_thread(store.begun.wait, 10)
        journal.record(1, CallStarted(1, 0.0))
        await asyncio.sleep(0.1)  # longer than an event is kept back
        store.may_keep.set()
        await waiting
        while len(store.entries(1)) < 2:  # noqa: ASYNC110 - nobody waits for it, that is the point
            await asyncio.sleep(0.001)
    journal.close()


class Full(MemoryStore):
    """A store that keeps nothing."""

    def append(self, entries: Sequence[Entry]) -> int:
        raise StoreError(self.name, "the disk is full")


def test_nobody_waits_for_what_could_not_be_written_before_the_end():
    store = Full()
    store.drive()
    journal = Journal(store, None, no_trouble)
    journal.record(1, CallRequested(1, None, 1, 1, "f", {}, key="#1"))
    with pytest.raises(StoreError, match="the disk is full"):
        journal.close()
    waiting = threading.Thread(target=journal.flush, daemon=True)
    waiting.start()
    waiting.join(10)
    assert not waiting.is_alive()
