"""Leases, when several trees and several branches of one want them at once."""

import asyncio

from agent_scripts import StagedModel, ended, until, worker
from support import settle
from treefold import (
    AgentFunction,
    CodeFunction,
    Ensemble,
    Limits,
    Node,
    RunContext,
    Runtime,
)
from treefold.testing import ScriptedModel


def side_by_side(*agents: AgentFunction) -> CodeFunction:
    """Return a function that calls *agents* at the same time."""

    async def together(ctx: RunContext) -> list[str]:
        nodes = [ctx.invoke(agent) for agent in agents]
        return [await node for node in nodes]

    return CodeFunction(callable=together, uses=agents)


async def test_branches_that_began_to_wait_before_their_tree_had_a_lease_share_the_one_it_gets():
    model = StagedModel(ScriptedModel(lambda request: "done"), held=True)
    first, one, two = worker("first"), worker("one"), worker("two")
    together = side_by_side(one, two)
    limits = Limits(concurrent_requests=1)
    async with Runtime([first, together], models=model, limits=limits) as runtime:
        runtime.invoke(first)
        await until(lambda: model.in_flight == 1)
        node = runtime.invoke(together)
        await settle()
        model.gate.set()
        try:
            async with asyncio.timeout(60):
                assert await node == ["done", "done"]
        finally:
            node.cancel()


async def test_ensembles_of_several_models_share_one_lease():
    models = {name: StagedModel(ScriptedModel(lambda request: "4")) for name in ("a", "b", "c")}
    ensemble = Ensemble(worker("add"), {"a": 2, "b": 1, "c": 3})
    async with Runtime([ensemble], models=models, limits=Limits(1)) as runtime:
        nodes = [runtime.invoke(ensemble) for _ in range(3)]
        try:
            async with asyncio.timeout(60):
                assert [await node for node in nodes] == ["4", "4", "4"]
        finally:
            for node in nodes:
                node.cancel()


async def test_a_lease_is_given_back_whenever_its_call_is_cancelled():
    limits = Limits(2)
    model = StagedModel(ScriptedModel(lambda request: "done"))
    agents = [worker(name) for name in ("one", "two", "three")]
    top = side_by_side(*agents)
    async with Runtime([top], models=model, limits=limits) as runtime:
        for ticks in range(25):
            nodes: list[Node] = [runtime.invoke(top) for _ in range(3)]
            for _ in range(ticks):
                await asyncio.sleep(0)
            nodes[ticks % 3].cancel()
            for node in nodes:
                await ended(node)
            async with asyncio.timeout(60):
                assert await runtime.invoke(agents[0]) == "done"
        for ticks in range(25):
            nodes = [runtime.invoke(top) for _ in range(3)]
            for _ in range(ticks):
                await asyncio.sleep(0)
            for below in runtime.get_subtree(nodes[0].id)[1:]:
                below.cancel()
            for node in nodes:
                await ended(node)
        held = [limits.pool.try_take() for _ in range(3)]
    assert held == [True, True, False]
