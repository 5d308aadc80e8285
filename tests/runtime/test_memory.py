"""Finished trees of a runtime with a store do not stay in memory."""

import gc
from collections.abc import Iterator
from pathlib import Path

from treefold import CodeFunction, RunContext, Runtime, SessionScope, SqliteStore
from treefold.core.record import CallRecord
from treefold.runtime.calls.node import CallNode
from treefold.runtime.tree_registry import FINISHED_IN_MEMORY

TREES, AT_ONCE = 10_000, 500


def double(ctx: RunContext, n: int) -> int:
    return 2 * n


async def quadruple(ctx: RunContext, n: int) -> int:
    return await ctx.invoke(DOUBLE, {"n": await ctx.invoke(DOUBLE, {"n": n})})


async def remember(ctx: RunContext) -> list[str]:
    return ctx.get_or_put(SessionScope.TopLevel, "test", "notes", lambda: ["first"])


DOUBLE = CodeFunction(callable=double)
QUADRUPLE = CodeFunction(callable=quadruple, uses=[DOUBLE])
REMEMBER = CodeFunction(callable=remember)


def in_memory() -> int:
    """Return how many nodes and records there are."""
    gc.collect()
    return sum(type(one) is CallRecord or isinstance(one, CallNode) for one in gc.get_objects())


def numbers(count: int) -> Iterator[range]:
    return (range(first, first + AT_ONCE) for first in range(0, count, AT_ONCE))


async def test_ten_thousand_finished_trees_take_no_more_memory_than_a_few(tmp_path: Path):
    before = in_memory()
    async with Runtime([DOUBLE], store=SqliteStore(tmp_path / "run.db")) as runtime:
        counts: list[int] = []
        for some in numbers(TREES):
            nodes = [runtime.invoke(DOUBLE, {"n": n}, key=f"call {n}") for n in some]
            assert [await node for node in nodes] == [2 * n for n in some]
            del nodes
            if some.start % (5 * AT_ONCE) == 0:
                counts.append(in_memory() - before)
        # A node and a record for each tree that is kept.
        assert max(counts) <= 2 * FINISHED_IN_MEMORY + 10
        assert runtime.invoke(DOUBLE, {"n": 3}, key="call 3").result() == 6
        assert runtime.store is not None
        assert len(runtime.store.trees()) == TREES


async def test_a_dropped_tree_is_read_again_and_is_the_same_while_it_is_used(tmp_path: Path):
    async with Runtime([QUADRUPLE], store=SqliteStore(tmp_path / "run.db")) as runtime:
        held = runtime.invoke(QUADRUPLE, {"n": 1})
        first = runtime.invoke(QUADRUPLE, {"n": 2}).id
        view = runtime.get_view(first)
        for n in range(FINISHED_IN_MEMORY + 1):
            await runtime.invoke(DOUBLE, {"n": n})
        gc.collect()
        assert await held == 4
        assert runtime.list_toplevel()[0] is held
        assert runtime.get_subtree(held.id)[1] is held.get_children()[0]
        again = runtime.get_view(first)
        assert (again.outputs, [child.outputs for child in again.children]) == (8, [4, 8])
        assert again.id == view.id
        runtime.delete(first)
        assert first not in [root.id for root in runtime.list_toplevel()]


async def test_a_tree_with_objects_in_its_bags_stays_until_it_is_deleted(tmp_path: Path):
    async with Runtime([REMEMBER, DOUBLE], store=SqliteStore(tmp_path / "run.db")) as runtime:
        kept = runtime.invoke(REMEMBER).id
        for n in range(FINISHED_IN_MEMORY + 1):
            await runtime.invoke(DOUBLE, {"n": n})
        gc.collect()
        [node] = [one for one in gc.get_objects() if isinstance(one, CallNode) and one.id == kept]
        assert node.tree.has_bags


async def test_without_a_store_trees_stay_until_they_are_deleted():
    async with Runtime([DOUBLE]) as runtime:
        for n in range(FINISHED_IN_MEMORY + 3):
            await runtime.invoke(DOUBLE, {"n": n})
        assert len(runtime.list_toplevel()) == FINISHED_IN_MEMORY + 3
