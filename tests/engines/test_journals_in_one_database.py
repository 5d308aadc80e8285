"""Several journals in one database have queues and nodes of their own."""

import asyncio

from postgres_server import new_name, shared_url
from treefold.engines import Procrastinate, Taken, Ticket
from treefold.engines.job_database import JobDatabase
from treefold.engines.job_table import JobTable

PATIENCE = 60.0  # seconds


async def test_the_jobs_of_a_dead_worker_are_left_to_the_workers_of_its_journal():
    schema = new_name("jobs")
    other, ours = (
        Procrastinate(shared_url(), schema=schema, beat=0.1, lease=0.3, poll=0.1) for _ in range(2)
    )
    await other.open("other")
    await ours.open("ours")
    database = JobDatabase(shared_url(), schema=schema, patience=5)
    await database.open()
    try:
        # A worker of the other journal has node 7, and sends no heartbeat.
        table = JobTable(database, "other")
        await other.submit(Ticket(node=7))
        dead = await table.register()
        assert await table.fetch([table.queue_name("default")], dead) is not None

        stop, taken = asyncio.Event(), asyncio.Event()

        async def take(node: int) -> Taken:
            assert node == 7
            taken.set()
            return Taken.Done

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            work = ours.work(take, queues=["default"], slots=1, stop=stop)
            group.create_task(work)
            # Our worker removes the dead one only after it has looked for its jobs.
            while await _is_known(database, dead):  # noqa: ASYNC110 - another session does it
                await asyncio.sleep(0.05)
            assert not taken.is_set()
            await ours.submit(Ticket(node=7))
            await taken.wait()
            stop.set()
        assert (await other.depth(["default"])).running == 1
    finally:
        for one in (other, ours, database):
            await one.close()


async def _is_known(database: JobDatabase, worker: int) -> bool:
    row = await database.app.connector.execute_query_one_async(
        "SELECT count(*) AS count FROM procrastinate_workers WHERE id = %(worker)s", worker=worker
    )
    return bool(row["count"])
