"""The engine behind ``Procrastinate``: jobs in a table, and workers that fetch them."""

import asyncio
from collections.abc import Collection

from treefold.core.work_engine import Depth, Stop, Take, Ticket
from treefold.engines.job_database import JobDatabase
from treefold.engines.job_source import JobSource
from treefold.engines.job_table import JobTable
from treefold.engines.take_loop import TakeLoop
from treefold.engines.timing import Delays, DeliveryTiming


class JobEngine:
    """Implements the contract of an engine on the tables of procrastinate."""

    def __init__(
        self, url: str, *, schema: str, journal: str, timing: DeliveryTiming, delays: Delays
    ) -> None:
        self._database = JobDatabase(url, schema=schema, patience=timing.patience)
        self._table = JobTable(self._database, journal)
        self._timing = timing
        self._delays = delays

    async def open(self, journal: str = "") -> None:
        await self._database.open()

    async def submit(self, ticket: Ticket) -> None:
        await self._table.submit(ticket)

    async def withdraw(self, node: int) -> None:
        await self._table.withdraw(node)

    async def work(self, take: Take, *, queues: Collection[str], slots: int, stop: Stop) -> None:
        loop = TakeLoop(take, slots=slots)
        source = JobSource(self._table, queues=queues, timing=self._timing, delays=self._delays)
        try:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(source.beat()),
                    group.create_task(source.sweep()),
                    group.create_task(source.listen(loop.wake)),
                ]
                try:
                    await loop.run(source, stop)
                finally:
                    for task in beside:
                        task.cancel()
        finally:
            await source.leave()

    async def depth(self, queues: Collection[str]) -> Depth:
        return await self._table.depth(queues)

    async def close(self) -> None:
        await self._database.close()
