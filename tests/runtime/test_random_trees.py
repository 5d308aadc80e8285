"""Random trees of calls that fail, are cancelled and time out: what must hold in each of them."""

import asyncio
import random
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from support import settle
from treefold import CodeFunction, Node, NodeState, NodeView, RunContext, Runtime
from treefold.core.states import NEXT

DEPTH = 4


class Mischief:
    """One random program: each call may call others, wait, fail, be cancelled, or clean up.

    Each level of the tree has functions of its own, an async and a sync one, and they call those
    of the level below.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.nodes: list[Node] = []
        self.levels: list[list[CodeFunction]] = []
        below: list[CodeFunction] = []
        for left in range(DEPTH + 1):
            below = [
                CodeFunction(name=f"act_{left}", callable=self.act, uses=below),
                CodeFunction(name=f"act_sync_{left}", callable=self.act_sync, uses=below),
            ]
            self.levels.append(below)

    async def act(self, ctx: RunContext, depth: int) -> int:
        rng = self.rng
        children: list[Node] = []
        try:
            for _ in range(rng.randint(0, 3) if depth else 0):
                tied = children[-1] if children and rng.random() < 0.3 else None
                timeout = rng.choice([None, None, 0.002, 5])
                act, act_sync = self.levels[depth - 1]
                function = act_sync if rng.random() < 0.1 else act
                child = ctx.invoke(function, {"depth": depth - 1}, timeout=timeout, tied_with=tied)
                children.append(child)
                self.nodes.append(child)
            for child in children:
                if rng.random() < 0.2:
                    rng.choice(self.nodes).cancel(f"by {ctx.node.path}")
                if rng.random() < 0.7:
                    try:
                        await child
                    except Exception:
                        if rng.random() < 0.3:
                            raise
            await asyncio.sleep(rng.choice([0, 0, 0.001, 0.003]))
            if rng.random() < 0.15:
                raise ValueError(ctx.node.path)
            return sum(child.outputs or 0 for child in children) + 1
        finally:
            if rng.random() < 0.3:
                await asyncio.sleep(0.001)

    def act_sync(self, ctx: RunContext, depth: int) -> int:
        if depth == 0:
            return 1
        act, _ = self.levels[depth - 1]
        child = ctx.invoke(act, {"depth": depth - 1})
        return 1 + child.result(60)


def check_node(node: Node) -> None:
    """A node that has ended, and its place among the others."""
    assert node.state.final
    assert node.ended_at is not None
    if node.state is NodeState.Success:
        assert node.exception is None
    else:
        assert node.exception is not None
    sequences: list[int] = []
    for entry in node.get_children():
        batch = entry if isinstance(entry, list) else [entry]
        assert len({child.sequence for child in batch}) == 1
        sequences.append(batch[0].sequence)
        for child in batch:
            assert child.parent is node
            assert child.ended_at is not None
            assert child.ended_at <= node.ended_at  # none outlives its caller
    assert sequences == sorted(set(sequences))


def check_view(view: NodeView, nodes: dict[int, Node]) -> int:
    """A view that says the same as its node; returns how many there are."""
    node = nodes[view.id]
    assert (view.path, view.state, view.outputs) == (node.path, node.state, node.outputs)
    assert (view.exception is None) == (node.exception is None)
    assert [child.path for child in view.children] == [
        f"{view.path}.{n}" for n in range(1, len(view.children) + 1)
    ]
    return 1 + sum(check_view(child, nodes) for child in view.children)


async def follow(runtime: Runtime, node: Node, seen: list[Any]) -> None:
    seen.extend([(view.update_seqnum, view.state) async for view in runtime.watch(node)])


@pytest.mark.parametrize("seed", range(60))
async def test_whatever_happens_in_a_tree_it_ends_whole(seed: int):
    others = asyncio.all_tasks()
    mischief = Mischief(seed)
    seen: list[tuple[int, NodeState]] = []
    async with asyncio.timeout(60), Runtime() as runtime, asyncio.TaskGroup() as group:
        act, _ = mischief.levels[DEPTH]
        root = runtime.invoke(act, {"depth": DEPTH})
        mischief.nodes.append(root)
        group.create_task(follow(runtime, root, seen))
        with suppress(Exception):  # any end is a good end
            await root
    nodes: dict[int, Node] = {node.id: node for node in runtime.get_subtree(root.id)}
    for node in nodes.values():
        check_node(node)
    assert check_view(runtime.get_view(root.id), nodes) == len(nodes)
    numbers = [number for number, _ in seen]
    assert numbers == sorted(set(numbers))
    states = [state for _, state in seen]
    assert states[-1] is root.state
    for now, then in pairwise(states):
        assert now is then or then in NEXT[now] or then in NEXT[NodeState.Running]
    await settle()
    assert asyncio.all_tasks() == others
