"""Deleting trees, and exporting them to another journal."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from journal.processes import Lives, World, answer_in_turn, numberless, question_of, result
from treefold import (
    AgentFunction,
    CodeFunction,
    Edit,
    NodeState,
    NodeView,
    RunContext,
    Runtime,
    SqliteStore,
    StoreError,
    ToolUse,
)
from treefold.core.errors import UnknownNodeError, UsageError
from treefold.stores import export_tree, import_tree
from view_trees import flat


def boss_of(world: World) -> AgentFunction:
    return AgentFunction("boss", "", user_prompt_template="Go.", uses=[world.tool("look")])


def model_of(world: World) -> Any:
    return world.model([ToolUse("1", "look", {"n": 4})], "done")


def big(world: World) -> CodeFunction:
    def read(ctx: RunContext, n: int) -> str:
        return os.urandom(500_000).hex()

    return CodeFunction(callable=read)


# --- deleting


def test_a_deleted_tree_is_deleted_from_the_store(world: World):
    look = world.tool("look")
    with world.runtime(look) as runtime:
        one, two = (runtime.invoke(look, {"n": n}, key=str(n)) for n in (1, 2))
        result(one)
        result(two)
        runtime.delete(one.id)
        assert runtime.list_toplevel() == [two]
        with pytest.raises(UnknownNodeError):
            runtime.get_view(one.id)
    with world.runtime(look) as runtime:
        [left] = runtime.list_toplevel()
        assert left.id == two.id
        with pytest.raises(UnknownNodeError):
            runtime.get_view(one.id)
        again = runtime.invoke(look, {"n": 1}, key="1")  # its key is free
        assert again.id not in {one.id, two.id}
        assert again.path == "3"
        assert result(again) == "look 1"
    assert world.done("look") == 3


def test_a_past_tree_can_be_deleted(world: World):
    look = world.tool("look")
    with world.runtime(look) as runtime:
        node = runtime.invoke(look)
        result(node)
    with world.runtime(look) as runtime:
        runtime.delete(node.id)
        assert runtime.list_toplevel() == []
    with world.runtime(look) as runtime:
        assert runtime.list_toplevel() == []


def test_a_tree_that_runs_or_that_a_fork_goes_on_from_cannot_be_deleted(world: World):
    boss = boss_of(world)

    async def ask(ctx: RunContext) -> str:
        return await ctx.ask("Go on?")

    asks = CodeFunction(callable=ask)
    with world.runtime(boss, asks, models=model_of(world)) as runtime:
        waits = runtime.invoke(asks)
        question = question_of(runtime)
        with pytest.raises(UsageError):
            runtime.delete(waits.id)
        node = runtime.invoke(boss)
        assert result(node) == "done"
        fork = runtime.fork(node, at=1)
        assert result(fork) == "done"
        with pytest.raises(UsageError, match=r"fork"):
            runtime.delete(node.id)
        with pytest.raises(UsageError):
            runtime.delete(runtime.get_subtree(fork.id)[1].id)
        runtime.delete(fork.id)
        runtime.delete(node.id)
        assert runtime.list_toplevel() == [waits]
        runtime.answer(question.id, "yes")
        assert result(waits) == "yes"


def test_vacuum_gives_back_the_room_of_deleted_trees(world: World):
    read = big(world)
    with world.runtime(read) as runtime:
        for n in range(3):
            result(runtime.invoke(read, {"n": n}))
        for node in runtime.list_toplevel():
            runtime.delete(node.id)
    store = SqliteStore(world.file)
    store.vacuum()
    store.close()
    assert sum(path.stat().st_size for path in world.folder.glob("run.db*")) < 500_000


def test_vacuum_of_a_store_that_is_driven(world: World):
    read, store = big(world), SqliteStore(world.file)
    with Runtime([read], store=store) as runtime:
        node = runtime.invoke(read, {"n": 1})
        result(node)
        kept = runtime.invoke(read, {"n": 2})
        value = result(kept)
        runtime.delete(node.id)
        store.vacuum()
        assert result(runtime.invoke(read, {"n": 3}))
    with world.runtime(read) as runtime:
        assert result(runtime.list_toplevel()[0]) == value


# --- taking a tree elsewhere


def shape(view: NodeView) -> list[tuple[Any, ...]]:
    """Return what does not depend on the journal that a tree is in."""
    return [
        (v.path.partition(".")[2], v.fn, dict(v.inputs), v.outputs, v.state, v.transcript, v.usage)
        for v in flat(view)
    ]


def exported(world: World, tree: int, name: str = "tree.jsonl") -> Path:
    store, path = SqliteStore(world.file), world.folder / name
    export_tree(store, tree, path)
    store.close()
    return path


def imported(file: Path, path: Path) -> int:
    store = SqliteStore(file)
    store.join()
    tree = import_tree(store, path)
    store.close()
    return tree


def test_a_tree_is_written_to_one_file_and_read_into_another_journal(world: World):
    boss = boss_of(world)
    with world.runtime(boss, models=model_of(world)) as runtime:
        node = runtime.invoke(boss)
        assert result(node) == "done"
        view = runtime.get_view(node.id)
    path = exported(world, node.id)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    other = world.folder / "other.db"
    with Runtime([boss], models=model_of(world), store=other) as runtime:
        for _ in range(3):
            assert result(runtime.invoke(boss)) == "done"
    tree = imported(other, path)
    with Runtime([boss], models=model_of(world), store=other) as runtime:
        assert [one.id for one in runtime.list_toplevel()][-1] == tree
        new = runtime.get_view(tree)
        assert new.path == "4"
        assert shape(new) == shape(view)
        ids = [v.id for one in runtime.list_toplevel() for v in flat(runtime.get_view(one.id))]
        assert len(ids) == len(set(ids))
        assert result(runtime.fork(tree, at=1)) == "done"


def asking(world: World) -> CodeFunction:
    step = world.tool("step")

    async def ask(ctx: RunContext) -> list[str]:
        return [await ctx.invoke(step), await ctx.ask("Go on?")]

    return CodeFunction(callable=ask, uses=[step])


def dies_asking(world: World) -> None:
    ask = asking(world)
    with world.runtime(ask) as runtime:
        runtime.invoke(ask, key="a")
        world.kept_questions()
        world.die()


def test_an_open_tree_goes_on_in_the_journal_that_it_was_read_into(world: World, lives: Lives):
    lives.killed(dies_asking, world)
    store = SqliteStore(world.file)
    [row] = store.trees()
    store.close()
    path, other = exported(world, row.id), world.folder / "other.db"
    look = world.tool("look")
    with Runtime([look], store=other) as runtime:
        result(runtime.invoke(look))
    tree = imported(other, path)
    ask = asking(world)
    with Runtime([ask], store=other) as runtime:
        node = runtime.resume(tree)
        [question] = answer_in_turn(runtime, "yes")
        assert question.node_id == tree
        assert result(node) == ["step 0", "yes"]
    assert world.done("step") == 1


def test_a_fork_is_exported_whole(world: World):
    boss = boss_of(world)
    with world.runtime(boss, models=model_of(world)) as runtime:
        node = runtime.invoke(boss)
        result(node)
        fork = runtime.fork(runtime.get_subtree(node.id)[1], edit=Edit(result="given"))
        assert result(fork) == "done"
        view = runtime.get_view(fork.id)
        assert "given" in repr(view.transcript)
    path, other = exported(world, fork.id), world.folder / "other.db"
    tree = imported(other, path)
    with Runtime([boss], models=model_of(world), store=other) as runtime:
        assert shape(runtime.get_view(tree)) == shape(view)
        assert runtime.get_view(tree).state is NodeState.Success


@pytest.mark.parametrize("damage", ["cut", "empty", "letter", "newer"])
def test_a_file_that_is_not_whole_is_refused_and_nothing_is_read_in(world: World, damage: str):
    boss = boss_of(world)
    with world.runtime(boss, models=model_of(world)) as runtime:
        node = runtime.invoke(boss)
        result(node)
    path = exported(world, node.id)
    text = path.read_text(encoding="utf-8")
    header = json.loads(text.splitlines()[0])
    newer = {k: v + 1000 if type(v) is int else v for k, v in header.items()}
    damaged = {
        "cut": text[: len(text) // 2],
        "empty": "",
        "letter": "Dear reader,\nthis is a letter.\n",
        "newer": "\n".join([json.dumps(newer), *text.splitlines()[1:]]) + "\n",
    }[damage]
    path.write_text(damaged, encoding="utf-8")
    other = world.folder / "other.db"
    store = SqliteStore(other)
    store.join()
    with pytest.raises(StoreError, match="tree.jsonl"):
        import_tree(store, path)
    assert store.trees() == []
    store.close()


def test_a_tree_is_the_same_after_it_was_exported_twice(world: World):
    boss = boss_of(world)
    with world.runtime(boss, models=model_of(world)) as runtime:
        node = runtime.invoke(boss)
        result(node)
        view = numberless(runtime.get_view(node.id))
    one, two = exported(world, node.id), exported(world, node.id, "again.jsonl")
    assert one.read_bytes() == two.read_bytes()
    with world.runtime(boss, models=model_of(world)) as runtime:
        assert numberless(runtime.get_view(node.id)) == view
