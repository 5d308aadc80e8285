"""Tests of the ``WorkEngine`` protocol, which users can run on their own engines.

They use nothing but the protocol; any test runner that calls methods named ``test_...`` works.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from statistics import mean
from uuid import uuid4

from treefold.core.work_engine import Depth, Taken, Ticket, WorkEngine

QUEUE = "red"
OTHER_QUEUE = "blue"


class EngineSuite:  # noqa: PLR0904 - a test for each sentence of the contract
    """Tests of an engine: name a subclass ``Test...``, and implement how an engine is made.

    Make it with short delays: a test of drives that could not be run waits for the first of them.

    Attributes:
        patience: seconds that a test waits for anything.
        quiet: seconds without a delivery, after which a test believes that there is none.
        many: drives that are submitted at once.
        tells_running: whether the depth tells exactly what runs and what waits, not only the sum.

    Example:
        >>> from treefold.engines import InProcess, WorkEngine
        >>> from treefold.testing import EngineSuite
        >>> class TestInProcess(EngineSuite):
        ...     def make_engine(self) -> WorkEngine:
        ...         return InProcess(first_delay=0.05)
        ...     def same_engine(self, engine: WorkEngine) -> WorkEngine:
        ...         return engine
        >>> TestInProcess().test_what_is_submitted_is_delivered()
    """

    patience: float = 20.0
    quiet: float = 0.2
    many: int = 200
    tells_running: bool = True
    _journal: str = ""

    def make_engine(self) -> WorkEngine:
        """Return an engine that is not open."""
        raise NotImplementedError

    def same_engine(self, engine: WorkEngine) -> WorkEngine:
        """Return an engine with the same queues as *engine*, as another process would make it."""
        raise NotImplementedError

    # Submitting

    def test_what_is_submitted_is_delivered(self) -> None:
        async def test(engine: WorkEngine) -> None:
            await engine.submit(drive(1))
            await engine.submit(drive(2**40))
            worker = await self._work(engine, until=2)
            assert worker.nodes == {1: 1, 2**40: 1}

        self._run(test)

    def test_a_worker_that_waits_gets_what_is_submitted(self) -> None:
        async def test(engine: WorkEngine) -> None:
            async def submit(worker: SuiteWorker) -> None:
                for node in (1, 2, 3):
                    await engine.submit(drive(node))
                    await worker.until(lambda node=node: worker.taken == [*range(1, node + 1)])

            await self._work(engine, meanwhile=submit)

        self._run(test)

    def test_what_is_queued_is_delivered_once(self) -> None:
        async def test(engine: WorkEngine) -> None:
            for _ in range(3):
                await engine.submit(drive(1))
            worker = await self._work(engine, until=1)
            assert worker.taken == [1]

        self._run(test)

    def test_what_has_run_is_delivered_again_if_it_is_submitted_again(self) -> None:
        async def test(engine: WorkEngine) -> None:
            for count in (1, 2):
                await engine.submit(drive(1))
                worker = await self._work(engine, until=1)
                assert worker.taken == [1], count

        self._run(test)

    def test_what_runs_is_delivered_again_if_it_is_submitted_again(self) -> None:
        async def test(engine: WorkEngine) -> None:
            async def submit(worker: SuiteWorker) -> None:
                for count in (1, 2, 3):
                    await engine.submit(drive(1))
                    await worker.until(lambda count=count: worker.running == count)
                worker.let_go.set()

            worker = await self._work(engine, meanwhile=submit, held=True)
            assert worker.taken == [1, 1, 1]

        self._run(test)

    def test_higher_priorities_are_delivered_earlier_on_the_whole(self) -> None:
        async def test(engine: WorkEngine) -> None:
            # Not first: an engine that consists of several machines has no order of all drives.
            for node in range(15):
                await engine.submit(drive(node, priority=-2 if node < 10 else 2))
            worker = await self._work(engine, until=15, slots=1)
            assert sorted(worker.taken) == list(range(15))
            assert mean(map(worker.taken.index, range(10, 15))) < mean(
                map(worker.taken.index, range(10))
            )

        self._run(test)

    def test_nothing_is_delivered_before_its_time(self) -> None:
        async def test(engine: WorkEngine) -> None:
            begin = time.time()
            await engine.submit(drive(1, not_before=begin + 1.0))
            await engine.submit(drive(2, not_before=begin - 5.0))
            worker = await self._work(engine, until=2)
            assert worker.taken == [2, 1]
            assert time.time() >= begin + 1.0

        self._run(test)

    def test_the_earlier_of_two_times_counts(self) -> None:
        async def test(engine: WorkEngine) -> None:
            begin = time.time()
            await engine.submit(drive(1, not_before=begin + 600))
            await engine.submit(drive(1, not_before=begin + 900))
            await engine.submit(drive(1))
            await engine.submit(drive(1, not_before=begin + 900))
            worker = await self._work(engine, until=1)
            assert worker.taken == [1]
            await engine.submit(drive(2, not_before=begin + 600))
            await engine.submit(drive(2, not_before=begin))
            assert (await self._work(engine, until=1)).taken == [2]

        self._run(test)

    def test_what_is_withdrawn_is_not_delivered(self) -> None:
        async def test(engine: WorkEngine) -> None:
            for node in (1, 2, 3):
                await engine.submit(drive(node))
            await engine.submit(drive(4, not_before=time.time() + 0.3))
            for node in (2, 4, 99):
                await engine.withdraw(node)
            worker = await self._work(engine, until=2)
            assert worker.nodes == {1: 1, 3: 1}
            await engine.submit(drive(2))
            assert (await self._work(engine, until=1)).taken == [2]

        self._run(test)

    def test_withdrawing_a_drive_that_runs_does_not_disturb_it(self) -> None:
        async def test(engine: WorkEngine) -> None:
            async def withdraw(worker: SuiteWorker) -> None:
                await worker.until(lambda: worker.running == 1)
                await engine.withdraw(1)
                await asyncio.sleep(self.quiet)
                assert (worker.running, worker.cancelled) == (1, 0)
                worker.let_go.set()

            await engine.submit(drive(1))
            worker = await self._work(engine, meanwhile=withdraw, held=True)
            assert (worker.taken, worker.ended) == ([1], [1])

        self._run(test)

    # Queues

    def test_a_worker_gets_the_drives_of_its_queues_only(self) -> None:
        async def test(engine: WorkEngine) -> None:
            for node, queue in ((1, QUEUE), (2, OTHER_QUEUE), (3, QUEUE), (4, "a third")):
                await engine.submit(drive(node, queue=queue))
            red = await self._work(engine, until=2)
            assert red.nodes == {1: 1, 3: 1}
            rest = await self._work(engine, until=2, queues=[OTHER_QUEUE, "a third"])
            assert rest.nodes == {2: 1, 4: 1}

        self._run(test)

    def test_a_queue_may_have_any_name(self) -> None:
        async def test(engine: WorkEngine) -> None:
            names = ['it\'s "red" \\ 漢', "long" * 20 + "1", "long" * 20 + "2", "Red"]
            for node, queue in enumerate(names):
                await engine.submit(drive(node, queue=queue))
            for node, queue in enumerate(names):
                worker = await self._work(engine, until=1, queues=[queue])
                assert worker.taken == [node]
                assert (await engine.depth([queue])).queued in {0, 1}

        self._run(test)

    def test_journals_are_kept_apart(self) -> None:
        async def test(engine: WorkEngine) -> None:
            other = self.make_engine()
            await other.open(uuid4().hex)
            try:
                await engine.submit(drive(1))
                await other.submit(drive(1))
                await other.submit(drive(2))
                assert (await self._work(engine, until=1)).taken == [1]
                assert (await self._work(other, until=2)).nodes == {1: 1, 2: 1}
            finally:
                await other.close()

        self._run(test)

    def test_depth_is_how_many_wait_and_run(self) -> None:
        async def test(engine: WorkEngine) -> None:
            assert await engine.depth([QUEUE, OTHER_QUEUE]) == Depth()
            for node in (1, 2, 3):
                await engine.submit(drive(node))
            await engine.submit(drive(4, queue=OTHER_QUEUE, not_before=time.time() + 600))
            await self._depth(engine, [QUEUE], Depth(queued=3))
            await self._depth(engine, [QUEUE, OTHER_QUEUE], Depth(queued=4))

            async def look(worker: SuiteWorker) -> None:
                await worker.until(lambda: worker.running == 2)
                await self._depth(engine, [QUEUE], Depth(queued=1, running=2))
                worker.let_go.set()
                await worker.until(lambda: len(worker.ended) == 3)

            await self._work(engine, meanwhile=look, held=True, slots=2)
            await self._depth(engine, [QUEUE], Depth())

        self._run(test)

    # Working

    def test_slots_are_never_exceeded(self) -> None:
        async def test(engine: WorkEngine) -> None:
            for node in range(12):
                await engine.submit(drive(node))
            worker = await self._work(engine, until=12, slots=3, seconds=0.02)
            assert worker.nodes == dict.fromkeys(range(12), 1)
            assert 2 <= worker.most <= 3

        self._run(test)

    def test_several_queues_share_the_slots(self) -> None:
        async def test(engine: WorkEngine) -> None:
            for node in range(12):
                await engine.submit(drive(node, queue=QUEUE if node % 3 else OTHER_QUEUE))
            worker = await self._work(
                engine, until=12, slots=2, seconds=0.02, queues=[QUEUE, OTHER_QUEUE]
            )
            assert worker.nodes == dict.fromkeys(range(12), 1)
            assert worker.most <= 2

        self._run(test)

    def test_a_drive_that_a_worker_cannot_run_is_delivered_again(self) -> None:
        async def test(engine: WorkEngine) -> None:
            await engine.submit(drive(1))
            worker = await self._work(engine, until=2, answers=[Taken.Later, Taken.Done])
            assert worker.taken == [1, 1]

        self._run(test)

    def test_a_drive_that_raises_is_delivered_again_and_the_worker_goes_on(self) -> None:
        async def test(engine: WorkEngine) -> None:
            for node in (1, 2, 3):
                await engine.submit(drive(node))
            failures = [ZeroDivisionError("oops"), asyncio.CancelledError()]
            worker = await self._work(engine, until=5, slots=1, answers=failures)
            assert sum(worker.nodes.values()) == 5
            assert set(worker.nodes) == {1, 2, 3}

        self._run(test)

    def test_a_worker_that_stops_finishes_what_runs_and_gets_nothing_more(self) -> None:
        async def test(engine: WorkEngine) -> None:
            await engine.submit(drive(1))

            async def stop(worker: SuiteWorker) -> None:
                await worker.until(lambda: worker.running == 1)
                worker.stop.set()
                await engine.submit(drive(2))
                await asyncio.sleep(self.quiet)
                assert (worker.taken, worker.ended, worker.cancelled) == ([1], [], 0)
                worker.let_go.set()

            worker = await self._work(engine, meanwhile=stop, held=True)
            assert (worker.taken, worker.ended) == ([1], [1])
            assert (await self._work(engine, until=1)).taken == [2]

        self._run(test)

    def test_a_worker_that_is_told_to_stop_at_once_gets_nothing(self) -> None:
        async def test(engine: WorkEngine) -> None:
            await engine.submit(drive(1))
            worker = SuiteWorker(self.patience)
            worker.stop.set()
            async with asyncio.timeout(self.patience):
                await engine.work(worker.take, queues=[QUEUE], slots=1, stop=worker.stop)
            assert worker.taken == []
            assert (await self._work(engine, until=1)).taken == [1]

        self._run(test)

    def test_what_a_cancelled_worker_had_is_delivered_to_another(self) -> None:
        async def test(engine: WorkEngine) -> None:
            for node in (1, 2, 3):
                await engine.submit(drive(node))
            worker = SuiteWorker(self.patience, held=True)
            async with asyncio.TaskGroup() as group:
                work = group.create_task(
                    engine.work(worker.take, queues=[QUEUE], slots=2, stop=worker.stop)
                )
                await worker.until(lambda: worker.running == 2)
                work.cancel()
                await worker.until(work.done)
                assert work.cancelled()
            assert (worker.cancelled, worker.ended) == (2, [])
            async with self._same(engine) as other:
                assert (await self._work(other, until=3)).nodes == {1: 1, 2: 1, 3: 1}

        self._run(test)

    def test_two_workers_share_the_work(self) -> None:
        async def test(engine: WorkEngine) -> None:
            workers = [SuiteWorker(self.patience, held=True) for _ in range(2)]
            async with self._same(engine) as other, asyncio.TaskGroup() as group:
                for worker, one in zip(workers, (engine, other), strict=True):
                    group.create_task(
                        one.work(worker.take, queues=[QUEUE], slots=2, stop=worker.stop)
                    )
                for node in range(4):
                    await engine.submit(drive(node))
                # Four run at once, though each has two slots.
                await workers[0].until(lambda: sum(worker.running for worker in workers) == 4)
                for worker in workers:
                    worker.let_go.set()
                    worker.stop.set()
            assert sorted(workers[0].taken + workers[1].taken) == [0, 1, 2, 3]

        self._run(test)

    def test_of_many_drives_each_is_delivered(self) -> None:
        async def test(engine: WorkEngine) -> None:
            async def submit(_: SuiteWorker) -> None:
                async with asyncio.TaskGroup() as group:
                    for first in range(4):
                        group.create_task(submit_all(engine, range(first, self.many, 4)))

            worker = await self._work(engine, until=self.many, slots=20, meanwhile=submit)
            assert worker.nodes == dict.fromkeys(range(self.many), 1)
            assert worker.most <= 20

        self._run(test)

    def test_closing_twice_is_fine(self) -> None:
        async def test(engine: WorkEngine) -> None:
            await engine.close()
            await engine.close()

        self._run(test)

    # Helpers

    def _run(self, test: Callable[[WorkEngine], Awaitable[None]]) -> None:
        async def main() -> None:
            engine = self.make_engine()
            self._journal = uuid4().hex
            await engine.open(self._journal)
            try:
                async with asyncio.timeout(5 * self.patience):
                    await test(engine)
            finally:
                await engine.close()

        asyncio.run(main())

    @asynccontextmanager
    async def _same(self, engine: WorkEngine) -> AsyncGenerator[WorkEngine]:
        """Open an engine with the same queues."""
        other = self.same_engine(engine)
        if other is engine:
            yield engine
            return
        await other.open(self._journal)
        try:
            yield other
        finally:
            await other.close()

    async def _work(
        self,
        engine: WorkEngine,
        *,
        until: int = 0,
        meanwhile: Callable[["SuiteWorker"], Awaitable[None]] | None = None,
        queues: Collection[str] = (QUEUE,),
        slots: int = 4,
        held: bool = False,
        seconds: float = 0.0,
        answers: Sequence[Taken | BaseException] = (),
    ) -> "SuiteWorker":
        """Work until so many drives have ended and *meanwhile* has returned, and nothing comes."""
        worker = SuiteWorker(self.patience, held=held, seconds=seconds, answers=answers)
        async with asyncio.TaskGroup() as group:
            group.create_task(
                engine.work(worker.take, queues=queues, slots=slots, stop=worker.stop)
            )
            if meanwhile is not None:
                await meanwhile(worker)
            await worker.until(lambda: len(worker.ended) >= until)
            if not worker.stop.is_set():
                await asyncio.sleep(self.quiet)
                worker.stop.set()
        return worker

    async def _depth(self, engine: WorkEngine, queues: Collection[str], expected: Depth) -> None:
        """Wait until *engine* knows how much it has."""
        end = time.monotonic() + self.patience
        while not self._is_depth(found := await engine.depth(queues), expected):
            assert time.monotonic() < end, f"{found} instead of {expected}"
            await asyncio.sleep(0.05)

    def _is_depth(self, found: Depth, expected: Depth) -> bool:
        if self.tells_running:
            return found == expected
        return found.queued + found.running == expected.queued + expected.running


class SuiteWorker:
    """Takes drives, and remembers them.

    Args:
        patience: seconds that ``until`` waits.
        held: whether a drive runs until ``let_go`` is set.
        seconds: how long it runs otherwise.
        answers: the outcomes of the first drives; the others are done.
    """

    def __init__(
        self,
        patience: float,
        *,
        held: bool = False,
        seconds: float = 0.0,
        answers: Sequence[Taken | BaseException] = (),
    ) -> None:
        self.stop = asyncio.Event()
        self.let_go = asyncio.Event()
        self.taken: list[int] = []
        self.ended: list[int] = []
        self.running = 0
        self.most = 0
        self.cancelled = 0
        self._patience = patience
        self._held = held
        self._seconds = seconds
        self._answers = list(answers)

    @property
    def nodes(self) -> dict[int, int]:
        """How often each drive was delivered."""
        return dict(Counter(self.taken))

    async def take(self, node: int) -> Taken:
        """Run a drive."""
        self.taken.append(node)
        self.running += 1
        self.most = max(self.most, self.running)
        answer = self._answers.pop(0) if self._answers else Taken.Done
        try:
            if self._held:
                await self.let_go.wait()
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        else:
            self.ended.append(node)
        finally:
            self.running -= 1
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until *condition* holds."""
        end = time.monotonic() + self._patience
        while not condition():
            assert time.monotonic() < end, (
                f"it never happened; taken {self.taken}, ended {self.ended}, running {self.running}"
            )
            await asyncio.sleep(0.005)


def drive(
    node: int, *, queue: str = QUEUE, priority: int = 0, not_before: float | None = None
) -> Ticket:
    """Return the ticket of a drive."""
    return Ticket(node=node, queue=queue, priority=priority, not_before=not_before)


async def submit_all(engine: WorkEngine, nodes: Collection[int]) -> None:
    """Submit these drives, one after another."""
    for node in nodes:
        await engine.submit(drive(node))
