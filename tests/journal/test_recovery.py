"""Opening a journal again."""

import asyncio
import logging
from typing import Any

import pytest

from journal.processes import Lives, World, failure, numberless, question_of, result
from support import wait
from treefold import (
    AgentFunction,
    AgentOptions,
    CancellationException,
    Client,
    CodeFunction,
    Node,
    NodeState,
    RunContext,
    Runtime,
    ToolUse,
    registries,
    tool,
)
from view_trees import flat


def functions(world: World) -> dict[str, CodeFunction]:
    """Two trees that can go on, and one that asks."""
    step, last = world.tool("step", repeatable=True), world.tool("last", dies=True, repeatable=True)

    async def work(ctx: RunContext, n: int) -> list[str]:
        return [await ctx.invoke(step, {"n": n}), await ctx.invoke(last, {"n": n})]

    async def other(ctx: RunContext) -> str:
        first = await ctx.invoke(step, {"n": 7})
        return f"{first} {await ctx.ask('Go on?')}"

    uses = [step, last]
    return {
        "work": CodeFunction(callable=work, uses=uses),
        "other": CodeFunction(callable=other, uses=uses),
    }


def dies_in_the_middle(world: World) -> None:
    made = functions(world)
    with world.runtime(*made.values()) as runtime:
        runtime.invoke(made["other"], key="other")
        [question] = world.kept_questions()
        world.add("id", id=question.id, node=question.node_id)
        runtime.invoke(made["work"], {"n": 1}, key="work").result(60)


def test_entering_a_block_continues_every_open_tree(world: World, lives: Lives):
    lives.killed(dies_in_the_middle, world)
    made = functions(world)
    with world.runtime(*made.values()) as runtime:
        other, work = runtime.list_toplevel()
        assert result(work) == ["step 1", "last 1"]
        runtime.answer(question_of(runtime).id, "yes")
        assert result(other) == "step 7 yes"
    assert world.done("step") == 2
    assert world.done("last") == 2


async def test_entering_a_block_in_a_loop_continues_every_open_tree(world: World, lives: Lives):
    lives.killed(dies_in_the_middle, world)
    made = functions(world)
    async with world.runtime(*made.values()) as runtime, asyncio.timeout(60):
        other, work = runtime.list_toplevel()
        assert await work == ["step 1", "last 1"]
        [question] = runtime.questions()
        runtime.answer(question.id, "yes")
        assert await other == "step 7 yes"


def test_the_first_use_that_needs_a_loop_continues_them_too(world: World, lives: Lives):
    lives.killed(dies_in_the_middle, world)
    made = functions(world)
    runtime = world.runtime(*made.values())
    try:
        step = world.tool("another")
        assert result(runtime.invoke(step)) == "another 0"
        work = runtime.list_toplevel()[1]
        assert result(work) == ["step 1", "last 1"]
        runtime.answer(question_of(runtime).id, "yes")
        assert result(runtime.list_toplevel()[0]) == "step 7 yes"
    finally:
        runtime.close()


def test_recovering_explicitly_gives_the_trees_that_were_continued(world: World, lives: Lives):
    lives.killed(dies_in_the_middle, world)
    made = functions(world)
    runtime = world.runtime(*made.values())
    try:
        found = runtime.recover()
        assert [node.function.name for node in found] == ["other", "work"]
        assert result(found[1]) == ["step 1", "last 1"]
        assert runtime.recover() == found
        runtime.answer(question_of(runtime).id, "yes")
        assert result(found[0]) == "step 7 yes"
        assert runtime.recover() == found
    finally:
        runtime.close()


def test_there_is_nothing_to_continue_in_a_new_journal(world: World):
    with world.runtime() as runtime:
        assert runtime.recover() == []
        assert runtime.list_toplevel() == []


def test_trees_of_unknown_functions_stay_open_and_the_log_says_so(
    world: World, lives: Lives, caplog: pytest.LogCaptureFixture
):
    lives.killed(dies_in_the_middle, world)
    made = functions(world)
    with caplog.at_level(logging.WARNING), world.runtime(made["other"]) as runtime:
        assert [node.function.name for node in runtime.recover()] == ["other"]
        runtime.answer(question_of(runtime).id, "yes")
        assert result(runtime.recover()[0]) == "step 7 yes"
        states = {v.fn: v.state for v in map(runtime.get_view, ids(runtime))}
        assert states == {"other": NodeState.Success, "work": NodeState.Running}
    assert [r for r in caplog.records if r.levelno == logging.WARNING and "work" in r.getMessage()]
    with world.runtime(*made.values()) as runtime:
        assert [node.function.name for node in runtime.recover()] == ["work"]
        assert result(runtime.recover()[0]) == ["step 1", "last 1"]


def ids(runtime: Runtime) -> list[int]:
    return [node.id for node in runtime.list_toplevel()]


def test_ids_paths_and_ids_of_questions_stay_the_same(world: World, lives: Lives):
    lives.killed(dies_in_the_middle, world)
    made = functions(world)
    with world.runtime(*made.values()) as runtime:
        other, work = runtime.list_toplevel()
        question = question_of(runtime)
        assert [question.id] == world.told("id", "id")
        assert [question.node_id] == world.told("id", "node") == [other.id]
        assert (other.path, work.path) == ("1", "2")
        result(work)
        assert [(v.path, v.fn) for v in flat(runtime.get_view(work.id))] == [
            ("2", "work"),
            ("2.1", "step"),
            ("2.2", "last"),
        ]
        runtime.answer(question.id, "yes")
        result(other)
        new = runtime.invoke(made["work"], {"n": 5})
        assert new.path == "3"
        used = {v.id for id in (other.id, work.id) for v in flat(runtime.get_view(id))}
        result(new)
        assert not used & {v.id for v in flat(runtime.get_view(new.id))}


def agent_of(world: World) -> AgentFunction:
    look = world.tool("look")
    return AgentFunction("boss", "Lead.", user_prompt_template="Lead.", uses=[look])


def runs_to_its_end(world: World) -> None:
    boss = agent_of(world)
    with world.runtime(boss, models=world.model([ToolUse("1", "look", {"n": 3})], "ok")) as runtime:
        node = runtime.invoke(boss)
        result(node)
        world.add("view", view=repr(numberless(runtime.get_view(node.id))))


def test_past_trees_are_looked_at_as_live_ones_are(world: World, lives: Lives):
    lives.ended(runs_to_its_end, world)
    boss = agent_of(world)
    with world.runtime(boss, models=world.model()) as runtime:
        [node] = runtime.list_toplevel()
        assert isinstance(node, Node)
        assert (node.state, node.outputs, node.path) == (NodeState.Success, "ok", "1")
        assert result(node) == "ok"
        assert node.function is boss
        view = runtime.get_view(node.id)
        assert [repr(numberless(view))] == world.told("view", "view")
        subtree = runtime.get_subtree(node.id)
        assert [one.path for one in subtree] == ["1", "1.1"]
        assert [one.function.name for one in subtree] == ["boss", "look"]
        assert dict(subtree[1].inputs) == {"n": 3}
        assert subtree[1].parent is subtree[0]
        assert runtime.get_subtree(subtree[1].id) == [subtree[1]]
        assert list(node.get_transcript()) == list(view.transcript)
        assert node.get_children() == [subtree[1]]
        seen = runtime.watch(node.id).result()
        assert numberless(seen) == numberless(view)
        assert list(runtime.watch(node)) == [view]
        assert (node.started_at, node.ended_at) == (view.started_at, view.ended_at)
        assert runtime.recover() == []
    assert world.done("request") == 2


async def test_a_past_tree_is_awaited_and_watched_in_a_loop(world: World, lives: Lives):
    lives.ended(runs_to_its_end, world)
    boss = agent_of(world)
    async with world.runtime(boss, models=world.model()) as runtime, asyncio.timeout(60):
        [node] = runtime.list_toplevel()
        assert await node == "ok"
        assert [view.outputs async for view in runtime.watch(node)] == ["ok"]
        assert (await runtime.watch(node)).state is NodeState.Success


def fails(world: World) -> None:
    failing = failing_of(world)
    with world.runtime(failing) as runtime:
        failure(runtime.invoke(failing))
        node = runtime.invoke(slow_of(world))
        wait(lambda: world.done("slow"))
        node.cancel("enough")
        failure(node)


def failing_of(world: World) -> CodeFunction:
    def failing(ctx: RunContext) -> None:
        raise ZeroDivisionError("oops")

    return CodeFunction(callable=failing)


def slow_of(world: World) -> CodeFunction:
    async def slow(ctx: RunContext) -> None:
        world.add("slow")
        await asyncio.Event().wait()

    return CodeFunction(callable=slow)


def test_what_a_past_tree_raised_is_raised_again(world: World, lives: Lives):
    lives.ended(fails, world)
    with world.runtime(failing_of(world), slow_of(world)) as runtime:
        failed, cancelled = runtime.list_toplevel()
        assert (failed.state, cancelled.state) == (NodeState.Error, NodeState.Canceled)
        with pytest.raises(ZeroDivisionError, match="oops"):
            result(failed)
        with pytest.raises(CancellationException, match="enough"):
            result(cancelled)


def test_ended_trees_of_unknown_functions_can_be_looked_at(world: World, lives: Lives):
    lives.ended(runs_to_its_end, world)
    with world.runtime() as runtime:
        [node] = runtime.list_toplevel()
        assert node.function.name == "boss"
        assert result(node) == "ok"
        assert [repr(numberless(runtime.get_view(node.id)))] == world.told("view", "view")


# --- what cannot go on


def dies_in_a_chat(world: World) -> None:
    with registries():

        @tool
        async def look() -> str:
            """Look."""
            world.add("look")
            world.die()
            return "seen"

    async def main() -> None:
        async with world.runtime():
            model = world.model([ToolUse("1", "look")], "done")
            options: Any = AgentOptions(
                system_prompt="Talk.", model=model, tools=[look], auto_execute_tools=True
            )
            async with Client(options) as client:
                await client.query("Look!")
                async for _ in client.receive_messages():
                    pass

    asyncio.run(main())


def test_a_turn_of_a_chat_ends_cancelled_and_says_why(world: World, lives: Lives):
    lives.killed(dies_in_a_chat, world)
    with world.runtime() as runtime:
        [node] = runtime.list_toplevel()
        assert isinstance(failure(node), CancellationException)
        assert node.state is NodeState.Canceled
        assert len(str(node.exception)) > 20
        assert all(view.state.final for view in flat(runtime.get_view(node.id)))
        assert runtime.questions() == []
    assert world.done("look") == 1
