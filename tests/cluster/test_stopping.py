"""A worker that is told to stop ends in bounded time, whatever its trees, store or engine do."""

import asyncio
import threading
from typing import Any

from cluster.faulty_store import FaultyStore, Write
from cluster.quick import QUICK
from cluster.serving import PATIENCE, Serving
from cluster.test_shared_runtime import eventually
from treefold import CodeFunction, NodeState, RunContext, Runtime, StoreError, attach
from work_engines import make_engine


class Refusing:
    """Has writes fail from a moment on."""

    def __init__(self) -> None:
        self.has_begun, self.has_refused = threading.Event(), threading.Event()

    def __call__(self, write: Write) -> list[Any]:
        if self.has_begun.is_set():
            self.has_refused.set()
            raise StoreError("the store", "it is out of order")
        return write()


def test_a_worker_ends_though_its_store_fails_and_a_call_in_its_tree_is_never_run(
    url: str, engine: str
):
    refusing, goes_on = Refusing(), asyncio.Event()
    far = CodeFunction(name="far", callable=lambda ctx: "far", remote="a queue of nobody")
    look = CodeFunction(name="look", callable=lambda ctx: "looked")

    async def call(ctx: RunContext) -> list[str]:
        async def call_later() -> str:
            await goes_on.wait()
            return await ctx.invoke(look)

        async with asyncio.TaskGroup() as group:
            later = group.create_task(call_later())
            first = await ctx.invoke(far)
        return [first, later.result()]

    calling = CodeFunction(name="calling", callable=call, uses=[far, look])
    runtime = Runtime(
        [calling],
        store=FaultyStore(url, refusing),
        engine=make_engine(engine, url),
        worker=QUICK,
    )
    serving = Serving(runtime, drain=0.1)
    node = runtime.invoke(calling)
    with attach(url) as observer:
        eventually(lambda: len(observer.get_view(node.id).children) == 1)
        refusing.has_begun.set()
        serving.post(goes_on.set)
        assert refusing.has_refused.wait(PATIENCE)

        serving.drain()
        serving.join()

        assert observer.get_view(node.id).state is NodeState.Running
