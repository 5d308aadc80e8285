"""The loop of a worker, with a source that misbehaves."""

import asyncio
from collections.abc import Callable

import pytest

from support import settle
from treefold.core.work_engine import Taken
from treefold.engines.take_loop import TakeLoop


class Source:
    """Has one delivery, which arrives when the fetch is cancelled, and loses the cancellation."""

    def __init__(self, on_fetch: Callable[[], None]) -> None:
        self.given_back: list[int] = []
        self._on_fetch = on_fetch

    async def fetch(self) -> int | None:
        self._on_fetch()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 1

    def node(self, delivery: int) -> int:
        return delivery

    async def settle(self, delivery: int, taken: Taken) -> None:
        raise AssertionError("nothing was delivered")

    async def give_back(self, delivery: int) -> None:
        self.given_back.append(delivery)

    def pause(self) -> float | None:
        return None


class Queue:
    """Has what is put into it, and counts the fetches."""

    def __init__(self, *deliveries: int) -> None:
        self.deliveries = list(deliveries)
        self.fetches = 0

    async def fetch(self) -> int | None:
        self.fetches += 1
        return self.deliveries.pop(0) if self.deliveries else None

    def node(self, delivery: int) -> int:
        return delivery

    async def settle(self, delivery: int, taken: Taken) -> None:
        pass

    async def give_back(self, delivery: int) -> None:
        raise AssertionError("nothing is given back")

    def pause(self) -> float | None:
        return None


@pytest.mark.parametrize(
    ("slots", "fetches"),
    [
        (1, 4),  # each delivery, and after the last one
        (9, 4),
    ],
)
async def test_what_has_ended_is_a_reason_to_fetch_only_if_all_slots_were_taken(
    slots: int, fetches: int
):
    queue, taken, stop = Queue(1, 2, 3), list[int](), asyncio.Event()

    async def take(node: int) -> Taken:
        await settle()
        taken.append(node)
        return Taken.Done

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(TakeLoop(take, slots=slots).run(queue, stop))
        while len(taken) < 3:
            await settle()
        await settle()
        assert queue.fetches == fetches
        stop.set()
    assert taken == [1, 2, 3]


async def take(node: int) -> Taken:
    raise AssertionError("nothing is delivered to a worker that is cancelled")


async def test_a_cancellation_that_is_lost_while_fetching_ends_the_loop():
    fetching = asyncio.Event()
    source = Source(fetching.set)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        run = group.create_task(TakeLoop(take, slots=1).run(source, asyncio.Event()))
        await fetching.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert source.given_back == [1]
