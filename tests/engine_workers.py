"""Workers for the tests of engines: in this process, and in others that can be killed."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import warm_python
from treefold.engines import Depth, Taken, Ticket, WorkEngine

QUEUE = "red"
PATIENCE = 60.0  # seconds


class WorkerProcess:
    """A process that takes drives and never ends them; see ``engines/worker_process.py``."""

    def __init__(self, journal: str, **engine: Any) -> None:
        program = Path(__file__).parent / "engines" / "worker_process.py"
        self._talk = warm_python.Talk(str(program), json.dumps(engine), journal, QUEUE)

    async def taken(self) -> int:
        """Wait for the next drive that it takes."""
        return int(await asyncio.to_thread(self._talk.readline))

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._talk.program.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._talk.kill()


class Taker:
    """Takes drives in this process, and holds those that are to be held."""

    def __init__(self, held: set[int], answer: Taken) -> None:
        self.taken: list[int] = []
        self.ended: list[int] = []
        self.let_go = asyncio.Event()
        self._held = held
        self._answer = answer

    async def take(self, node: int) -> Taken:
        self.taken.append(node)
        if node in self._held:
            await self.let_go.wait()
        self.ended.append(node)
        return self._answer

    async def until(self, condition: Callable[[], bool]) -> float:
        """Wait until *condition* holds, and return how many seconds it took."""
        begin = time.monotonic()
        while not condition():
            assert time.monotonic() < begin + PATIENCE, f"taken {self.taken}, ended {self.ended}"
            await asyncio.sleep(0.005)
        return time.monotonic() - begin

    async def until_taken(self, *nodes: int) -> float:
        return await self.until(lambda: self.taken == [*nodes])


async def work(
    engine: WorkEngine,
    act: Callable[[Taker], Awaitable[None]],
    *,
    held: set[int] | None = None,
    answer: Taken = Taken.Done,
) -> Taker:
    """Work on one queue while *act* runs."""
    taker, stop = Taker(held or set(), answer), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(engine.work(taker.take, queues=[QUEUE], slots=4, stop=stop))
        await act(taker)
        stop.set()
    return taker


@asynccontextmanager
async def opened(engine: WorkEngine, journal: str) -> AsyncGenerator[WorkEngine]:
    await engine.open(journal)
    try:
        yield engine
    finally:
        await engine.close()


def drive(node: int, *, priority: int = 0) -> Ticket:
    return Ticket(node=node, queue=QUEUE, priority=priority)


async def in_order_of_priority(engine: WorkEngine) -> list[int]:
    """Return the order in which drives of several priorities are delivered."""
    for node, priority in ((1, 0), (2, -100), (3, 2), (4, 1), (5, 0), (6, 1000)):
        await engine.submit(drive(node, priority=priority))
    taker, stop = Taker(set(), Taken.Done), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(engine.work(taker.take, queues=[QUEUE], slots=1, stop=stop))
        await taker.until(lambda: len(taker.ended) == 6)
        stop.set()
    return taker.taken


async def until_depth(engine: WorkEngine, expected: Depth) -> None:
    """Wait until *engine* has so much work."""
    end = time.monotonic() + PATIENCE
    while (found := await engine.depth([QUEUE])) != expected:
        assert time.monotonic() < end, f"{found} instead of {expected}"
        await asyncio.sleep(0.01)
