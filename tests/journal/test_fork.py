"""Forking trees of a journal."""

import os
from typing import Any

import pytest

from journal.processes import Lives, World, answer_in_turn, numberless, question_of, result
from support import wait
from treefold import (
    AgentFunction,
    CodeFunction,
    Edit,
    FunctionArg,
    Node,
    NodeState,
    RunContext,
    Runtime,
    ToolResult,
    ToolUse,
    UserText,
    agent,
)
from treefold.core.errors import InvalidValueError, UnknownNodeError
from treefold.testing import HANGS, ScriptedModel, replay
from view_trees import flat

# --- an agent with three steps


def boss_of(world: World) -> AgentFunction:
    look = world.tool("look")
    return AgentFunction(
        "boss",
        "",
        args=[FunctionArg("task", str)],
        user_prompt_template="Task: {task}",
        uses=[look],
    )


def reply_of(world: World, name: str) -> ScriptedModel:
    def reply(request: Any) -> Any:
        world.add("request", model=name)
        results = [p.content for p in request.transcript if isinstance(p, ToolResult)]
        first = request.transcript[0]
        assert isinstance(first, UserText)
        if len(results) < 2:
            return [ToolUse(str(len(results)), "look", {"n": len(results)})]
        return f"{name}, {first.text}: {', '.join(results)}"

    return ScriptedModel(reply, name=name)


def models(world: World) -> dict[str, Any]:
    return {name: reply_of(world, name) for name in ("default", "other")}


def run_once(runtime: Runtime, boss: AgentFunction) -> Node:
    node = runtime.invoke(boss, {"task": "dig"})
    assert result(node) == "default, Task: dig: look 0, look 1"
    return node


ONCE = "default, Task: dig: look 0, look 1"


@pytest.mark.parametrize(("at", "requests", "looked"), [(0, 3, 2), (1, 2, 2), (2, 1, 1), (3, 0, 0)])
def test_an_agent_is_forked_after_a_response(world: World, at: int, requests: int, looked: int):
    boss = boss_of(world)
    with world.runtime(boss, models=models(world)) as runtime:
        node = run_once(runtime, boss)
        before, done = numberless(runtime.get_view(node.id)), world.all_done
        fork = runtime.fork(node, at)
        assert result(fork) == ONCE
        assert (fork.path, fork.parent) == ("2", None)
        assert fork.id not in {view.id for view in flat(before)}
        assert world.done("request") - done["request"] == requests
        # the calls that the response at the cut asked for have not been made at the cut
        assert world.done("look") - done["look"] == looked
        assert numberless(runtime.get_view(node.id)) == before
        view = runtime.get_view(fork.id)
        assert view.transcript == before.transcript
        assert [(v.path, v.fn, v.state) for v in view.children] == [
            ("2.1", "look", NodeState.Success),
            ("2.2", "look", NodeState.Success),
        ]


def test_an_agent_that_is_forked_before_its_first_response_may_be_told_something_else(
    world: World,
):
    boss = boss_of(world)
    with world.runtime(boss, models=models(world)) as runtime:
        node = run_once(runtime, boss)
        for fork in (
            runtime.fork(node, edit=Edit(prompt="Task: swim")),
            runtime.fork(node.id, at=0, edit=Edit(prompt="Task: swim")),
        ):
            assert result(fork) == "default, Task: swim: look 0, look 1"
        assert result(node) == ONCE


def test_an_agent_may_go_on_with_another_model(world: World):
    boss = boss_of(world)
    with world.runtime(boss, models=models(world)) as runtime:
        node = run_once(runtime, boss)
        fork = runtime.fork(node, at=2, edit=Edit(model="other"))
        assert result(fork) == "other, Task: dig: look 0, look 1"
        again = runtime.fork(node, at=1, edit=Edit(model=reply_of(world, "third")))
        assert result(again) == "third, Task: dig: look 0, look 1"
    assert world.told("request", "model") == ["default"] * 3 + ["other"] + ["third"] * 2


def systems(model: ScriptedModel) -> list[str]:
    """The system prompt of each request."""
    return [request.system for request in model.requests]


def prompted(world: World) -> tuple[Any, ScriptedModel]:
    """An agent with a system prompt, which looks twice, and its model."""

    @agent(system="Dig {task} with care.", uses=[world.tool("look")])
    def dig(task: str) -> str:
        return f"Task: {task}"

    return dig, reply_of(world, "default")


def test_an_agent_may_have_another_system_prompt_from_a_response_on(world: World):
    dig, model = prompted(world)
    with world.runtime(dig, models=model) as runtime:
        node = runtime.invoke(dig, {"task": "holes"})
        result(node)
        model.requests.clear()
        fork = runtime.fork(node, edit=Edit(system="Dig {fast}."))
        assert result(fork) == "default, Task: holes: look 0, look 1"
        assert systems(model) == ["Dig {fast}."] * 3
        later = runtime.fork(node, 2, Edit(system="Dig at night."))
        assert result(later) == "default, Task: holes: look 0, look 1"
        assert systems(model)[3:] == ["Dig at night."]
        assert [runtime.get_view(one.id).system for one in (node, fork, later)] == [
            "Dig holes with care.",
            "Dig {fast}.",
            "Dig at night.",
        ]
        model.requests.clear()
        # A fork of the fork has it, too, and an edit of the model does not take it away.
        result(runtime.fork(fork, 1, Edit(model=model)))
        assert systems(model) == ["Dig {fast}."] * 2
        trees = [one.id for one in runtime.list_toplevel()]
    for tree in trees:
        replay([dig], world.file, tree).check()


def test_a_fork_with_another_system_prompt_keeps_it_after_a_restart(world: World):
    dig, model = prompted(world)
    with world.runtime(dig, models=model) as runtime:
        node = runtime.invoke(dig, {"task": "holes"})
        result(node)
    failing = ScriptedModel(lambda request: HANGS, name="default")
    with world.runtime(dig, models=failing) as runtime:
        fork = runtime.fork(node.id, edit=Edit(system="Dig fast."))
        wait(lambda: failing.requests)
        runtime.close()
    model = reply_of(world, "default")
    with world.runtime(dig, models=model) as runtime:
        assert result(runtime.get_subtree(fork.id)[0]) == "default, Task: holes: look 0, look 1"
    assert systems(model) == ["Dig fast."] * 3


def test_a_call_is_taken_to_have_returned_something_else(world: World):
    boss = boss_of(world)
    with world.runtime(boss, models=models(world)) as runtime:
        node = run_once(runtime, boss)
        first = runtime.get_subtree(node.id)[1]
        fork = runtime.fork(first, edit=Edit(result="gold"))
        assert result(fork) == "default, Task: dig: gold, look 1"
        assert runtime.get_view(fork.id).children[0].outputs == "gold"
        assert first.outputs == "look 0"
    assert world.all_done == {"request": 5, "look": 3}


def test_a_call_is_made_with_other_arguments(world: World):
    boss = boss_of(world)
    with world.runtime(boss, models=models(world)) as runtime:
        node = run_once(runtime, boss)
        second = runtime.get_subtree(node.id)[2]
        fork = runtime.fork(second, edit=Edit(args={"n": 77}))
        assert result(fork) == "default, Task: dig: look 0, look 77"
        whole = runtime.fork(node, edit=Edit(args={"task": "sing"}))
        assert result(whole) == "default, Task: sing: look 0, look 1"
        assert dict(runtime.get_view(whole.id).inputs) == {"task": "sing"}
    assert world.told("look", "n") == [0, 1, 77, 0, 1]


def test_a_top_level_call_is_taken_to_have_returned_something_else(world: World):
    boss = boss_of(world)
    with world.runtime(boss, models=models(world)) as runtime:
        node = run_once(runtime, boss)
        fork = runtime.fork(node, edit=Edit(result="nothing"))
        assert result(fork) == "nothing"
        assert result(node) == ONCE


@pytest.mark.parametrize(
    ("at", "edit"),
    [
        (4, None),
        (-1, None),
        (1, Edit(prompt="Task: swim")),
        (1, Edit(result="gold")),
        (1, Edit(args={"task": "a"})),
        (None, Edit(result="gold", args={"task": "a"})),
        (None, Edit(prompt="a", result="gold")),
        (1, Edit(model="nobody")),
        ("1", None),
    ],
)
def test_what_does_not_go_together_is_refused(world: World, at: Any, edit: Any):
    boss = boss_of(world)
    with world.runtime(boss, models=models(world)) as runtime:
        node = run_once(runtime, boss)
        with pytest.raises(InvalidValueError):
            runtime.fork(node, at, edit)
        assert runtime.list_toplevel() == [node]


def test_code_has_no_responses_and_takes_no_prompt(world: World):
    boss = boss_of(world)
    with world.runtime(boss, models=models(world)) as runtime:
        node = run_once(runtime, boss)
        code = runtime.get_subtree(node.id)[1]
        for at, edit in (1, None), (None, Edit(prompt="a")), (None, Edit(model="other")):
            with pytest.raises(InvalidValueError):
                runtime.fork(code, at, edit)
        with pytest.raises(UnknownNodeError):
            runtime.fork(4711)


# --- code above, and calls beside the path


def tree_of(world: World) -> CodeFunction:
    step, boss = world.tool("step"), boss_of(world)

    async def part(ctx: RunContext, n: int) -> str:
        world.add("part")
        return f"part {await ctx.invoke(step, {'n': n})}"

    parts = CodeFunction(callable=part, uses=[step])

    async def whole(ctx: RunContext) -> list[str]:
        world.add("whole")
        return [
            await ctx.invoke(parts, {"n": 1}),
            await ctx.invoke(boss, {"task": "dig"}),
            await ctx.invoke(parts, {"n": 2}),
        ]

    return CodeFunction(callable=whole, uses=[parts, boss])


def child(runtime: Runtime, node: Node, path: str) -> Node:
    [found] = [one for one in runtime.get_subtree(node.id) if one.path == path]
    return found


WHOLE = ["part step 1", ONCE, "part step 2"]


def test_a_fork_may_be_cut_at_any_depth_and_runs_only_what_follows(world: World):
    whole = tree_of(world)
    with world.runtime(whole, models=models(world)) as runtime:
        node = runtime.invoke(whole)
        assert result(node) == WHOLE
        before = numberless(runtime.get_view(node.id))
        fork = runtime.fork(child(runtime, node, "1.2"), at=2)
        assert result(fork) == WHOLE
        assert fork.function is whole
        assert [(v.path, v.fn) for v in flat(runtime.get_view(fork.id))] == [
            ("2" + view.path[1:], view.fn) for view in flat(before)
        ]
        assert numberless(runtime.get_view(node.id)) == before
    # the first part and the first call of the agent are shared; what followed the cut is not
    assert world.told("step", "n") == [1, 2, 2]
    assert world.told("look", "n") == [0, 1, 1]
    assert world.done("request") == 4
    assert world.done("whole") == 2


def test_code_that_is_forked_is_run_again_from_its_start(world: World):
    whole = tree_of(world)
    with world.runtime(whole, models=models(world)) as runtime:
        node = runtime.invoke(whole)
        assert result(node) == WHOLE
        fork = runtime.fork(child(runtime, node, "1.3"))
        assert result(fork) == WHOLE
        assert world.told("step", "n") == [1, 2, 2]
        assert world.done("request") == 3
        again = runtime.fork(node)
        assert result(again) == WHOLE
    assert world.told("step", "n") == [1, 2, 2, 1, 2]
    assert world.done("request") == 6


def test_a_fork_of_a_fork_is_a_fork(world: World):
    boss = boss_of(world)
    with world.runtime(boss, models=models(world)) as runtime:
        node = run_once(runtime, boss)
        first = runtime.fork(runtime.get_subtree(node.id)[1], edit=Edit(result="gold"))
        assert result(first) == "default, Task: dig: gold, look 1"
        second = runtime.fork(first, at=2, edit=Edit(model="other"))
        assert result(second) == "other, Task: dig: gold, look 1"
        third = runtime.fork(runtime.get_subtree(second.id)[2], edit=Edit(result="tin"))
        assert result(third) == "other, Task: dig: gold, tin"
        assert [one.path for one in runtime.list_toplevel()] == ["1", "2", "3", "4"]
        ids = [v.id for one in runtime.list_toplevel() for v in flat(runtime.get_view(one.id))]
        assert len(ids) == len(set(ids))


def runs_once(world: World) -> None:
    boss = boss_of(world)
    with world.runtime(boss, models=models(world)) as runtime:
        run_once(runtime, boss)


def test_a_past_tree_is_forked_like_a_live_one(world: World, lives: Lives):
    lives.ended(runs_once, world)
    boss = boss_of(world)
    with world.runtime(boss, models=models(world)) as runtime:
        [node] = runtime.list_toplevel()
        fork = runtime.fork(node, at=2, edit=Edit(model="other"))
        assert result(fork) == "other, Task: dig: look 0, look 1"
    with world.runtime(boss, models=models(world)) as runtime:
        old, new = runtime.list_toplevel()
        assert (result(old), result(new)) == (ONCE, "other, Task: dig: look 0, look 1")
        assert [v.fn for v in flat(runtime.get_view(new.id))] == ["boss", "look", "look"]
    assert world.done("look") == 3
    assert world.done("request") == 4


def test_a_fork_shares_what_came_before_instead_of_copying_it(world: World):
    def read(ctx: RunContext, n: int) -> str:
        return os.urandom(200_000).hex()

    reading = CodeFunction(callable=read)

    @agent(uses=[reading])
    def reader() -> str:
        return "Read."

    def reply(request: Any) -> Any:
        results = [p for p in request.transcript if isinstance(p, ToolResult)]
        return [ToolUse("1", "read", {"n": 1})] if not results else "done"

    with world.runtime(reader, models=ScriptedModel(reply)) as runtime:
        node = runtime.invoke(reader)
        assert result(node) == "done"
    size = world.file.stat().st_size
    assert size > 400_000
    with world.runtime(reader, models=ScriptedModel(reply)) as runtime:
        for _ in range(5):
            assert result(runtime.fork(node.id, at=2)) == "done"
    assert world.file.stat().st_size < size + 200_000


# --- of a live tree


def asking(world: World) -> CodeFunction:
    step = world.tool("step")

    async def ask(ctx: RunContext) -> list[str]:
        return [await ctx.invoke(step, {"n": 1}), await ctx.ask("Go on?")]

    return CodeFunction(callable=ask, uses=[step])


def test_a_live_tree_is_forked_and_goes_on_itself(world: World):
    ask = asking(world)
    with world.runtime(ask) as runtime:
        node = runtime.invoke(ask)
        question = question_of(runtime)
        step = runtime.get_subtree(node.id)[1]
        fork = runtime.fork(step, edit=Edit(result="given"))
        [other] = answer_in_turn(_Without(runtime, question.id), "fork")
        assert other.node_id == fork.id
        assert result(fork) == ["given", "fork"]
        runtime.answer(question.id, "source")
        assert result(node) == ["step 1", "source"]
    assert world.done("step") == 1


class _Without:
    """A runtime, but for one question."""

    def __init__(self, runtime: Runtime, id: str) -> None:
        self._runtime = runtime
        self._id = id
        self.answer = runtime.answer

    def questions(self) -> list[Any]:
        return [one for one in self._runtime.questions() if one.id != self._id]


def forks_and_dies(world: World) -> None:
    ask = asking(world)
    with world.runtime(ask) as runtime:
        node = runtime.invoke(ask)
        question_of(runtime)
        runtime.fork(runtime.get_subtree(node.id)[1], edit=Edit(result="given"))
        world.kept_questions(2)
        world.die()


def test_a_fork_is_continued_after_a_crash(world: World, lives: Lives):
    lives.killed(forks_and_dies, world)
    ask = asking(world)
    with world.runtime(ask) as runtime:
        source, fork = runtime.recover()
        by_node = {question.node_id: question.id for question in runtime.questions()}
        assert by_node.keys() == {source.id, fork.id}
        runtime.answer(by_node[fork.id], "fork")
        runtime.answer(by_node[source.id], "source")
        assert result(source) == ["step 1", "source"]
        assert result(fork) == ["given", "fork"]
    assert world.done("step") == 1


def test_a_fork_of_calls_at_once_keeps_what_came_of_those_beside_the_path(world: World):
    step = world.tool("step")
    boss = AgentFunction("boss", "", user_prompt_template="Go.", uses=[step], parallel_tools=True)

    def reply(request: Any) -> Any:
        results = [p.content for p in request.transcript if isinstance(p, ToolResult)]
        calls = [ToolUse(str(n), "step", {"n": n}) for n in range(3)]
        return calls if not results else ", ".join(results)

    with world.runtime(boss, models=ScriptedModel(reply)) as runtime:
        node = runtime.invoke(boss)
        assert result(node) == "step 0, step 1, step 2"
        middle = runtime.get_subtree(node.id)[2]
        fork = runtime.fork(middle, edit=Edit(args={"n": 9}))
        assert result(fork) == "step 0, step 9, step 2"
    assert world.done("step") == 4
