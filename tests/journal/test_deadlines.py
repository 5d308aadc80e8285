"""Time limits of calls whose process ends before they do."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from journal.processes import Lives, World, failure, result
from support import wait
from treefold import (
    AgentFunction,
    Budget,
    BudgetExceeded,
    CodeFunction,
    MemoryStore,
    Node,
    NodeState,
    RunContext,
    Runtime,
    ToolUse,
    attach,
)
from treefold.core.errors import CallTimeoutError
from treefold.core.fact import replace
from treefold.events import CallEnded, CallStarted
from treefold.testing.store_suite import write
from view_trees import flat

SHORT = 1.5  # seconds, which are over before anybody looks again
LONG = 600.0


def sleeping(world: World, **options: Any) -> CodeFunction:
    """Return code that never ends by itself, unless the file ``woken`` is there."""

    async def sleep(ctx: RunContext) -> str:
        world.add("sleep")
        while not (world.folder / "woken").exists():  # noqa: ASYNC110 - by another thread
            await asyncio.sleep(0.01)
        return "awake"

    given: dict[str, Any] = {"repeatable": True} | options
    return CodeFunction(callable=sleep, **given)


def begin(world: World, function: CodeFunction, **limits: Any) -> Node:
    """Start a call in a runtime that is closed when its code runs, which leaves the call open."""
    with world.runtime(function) as runtime:
        node = runtime.invoke(function, key="job", **limits)
        wait(lambda: world.done("sleep"))
        runtime.close()
    return node


def events(world: World, node: Node, kind: Any) -> list[Any]:
    with attach(world.file) as observer:
        return [event for event in observer.events(node.id).read() if isinstance(event, kind)]


def over(seconds: float, since: float) -> None:
    """Wait until so many seconds have passed."""
    wait(lambda: time.time() > since + seconds)


def dies_early(world: World) -> None:
    work = sleeping(world)
    with world.runtime(work) as runtime:
        runtime.invoke(work, key="job", timeout=SHORT)
        wait(lambda: world.done("sleep"))
        world.die()


def test_a_call_whose_deadline_passes_while_no_process_runs_ends_at_once(
    world: World, lives: Lives
):
    lives.killed(dies_early, world)
    with attach(world.file) as observer:
        [tree] = observer.trees()
        assert tree.started is not None
        over(SHORT, tree.started)
    with world.runtime(sleeping(world)) as runtime:
        [node] = runtime.recover()
        error = failure(node)
    assert isinstance(error, CallTimeoutError)
    assert str(error) == f"sleep (run 1): it took longer than {SHORT} s"
    assert world.done("sleep") == 1  # its code did not run again
    [started] = events(world, node, CallStarted)
    assert started.deadline == started.at + SHORT
    [ended] = events(world, node, CallEnded)
    assert ended.stop.cause == "timeout"


def test_a_resumed_call_has_the_rest_of_its_time(world: World):
    timeout = 2.0
    node = begin(world, sleeping(world), timeout=timeout)
    [started] = events(world, node, CallStarted)
    over(timeout / 2, started.at)
    with world.runtime(sleeping(world)) as runtime:
        [again] = runtime.recover()
        assert isinstance(failure(again), CallTimeoutError)
    assert world.done("sleep") == 2
    [ended] = events(world, node, CallEnded)
    # From the start of this process it would be half as long again.
    assert 0 <= ended.at - started.deadline < timeout / 2


def test_a_call_that_ends_before_its_deadline_is_not_affected(world: World):
    begin(world, sleeping(world), timeout=LONG)
    (world.folder / "woken").touch()
    with world.runtime(sleeping(world)) as runtime:
        [again] = runtime.recover()
        assert result(again) == "awake"


def calling(world: World, timeout: float | None) -> CodeFunction:
    below = sleeping(world, repeatable=False)

    async def call(ctx: RunContext) -> str:
        try:
            return await ctx.invoke(below, timeout=timeout)
        except CallTimeoutError as error:
            return f"given up: {error}"

    return CodeFunction(callable=call, uses=[below])


@pytest.mark.parametrize("now", [SHORT, LONG, None])
def test_the_deadline_of_a_child_call_is_the_recorded_one(world: World, now: float | None):
    node = begin(world, calling(world, SHORT))
    [_, started] = events(world, node, CallStarted)
    over(SHORT, started.at)
    with world.runtime(calling(world, now)) as runtime:
        [again] = runtime.recover()
        # It is not in doubt: its caller is told that it took too long, as if it had run on.
        assert result(again) == f"given up: sleep (call 1.1): it took longer than {SHORT} s"
    assert world.done("sleep") == 1


def test_calls_below_are_cancelled_and_no_request_is_sent(world: World):
    below = sleeping(world)
    agent = AgentFunction("agent", "Work.", user_prompt_template="Work.", uses=[below])
    model = world.model(ToolUse("1", "sleep", {}), "done")
    with world.runtime(agent, models=model) as runtime:
        node = runtime.invoke(agent, timeout=SHORT)
        wait(lambda: world.done("sleep"))
        runtime.close()
    [started, _] = events(world, node, CallStarted)
    over(SHORT, started.at)
    with world.runtime(agent, models=model) as runtime:
        [again] = runtime.recover()
        assert isinstance(failure(again), CallTimeoutError)
        views = flat(runtime.get_view(again.id))
    assert [view.state for view in views] == [NodeState.Error, NodeState.Canceled]
    assert (world.done("request"), world.done("sleep")) == (1, 1)


def test_the_time_in_which_a_person_is_asked_counts(world: World):
    async def ask(ctx: RunContext) -> str:
        return await ctx.ask("Really?")

    asking = CodeFunction(callable=ask, repeatable=True)
    with world.runtime(asking) as runtime:
        node = runtime.invoke(asking, timeout=SHORT)
        [question] = wait(runtime.questions)
        runtime.close()
    [started] = events(world, node, CallStarted)
    over(SHORT, started.at)
    with attach(world.file) as observer:
        observer.answer(question.id, "yes")
    with world.runtime(asking) as runtime:
        [again] = runtime.list_toplevel()
        assert isinstance(failure(again), CallTimeoutError)


# What starts the clock anew


def test_a_timed_out_tree_that_is_resumed_has_all_its_time_again(world: World):
    node = begin(world, sleeping(world), timeout=1.0)
    [started] = events(world, node, CallStarted)
    over(1.0, started.at)
    with world.runtime(sleeping(world)) as runtime:
        [again] = runtime.recover()
        assert isinstance(failure(again), CallTimeoutError)
        fork = runtime.fork(again)
        wait(lambda: world.done("sleep") == 2)  # so it has not ended at once
        (world.folder / "woken").touch()
        assert result(fork) == "awake"


def test_the_deadline_of_a_fork_survives_a_restart(world: World):
    node = begin(world, sleeping(world), timeout=SHORT)
    [started] = events(world, node, CallStarted)
    over(SHORT, started.at)
    with world.runtime(sleeping(world)) as runtime:
        [again] = runtime.recover()
        failure(again)
        made = time.time()
        fork = runtime.fork(again)
        runtime.close()
    over(SHORT, made)
    ran = world.done("sleep")
    with world.runtime(sleeping(world)) as runtime:
        [node] = runtime.recover()
        assert node.id == fork.id
        assert isinstance(failure(node), CallTimeoutError)
    assert world.done("sleep") == ran


def test_a_call_that_must_run_again_has_all_its_time_again(path: Path):
    """Its result had no JSON form, and it had ended in time."""
    calls: list[str] = []

    async def make(ctx: RunContext) -> Any:
        calls.append("make")
        return object()

    made = CodeFunction(callable=make, repeatable=True)

    async def work(ctx: RunContext) -> str:
        await ctx.invoke(made, timeout=SHORT)
        return await ctx.ask("Go on?")

    working = CodeFunction(callable=work, uses=[made])
    with Runtime([working], store=path) as runtime:
        runtime.invoke(working)
        wait(runtime.questions)
    over(SHORT, time.time())
    with Runtime([working], store=path) as runtime:
        [node] = runtime.recover()
        [question] = wait(runtime.questions)
        runtime.answer(question.id, "yes")
        assert result(node) == "yes"
    assert calls == ["make", "make"]


# Budgets


def test_the_seconds_of_a_budget_count_while_no_process_runs(world: World):
    node = begin(world, sleeping(world), budget=Budget(seconds=SHORT))
    [started] = events(world, node, CallStarted)
    over(SHORT, started.at)
    with world.runtime(sleeping(world)) as runtime:
        [again] = runtime.recover()
        error = failure(again)
    assert isinstance(error, BudgetExceeded)
    assert f"{SHORT:g} s are over" in str(error)
    assert world.done("sleep") == 1


def test_the_seconds_of_a_functions_own_budget_count_as_well(world: World):
    def budgeted() -> CodeFunction:
        return sleeping(world, budget=Budget(seconds=SHORT))

    node = begin(world, budgeted())
    [started] = events(world, node, CallStarted)
    over(SHORT, started.at)
    with world.runtime(budgeted()) as runtime:
        [again] = runtime.recover()
        assert isinstance(failure(again), BudgetExceeded)
    assert world.done("sleep") == 1


def test_the_seconds_of_a_runtime_are_its_own(world: World):
    begin(world, sleeping(world))
    over(SHORT, time.time())
    (world.folder / "woken").touch()
    with world.runtime(sleeping(world), budget=Budget(seconds=LONG)) as runtime:
        [again] = runtime.recover()
        assert result(again) == "awake"


# Journals of earlier releases


def test_in_a_journal_without_deadlines_they_follow_from_the_start(world: World):
    store, work = MemoryStore(), sleeping(world)
    with Runtime([work], store=store) as runtime:
        node = runtime.invoke(work, timeout=SHORT)
        wait(lambda: world.done("sleep"))
        runtime.close()
    old = MemoryStore()
    old.join()
    for entry in store.entries(node.id):
        body = {key: value for key, value in json.loads(entry.body).items() if key != "deadline"}
        write(old, [replace(entry, body=json.dumps(body), seq=0)])
    old.close()
    [at] = [entry.at for entry in store.entries(node.id) if entry.kind == "CallStarted"]
    assert at is not None
    over(SHORT, at)
    with Runtime([work], store=old) as runtime:
        [again] = runtime.recover()
        assert isinstance(failure(again), CallTimeoutError)
    assert world.done("sleep") == 1
