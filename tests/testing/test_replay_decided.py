"""A tree in which a person has decided, or code was left alone, is replayed as it went on."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from treefold import Edit, InDoubtError, MemoryStore, RunContext, Runtime, tool
from treefold.stores import export_tree
from treefold.testing import Replay, replay


def test_a_call_that_was_not_asked_for_again_is_not_missed_in_an_exported_tree(tmp_path: Path):
    store, file = MemoryStore(), tmp_path / "tree.jsonl"
    word = "first"

    @tool
    async def other() -> int:
        return 1

    @tool(repeatable=True)
    async def look_up(word: str) -> str:
        return word

    @tool(uses=[look_up])
    async def read(ctx: RunContext) -> str:
        return await ctx.invoke(look_up, {"word": word}) + await ctx.ask("Go on?")

    with Runtime([read, other], store=store) as runtime:
        runtime.invoke(other).result(timeout=60)  # so the next has another number elsewhere
        runtime.invoke(read)
    word = "second"
    with Runtime([read, other], store=store) as runtime:
        [node] = runtime.recover()
        runtime.answer(runtime.questions()[0].id, "!")
        assert node.result(timeout=60) == "second!"

    export_tree(store, node.id, file)
    for again in replay([read], store, node.id), replay([read], file):
        assert (again.divergence, again.output) == (None, "second!")


@pytest.mark.parametrize("answer", ["use: 5", "fail: nobody paid", "retry"])
def test_a_call_in_doubt_is_replayed_as_it_was_decided(answer: str):
    store, began = MemoryStore(), threading.Event()
    free = False

    @tool(repeatable=True)
    async def step(n: int) -> int:
        return n

    @tool(uses=[step], repeatable=False)
    async def pay(ctx: RunContext) -> int:
        await ctx.invoke(step, {"n": 1})
        began.set()
        if not free:
            await asyncio.Event().wait()
        return await ctx.invoke(step, {"n": 2})

    runtime = Runtime([pay], store=store)
    runtime.invoke(pay)
    assert began.wait(60)
    runtime.close()
    free = True
    with Runtime([pay], store=store) as runtime:
        [node] = runtime.recover()
        for _ in runtime.watch(node, timeout=60):
            if questions := runtime.questions():
                runtime.answer(questions[0].id, answer)
                break
        with suppress(InDoubtError):
            node.result(timeout=60)

    again = replay([pay], store)
    assert again.divergence is None
    assert again.output == {"use: 5": 5, "fail: nobody paid": None, "retry": 2}[answer]


def test_a_result_that_python_does_not_write_out_ends_its_replay():
    store, ended = MemoryStore(), list[Replay]()

    @tool(repeatable=True)
    async def number() -> dict[str, int]:
        return {"is": 10**5000}

    @tool(uses=[number])
    async def top(ctx: RunContext) -> Any:
        return await ctx.invoke(number)

    with Runtime([top], store=store) as runtime:
        runtime.invoke(top).result(timeout=60)
    replaying = threading.Thread(target=lambda: ended.append(replay([top], store)), daemon=True)
    replaying.start()
    replaying.join(60)
    assert [(again.divergence, again.output) for again in ended] == [(None, {"is": 10**5000})]


def test_a_pause_is_no_part_of_what_is_replayed():
    store, began, may_end = MemoryStore(), threading.Event(), threading.Event()

    @tool(repeatable=True)
    async def step(n: int) -> int:
        began.set()
        await asyncio.to_thread(may_end.wait, 10)
        return n

    @tool(uses=[step])
    async def walk(ctx: RunContext) -> int:
        return sum([await ctx.invoke(step, {"n": n}) for n in (1, 2)])

    with Runtime([walk], store=store) as runtime:
        node = runtime.invoke(walk)
        assert began.wait(60)
        runtime.pause(node.id)
        may_end.set()
        for view in runtime.watch(node, timeout=60):
            if view.children[0].state.final and len(view.children) == 2:
                runtime.resume(node.id)
                break
        assert node.result(timeout=60) == 3

    again = replay([walk], store)
    assert (again.divergence, again.output) == (None, 3)


def test_results_that_were_given_with_a_fork_of_a_fork_are_given_again():
    @tool
    async def step(n: int) -> int:
        return n

    @tool(uses=[step])
    async def part(ctx: RunContext, n: int) -> int:
        return await ctx.invoke(step, {"n": n})

    @tool(uses=[part])
    async def whole(ctx: RunContext) -> list[int]:
        return [await ctx.invoke(part, {"n": n}) for n in range(3)]

    store = MemoryStore()
    with Runtime([whole], store=store) as runtime:
        node = runtime.invoke(whole)
        for n in range(3):
            node.result(timeout=60)
            part_node = runtime.get_view(node.id).children[n].id
            node = runtime.fork(part_node, edit=Edit(result=10 + n))
        assert node.result(timeout=60) == [10, 11, 12]
    for tree in store.trees():
        replay([whole], store, tree.id).check()
