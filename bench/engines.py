"""What the work engines cost: from submit to taken, beside the engine's own empty job.

    PYTHONPATH=tests python bench/engines.py [--drives 100]

Real servers on loopback, which the tests start, too. Both sides alternate on one server; machines
differ and are noisy, so read the ratios. The own empty job is one of the engine's own worker, from
when it is queued until its first line runs, as for a drive. A takeover is measured from kill -9 of
a worker in a process of its own until another one has its drive.
"""

import argparse
import asyncio
import signal
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from procrastinate import App, PsycopgConnector
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

import warm_python
from engine_workers import WorkerProcess, drive, work
from postgres_server import PostgresServer
from temporal_server import TemporalServer
from treefold.engines import InProcess, Procrastinate, Taken, Temporal, WorkEngine

QUEUE = "red"
PATIENCE = 60.0  # seconds
TAKEOVERS = 3
MANY = 200

Submit = Callable[[int], Awaitable[None]]
Round = Callable[[int], Awaitable[float]]  # returns the milliseconds from submit to taken


class Arrivals:
    """When each job arrived."""

    def __init__(self) -> None:
        self._arrived: dict[int, asyncio.Future[float]] = {}

    def arrive(self, number: int) -> None:
        """Note that a job runs."""
        self._future(number).set_result(time.perf_counter())

    async def measure(self, number: int, submit: Submit) -> float:
        """Submit a job, and return the milliseconds until it runs."""
        begin = time.perf_counter()
        async with asyncio.timeout(PATIENCE):
            await submit(number)
            return (await self._future(number) - begin) * 1e3

    def _future(self, number: int) -> asyncio.Future[float]:
        if number not in self._arrived:
            self._arrived[number] = asyncio.get_running_loop().create_future()
        return self._arrived[number]


@asynccontextmanager
async def of_treefold(engine: WorkEngine) -> AsyncGenerator[Round]:
    """Work on the drives of an engine."""
    arrivals = Arrivals()

    async def take(node: int) -> Taken:
        arrivals.arrive(node)
        return Taken.Done

    async def submit(node: int) -> None:
        await engine.submit(drive(node))

    stop = asyncio.Event()
    await engine.open(uuid4().hex)
    working = asyncio.get_running_loop().create_task(
        engine.work(take, queues=[QUEUE], slots=20, stop=stop)
    )
    try:
        yield lambda number: arrivals.measure(number, submit)
    finally:
        stop.set()
        await working
        await engine.close()


@asynccontextmanager
async def of_procrastinate(url: str) -> AsyncGenerator[Round]:
    """Work on jobs of procrastinate with its own worker."""
    arrivals = Arrivals()
    app = App(connector=PsycopgConnector(conninfo=url))

    async def empty(number: int) -> None:
        arrivals.arrive(number)

    task = app.task(name="empty", queue=QUEUE)(empty)

    async def submit(number: int) -> None:
        await task.defer_async(number=number)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        working = asyncio.get_running_loop().create_task(
            app.run_worker_async(concurrency=20, install_signal_handlers=False)
        )
        try:
            yield lambda number: arrivals.measure(number, submit)
        finally:
            working.cancel()
            await asyncio.wait([working])


@asynccontextmanager
async def of_temporal(target: str) -> AsyncGenerator[Round]:
    """Work on standalone activities with the SDK's own worker."""
    arrivals = Arrivals()
    client = await Client.connect(target)

    @activity.defn(name="empty")
    async def empty(number: int) -> None:
        arrivals.arrive(number)

    async def submit(number: int) -> None:
        limit = timedelta(seconds=PATIENCE)
        await client.start_activity(
            "empty", number, id=f"own-{number}", task_queue="own", start_to_close_timeout=limit
        )

    async with Worker(client, task_queue="own", activities=[empty], max_concurrent_activities=20):
        yield lambda number: arrivals.measure(number, submit)


async def compare(ours: Round, own: Round, drives: int) -> tuple[float, float, float]:
    """Return the medians of ours and of the engine's own, and the seconds for many of ours."""
    found: dict[Round, list[float]] = {ours: [], own: []}
    for number in range(drives + 5):
        for each in found:
            found[each].append(await each(number))
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(MANY):
            group.create_task(_wait(ours, drives + 5 + number))
    seconds = time.perf_counter() - begin
    medians = [statistics.median(times[5:]) for times in found.values()]
    return medians[0], medians[1], seconds


async def _wait(one: Round, number: int) -> None:
    await one(number)


async def takeover(make: Callable[[], WorkEngine], **description: Any) -> float:
    """Return the median of the seconds until the drive of a killed worker has another one."""
    found: list[float] = []
    for _ in range(TAKEOVERS):
        journal, engine = uuid4().hex, make()
        await engine.open(journal)
        with WorkerProcess(journal, **description) as process:
            await engine.submit(drive(1))
            await process.taken()

            async def killed(taker: Any, process: WorkerProcess = process) -> None:
                process.signal(signal.SIGKILL)
                found.append(await taker.until_taken(1))

            await work(engine, killed)
        await engine.close()
    return statistics.median(found)


def row(name: str, *values: str) -> None:
    """Print one line of the table."""
    print(f"{name:<14}" + "".join(f"{value:>16}" for value in values))


async def main(drives: int) -> None:
    """Measure all engines."""
    row("", "ours, ms", "own job, ms", "ratio", f"{MANY} at once, s", "takeover, s")
    async with of_treefold(InProcess()) as ours:
        one, _, many = await compare(ours, _nothing, drives)
        row("in process", f"{one:.2f}", "-", "-", f"{many:.2f}", "-")
    with PostgresServer() as postgres:
        url = postgres.url()
        async with of_treefold(Procrastinate(url)) as ours, of_procrastinate(url) as own:
            one, other, many = await compare(ours, own, drives)
        seconds = await takeover(lambda: Procrastinate(url), kind="Procrastinate", url=url)
        row("procrastinate", *_values(one, other, many, seconds))
    # With the timers that a server has, and not with those that make the tests quick.
    with TemporalServer(**{"history.timerProcessorMaxTimeShift": '"1s"'}) as server:
        target = server.target
        async with of_treefold(Temporal(target)) as ours, of_temporal(target) as own:
            one, other, many = await compare(ours, own, drives)
        seconds = await takeover(lambda: Temporal(target), kind="Temporal", target=target)
        row("temporal", *_values(one, other, many, seconds))


def _values(one: float, other: float, many: float, seconds: float) -> list[str]:
    return [f"{one:.1f}", f"{other:.1f}", f"{one / other:.2f}", f"{many:.2f}", f"{seconds:.1f}"]


async def _nothing(_: int) -> float:
    return 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drives", type=int, default=100)
    drives = parser.parse_args().drives
    programs = warm_python.Parent()
    try:
        asyncio.run(main(drives))
    finally:
        programs.close()
