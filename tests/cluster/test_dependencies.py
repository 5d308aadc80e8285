"""Dependencies in a cluster: each worker that runs a tree, or a call of it, makes its own."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from cluster.conftest import Workers
from cluster.quick import QUICK
from cluster.test_shared_runtime import PATIENCE, eventually
from treefold import CodeFunction, NodeState, RunContext, RunInfo, Runtime, attach
from treefold.errors import UsageError


class Maker:
    """A factory of one worker; it counts what it made and closed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.runs: list[RunInfo] = []
        self.closed = 0

    def make(self, run: RunInfo) -> "Made":
        self.runs.append(run)
        return Made(self._name, self)


class Made:
    """What one factory made."""

    def __init__(self, name: str, maker: Maker) -> None:
        self.name = name
        self._maker = maker

    def close(self) -> None:
        self._maker.closed += 1


gate = threading.Event()
paid: list[str] = []


async def pay(ctx: RunContext[Made]) -> str:
    paid.append(ctx.deps.name)
    return ctx.deps.name


async def wait(ctx: RunContext[Made]) -> str:
    while not gate.is_set():  # noqa: ASYNC110 - it is set in another thread
        await asyncio.sleep(0.01)
    return ctx.deps.name


paying = CodeFunction(callable=pay)
waiting = CodeFunction(callable=wait, repeatable=True)


async def work(ctx: RunContext[Made], n: int = 0) -> list[str]:
    return [await ctx.call(waiting), await ctx.call(paying)]


async def sign(ctx: RunContext[Made]) -> str:
    return f"{await ctx.ask('Sign?')} by {ctx.deps.name}"


working = CodeFunction(callable=work, uses=[waiting, paying])
signing = CodeFunction(callable=sign, repeatable=True)


@pytest.fixture(autouse=True)
def nothing_was_paid() -> None:
    gate.clear()
    paid.clear()


def outcome(workers: Workers, id: int) -> Any:
    """Wait for the end of a call, whoever runs it, and return its value."""
    with attach(workers.url) as observer:
        eventually(lambda: observer.get_view(id).state.final)
        return observer.get_view(id).outputs


def held_back(workers: Workers, id: int) -> str:
    """Wait until a call is held back, and return why."""
    with attach(workers.url) as observer:
        eventually(lambda: observer.get_view(id).held_back)
        return observer.get_view(id).held_back


def test_a_worker_that_has_none_leaves_a_run_to_others(any_workers: Workers):
    first, second = Maker("first"), Maker("second")
    runtime = any_workers(working, deps=first.make)
    node = runtime.invoke(working, {"n": 3})
    eventually(lambda: node.state is NodeState.Running)
    any_workers.close(runtime)
    assert (len(first.runs), first.closed) == (1, 1)

    without = any_workers(working)
    assert "Maker.make, and this process has none" in held_back(any_workers, node.id)
    gate.set()
    any_workers(working, deps=second.make)
    assert outcome(any_workers, node.id) == ["second", "second"]
    eventually(lambda: second.closed)
    assert (paid, first.closed, second.closed) == (["second"], 1, 1)
    [run] = second.runs
    assert (run.function, run.inputs, run.number) == ("work", {"n": 3}, first.runs[0].number)
    assert without.get_view(node.id).held_back == ""


def test_a_run_that_waits_for_a_person_is_given_up_and_closed(any_workers: Workers):
    first, second = Maker("first"), Maker("second")
    runtime = any_workers(signing, deps=first.make)
    node = runtime.invoke(signing)
    eventually(runtime.questions)
    if any_workers.engine:
        eventually(lambda: first.closed)
    any_workers.close(runtime)
    assert (len(first.runs), first.closed) == (1, 1)
    other = any_workers(signing, deps=second.make)
    [question] = other.questions()
    if any_workers.engine:
        # Otherwise the first process may not have parked it, so that the second resumes it.
        assert second.runs == []
    other.answer(question.id, "signed")
    assert outcome(any_workers, node.id) == "signed by second"
    eventually(lambda: second.closed == len(second.runs))


def test_a_remote_call_has_those_of_the_worker_that_runs_it(any_workers: Workers):
    gate.set()
    far_paying = CodeFunction(callable=pay, name="pay", remote="far")

    async def send(ctx: RunContext[Made], to: str) -> list[str]:
        return [ctx.deps.name, await ctx.call(far_paying), await ctx.call(far_paying)]

    sending = CodeFunction(callable=send, uses=[far_paying])
    near, far = Maker("near"), Maker("far")
    caller = any_workers(sending, deps=near.make)
    node = caller.invoke(sending, {"to": "ada"})
    settings = replace(QUICK, queues={"far"})
    any_workers(sending, worker=settings)
    eventually(lambda: len(caller.get_view(node.id).children) == 1)
    call = caller.get_view(node.id).children[0].id
    assert "this process has none" in held_back(any_workers, call)
    assert paid == []
    any_workers(sending, deps=far.make, worker=settings)
    assert outcome(any_workers, node.id) == ["near", "far", "far"]
    eventually(lambda: far.closed == 2 and near.closed == 1)
    assert (len(near.runs), len(far.runs), paid) == (1, 2, ["far", "far"])
    assert {(run.function, run.inputs["to"]) for run in far.runs} == {("send", "ada")}


def test_what_is_given_for_one_call_stays_in_its_process(workers: Workers):
    made = Made("given", Maker("given"))
    runtime = workers(signing)
    node = runtime.invoke(signing, deps=made)
    eventually(runtime.questions)
    workers(signing)
    [question] = runtime.questions()
    runtime.answer(question.id, "signed")
    assert node.result(PATIENCE) == "signed by given"


def test_a_call_that_any_worker_may_run_takes_none_of_its_own(placed: Workers):
    runtime: Runtime = placed.submitter(signing)
    with pytest.raises(UsageError, match=r"give each of them Runtime\(deps=\.\.\.\)"):
        runtime.invoke(signing, deps=Made("given", Maker("given")))
