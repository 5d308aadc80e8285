"""Workers with another version of a function than the one that a tree began with."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from cluster.conftest import Workers
from cluster.quick import QUICK
from cluster.test_shared_runtime import PATIENCE, eventually
from treefold import CodeFunction, NodeState, NodeView, RunContext, attach
from treefold.core.errors import CallTimeoutError
from treefold.runtime.durable.function_version import version_of

gate = threading.Event()


async def wait_a(ctx: RunContext) -> str:
    while not gate.is_set():  # noqa: ASYNC110 - it is set in another thread
        await asyncio.sleep(0.01)
    return "as before"


async def wait_b(ctx: RunContext) -> str:
    return "anew"


def waiting(version: str = "a") -> CodeFunction:
    """Return a function that waits until the gate is open, or its new version, which does not."""
    code = wait_a if version == "a" else wait_b
    return CodeFunction(callable=code, name="wait", repeatable=True)


def left_open(workers: Workers, function: CodeFunction, timeout: float | None = None) -> int:
    """Have a runtime start a call and leave it open; return the id of the call."""
    gate.clear()
    first = workers(function)
    node = first.invoke(function, timeout=timeout)
    eventually(lambda: node.state is NodeState.Running)
    workers.close(first)
    return node.id


def ended(workers: Workers, id: int) -> NodeView:
    """Wait until the call has ended, whoever runs it."""
    with attach(workers.url) as observer:
        eventually(lambda: observer.get_view(id).state.final)
        return observer.get_view(id)


def test_a_pinned_tree_waits_for_a_worker_that_has_its_version(
    any_workers: Workers, caplog: pytest.LogCaptureFixture
):
    id = left_open(any_workers, waiting())
    any_workers(waiting("b"), on_new_code="pin")
    eventually(lambda: "and on_new_code is 'pin'" in caplog.text)
    gate.set()
    any_workers(waiting(), on_new_code="pin")
    view = ended(any_workers, id)
    assert (view.outputs, view.notices, view.version) == ("as before", (), version_of(waiting()))


def test_a_worker_with_newer_code_adopts_a_tree_with_a_notice(any_workers: Workers):
    id = left_open(any_workers, waiting())
    any_workers(waiting("b"))
    view = ended(any_workers, id)
    assert (view.outputs, view.version) == ("anew", version_of(waiting("b")))
    [notice] = view.notices
    assert notice.startswith("wait has changed since this call was made (its code)")


def test_a_deadline_holds_on_the_worker_that_takes_a_tree_over(any_workers: Workers):
    began = time.monotonic()
    id = left_open(any_workers, waiting(), timeout=1.0)
    eventually(lambda: time.monotonic() > began + 1.0)
    any_workers(waiting())
    failure = ended(any_workers, id).exception
    assert failure is not None
    assert (failure.type, failure.message) == (
        CallTimeoutError.__name__,
        "wait (run 1): it took longer than 1.0 s",
    )


def test_the_timeout_of_a_remote_call_travels_with_it(any_workers: Workers):
    gate.clear()
    below = CodeFunction(callable=wait_a, name="wait", repeatable=True, remote="far")

    async def call(ctx: RunContext) -> str:
        return await ctx.invoke(below, timeout=0.5)

    calling = CodeFunction(callable=call, uses=[below])
    near = any_workers(calling)
    any_workers(calling, worker=replace(QUICK, queues={"far"}))
    node = near.invoke(calling)
    with pytest.raises(CallTimeoutError, match="wait .call 1.1.: it took longer than 0.5 s"):
        node.result(PATIENCE)
