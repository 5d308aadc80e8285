"""A program hears of what it has submitted, whatever happened to the database meanwhile."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import psycopg
import pytest

from cluster.conftest import Workers
from cluster.faulty_store import FaultyStore, Write
from cluster.quick import QUICK
from cluster.test_continued_keys import Server, failed, job_of
from notes_in_files import note, noted
from postgres_server import GIVEN, PostgresServer, new_name, with_query
from support import wait
from tcp_proxy import TcpProxy
from treefold import (
    CodeFunction,
    ModelProviderException,
    Node,
    NodeState,
    Observer,
    RunContext,
    Runtime,
    StoreError,
    attach,
)
from treefold.events import CallEnded, Event
from treefold.testing import ScriptedModel
from work_engines import EXHAUSTIVE, engine_name

Heard = dict[str, Future[Any]]

PATIENCE: Final = 60.0  # seconds
CONNECTIONS: Final = 40
OUTAGES: Final = ("restarted", "away", "crowded")
KINDS: Final = ("procrastinate", "temporal", "none")
CASES: Final = [*(product if EXHAUSTIVE else zip)(OUTAGES, KINDS)]

in_each_outage = pytest.mark.parametrize(("database", "workers"), CASES, indirect=True)


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    """A server that the tests may stop."""
    if GIVEN:
        pytest.skip("the given server must not be stopped")
    with PostgresServer({"max_connections": str(CONNECTIONS)}) as server:
        yield server


class Database(Protocol):
    """A database that cannot be used for a while."""

    url: str

    def begin(self) -> None:
        """Make it unusable."""
        ...

    def end(self) -> None:
        """Make it usable again."""
        ...


class Restarted:
    """A server that is stopped, and started again."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self.url = url
        self._server = server

    def begin(self) -> None:
        self._server.stop()

    def end(self) -> None:
        self._server.start()


class Away:
    """A server that cannot be reached for longer than a lease, and knows nothing of that."""

    def __init__(self, url: str, proxy: TcpProxy) -> None:
        parts = urlsplit(url)
        self.url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl()
        self._proxy = proxy

    def begin(self) -> None:
        self._proxy.is_away = True
        self._proxy.cut_all()

    def end(self) -> None:
        # It is about this time, and nobody tells when it has passed.
        threading.Event().wait(1.5 * QUICK.lease)
        self._proxy.is_away = False


_OTHERS: Final = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND application_name <> 'crowd'
"""


class Crowded:
    """A server whose connections others have, all of them."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self.url = url
        self._server = server.url(application_name="crowd")
        self._crowd: list[psycopg.Connection] = []

    def _enter(self) -> None:
        with suppress(psycopg.Error):
            while len(self._crowd) < CONNECTIONS:
                self._crowd.append(psycopg.connect(self._server, autocommit=True))

    def begin(self) -> None:
        first = psycopg.connect(self._server, autocommit=True)
        self._crowd.append(first)

        def is_full() -> bool:
            self._enter()
            return first.execute(_OTHERS).fetchone() == (0,) and len(self._crowd) == CONNECTIONS

        wait(is_full)

    def end(self) -> None:
        for connection in self._crowd:
            connection.close()


@pytest.fixture
def database(request: pytest.FixtureRequest, server: PostgresServer) -> Iterator[Database]:
    url = with_query(server.url(), schema=new_name())
    if request.param == "away":
        with TcpProxy(server.port, spare=b"treefold_") as proxy:
            yield Away(url, proxy)
    else:
        yield (Restarted if request.param == "restarted" else Crowded)(server, url)


@pytest.fixture
def workers(request: pytest.FixtureRequest, database: Database) -> Iterator[Workers]:
    kind = request.param
    workers = Workers(database.url, "" if kind == "none" else engine_name(kind))
    yield workers
    workers.close()


def submitter(workers: Workers, function: CodeFunction, **options: Any) -> Runtime:
    """Return a program that submits what a worker runs, or that runs it itself."""
    if not workers.engine:
        return workers(function, **options)
    workers(function, models=options.get("models"))
    return workers.submitter(function, **options)


def report(ctx: RunContext, folder: str, name: str) -> str:
    note(folder, "begun", name)
    wait(lambda: noted(Path(folder), "over"))
    return name


REPORT = CodeFunction(callable=report, repeatable=True)


class BreakingStore(FaultyStore):
    """A store whose database becomes unusable at a write, once it is armed."""

    def __init__(self, database: Database, *, is_before: bool) -> None:
        super().__init__(database.url, self._break)
        self._database = database
        self._is_before = is_before
        self.armed = False

    def _break(self, write: Write) -> list[Any]:
        if not self.armed:
            return write()
        self.armed = False
        if self._is_before:
            self._database.begin()
            return write()
        write()
        self._database.begin()
        raise StoreError(self.name, "the reply was lost")


def until_it_succeeds(invoke: Callable[[], Node]) -> Node:
    """Repeat *invoke* as programs are told to do."""

    def attempt() -> Node | None:
        with suppress(StoreError):
            return invoke()
        return None

    return wait(attempt)


@in_each_outage
@pytest.mark.parametrize("is_before", [True, False])
def test_a_call_with_a_key_that_is_made_again_after_an_outage_is_heard_of(
    database: Database, workers: Workers, tmp_path: Path, *, is_before: bool
):
    store = BreakingStore(database, is_before=is_before)
    near = submitter(workers, REPORT, store=store)
    args = {"folder": str(tmp_path), "name": "one"}
    note(str(tmp_path), "over", "yes")
    near.invoke(REPORT, args).result(PATIENCE)
    store.armed = True
    with pytest.raises(StoreError):
        near.invoke(REPORT, args, key="one")
    database.end()
    node = until_it_succeeds(lambda: near.invoke(REPORT, args, key="one"))
    assert node.result(PATIENCE) == "one"
    assert near.invoke(REPORT, args, key="one").result(PATIENCE) == "one"
    with attach(store) as observer:
        assert [tree.key for tree in observer.trees()] == ["", "one"]
    workers.close()
    store.close()


def listen(runtime: Runtime, observer: Observer, node: Node, pool: ThreadPoolExecutor) -> Heard:
    """Wait for the end of a call in every way that there is."""

    # They are made before the outage, which may begin before their threads do.
    watches = [runtime.watch(node, timeout=PATIENCE) for _ in range(2)]
    watch = observer.watch(node.id, timeout=PATIENCE)
    stream = runtime.events(node, timeout=PATIENCE)
    streams = [observer.events(node.id, timeout=PATIENCE) for _ in range(2)]

    async def awaited() -> Any:
        async with asyncio.timeout(PATIENCE):
            return await node

    async def watched() -> Any:
        return [view async for view in watches[0]][-1].outputs

    async def streamed() -> Any:
        return last([event async for event in streams[0]])

    def last(events: list[Event]) -> Any:
        assert isinstance(events[-1], CallEnded)
        return events[-1].outputs

    ways: dict[str, Callable[[], Any]] = {
        "result": lambda: node.result(PATIENCE),
        "await": lambda: asyncio.run(awaited()),
        "watch": lambda: [*watches[1]][-1].outputs,
        "watch in a loop": lambda: asyncio.run(watched()),
        "events": lambda: last([*stream]),
        "watch of an observer": lambda: [*watch][-1].outputs,
        "events of an observer": lambda: last([*streams[1]]),
        "events in a loop": lambda: asyncio.run(streamed()),
    }
    return {way: pool.submit(what) for way, what in ways.items()}


@in_each_outage
def test_whoever_waits_for_calls_hears_of_their_end_after_an_outage(
    database: Database, workers: Workers, tmp_path: Path
):
    near = submitter(workers, REPORT)
    args = {"folder": str(tmp_path), "name": "one"}
    before = [near.invoke(REPORT, args, key=key) for key in ("one", None)]
    wait(lambda: len(noted(tmp_path, "begun")) == 2)
    with attach(database.url) as observer, ThreadPoolExecutor(32) as pool:
        heard = [listen(near, observer, node, pool) for node in before]
        wait(lambda: all(observer.get_view(node.id).state is NodeState.Running for node in before))
        database.begin()
        # The first was made ready before, so that it is only written later.
        during = [near.invoke(REPORT, args)]
        with pytest.raises(StoreError):
            near.invoke(REPORT, args, key="two")
        database.end()
        during.append(until_it_succeeds(lambda: near.invoke(REPORT, args, key="two")))
        near.flush()
        heard += [listen(near, observer, node, pool) for node in during]
        note(str(tmp_path), "over", "yes")
        for ways in heard:
            assert {way: one.result(PATIENCE) for way, one in ways.items()} == dict.fromkeys(
                ways, "one"
            )


@in_each_outage
@pytest.mark.parametrize("is_before", [True, False] if EXHAUSTIVE else [True])
def test_a_failed_run_that_is_continued_again_after_an_outage_is_heard_of(
    database: Database, workers: Workers, *, is_before: bool
):
    server, store = Server(), BreakingStore(database, is_before=is_before)
    job = job_of([])
    near = submitter(workers, job, store=store, models=ScriptedModel(server.reply))
    server.is_up = False
    assert isinstance(failed(near.invoke(job, key="a")), ModelProviderException)
    server.is_up = True
    store.armed = True
    with pytest.raises(StoreError):
        near.invoke(job, key="a")
    database.end()
    node = until_it_succeeds(lambda: near.invoke(job, key="a"))
    assert node.result(PATIENCE) == "found"
    assert near.invoke(job, key="a").result(PATIENCE) == "found"
    with attach(store) as observer:
        assert len(observer.trees()) == 2
    assert server.paid == {0: 1, 1: 1, 2: 1, 3: 1}
    workers.close()
    store.close()
