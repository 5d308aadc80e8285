"""A database that is restarted or cut off at every write, or is away for long, under running trees.

Nothing is lost, nothing is done twice, and the workers go on by themselves.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cluster.conftest import on
from cluster.errand_tree import Errands, ended, everything, result, two_workers
from cluster.faulty_store import FaultyStore, Write, assert_whole
from hostile_engine import HostileEngine, Malice
from notes_in_files import noted
from postgres_server import GIVEN, PostgresServer, new_name, with_query
from support import wait
from tcp_proxy import Cut, TcpProxy
from treefold import StoreError, WorkerSettings
from treefold.stores import Ownership
from treefold.stores.postgres import PostgresStore
from work_engines import EXHAUSTIVE, make_engine
from worker_process import LEASE, WorkerProcess, result_of, submit
from wrapped_part import WrappedPart

PATIENCE = 120.0  # seconds
APART = 1 if EXHAUSTIVE else 4  # writes from a restart to the next
RESTARTS = 6  # at least: each moment twice
AWAY = 60.0 if EXHAUSTIVE else 1.2 * LEASE  # seconds for which the database cannot be reached
# After an outage nothing is adopted for a lease, and another worker runs a part of each tree.
SETTINGS = WorkerSettings(lease=3.0, beat=0.3, sweep=0.2, poll=0.2)


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    """A server that the tests may stop."""
    if GIVEN:
        pytest.skip("the given server must not be stopped")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return with_query(server.url(), schema=new_name())


class Restarts:
    """Restarts a server at writes: before one, while one is under way, after one, in turn."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._writes = count()
        self.count = 0

    def __call__(self, write: Write) -> list[Any]:
        if next(self._writes) % APART:
            return write()
        self.count += 1
        moment = self.count % 3
        if moment == 0:
            self._server.restart()
            return write()
        if moment == 1:
            ending = threading.Thread(target=self._crash)
            ending.start()
            try:
                return write()
            finally:
                ending.join()
        written = write()
        self._crash()
        return written

    def _crash(self) -> None:
        self._server.kill()
        self._server.start()


def run_errands(
    errands: Errands,
    url: str,
    engine: str,
    fault: Callable[[Write], list[Any]],
    numbers: Sequence[int] = (1, 2),
    **options: Any,
) -> list[int]:
    """Run trees with these *numbers* at once on two workers; return their ids."""

    async def main() -> list[int]:
        def open_store() -> PostgresStore:
            return FaultyStore(url, fault, **options)

        async with two_workers(
            errands, open_store, lambda: make_engine(engine, url), SETTINGS
        ) as runtime:
            nodes = [runtime.invoke(errands.root, {"n": n}) for n in numbers]
            assert await ended(nodes, PATIENCE) == [result(n) for n in numbers]
            assert runtime.questions() == []
            return [node.id for node in nodes]

    return asyncio.run(main())


@on("procrastinate")
def test_a_database_that_is_restarted_at_writes_ends_no_tree(
    server: PostgresServer, url: str, engine: str
):
    errands, restarts = Errands(), Restarts(server)
    numbers, trees = list[int](), list[int]()

    # A busy machine writes more at once, and so less often.
    while restarts.count < RESTARTS and len(numbers) < 2 * RESTARTS:
        pair = [len(numbers) + 1, len(numbers) + 2]
        trees += run_errands(errands, url, engine, restarts, pair)
        numbers += pair

    assert errands.done == everything(*numbers)
    for tree in trees:
        assert_whole(url, tree)
    assert restarts.count >= RESTARTS


# A silent connection is noticed after a while only, so not every write meets one.
CUTS = [Cut.BEFORE, Cut.HALF, Cut.AFTER, Cut.REPLY, Cut.SILENCE]
EACH = [[cut] for cut in CUTS[:-1]] + [[Cut.SILENCE, None, None]]


@on("hostile")
@pytest.mark.parametrize("cuts", EACH if EXHAUSTIVE else [CUTS])
def test_connections_that_are_cut_at_every_write_end_no_tree(
    server: PostgresServer, url: str, engine: str, cuts: list[Cut | None]
):
    errands, following, parts = Errands(), cycle(cuts), urlsplit(url)
    # The name of the channel of notifications, which are hints.
    with TcpProxy(server.port, spare=b"treefold_") as proxy:
        through = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl()

        def fault(write: Write) -> list[Any]:
            if (cut := next(following)) is not None:
                proxy.arm(cut)
            return write()

        trees = run_errands(errands, through, engine, fault, timeout=1.0)
        cut_off = proxy.cuts

    assert errands.done == everything(1, 2)
    for tree in trees:
        assert_whole(url, tree)
    assert cut_off > 3


class Unanswering(PostgresStore):
    """Adopts a drive, and then behaves as if the answer had been lost."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        drives: Any = UnansweringDrives(self.cluster.drives)
        self.cluster = replace(self.cluster, drives=drives)


class UnansweringDrives(WrappedPart):
    lost = 0

    def adopt(self, node: int, *, ids: int = 0) -> Ownership | None:
        found = self.inner.adopt(node, ids=ids)
        if not self.lost:
            self.lost += 1
            raise StoreError("the store", "the answer was lost")
        return found


def test_a_tree_is_run_though_the_answer_that_it_was_adopted_was_lost(server: PostgresServer):
    errands = Errands()
    url = with_query(server.url(), schema=new_name())

    async def main() -> Any:
        # What it has delivered, and what could not be taken, it never delivers again.
        malice = Malice(twice=0, never=0, late=0, early=0, forgets=1, ignores=0)
        async with two_workers(
            errands, lambda: Unanswering(url), lambda: HostileEngine(1, malice), SETTINGS
        ) as runtime:
            return await ended([runtime.invoke(errands.root, {"n": 1})], PATIENCE)

    assert asyncio.run(main()) == [result(1)]
    assert errands.done == everything(1)


@on("procrastinate")
def test_runs_go_on_by_themselves_after_the_database_was_away_for_longer_than_the_lease(
    server: PostgresServer, url: str, engine: str, tmp_path: Path
):
    names, placed = ["one", "two"], ("--engine", engine)
    workers = [WorkerProcess(url, name, tmp_path, placed) for name in ("first", "second")]
    try:
        nodes = [
            submit(url, "survey", "--folder", tmp_path, "--names", json.dumps(pair), *placed)
            for pair in ([name, f"{name}-2"] for name in names)
        ]
        wait(lambda: sorted(noted(tmp_path, "begun")) == sorted(names))
        server.stop()
        # What has begun ends meanwhile, and nothing else begins before that is written.
        for name in names:
            (tmp_path / name).touch()
        wait(lambda: sorted(noted(tmp_path, "ended")) == sorted(names))
        time.sleep(AWAY)
        assert sorted(noted(tmp_path, "begun")) == sorted(names)
        server.start()
        for name in names:
            (tmp_path / f"{name}-2").touch()

        assert [result_of(url, node) for node in nodes] == [
            [f"said {name}", name, f"said {name}-2", f"{name}-2"] for name in names
        ]
        for what in ("asked", "begun", "ended"):
            assert sorted(noted(tmp_path, what)) == sorted([*names, *(f"{n}-2" for n in names)])
        for node in nodes:
            assert_whole(url, node)
        assert not any(worker.has_ended() for worker in workers)
        again = submit(url, "look", "--folder", tmp_path, "--name", "one", *placed)
        assert result_of(url, again) == "one"
    finally:
        for worker in workers:
            worker.kill()
