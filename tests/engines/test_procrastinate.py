"""The engine in PostgreSQL, on a real server."""

import asyncio
import signal
import sys
import time
from collections.abc import Generator
from typing import Any, ClassVar
from uuid import uuid4

import psycopg
import pytest

from engine_workers import (
    QUEUE,
    Taker,
    WorkerProcess,
    drive,
    in_order_of_priority,
    opened,
    until_depth,
    work,
)
from freezing_proxy import FreezingProxy
from postgres_server import PostgresServer
from treefold.engines import Depth, Procrastinate, Taken, Ticket, WorkEngine
from treefold.errors import ClosedError, EngineError, InvalidValueError
from treefold.testing import EngineSuite

QUICK: dict[str, Any] = {"beat": 0.2, "lease": 1.0, "poll": 0.1, "patience": 1.0}


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def journal() -> str:
    return uuid4().hex


def rows(server: PostgresServer, table: str) -> int:
    with psycopg.connect(server.url()) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # pyright: ignore
    assert found is not None
    return found[0]


def through(proxy: FreezingProxy, server: PostgresServer) -> str:
    return server.url().replace(str(server.port), str(proxy.port))


class TestProcrastinate(EngineSuite):
    quiet = 0.1
    url: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _server(self, server: PostgresServer) -> None:
        type(self).url = server.url()

    def make_engine(self) -> WorkEngine:
        return Procrastinate(self.url, first_delay=0.1, poll=0.1)

    def same_engine(self, engine: WorkEngine) -> WorkEngine:
        return self.make_engine()


async def test_higher_priorities_are_delivered_first(server: PostgresServer, journal: str):
    async with opened(Procrastinate(server.url()), journal) as engine:
        assert await in_order_of_priority(engine) == [6, 3, 4, 1, 5, 2]


async def test_a_drive_that_a_worker_could_not_run_goes_on_waiting_if_it_is_submitted_again(
    server: PostgresServer, journal: str
):
    async with opened(Procrastinate(server.url(), first_delay=600, poll=0.1), journal) as engine:

        async def submit(taker: Taker) -> None:
            await engine.submit(drive(1))
            await taker.until(lambda: taker.ended == [1])
            await until_depth(engine, Depth(queued=1))
            await engine.submit(drive(1))
            await engine.submit(drive(2))
            await taker.until(lambda: 2 in taker.taken)

        taker = await work(engine, submit, answer=Taken.Later)
        assert taker.taken == [1, 2]
        assert await engine.depth([QUEUE]) == Depth(queued=2)


async def test_a_drive_that_was_submitted_while_it_ran_is_queued_once_if_it_could_not_be_run(
    server: PostgresServer, journal: str
):
    async with opened(Procrastinate(server.url(), first_delay=600, poll=0.1), journal) as engine:
        # Only one slot is free, so that the second delivery of node 1 is queued when it ends.
        async def submit(taker: Taker) -> None:
            for node in (1, 2, 3, 4):
                await engine.submit(drive(node))
            await taker.until(lambda: len(taker.taken) == 4)
            await engine.submit(drive(1))
            taker.let_go.set()
            await taker.until(lambda: len(taker.ended) == 5)

        await work(engine, submit, held={1, 2, 3, 4}, answer=Taken.Later)
        assert await engine.depth([QUEUE]) == Depth(queued=4)


# The database


async def test_jobs_are_in_a_schema_of_their_own_and_are_deleted(
    server: PostgresServer, journal: str
):
    schema = f"jobs_{journal}"
    engines = [Procrastinate(server.url(), schema=schema, **QUICK) for _ in range(5)]
    async with asyncio.TaskGroup() as group:
        for engine in engines:
            group.create_task(engine.open(journal))
    engine = engines[0]
    for node in range(10):
        await engine.submit(drive(node))
    assert rows(server, f"{schema}.procrastinate_jobs") == 10

    async def wait(taker: Taker) -> None:
        await taker.until(lambda: len(taker.ended) == 10)

    await work(engine, wait)
    for table in ("jobs", "events", "workers"):
        assert rows(server, f"{schema}.procrastinate_{table}") == 0
    assert rows(server, "pg_tables WHERE schemaname = 'public'") == 0
    for engine in engines:
        await engine.close()


async def test_a_role_that_may_not_create_the_schema_is_told(server: PostgresServer, journal: str):
    role = f"role_{journal}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")  # pyright: ignore
    with pytest.raises(EngineError, match=f"may not use the schema jobs_{journal} .*permission"):
        await Procrastinate(server.url(user=role), schema=f"jobs_{journal}").open()


async def test_tables_of_another_version_are_told(server: PostgresServer, journal: str):
    schema = f"jobs_{journal}"
    async with opened(Procrastinate(server.url(), schema=schema), journal) as engine:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"DROP FUNCTION {schema}.procrastinate_defer_jobs_v1 CASCADE")  # pyright: ignore
        with pytest.raises(EngineError, match="made by another version of procrastinate"):
            await engine.submit(drive(1))


# What goes wrong


async def test_the_drive_of_a_killed_worker_is_taken_over(server: PostgresServer, journal: str):
    async with opened(Procrastinate(server.url(), **QUICK), journal) as engine:
        with WorkerProcess(journal, kind="Procrastinate", url=server.url(), **QUICK) as process:
            await engine.submit(drive(1))
            assert await process.taken() == 1
            process.signal(signal.SIGKILL)

            async def wait(taker: Taker) -> None:
                await taker.until_taken(1)

            await work(engine, wait)
        await until_depth(engine, Depth())


async def test_a_worker_that_was_taken_for_dead_goes_on(server: PostgresServer, journal: str):
    async with opened(Procrastinate(server.url(), **QUICK), journal) as engine:
        with WorkerProcess(journal, kind="Procrastinate", url=server.url(), **QUICK) as process:
            await engine.submit(drive(1))
            assert await process.taken() == 1
            process.signal(signal.SIGSTOP)

            async def wait(taker: Taker) -> None:
                await taker.until_taken(1)
                process.signal(signal.SIGCONT)
                # One more than this worker has slots for, so the other one gets it.
                for node in (2, 3, 4, 5):
                    await engine.submit(drive(node))
                await process.taken()
                await until_depth(engine, Depth(running=5))
                taker.let_go.set()

            await work(engine, wait, held={1, 2, 3, 4, 5})


async def test_a_worker_that_was_removed_goes_on_and_leaves_its_drive_to_others(
    server: PostgresServer, journal: str
):
    schema = f"jobs_{journal}"
    async with opened(Procrastinate(server.url(), schema=schema, **QUICK), journal) as engine:

        async def remove(taker: Taker) -> None:
            await engine.submit(drive(1))
            await taker.until_taken(1)
            with psycopg.connect(server.url()) as connection:
                connection.execute(f"DELETE FROM {schema}.procrastinate_workers")  # pyright: ignore
            # The first one is delivered again, here, for there is no other worker.
            await taker.until_taken(1, 1)
            await engine.submit(drive(2))
            await taker.until_taken(1, 1, 2)
            await until_depth(engine, Depth(running=1))
            taker.let_go.set()
            await until_depth(engine, Depth())

        taker = await work(engine, remove, held={1})
        assert sorted(taker.ended) == [1, 1, 2]


@pytest.mark.parametrize("poll", [0.1, 600.0], ids=["polls", "listens"])
async def test_connections_that_were_lost_without_notice_do_not_stop_a_worker(
    server: PostgresServer, journal: str, poll: float
):
    # Nobody waits for the lease, nor for the longer of the polls.
    options: dict[str, Any] = QUICK | {"lease": 600.0, "poll": poll}
    async with (
        FreezingProxy(server.port) as proxy,
        opened(Procrastinate(server.url(), **options), journal) as direct,
        opened(Procrastinate(through(proxy, server), **options), journal) as engine,
    ):

        async def lose(taker: Taker) -> None:
            await direct.submit(drive(1))
            await taker.until_taken(1)
            proxy.freeze()
            await direct.submit(drive(2))
            await taker.until(lambda: 2 in taker.taken)
            taker.let_go.set()
            await taker.until(lambda: sorted(taker.ended) == [1, 2])
            await until_depth(direct, Depth())

        await work(engine, lose, held={1})


async def test_a_job_that_never_reached_its_worker_is_delivered_again(
    server: PostgresServer, journal: str
):
    schema = f"jobs_{journal}"
    async with opened(Procrastinate(server.url(), schema=schema, **QUICK), journal) as engine:

        async def lose(taker: Taker) -> None:
            await engine.submit(Ticket(node=1, queue=QUEUE, not_before=time.time() + 600))
            await taker.until(lambda: rows(server, f"{schema}.procrastinate_workers") == 1)
            # As if the worker had fetched it, and the answer was lost.
            with psycopg.connect(server.url(), options=f"-c search_path={schema}") as connection:
                connection.execute(
                    "UPDATE procrastinate_jobs SET status = 'doing', worker_id = "
                    "(SELECT id FROM procrastinate_workers)"
                )
            assert await taker.until_taken(1) > 1
            await until_depth(engine, Depth())

        await work(engine, lose)


async def test_a_restart_of_the_server_does_not_stop_a_worker(server: PostgresServer, journal: str):
    async with opened(Procrastinate(server.url(), **QUICK), journal) as engine:

        async def restart(taker: Taker) -> None:
            await engine.submit(drive(1))
            await taker.until_taken(1)
            await asyncio.to_thread(server.stop)
            with pytest.raises(EngineError, match="cannot be reached"):
                await engine.submit(drive(2))
            await asyncio.to_thread(server.start)
            await engine.submit(drive(2))
            await taker.until(lambda: 2 in taker.taken)
            taker.let_go.set()
            await until_depth(engine, Depth())

        taker = await work(engine, restart, held={1})
        assert set(taker.ended) == {1, 2}


# What users are told


async def test_a_server_that_cannot_be_reached_is_named_without_the_password():
    engine = Procrastinate("postgresql://app:s3cret@127.0.0.1:1/jobs", patience=2)
    with pytest.raises(EngineError) as caught:
        await engine.open()
    text = str(caught.value)
    assert text.startswith("procrastinate at 127.0.0.1:1/jobs: it cannot be reached (")
    assert text.endswith("check the URL, and whether it runs")
    assert "s3cret" not in text


async def test_a_url_that_cannot_be_read_is_not_quoted():
    with pytest.raises(EngineError, match="the URL cannot be read; it begins with") as caught:
        await Procrastinate("postgres s3cret").open()
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    for name in ("job_engine", "job_source", "job_table", "job_database"):
        monkeypatch.delitem(sys.modules, f"treefold.engines.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "procrastinate", None)
    with pytest.raises(EngineError) as caught:
        await Procrastinate("postgresql://localhost/app").open()
    assert str(caught.value) == (
        "Procrastinate: the package procrastinate is missing: pip install 'treefold[procrastinate]'"
    )


async def test_an_engine_that_is_not_open_says_so():
    with pytest.raises(ClosedError, match=r"Procrastinate is not open: call open\(\) first"):
        await Procrastinate("postgresql://localhost/app").submit(drive(1))


def test_options_that_cannot_work_are_refused():
    with pytest.raises(InvalidValueError, match="lease must be longer than beat"):
        Procrastinate("postgresql://localhost/app", beat=6)
    with pytest.raises(InvalidValueError, match="schema must be lower-case letters"):
        Procrastinate("postgresql://localhost/app", schema="a; DROP TABLE b")
