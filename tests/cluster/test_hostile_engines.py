"""Engines that deliver twice, late, never and in any order, and processes that are no better."""

import asyncio
import threading
import time
from collections import Counter
from typing import Any

from cluster.conftest import QUICK, Workers
from cluster.test_shared_runtime import PATIENCE, eventually
from hostile_engine import HostileEngine
from treefold import CodeFunction, RunContext, Runtime, attach


def test_whatever_an_engine_does_each_tree_is_run_once(url: str):
    runs: Counter[int] = Counter()

    async def charge(ctx: RunContext, n: int) -> str:
        runs[n] += 1
        await asyncio.sleep(0.005)
        return f"charged {n}"

    tool = CodeFunction(callable=charge)

    async def bill(ctx: RunContext, n: int) -> str:
        return await ctx.invoke(tool, {"n": n})

    work = CodeFunction(name="work", callable=bill, uses=[tool])

    async def main() -> list[Any]:
        stop = asyncio.Event()
        async with (
            Runtime([work], store=url, worker=QUICK, engine=HostileEngine(1)) as one,
            Runtime([work], store=url, worker=QUICK, engine=HostileEngine(2)) as other,
        ):
            async with asyncio.TaskGroup() as group:
                working = [group.create_task(each.work(stop=stop)) for each in (one, other)]
                nodes = [(one, other)[n % 2].invoke(work, {"n": n}) for n in range(30)]
                async with asyncio.timeout(PATIENCE):
                    results = [await node for node in nodes]
                stop.set()
            assert len(working) == 2
        return results

    assert asyncio.run(main()) == [f"charged {n}" for n in range(30)]
    assert set(runs.values()) == {1}


def test_a_blocked_event_loop_loses_no_tree(workers: Workers):
    begun = threading.Event()

    async def block(ctx: RunContext) -> str:
        begun.set()
        time.sleep(2 * QUICK.lease)  # noqa: ASYNC251 - what no coroutine should do, and some do
        return "done"

    function = CodeFunction(callable=block, repeatable=True)
    first, second = workers(function), workers(function)
    node = first.invoke(function)
    assert begun.wait(PATIENCE)
    assert node.result(PATIENCE) == "done"
    with attach(workers.url) as observer:
        eventually(lambda: not observer.trees()[0].open)
        kinds = [type(event).__name__ for event in observer.events(node.id).read()]
    assert kinds.count("CallStarted") == 1
    assert second.questions() == []
