"""The engine that uses Temporal, on a real server."""

import asyncio
import signal
import sys
from collections.abc import Generator
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from engine_workers import QUEUE, Taker, WorkerProcess, drive, opened, work
from temporal_server import TemporalServer
from treefold.engines import Taken, Temporal, WorkEngine
from treefold.errors import ClosedError, EngineError, InvalidValueError
from treefold.testing import EngineSuite

QUICK: dict[str, Any] = {"beat": 0.3, "lease": 1.0}


@pytest.fixture(scope="module")
def server() -> Generator[TemporalServer]:
    with TemporalServer() as server:
        yield server


@pytest.fixture
def journal() -> str:
    return uuid4().hex


class TestTemporal(EngineSuite):
    quiet = 0.1
    many = 60
    # The server counts the backlog approximately: on a busy machine it was off by one for long.
    tells_running = False
    target: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _server(self, server: TemporalServer) -> None:
        type(self).target = server.target

    def make_engine(self) -> WorkEngine:
        return Temporal(self.target, first_delay=0.1)

    def same_engine(self, engine: WorkEngine) -> WorkEngine:
        return self.make_engine()


async def test_a_drive_that_a_worker_could_not_run_goes_on_waiting_if_it_is_submitted_again(
    server: TemporalServer, journal: str
):
    async with opened(Temporal(server.target, first_delay=600), journal) as engine:

        async def submit(taker: Taker) -> None:
            await engine.submit(drive(1))
            await taker.until(lambda: taker.ended == [1])
            await engine.submit(drive(2))
            await taker.until(lambda: 2 in taker.ended)
            # By now the server knows that the first one has to wait.
            await engine.submit(drive(1))
            await engine.submit(drive(3))
            await taker.until(lambda: 3 in taker.taken)

        taker = await work(engine, submit, answer=Taken.Later)
        assert taker.taken == [1, 2, 3]


# What goes wrong


async def test_the_drive_of_a_killed_worker_is_taken_over(server: TemporalServer, journal: str):
    async with opened(Temporal(server.target, **QUICK), journal) as engine:
        with WorkerProcess(journal, kind="Temporal", target=server.target, **QUICK) as process:
            await engine.submit(drive(1))
            assert await process.taken() == 1
            process.signal(signal.SIGKILL)

            async def wait(taker: Taker) -> None:
                await taker.until_taken(1)

            await work(engine, wait)


async def test_a_worker_that_was_taken_for_dead_goes_on_with_its_drive_and_with_others(
    server: TemporalServer, journal: str
):
    # Each poll of the worker that is stopped loses one delivery.
    quick: dict[str, Any] = {"beat": 0.2, "lease": 0.6}
    async with opened(Temporal(server.target, **quick), journal) as engine:
        with WorkerProcess(journal, kind="Temporal", target=server.target, **quick) as process:
            await engine.submit(drive(1))
            assert await process.taken() == 1
            process.signal(signal.SIGSTOP)

            async def wait(taker: Taker) -> None:
                await taker.until_taken(1)

            await work(engine, wait)
            process.signal(signal.SIGCONT)
            await engine.submit(drive(2))
            assert await process.taken() == 2


async def test_a_restart_of_the_server_does_not_stop_a_worker(server: TemporalServer, journal: str):
    async with opened(Temporal(server.target, patience=2, **QUICK), journal) as engine:

        async def restart(taker: Taker) -> None:
            await engine.submit(drive(1))
            await taker.until_taken(1)
            await asyncio.to_thread(server.stop)
            with pytest.raises(EngineError, match="cannot be reached"):
                await engine.submit(drive(2))
            await asyncio.to_thread(server.start)
            # Everything was in its memory.
            await engine.submit(drive(2))
            await taker.until(lambda: 2 in taker.taken)
            taker.let_go.set()

        taker = await work(engine, restart, held={1})
        assert sorted(taker.ended) == [1, 2]


# What users are told


async def test_a_server_that_cannot_be_reached_is_named_without_the_key():
    engine = Temporal("127.0.0.1:1", api_key="s3cret", patience=2)
    with pytest.raises(EngineError) as caught:
        await engine.open()
    text = str(caught.value)
    assert text.startswith("Temporal at 127.0.0.1:1: it cannot be reached (")
    assert text.endswith("check the address, and whether it runs")
    assert "s3cret" not in text


async def test_a_server_without_standalone_activities_is_told():
    told = pytest.raises(EngineError, match="it has no standalone activities: update the server")
    with TemporalServer(**{"activity.enableStandalone": "false"}) as server, told:
        await Temporal(server.target).open()


async def test_an_unknown_namespace_is_named(server: TemporalServer):
    with pytest.raises(EngineError, match="it has no namespace 'nowhere': create it, or name"):
        await Temporal(server.target, namespace="nowhere").open()


async def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    for name in ("activity_engine", "activity_worker", "activity_slots"):
        monkeypatch.delitem(sys.modules, f"treefold.engines.{name}", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "temporalio"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "temporalio", None)
    with pytest.raises(EngineError) as caught:
        await Temporal().open()
    assert str(caught.value) == (
        "Temporal: the package temporalio is missing: pip install 'treefold[temporal]'"
    )


async def test_an_engine_that_is_not_open_says_so():
    with pytest.raises(ClosedError, match=r"Temporal is not open: call open\(\) first"):
        await Temporal().depth([QUEUE])


def test_options_that_cannot_work_are_refused():
    with pytest.raises(InvalidValueError, match="lease must be longer than beat"):
        Temporal(beat=6)
