"""The events of a tree that several workers write at once, as a reader gets them."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from cluster.conftest import Workers
from cluster.quick import QUICK
from cluster.test_shared_runtime import PATIENCE, eventually
from shared_stores import kill_listeners
from treefold import CodeFunction, RunContext, attach
from treefold.events import CallEnded, Event

WRITERS = 6
STEPS = 15


async def step(ctx: RunContext, n: int) -> int:
    return n


STEP = CodeFunction(callable=step, repeatable=True)


async def walk(ctx: RunContext, n: int) -> int:
    return sum([await ctx.invoke(STEP, {"n": i}) for i in range(n)])


# Each for a worker of its own.
BRANCHES = [
    CodeFunction(name=f"branch_{i}", callable=walk, uses=[STEP], remote=f"queue-{i}")
    for i in range(1, WRITERS)
]


async def climb(ctx: RunContext) -> list[int]:
    branches = [ctx.invoke(branch, {"n": STEPS}) for branch in BRANCHES]
    return [await walk(ctx, STEPS), *[await branch for branch in branches]]


TREE = CodeFunction(callable=climb, uses=[STEP, *BRANCHES], repeatable=True)


def test_a_reader_gets_each_event_of_six_workers_once_though_its_session_is_killed(
    placed: Workers,
):
    for queue in ("near", *(branch.queue for branch in BRANCHES)):
        placed(TREE, worker=replace(QUICK, queues=[queue]))
    submitter = placed.submitter(TREE)
    node = submitter.invoke(TREE, queue="near")
    is_over, killed = threading.Event(), list[int]()

    def kill() -> None:
        assert submitter.store is not None
        while not is_over.wait(0.05):
            killed.append(kill_listeners(submitter.store.id))

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        submitter.flush()
        with attach(placed.url) as observer:
            read = list(observer.events(node.id, timeout=PATIENCE))
            recorded = observer.events(node.id).read()
        assert node.result(PATIENCE) == [sum(range(STEPS))] * WRITERS
    finally:
        is_over.set()
        killer.join()
    assert sum(killed) > 0
    assert [event.number for event in read] == list(range(1, len(read) + 1))
    assert described(read) == described(recorded)
    ended = [event.node for event in read if isinstance(event, CallEnded)]
    assert len(ended) == len(set(ended)) == WRITERS * (STEPS + 1)


def described(events: Sequence[Event]) -> list[tuple[str, int]]:
    return [(type(event).__name__, event.node) for event in events]


async def consider(ctx: RunContext, n: int) -> str:
    await ctx.invoke(STEP, {"n": n})
    return await ctx.ask("Really?", ["yes"])


ASKING = CodeFunction(callable=consider, uses=[STEP], repeatable=True)


def test_a_stream_ends_after_its_call_wherever_that_runs(any_workers: Workers):
    worker = any_workers(ASKING)
    readers = [worker, any_workers.submitter(ASKING)] if any_workers.engine else [worker]
    for n in range(5):
        for reader in readers:
            node = reader.invoke(ASKING, {"n": n})
            # Meanwhile it is in nobody's memory: all of it waits for a person.
            eventually(lambda id=node.id: any(q.node_id == id for q in worker.questions()))
            [question] = [one for one in worker.questions() if one.node_id == node.id]
            worker.answer(question.id, "yes")
            for event in reader.events(node, timeout=PATIENCE):
                if isinstance(event, CallEnded) and event.node == node.id:
                    assert node.state.final
            assert node.state.final
            [child] = reader.get_view(node.id).children
            assert list(reader.events(child.id, timeout=PATIENCE))
            reader.delete(node.id)
