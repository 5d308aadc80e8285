"""Pausing, when the paused call holds a lease, waits for one, or makes others."""

import asyncio
import threading

from agent_scripts import StagedModel, ended, until, worker
from support import settle
from treefold import CodeFunction, Limits, NodeState, RunContext, Runtime
from treefold.testing import ScriptedModel


async def test_a_paused_tree_lets_others_make_requests():
    model = StagedModel(ScriptedModel(lambda request: "done"))
    at_work = asyncio.Event()
    may_end = asyncio.Event()

    async def work(ctx: RunContext) -> str:
        at_work.set()
        await may_end.wait()
        return "worked"

    working = CodeFunction(callable=work)
    one, other = worker("one"), worker("other")

    async def two_steps(ctx: RunContext) -> str:
        await ctx.invoke(one)
        await ctx.invoke(working)
        return str(await ctx.invoke(one))

    top = CodeFunction(callable=two_steps, uses=[one, working])
    async with Runtime([top, other], models=model, limits=Limits(1)) as runtime:
        node = runtime.invoke(top)
        await at_work.wait()
        runtime.pause(node.id)
        may_end.set()
        await until(lambda: node.state is NodeState.Paused)
        try:
            async with asyncio.timeout(60):
                assert await runtime.invoke(other) == "done"
                runtime.resume(node.id)
                assert await node == "done"
        finally:
            node.cancel()


async def test_an_agent_that_was_paused_while_it_waited_for_a_lease_makes_no_request():
    model = StagedModel(ScriptedModel(lambda request: "done"), held=True)
    one, other = worker("one"), worker("other")
    async with Runtime([one, other], models=model, limits=Limits(1)) as runtime:
        first = runtime.invoke(other)
        await until(lambda: model.in_flight == 1)
        node = runtime.invoke(one)
        await settle()
        runtime.pause(node.id)
        model.gate.set()
        await ended(first)
        await settle()
        try:
            assert node.state is NodeState.Paused
            assert len(model.script.requests) == 1
            async with asyncio.timeout(60):
                assert await runtime.invoke(other) == "done"
                runtime.resume(node.id)
                assert await node == "done"
        finally:
            node.cancel()


async def test_the_question_of_a_second_pause_is_withdrawn_when_the_call_ends():
    model = StagedModel(ScriptedModel("done"), held=True)
    one = worker("one")
    async with Runtime([one], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(one)
        await until(lambda: model.in_flight)
        runtime.pause(node.id)
        runtime.resume(node.id)
        runtime.pause(node.id)
        model.gate.set()
        assert await node == "done"
        assert runtime.questions() == []
        assert runtime.get_view(node.id).questions == ()


def test_several_threads_may_resume_a_call_at_the_same_time():
    ready = threading.Barrier(4)
    surprises: list[Exception] = []

    async def forever(ctx: RunContext) -> None:
        await asyncio.Event().wait()

    def resume(runtime: Runtime, id: int) -> None:
        ready.wait(60)
        try:
            runtime.resume(id)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            if "is not paused" not in str(error):
                surprises.append(error)

    with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=forever))
        for _ in range(50):
            runtime.pause(node.id)
            threads = [threading.Thread(target=resume, args=[runtime, node.id]) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert runtime.questions() == []
        node.cancel()
    assert surprises == []
