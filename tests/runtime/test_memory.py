"""Finished trees of a runtime with a store do not stay in memory."""

import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from support import wait
from treefold import (
    AgentFunction,
    AgentNode,
    CodeFunction,
    MemoryStore,
    NodeState,
    RunContext,
    Runtime,
    SessionScope,
    SqliteStore,
)
from treefold.core.record import CallRecord
from treefold.errors import ClosedError, UnknownNodeError
from treefold.runtime.calls.node import CallNode
from treefold.stores import Entry
from treefold.testing import ScriptedModel

TREES, AT_ONCE, FINISHED = 3_000, 500, 10


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


async def test_thousands_of_finished_trees_take_no_more_memory_than_a_few(tmp_path: Path):
    before = in_memory()
    async with Runtime([DOUBLE], store=SqliteStore(tmp_path / "run.db")) as runtime:
        counts: list[int] = []
        for some in numbers(TREES):
            nodes = [runtime.invoke(DOUBLE, {"n": n}, key=f"call {n}") for n in some]
            assert [await node for node in nodes] == [2 * n for n in some]
            del nodes
            if some.start % (2 * AT_ONCE) == 0:
                counts.append(in_memory() - before)
        assert max(counts) <= 10
        assert runtime.invoke(DOUBLE, {"n": 3}, key="call 3").result() == 6
        assert runtime.store is not None
        assert len(runtime.store.trees()) == TREES


async def test_a_dropped_tree_is_read_again_and_is_the_same_while_it_is_used(tmp_path: Path):
    async with Runtime([QUADRUPLE], store=SqliteStore(tmp_path / "run.db")) as runtime:
        held = runtime.invoke(QUADRUPLE, {"n": 1})
        first = runtime.invoke(QUADRUPLE, {"n": 2}).id
        view = runtime.get_view(first)
        for n in range(FINISHED + 1):
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


def test_a_finished_tree_is_found_though_nobody_else_holds_it(tmp_path: Path):
    with Runtime([DOUBLE], store=SqliteStore(tmp_path / "run.db")) as runtime:
        id = runtime.invoke(DOUBLE, {"n": 1}).id
        while not runtime.get_view(id).state.final:
            pass
        for _ in range(5):
            gc.collect()
            assert runtime.get_view(id).outputs == 2


async def test_a_tree_with_objects_in_its_bags_stays_until_it_is_deleted(tmp_path: Path):
    async with Runtime([REMEMBER, DOUBLE], store=SqliteStore(tmp_path / "run.db")) as runtime:
        kept = runtime.invoke(REMEMBER).id
        for n in range(FINISHED + 1):
            await runtime.invoke(DOUBLE, {"n": n})
        gc.collect()
        [node] = [one for one in gc.get_objects() if isinstance(one, CallNode) and one.id == kept]
        assert node.tree.has_bags


async def test_without_a_store_trees_stay_until_they_are_deleted():
    async with Runtime([DOUBLE]) as runtime:
        for n in range(FINISHED + 3):
            await runtime.invoke(DOUBLE, {"n": n})
        assert len(runtime.list_toplevel()) == FINISHED + 3


@pytest.mark.parametrize("then", ["pass", "runtime.delete(id)"])
def test_large_results_that_nobody_holds_do_not_add_up(tmp_path: Path, then: str):
    program = """
        import asyncio, gc, resource, sys
        from treefold import CodeFunction, RunContext, Runtime

        async def large(ctx: RunContext, n: int) -> str:
            return chr(97 + n % 26) * 1_000_000

        async def pass_on(ctx: RunContext, n: int) -> str:
            return await ctx.invoke(LARGE, {"n": n})

        LARGE = CodeFunction(callable=large)
        PASS_ON = CodeFunction(callable=pass_on, uses=[LARGE])

        async def main():
            async with Runtime([PASS_ON], store=sys.argv[1]) as runtime:
                # The more objects there are, the later the garbage collector looks at old ones.
                kept = [[] for _ in range(200_000)]
                gc.collect()
                for n in range(100):
                    node = runtime.invoke(PASS_ON, {"n": n})
                    await node
                    id = node.id
                    del node
                    if n == 9:
                        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                    THEN
                print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

        asyncio.run(main())
    """
    command = [sys.executable, "-c", dedent(program).replace("THEN", then), str(tmp_path / "r.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    grown = int(done.stdout) * 1024
    assert grown < 20_000_000  # of the 90 MB that all results take


class Counting(MemoryStore):
    """Counts the trees that are read."""

    reads = 0

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        self.reads += 1
        return super().entries(tree, after=after)


def test_a_list_of_finished_trees_reads_none_of_them_before_it_is_looked_into():
    store, many = Counting(), 300
    with Runtime([DOUBLE], store=store) as runtime:
        for n in range(many):
            runtime.invoke(DOUBLE, {"n": n}, key=f"call {n}").result()
    gc.collect()
    with Runtime([DOUBLE], store=store) as runtime:
        store.reads = 0
        tracemalloc.start()
        nodes = runtime.list_toplevel()
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert {(node.fn, node.state) for node in nodes} == {("double", NodeState.Success)}
        assert [node.path for node in nodes] == [str(n + 1) for n in range(many)]
        assert nodes == runtime.list_toplevel()
        assert repr(nodes[6]) == "<CodeNode 7 double success>"
        assert not hasattr(nodes[6], "colour")
        assert store.reads == 0
        assert size < 2_000 * many
        ended = nodes[6].ended_at
        assert (nodes[6].outputs, nodes[6].inputs) == (12, {"n": 6})
        assert store.reads == 1
        assert (nodes[6].ended_at, nodes[6].state) == (ended, NodeState.Success)
        assert runtime.get_subtree(nodes[6].id) == [nodes[6]]
        assert runtime.invoke(DOUBLE, {"n": 7}, key="call 7") is nodes[7]
        assert repr(nodes[7]) == "<CodeNode 8 double success>"
        assert store.reads == 2
        runtime.delete(nodes[8].id)
        assert nodes[8].result() == 16
    with pytest.raises(ClosedError):
        _ = nodes[9].outputs


@pytest.mark.parametrize("is_known", [True, False])
def test_a_listed_call_of_an_agent_is_one_when_it_is_read(*, is_known: bool):
    store = MemoryStore()
    agent = AgentFunction("greeter", "", user_prompt_template="Hi.")
    with Runtime([agent], store=store, models=ScriptedModel("Hello.")) as runtime:
        runtime.invoke(agent).result()
    with Runtime([agent] if is_known else [], store=store) as runtime:
        [node] = runtime.list_toplevel()
        assert isinstance(node, AgentNode) == is_known
        assert [part.text for part in node.get_transcript()] == ["Hi.", "Hello."]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        assert isinstance(node, AgentNode)
        assert node.responses == 1


def test_a_deleted_call_is_not_found_though_it_is_still_used(tmp_path: Path):
    with Runtime([QUADRUPLE], store=SqliteStore(tmp_path / "run.db")) as runtime:
        node = runtime.invoke(QUADRUPLE, {"n": 1})
        assert node.result() == 4
        runtime.delete(node.id)
        for one in (node, *node.children):
            with pytest.raises(UnknownNodeError):
                runtime.get_view(one.id)


def test_a_failure_is_told_when_nobody_can_ask_for_it_any_more(caplog: pytest.LogCaptureFixture):
    def fail(ctx: RunContext, n: int) -> None:
        raise ValueError(f"failure {n}")

    def told() -> list[str]:
        gc.collect()
        found = [record.getMessage() for record in caplog.records]
        return [text[-9:] for text in found if "nobody asked" in text]

    failing = CodeFunction(callable=fail)
    with Runtime([failing], store=MemoryStore()) as runtime:
        nodes = [runtime.invoke(failing, {"n": n}) for n in range(4)]
        wait(lambda: all(node.state.final for node in nodes))
        assert told() == []
        with pytest.raises(ValueError, match="failure 1"):
            nodes[1].result()
        del nodes[:2]
        wait(lambda: told() == ["failure 0"])
    assert sorted(told()) == ["failure 0", "failure 2", "failure 3"]
