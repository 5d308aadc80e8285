"""The hostile engine: that it is hostile, and that the same seed makes the same choices."""

import asyncio
from collections import Counter

from engine_workers import QUEUE, Taker, drive, until_depth, work
from hostile_engine import HostileEngine, Malice
from treefold.engines import Depth, Taken, Ticket, WorkEngine


async def deliveries(engine: WorkEngine, nodes: int) -> list[int]:
    """Submit so many drives, and return what was delivered by the time that nothing is left."""
    for node in range(nodes):
        await engine.submit(drive(node))

    async def wait(_: Taker) -> None:
        await until_depth(engine, Depth())

    return (await work(engine, wait)).taken


async def test_it_delivers_twice_and_never_and_in_another_order():
    taken = await deliveries(HostileEngine(seed=1), 60)
    counts = Counter(taken)
    assert {1, 2} < {*counts.values()}
    assert 0 < 60 - len(counts) < 30
    assert taken != sorted(taken)


async def test_the_same_seed_makes_the_same_choices():
    prompt = Malice(late=0.0)
    runs = [await deliveries(HostileEngine(seed, prompt), 40) for seed in (7, 7, 8)]
    assert runs[0] == runs[1] != runs[2]


async def test_what_is_submitted_until_it_is_done_is_done_by_every_engine_of_this_kind():
    for seed in range(20):
        engine, stop = HostileEngine(seed), asyncio.Event()
        owed = set(range(10))

        async def take(node: int, owed: set[int] = owed) -> Taken:
            await asyncio.sleep(0)
            owed.discard(node)
            return Taken.Done

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(engine.work(take, queues=[QUEUE], slots=3, stop=stop))
            while owed:
                for node in list(owed):
                    await engine.submit(drive(node))
                await asyncio.sleep(0.01)
            stop.set()


async def test_it_exceeds_no_slots_and_keeps_queues_apart():
    engine, stop = HostileEngine(3), asyncio.Event()
    running = most = 0
    taken: list[int] = []

    async def take(node: int) -> Taken:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        taken.append(node)
        return Taken.Done

    for node in range(30):
        await engine.submit(drive(node))
        await engine.submit(Ticket(node=100 + node, queue="blue"))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(engine.work(take, queues=[QUEUE], slots=3, stop=stop))
        await until_depth(engine, Depth())
        stop.set()
    assert most == 3
    assert max(taken) < 30
