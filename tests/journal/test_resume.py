"""Resuming trees that have failed or were cancelled."""

import asyncio
from typing import Any

import pytest

from agent_scripts import worker
from journal.processes import Lives, World, failure, numberless, question_of, result
from support import wait
from treefold import (
    CodeFunction,
    ModelProviderException,
    NodeState,
    RunContext,
    ToolUse,
)
from treefold.core.errors import UsageError
from treefold.testing import ScriptedFailure, ScriptedModel
from view_trees import flat


def slow_code(world: World, *, slow: bool) -> CodeFunction:
    step = world.tool("step")

    async def wait_long(ctx: RunContext) -> str:
        world.add("wait")
        if slow:
            await asyncio.Event().wait()
        return "at last"

    waits = CodeFunction(callable=wait_long)

    async def work(ctx: RunContext) -> list[str]:
        world.add("work")
        return [
            await ctx.invoke(step, {"n": 1}),
            await ctx.invoke(waits),
            await ctx.invoke(step, {"n": 2}),
        ]

    return CodeFunction(callable=work, uses=[step, waits])


def is_cancelled(world: World) -> None:
    work = slow_code(world, slow=True)
    with world.runtime(work) as runtime:
        node = runtime.invoke(work, key="a")
        wait(lambda: world.done("wait"))
        node.cancel("not now")
        failure(node)


def test_a_cancelled_tree_goes_on_in_a_fork(world: World, lives: Lives):
    lives.ended(is_cancelled, world)
    work = slow_code(world, slow=False)
    with world.runtime(work) as runtime:
        [old] = runtime.list_toplevel()
        assert old.state is NodeState.Canceled
        before = numberless(runtime.get_view(old.id))
        new = runtime.resume(old.id)
        assert new is not old
        assert new.id != old.id
        assert new.path == "2"
        assert new.parent is None
        runtime.answer(question_of(runtime).id, "retry")  # it had begun, and is not repeatable
        assert result(new) == ["step 1", "at last", "step 2"]
        assert numberless(runtime.get_view(old.id)) == before
        assert [(v.path, v.fn, v.state) for v in flat(runtime.get_view(new.id))] == [
            ("2", "work", NodeState.Success),
            ("2.1", "step", NodeState.Success),
            ("2.2", "wait_long", NodeState.Success),
            ("2.3", "step", NodeState.Success),
        ]
        ids = {view.id for view in flat(before)} & {v.id for v in flat(runtime.get_view(new.id))}
        assert ids == set()
        assert runtime.list_toplevel() == [old, new]
    assert world.told("step", "n") == [1, 2]


def test_a_cancelled_tree_goes_on_in_the_same_process(world: World):
    slow = slow_code(world, slow=True)
    with world.runtime(slow) as runtime:
        node = runtime.invoke(slow)
        wait(lambda: world.done("wait"))
        node.cancel("not now")
        failure(node)
        again = runtime.resume(node.id)
        runtime.answer(question_of(runtime).id, "retry")
        wait(lambda: world.done("wait") == 2)
        assert world.told("step", "n") == [1]
        again.cancel("nor now")
        failure(again)


def provider_fails(world: World) -> CodeFunction:
    sub = worker("sub", world.tool("look"))

    async def boss(ctx: RunContext) -> str:
        return await ctx.invoke(sub)

    return CodeFunction(callable=boss, uses=[sub])


def script(world: World, *, fails: bool) -> Any:
    def reply(request: Any) -> Any:
        world.add("request")
        results = [p for p in request.transcript if type(p).__name__ == "ToolResult"]
        if not results:
            return [ToolUse("2", "look", {"n": 1})]
        return ScriptedFailure(503, "overloaded") if fails else "sub is done"

    return ScriptedModel(reply)


def loses_its_provider(world: World) -> None:
    boss = provider_fails(world)
    with world.runtime(boss, models=script(world, fails=True)) as runtime:
        node = runtime.invoke(boss)
        assert isinstance(failure(node), ModelProviderException)


def test_what_a_provider_failed_at_is_tried_again_and_nothing_else(world: World, lives: Lives):
    lives.ended(loses_its_provider, world)
    assert world.all_done == {"request": 2, "look": 1}
    boss = provider_fails(world)
    with world.runtime(boss, models=script(world, fails=False)) as runtime:
        [old] = runtime.list_toplevel()
        assert isinstance(failure(old), ModelProviderException)
        new = runtime.resume(old.id)
        assert result(new) == "sub is done"
        assert old.state is NodeState.Error
    assert world.all_done == {"request": 3, "look": 1}


def failing(world: World) -> CodeFunction:
    step = world.tool("step")

    async def fail(ctx: RunContext) -> str:
        world.add("fail")
        raise ValueError("for good")

    fails = CodeFunction(callable=fail)

    async def work(ctx: RunContext) -> str:
        await ctx.invoke(step)
        return await ctx.invoke(fails)

    return CodeFunction(callable=work, uses=[step, fails])


def test_what_failed_otherwise_keeps_its_failure(world: World):
    work = failing(world)
    with world.runtime(work) as runtime:
        old = runtime.invoke(work)
        failure(old)
        new = runtime.resume(old.id)
        with pytest.raises(ValueError, match="for good"):
            result(new)
    assert world.all_done == {"step": 1, "fail": 1}


def test_what_succeeded_or_never_was_cannot_be_resumed(world: World):
    look = world.tool("look")
    with world.runtime(look) as runtime:
        node = runtime.invoke(look)
        result(node)
        with pytest.raises(UsageError):
            runtime.resume(node.id)
        with pytest.raises(UsageError):
            runtime.resume(4711)
        assert runtime.list_toplevel() == [node]


def resumes_and_dies(world: World) -> None:
    work = slow_code(world, slow=True)
    with world.runtime(work) as runtime:
        [old] = runtime.list_toplevel()
        before = world.done("wait")
        runtime.resume(old.id)
        runtime.answer(question_of(runtime).id, "retry")
        wait(lambda: world.done("wait") > before)
        world.die()


def test_a_resumed_tree_is_continued_after_a_crash_like_any_other(world: World, lives: Lives):
    lives.ended(is_cancelled, world)
    lives.killed(resumes_and_dies, world)
    work = slow_code(world, slow=False)
    with world.runtime(work) as runtime:
        [node] = runtime.recover()
        assert node.path == "2"
        [question] = wait(runtime.questions)
        runtime.answer(question.id, "retry")
        assert result(node) == ["step 1", "at last", "step 2"]
    assert world.told("step", "n") == [1, 2]
