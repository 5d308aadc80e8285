"""Engines that deliver twice, late, never and in any order, and processes that are no better."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from cluster.conftest import Workers, on
from cluster.leases import connect
from cluster.quick import QUICK
from cluster.test_shared_runtime import PATIENCE, eventually
from shared_stores import LEASE, info
from treefold import CodeFunction, RunContext, Runtime, StoreError, attach
from treefold.core.store import Entry
from treefold.engines import InProcess, Ticket, WorkEngine
from treefold.errors import EngineError, UnknownNodeError
from treefold.stores import Load, Orders
from treefold.stores.postgres import PostgresStore
from work_engines import EXHAUSTIVE, KINDS, make_engine
from wrapped_engine import Repeating, WrappedEngine
from wrapped_part import WrappedPart

TREES = 30 if EXHAUSTIVE else 12
BLOCKED = 20.0 if EXHAUSTIVE else 1.5 * QUICK.lease  # seconds


@on(*KINDS)
def test_each_tree_is_run_once_though_all_are_delivered_several_times(url: str, engine: str):
    runs: Counter[int] = Counter()

    async def charge(ctx: RunContext, n: int) -> str:
        runs[n] += 1
        await asyncio.sleep(0.005)
        return f"charged {n}"

    tool = CodeFunction(callable=charge)

    async def bill(ctx: RunContext, n: int) -> str:
        return await ctx.invoke(tool, {"n": n})

    work = CodeFunction(name="work", callable=bill, uses=[tool])

    async def main() -> tuple[list[Any], int]:
        stop = asyncio.Event()
        engines = [Repeating(make_engine(engine, url)) for _ in range(2)]
        async with (
            Runtime([work], store=url, worker=QUICK, engine=engines[0]) as one,
            Runtime([work], store=url, worker=QUICK, engine=engines[1]) as other,
            asyncio.TaskGroup() as group,
        ):
            for each in (one, other):
                group.create_task(each.work(stop=stop))
            nodes = [(one, other)[n % 2].invoke(work, {"n": n}) for n in range(TREES)]
            async with asyncio.timeout(PATIENCE):
                results = [await node for node in nodes]
            stop.set()
        return results, sum(len(each.deliveries) for each in engines)

    results, deliveries = asyncio.run(main())
    assert results == [f"charged {n}" for n in range(TREES)]
    assert set(runs.values()) == {1}
    assert deliveries > TREES


class Stumbling(WrappedEngine):
    """Fails at first in a way that no engine should."""

    has_failed = False

    async def submit(self, ticket: Ticket) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise KeyError(ticket.node)
        await super().submit(ticket)


def test_what_is_owed_is_submitted_though_the_engine_has_failed_before(workers: Workers):
    async def work(ctx: RunContext) -> str:
        return "done"

    function = CodeFunction(callable=work)
    idle = workers.add(Runtime([function], store=workers.url, worker=QUICK, engine=InProcess()))
    node = idle.invoke(function)
    engine = Stumbling(InProcess())
    workers.serve(Runtime([function], store=workers.url, worker=QUICK, engine=engine))
    assert node.result(PATIENCE) == "done"
    assert engine.has_failed


class Refusing(WrappedEngine):
    """Never accepts the drives in *refused*."""

    def __init__(self, inner: WorkEngine, refused: Collection[int]) -> None:
        super().__init__(inner)
        self._refused = refused

    async def submit(self, ticket: Ticket) -> None:
        if ticket.node in self._refused:
            raise EngineError("the engine", "it does not like this one")
        await super().submit(ticket)


def test_what_the_engine_always_refuses_keeps_nothing_else_from_being_submitted(workers: Workers):
    function = CodeFunction(name="work", callable=lambda ctx: "done")
    idle = workers.add(Runtime([function], store=workers.url, worker=QUICK, engine=InProcess()))
    refused = [idle.invoke(function, priority=priority).id for priority in (9, 8, 7, 6)]
    node = idle.invoke(function)
    with attach(workers.url) as observer:
        eventually(lambda: len(observer.trees()) == len(refused) + 1)
    engine = Refusing(InProcess(), refused)
    workers.serve(Runtime([function], store=workers.url, worker=QUICK, engine=engine))
    assert node.result(PATIENCE) == "done"


class Unreadable(PostgresStore):
    """Cannot be read as long as it *is_away*, but for how far its trees are."""

    is_away = False

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        if self.is_away:
            raise StoreError(self.name, "it is away")
        return super().entries(tree, after=after)


def test_a_tree_that_is_deleted_before_its_end_was_read_is_not_awaited_for_ever(workers: Workers):
    function = CodeFunction(name="work", callable=lambda ctx: "done")
    store = Unreadable(workers.url)
    idle = workers.add(Runtime([function], store=store, worker=QUICK, engine=InProcess()))
    store.is_away = True
    node = idle.invoke(function)
    other = workers.serve(Runtime([function], store=workers.url, worker=QUICK, engine=InProcess()))
    with attach(workers.url) as observer:
        eventually(lambda: all(not row.open for row in observer.trees()) and observer.trees())
    other.delete(node.id)
    with pytest.raises(UnknownNodeError, match="was deleted"):
        node.result(PATIENCE)


def test_a_blocked_event_loop_loses_no_tree(any_workers: Workers):
    begun = threading.Event()

    async def block(ctx: RunContext) -> str:
        begun.set()
        time.sleep(BLOCKED)  # noqa: ASYNC251 - what no coroutine should do, and some do
        return "done"

    function = CodeFunction(callable=block, repeatable=True)
    first, second = any_workers(function), any_workers(function)
    node = first.invoke(function)
    assert begun.wait(PATIENCE)
    assert node.result(PATIENCE) == "done"
    with attach(any_workers.url) as observer:
        eventually(lambda: not observer.trees()[0].open)
        kinds = [type(event).__name__ for event in observer.events(node.id).read()]
    assert kinds.count("CallStarted") == 1
    assert second.questions() == []


class Silent(PostgresStore):
    """Sends no heartbeat while it is silent."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.is_silent = threading.Event()
        self.beats = 0
        members: Any = SilentMembers(self)
        self.cluster = replace(self.cluster, members=members)


class SilentMembers(WrappedPart):
    def __init__(self, store: Silent) -> None:
        super().__init__(store.cluster.members)
        self._store = store

    def beat(self, load: Load) -> Orders:
        if self._store.is_silent.is_set():
            raise StoreError(self._store.name, "it is silent")
        orders = self.inner.beat(load)
        self._store.beats += 1
        return orders


def test_a_call_that_was_about_to_begin_learns_first_that_its_tree_is_lost(workers: Workers):
    begun, may_end = threading.Event(), threading.Event()
    charges: list[int] = []

    async def block(ctx: RunContext) -> None:
        begun.set()
        may_end.wait(PATIENCE)

    async def charge(ctx: RunContext) -> None:
        charges.append(1)

    blocking, charging = CodeFunction(callable=block), CodeFunction(callable=charge)

    async def work(ctx: RunContext) -> None:
        # They are written together, so the second is ready to begin when the first blocks the loop.
        for node in [ctx.invoke(blocking), ctx.invoke(charging)]:
            await node

    function, store = CodeFunction(callable=work, uses=[blocking, charging]), Silent(workers.url)
    settings = replace(QUICK, lease=1.0)
    runtime = workers(function, store=store, worker=settings)
    node = runtime.invoke(function)
    assert begun.wait(PATIENCE)
    store.is_silent.set()
    time.sleep(settings.lease)
    with PostgresStore(workers.url) as other, connect(workers.url) as connection:
        connection.execute("UPDATE workers SET lease = interval '0'")
        other.join(info("other"), lease=LEASE)
        assert other.cluster.drives.adopt(node.id) is not None
        store.beats = 0
        store.is_silent.clear()
        eventually(lambda: store.beats > 1, "a heartbeat that was answered")
        may_end.set()
        eventually(lambda: node.state.final, "the loss")
    assert charges == []
