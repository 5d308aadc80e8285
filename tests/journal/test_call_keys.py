"""Keys of calls, and the idempotency keys that calls pass on to services."""

from collections.abc import Callable
from typing import Any

import pytest

from journal.processes import Lives, World, failure, question_of, result
from treefold import (
    AgentFunction,
    CodeFunction,
    NodeState,
    RunContext,
    Runtime,
    ToolUse,
)
from treefold.core.errors import InvalidValueError


def nightly(world: World) -> CodeFunction:
    async def nightly(ctx: RunContext, day: int) -> str:
        world.add("nightly")
        answer = await ctx.ask("Go on?")
        return f"{day}: {answer}"

    return CodeFunction(callable=nightly, repeatable=True)


# --- keys of top-level calls


@pytest.mark.parametrize("stored", [True, False], ids=["with a store", "without one"])
def test_a_call_with_a_key_is_made_once(world: World, *, stored: bool):
    function = nightly(world)
    options: dict[str, Any] = {"store": world.file} if stored else {}
    with Runtime([function], **options) as runtime:
        first = runtime.invoke(function, {"day": 1}, key="nightly")
        question = question_of(runtime)
        assert runtime.invoke(function, {"day": 1}, key="nightly") is first  # it waits
        runtime.answer(question.id, "yes")
        assert result(first) == "1: yes"
        assert runtime.invoke(function, {"day": 1}, key="nightly") is first  # it has ended
        assert runtime.list_toplevel() == [first]
        other = runtime.invoke(function, {"day": 1}, key="other")
        assert other is not first
        runtime.answer(question_of(runtime).id, "no")
        assert result(other) == "1: no"
    assert world.done("nightly") == 2


@pytest.mark.parametrize("stored", [True, False], ids=["with a store", "without one"])
def test_a_key_stands_for_one_function_with_one_set_of_arguments(world: World, *, stored: bool):
    look, see = world.tool("look"), world.tool("see")
    options: dict[str, Any] = {"store": world.file} if stored else {}
    with Runtime([look, see], **options) as runtime:
        first = runtime.invoke(look, {"n": 1}, key="a")
        result(first)
        with pytest.raises(InvalidValueError, match="a"):
            runtime.invoke(look, {"n": 2}, key="a")
        with pytest.raises(InvalidValueError, match="a"):
            runtime.invoke(see, {"n": 1}, key="a")
        assert runtime.list_toplevel() == [first]
    assert world.all_done == {"look": 1}


def leaves_three(world: World) -> None:
    function, look, fail = nightly(world), world.tool("look"), failing(world)
    with world.runtime(function, look, fail) as runtime:
        result(runtime.invoke(look, {"n": 1}, key="ended"))
        failure(runtime.invoke(fail, key="failed"))
        runtime.invoke(function, {"day": 1}, key="parked")
        world.kept_questions()
        world.die()


def failing(world: World) -> CodeFunction:
    def failing(ctx: RunContext) -> None:
        world.add("failing")
        raise ValueError("no")

    return CodeFunction(callable=failing)


def test_a_key_finds_its_call_in_a_later_process(world: World, lives: Lives):
    lives.killed(leaves_three, world)
    function, look, fail = nightly(world), world.tool("look"), failing(world)
    with world.runtime(function, look, fail) as runtime:
        ended = runtime.invoke(look, {"n": 1}, key="ended")
        assert (ended.state, result(ended)) == (NodeState.Success, "look 1")
        with pytest.raises(ValueError, match="no"):
            result(runtime.invoke(fail, key="failed"))
        parked = runtime.invoke(function, {"day": 1}, key="parked")
        assert not parked.state.final
        with pytest.raises(InvalidValueError):
            runtime.invoke(function, {"day": 2}, key="parked")
        with pytest.raises(InvalidValueError):
            runtime.invoke(fail, key="ended")
        assert len(runtime.list_toplevel()) == 3
        runtime.answer(question_of(runtime).id, "yes")
        assert result(parked) == "1: yes"
    assert world.done("look") == world.done("failing") == 1


def test_calls_without_a_key_are_made_each_time(world: World):
    look = world.tool("look")
    for _ in range(2):
        with world.runtime(look) as runtime:
            result(runtime.invoke(look, {"n": 1}))
            result(runtime.invoke(look, {"n": 1}))
    assert world.done("look") == 4


# --- keys of child calls


def keyed(world: World, text: Callable[[], str]) -> CodeFunction:
    """Code whose call has another argument each time, and a key that says that it is the same."""
    step, last = world.tool("step"), world.tool("last", dies=True, repeatable=True)

    async def caller(ctx: RunContext) -> list[str]:
        n = len(text())
        return [await ctx.invoke(step, {"n": n}, key="the step"), await ctx.invoke(last)]

    return CodeFunction(callable=caller, uses=[step, last])


def dies_after_a_keyed_call(world: World) -> None:
    function = keyed(world, lambda: "one")
    with world.runtime(function) as runtime:
        result(runtime.invoke(function))


def test_a_child_call_is_found_by_its_key_whatever_its_arguments(world: World, lives: Lives):
    lives.killed(dies_after_a_keyed_call, world)
    function = keyed(world, lambda: "three")
    with world.runtime(function) as runtime:
        [node] = runtime.recover()
        assert result(node) == ["step 3", "last 0"]
    assert world.done("step") == 1


@pytest.mark.parametrize("stored", [True, False], ids=["with a store", "without one"])
def test_the_same_key_twice_in_one_parent_is_refused(world: World, *, stored: bool):
    step = world.tool("step")

    async def caller(ctx: RunContext) -> str:
        first = await ctx.invoke(step, {"n": 1}, key="a")
        with pytest.raises(InvalidValueError, match="a"):
            ctx.invoke(step, {"n": 2}, key="a")
        return first + await ctx.invoke(step, {"n": 2}, key="b")

    function = CodeFunction(callable=caller, uses=[step])
    options: dict[str, Any] = {"store": world.file} if stored else {}
    with Runtime([function], **options) as runtime:
        assert result(runtime.invoke(function)) == "step 1step 2"
        assert result(runtime.invoke(function)) == "step 1step 2"  # another parent


# --- idempotency keys


def repeats(world: World) -> AgentFunction:
    pay = world.tool("pay", dies=True, repeatable=True)
    look = world.tool("look")
    return AgentFunction("boss", "", user_prompt_template="Lead.", uses=[look, pay])


CALLS = [
    [ToolUse("1", "look", {"n": 1}), ToolUse("2", "look", {"n": 1})],
    [ToolUse("3", "pay", {"n": 1})],
    "done",
]


def dies_while_paying(world: World) -> None:
    boss = repeats(world)
    with world.runtime(boss, models=world.model(*CALLS)) as runtime:
        result(runtime.invoke(boss, key="pay"))


def test_an_idempotency_key_is_the_same_in_every_run_of_the_same_node(world: World, lives: Lives):
    for _ in range(3):
        lives.killed(dies_while_paying, world)
    boss = repeats(world)
    with world.runtime(boss, models=world.model(*CALLS)) as runtime:
        assert result(runtime.invoke(boss, key="pay")) == "done"
    paid, looked = world.told("pay", "key"), world.told("look", "key")
    assert all(isinstance(key, str) and key for key in paid + looked)
    assert (len(paid), len(set(paid))) == (4, 1)
    assert (len(looked), len(set(looked))) == (2, 2)
    assert not set(paid) & set(looked)


def test_an_idempotency_key_is_of_one_journal_only(world: World):
    look = world.tool("look")
    for name in "abc":
        with Runtime([look], store=world.folder / f"{name}.db") as runtime:
            result(runtime.invoke(look))
    for _ in range(2):
        with Runtime([look]) as runtime:
            result(runtime.invoke(look))
    keys = world.told("look", "key")
    assert len(set(keys)) == len(keys) == 5
