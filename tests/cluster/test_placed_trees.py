"""Trees that an engine places on workers behave as those that a runtime runs itself."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from cluster.conftest import Workers
from cluster.quick import QUICK
from cluster.test_remote_calls import serving
from cluster.test_shared_runtime import ADD, PATIENCE, asker, asking_model, eventually
from treefold import (
    AgentFunction,
    Budget,
    BudgetExceeded,
    CodeFunction,
    Node,
    NodeState,
    RunContext,
    Runtime,
    SessionScope,
    attach,
)
from treefold.errors import CallTimeoutError, ClosedError
from treefold.testing import ScriptedModel
from work_engines import make_engine


async def _forever(ctx: RunContext) -> None:
    await asyncio.sleep(3600)


FOREVER = CodeFunction(name="forever", callable=_forever, repeatable=True)


def looking_on(workers: Workers, *functions: CodeFunction) -> Runtime:
    """Open a runtime that runs nothing that others have started."""
    return workers.submitter(*functions) if workers.engine else workers(*functions)


def states_below(runtime: Runtime, id: int) -> list[NodeState]:
    """Return the states of the calls that a call has made."""
    return [child.state for child in runtime.get_view(id).children]


def test_a_program_is_not_warned_of_failures_that_were_seen_where_they_happened(
    placed: Workers, caplog: pytest.LogCaptureFixture
):
    async def fail(ctx: RunContext) -> None:
        raise ValueError("it failed")

    async def try_it(ctx: RunContext) -> str:
        with suppress(ValueError):
            await ctx.invoke(failing)
        return "tried"

    failing = CodeFunction(callable=fail)
    trying = CodeFunction(callable=try_it, uses=[failing])
    placed(trying)
    assert placed.submitter(trying).invoke(trying).result(PATIENCE) == "tried"
    assert "nobody asked" not in caplog.text


# Keys


def test_a_key_that_two_processes_use_at_once_names_one_call(any_workers: Workers):
    runtimes, together = [any_workers(ADD), any_workers(ADD)], threading.Barrier(2)

    def call(runtime: Runtime, key: str) -> tuple[int, Any]:
        together.wait(PATIENCE)
        node = runtime.invoke(ADD, {"a": 1, "b": 2}, key=key)
        return node.id, node.result(PATIENCE)

    with ThreadPoolExecutor(2) as pool:
        for key in "abcd":
            one, other = pool.map(call, runtimes, [key] * 2)
            assert one == other
            assert one[1] == 3
    with attach(any_workers.url) as observer:
        assert len(observer.trees()) == 4


def test_a_call_of_an_unlisted_function_that_has_a_key_is_not_run_twice(any_workers: Workers):
    begun, gate, runs = threading.Event(), threading.Event(), list[int]()

    async def count(ctx: RunContext) -> int:
        runs.append(1)
        begun.set()
        while not gate.is_set():  # noqa: ASYNC110 - it is set in another thread
            await asyncio.sleep(0.01)
        return len(runs)

    function = CodeFunction(callable=count, repeatable=True)
    node = any_workers(function).invoke(function, key="once")
    assert begun.wait(PATIENCE)
    again = looking_on(any_workers, ADD).invoke(function, key="once")
    gate.set()
    assert (again.id, again.result(PATIENCE)) == (node.id, node.result(PATIENCE))
    assert runs == [1]


def test_a_node_that_was_found_by_its_key_can_be_cancelled(any_workers: Workers):
    node = any_workers(FOREVER).invoke(FOREVER, key="once")
    eventually(lambda: node.state is NodeState.Running)
    looking_on(any_workers, FOREVER).invoke(FOREVER, key="once").cancel("enough")
    eventually(lambda: node.state is NodeState.Canceled)
    with attach(any_workers.url) as observer:
        assert observer.get_view(node.id).state is NodeState.Canceled


# Commands


@pytest.mark.parametrize("by", ["runtime", "node"])
def test_a_call_can_be_cancelled_at_once(any_workers: Workers, by: str):
    runtime = any_workers(FOREVER)
    node = runtime.invoke(FOREVER)
    if by == "runtime":
        runtime.cancel(node.id, "enough")
    else:
        node.cancel("enough")
    eventually(lambda: node.state is NodeState.Canceled)
    with attach(any_workers.url) as observer:
        assert observer.get_view(node.id).state is NodeState.Canceled


def test_a_call_below_is_cancelled_and_paused_in_the_process_that_submitted_its_tree(
    any_workers: Workers,
):
    async def call(ctx: RunContext) -> str:
        try:
            await ctx.invoke(FOREVER)
        except Exception as error:  # noqa: BLE001 - its name is the result
            return type(error).__name__
        return "ended"

    work = CodeFunction(name="work", callable=call, uses=[FOREVER])
    runtime = any_workers(work)
    node = runtime.invoke(work)
    eventually(lambda: states_below(runtime, node.id) == [NodeState.Running])
    child = runtime.get_view(node.id).children[0].id
    runtime.pause(child)
    eventually(runtime.questions, "the question")
    runtime.resume(child)
    eventually(lambda: not runtime.questions(), "the answer")
    runtime.cancel(child, "enough")
    assert node.result(PATIENCE) == "CancellationException"


# Waiting for a person


def test_a_tree_that_was_parked_here_is_seen_to_its_end_whichever_worker_finishes_it(
    any_workers: Workers,
):
    function = asker()
    first = any_workers(function, models=asking_model())
    nodes = [first.invoke(function) for _ in range(4)]
    with attach(any_workers.url) as observer:
        eventually(lambda: len(observer.questions()) == len(nodes), "the questions")
        if any_workers.engine:
            eventually(lambda: not any(row.driven for row in observer.trees()), "the release")
        paused = [[NodeState.Paused]] * len(nodes)
        eventually(lambda: [states_below(first, node.id) for node in nodes] == paused)
        second = any_workers(function, models=asking_model())
        eventually(lambda: [states_below(second, node.id) for node in nodes] == paused)
        # Any worker takes each of them up.
        for question in observer.questions():
            observer.answer(question.id, "red")
        assert [node.result(PATIENCE) for node in nodes] == ["Thanks."] * len(nodes)
    for runtime in (first, second):
        for node in nodes:
            eventually(lambda r=runtime, n=node: r.get_view(n.id).outputs == "Thanks.")


def test_a_call_that_waits_for_a_person_ends_at_its_timeout(any_workers: Workers):
    function = asker()
    node = any_workers(function, models=asking_model()).invoke(function, timeout=0.5)
    with pytest.raises(CallTimeoutError, match=r"it took longer than 0\.5 s"):
        node.result(PATIENCE)


def test_a_call_that_waits_for_a_person_ends_when_the_seconds_of_its_budget_are_over(
    any_workers: Workers,
):
    function = asker()
    runtime = any_workers(function, models=asking_model())
    node = runtime.invoke(function, budget=Budget(seconds=0.5))
    with pytest.raises(BudgetExceeded, match=r"0\.5 s are over"):
        node.result(PATIENCE)


# What a worker needs, and keeps


def test_a_call_waits_for_a_worker_that_has_its_model_and_takes_no_slot_elsewhere(
    placed: Workers,
):
    agent = AgentFunction("agent", "Do.", user_prompt_template="Do.")
    placed(agent, models={"plain": ScriptedModel("plain")}, worker=serving("default", slots=1))
    models = {"special": ScriptedModel(), "plain": ScriptedModel()}
    submitter = placed.submitter(agent, models=models)
    special, plain = (submitter.invoke(agent, model=name) for name in models)
    assert plain.result(PATIENCE) == "plain"
    placed(agent, models={"special": ScriptedModel("special")})
    assert special.result(PATIENCE) == "special"


class Connection:
    """Something that has to be closed."""

    def __init__(self) -> None:
        self.is_closed = threading.Event()

    def close(self) -> None:
        self.is_closed.set()


def test_what_a_tree_keeps_is_closed_when_its_worker_is(any_workers: Workers):
    connections: list[Connection] = []

    async def connect(ctx: RunContext) -> str:
        connections.append(ctx.get_or_put(SessionScope.Self, "test", "it", Connection))
        return "done"

    function = CodeFunction(callable=connect)
    runtime = any_workers(function)
    assert runtime.invoke(function).result(PATIENCE) == "done"
    any_workers.close(runtime)
    assert [one.is_closed.is_set() for one in connections] == [True]


def test_code_that_awaits_a_call_elsewhere_ends_with_its_runtime(placed: Workers):
    engine = make_engine(placed.engine, placed.url)

    async def wait(node: Node) -> None:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ClosedError, match="the call continues in another process"):
                await node

    async def main() -> None:
        async with (
            asyncio.TaskGroup() as group,
            Runtime([FOREVER], store=placed.url, worker=QUICK, engine=engine) as runtime,
        ):
            group.create_task(wait(runtime.invoke(FOREVER)))
            await asyncio.sleep(0)

    asyncio.run(main())
    with attach(placed.url) as observer:
        assert [row.open for row in observer.trees()] == [True]


def test_a_watch_goes_on_though_the_tree_is_parked_and_taken_up_again(any_workers: Workers):
    function = asker()
    runtime = any_workers(function, models=asking_model())
    node = runtime.invoke(function)
    with ThreadPoolExecutor(1) as pool, attach(any_workers.url) as observer:
        watch = runtime.watch(node.id, timeout=PATIENCE)
        watching = pool.submit(lambda: [view.state for view in watch])
        eventually(observer.questions, "the question")
        if any_workers.engine:
            eventually(lambda: not observer.trees()[0].driven, "the release")
        assert not watching.done()
        observer.answer(observer.questions()[0].id, "red")
        states = watching.result(PATIENCE)
    assert states[-1] is NodeState.Success
    assert NodeState.Canceled not in states
