"""Forks in the list of trees, and a fork that cannot be written yet."""

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support import wait
from treefold import (
    CodeFunction,
    Edit,
    MemoryStore,
    NodeState,
    QuestionKind,
    RunContext,
    Runtime,
    StoreError,
    attach,
)
from treefold.core.errors import FencedError, InvalidValueError, UsageError
from treefold.core.fact import replace
from treefold.stores import Batch, export_tree
from treefold.testing.store_suite import write


class FullStore(MemoryStore):
    """Takes nothing while it is full."""

    full = False
    patience = 0.05

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        if self.full:
            raise StoreError("memory", "the disk is full")
        return super().append(batches)


def leaf(ctx: RunContext) -> int:
    return 1


one = CodeFunction(callable=leaf)


async def grow(ctx: RunContext) -> int:
    return await ctx.invoke(one)


tree = CodeFunction(callable=grow, uses=[one])


def test_a_fork_has_a_beginning_and_an_end_in_the_list_of_trees():
    store = MemoryStore()
    with Runtime([tree], store=store) as runtime:
        node = runtime.invoke(tree)
        node.result(60)
        fork = runtime.fork(runtime.get_subtree(node.id)[1])
        fork.result(60)
    _, row = store.trees()
    assert (row.id, row.source, row.state) == (fork.id, node.id, NodeState.Success)
    assert row.started is not None
    assert row.ended is not None
    assert row.started <= row.ended


def test_a_fork_of_a_fork_of_a_fork_can_be_read_however_many_there_are():
    store = MemoryStore()
    with Runtime([one], store=store) as runtime:
        node = runtime.invoke(one)
        for _ in range(60):
            assert node.result(60) == 1
            node = runtime.fork(node.id)
        assert node.result(60) == 1
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        with attach(store) as observer:
            assert observer.get_view(node.id).outputs == 1
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("source", [2, 3])
def test_a_fork_of_a_tree_that_comes_later_is_damage(source: int, tmp_path: Path):
    store = MemoryStore()
    with Runtime([one], store=store) as runtime:
        node = runtime.invoke(one)
        assert runtime.fork(node.id).result(60) == 1
        assert runtime.fork(node.id).result(60) == 1
    [first, *others] = store.entries(2)
    assert first.call is not None
    odd, other = MemoryStore(), store.entries(3)
    odd.join()
    write(odd, [replace(first, call=replace(first.call, source=source)), *others, *other])
    with attach(odd) as observer, pytest.raises(StoreError, match="fork of"):
        observer.get_view(2)
    with pytest.raises(StoreError, match="fork of"):
        export_tree(odd, 2, tmp_path / "odd.jsonl")


def test_a_fork_that_cannot_be_written_has_no_effect_until_there_is_room_again():
    store, ran = FullStore(), list[int]()
    count = CodeFunction(name="count", callable=lambda ctx: ran.append(1), repeatable=True)
    with Runtime([count], store=store) as runtime:
        node = runtime.invoke(count)
        node.result(60)
        store.full = True
        fork = runtime.fork(node)
        [question] = wait(runtime.questions)
        assert (question.node_id, question.kind) == (fork.id, QuestionKind.Paused)
        assert ran == [1]
        store.full = False
        fork.result(60)
        assert ran == [1, 1]
    assert [row.open for row in store.trees()] == [False, False]


def test_a_call_of_an_earlier_runtime_is_forked_as_one_of_this():
    store = MemoryStore()
    with Runtime([tree], store=store) as runtime:
        node = runtime.invoke(tree)
        node.result(60)
        child = runtime.get_subtree(node.id)[1]
    with Runtime([tree], store=store) as runtime:
        assert runtime.fork(child, edit=Edit(result=2)).result(60) == 2
        assert runtime.fork(node).result(60) == 1


def test_a_call_that_is_not_in_the_journal_is_not_forked():
    with Runtime([tree], store=MemoryStore()) as runtime, Runtime([one]) as unwritten:
        runtime.invoke(tree).result(60)
        with Runtime([one], store=MemoryStore()) as other:
            for stranger in (other.invoke(one), unwritten.invoke(one)):
                stranger.result(60)
                with pytest.raises(UsageError, match="not in the journal of this runtime"):
                    runtime.fork(stranger)
        assert len(runtime.list_toplevel()) == 1


@pytest.mark.parametrize("edit", [Edit(result=[object()]), Edit(args={"n": object()})])
def test_an_edit_that_cannot_be_written_down_is_refused(edit: Edit):
    made: list[Any] = []
    note = CodeFunction(name="note", callable=lambda ctx, n=0: made.append(n))
    with Runtime([note], store=MemoryStore()) as runtime:
        node = runtime.invoke(note)
        node.result(60)
        with pytest.raises(InvalidValueError, match="no JSON form: .*object"):
            runtime.fork(node, edit=edit)
        assert runtime.list_toplevel() == [node]
    assert made == [0]
