"""The engine without a server."""

from itertools import pairwise

from engine_workers import QUEUE, Taker, drive, in_order_of_priority, until_depth, work
from support import settle
from treefold.engines import Depth, InProcess, Taken, WorkEngine
from treefold.testing import EngineSuite


class TestInProcess(EngineSuite):
    quiet = 0.02

    def make_engine(self) -> WorkEngine:
        return InProcess(first_delay=0.05)

    def same_engine(self, engine: WorkEngine) -> WorkEngine:
        return engine


async def test_higher_priorities_are_delivered_first():
    assert await in_order_of_priority(InProcess()) == [6, 3, 4, 1, 5, 2]


async def test_a_drive_that_could_not_be_run_waits_longer_each_time_however_often_it_is_submitted():
    now = 1000.0
    engine = InProcess(first_delay=2, longest_delay=5, clock=lambda: now)
    times: list[float] = []

    async def advance(taker: Taker) -> None:
        nonlocal now
        for count in range(1, 6):
            await taker.until(lambda count=count: len(taker.ended) == count)
            times.append(now)
            await until_depth(engine, Depth(queued=1))
            while len(taker.ended) == count:
                now += 0.5
                await engine.submit(drive(1))
                # The worker looks when something is submitted.
                await engine.submit(drive(2))
                await engine.withdraw(2)
                await settle()

    await engine.submit(drive(1))
    await work(engine, advance, answer=Taken.Later)
    assert [after - before for before, after in pairwise(times)] == [2, 4, 5, 5]
    assert (await engine.depth([QUEUE])).queued == 1
