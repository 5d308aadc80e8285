"""Code that runs again from a journal, and the results that it gets back."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any, Final

import pytest
from pydantic import BaseModel

from agent_scripts import until
from journal.processes import Lives, World, question_of, result
from treefold import (
    AgentFunction,
    CodeFunction,
    Function,
    NodeState,
    QuestionKind,
    RecordedError,
    RunContext,
)
from view_trees import flat


def composite(world: World, *uses: Function, name: str = "composite") -> Any:
    """Decorate code that calls *uses*, and after them what ends the process."""

    def decorate(work: Any) -> CodeFunction:
        return CodeFunction(callable=work, name=name, uses=uses)

    return decorate


def end_of(world: World) -> CodeFunction:
    return world.tool("end", dies=True, repeatable=True)


# --- answered from the journal


def gathering(world: World, order: list[int]) -> CodeFunction:
    end = end_of(world)

    async def first(ctx: RunContext, i: int) -> int:
        world.add("first")
        return 10 * i

    async def second(ctx: RunContext, i: int) -> int:
        world.add("second")
        return i + 1

    one, two = CodeFunction(callable=first), CodeFunction(callable=second)

    @composite(world, one, two, end)
    async def gather(ctx: RunContext) -> dict[int, int]:
        world.add("run")
        found: dict[int, int] = {}
        turn = [asyncio.Event() for _ in order]

        async def branch(i: int) -> None:
            place = order.index(i)
            if place:
                await turn[place - 1].wait()
            half = await ctx.invoke(one, {"i": i})
            turn[place].set()
            found[i] = await ctx.invoke(two, {"i": half})

        async with asyncio.TaskGroup() as group:
            for i in range(4):
                group.create_task(branch(i))
        await ctx.invoke(end)
        return found

    return gather


def dies_after_gathering(world: World) -> None:
    function = gathering(world, [0, 1, 2, 3])
    with world.runtime(function) as runtime:
        result(runtime.invoke(function))


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_calls_are_answered_from_the_journal_in_any_order(
    world: World, lives: Lives, order: list[int]
):
    lives.killed(dies_after_gathering, world)
    function = gathering(world, order)
    with world.runtime(function) as runtime:
        [node] = runtime.recover()
        assert result(node) == {0: 1, 1: 11, 2: 21, 3: 31}
        assert runtime.get_view(node.id).notices == ()
        assert len(flat(runtime.get_view(node.id))) == 10
    assert world.all_done == {"run": 2, "first": 4, "second": 4, "end": 2}


def counting(world: World) -> CodeFunction:
    end = end_of(world)

    def count(ctx: RunContext, n: int) -> int:
        world.add("count")
        return world.done("count")

    counter = CodeFunction(callable=count)

    @composite(world, counter, end)
    async def counts(ctx: RunContext) -> list[int]:
        found = [await ctx.invoke(counter, {"n": n}) for n in (1, 1, 2, 1, 2)]
        await ctx.invoke(end)
        return [*found, await ctx.invoke(counter, {"n": 1})]

    return counts


def dies_after_counting(world: World) -> None:
    function = counting(world)
    with world.runtime(function) as runtime:
        result(runtime.invoke(function))


def test_equal_calls_are_told_apart_by_their_occurrence(world: World, lives: Lives):
    lives.killed(dies_after_counting, world)
    function = counting(world)
    with world.runtime(function) as runtime:
        [node] = runtime.recover()
        assert result(node) == [1, 2, 3, 4, 5, 6]
        paths = [(v.path, v.fn, v.sequence) for v in runtime.get_view(node.id).children]
        assert paths == [
            ("1.1", "count", 1),
            ("1.2", "count", 2),
            ("1.3", "count", 3),
            ("1.4", "count", 4),
            ("1.5", "count", 5),
            ("1.6", "end", 6),
            ("1.7", "count", 7),
        ]
    assert world.done("count") == 6


def by_model(world: World, names: str) -> CodeFunction:
    end = end_of(world)
    speak = AgentFunction("speak", "", user_prompt_template="Speak.")

    @composite(world, speak, end)
    async def speaks(ctx: RunContext) -> list[str]:
        found = [await ctx.invoke(speak, model=name) for name in names]
        await ctx.invoke(end)
        return found

    return speaks


def models(world: World) -> dict[str, Any]:
    return {name: world.model(f"I am {name}") for name in "abc"}


def dies_after_speaking(world: World) -> None:
    function = by_model(world, "ab")
    with world.runtime(function, models=models(world)) as runtime:
        result(runtime.invoke(function))


def test_calls_of_agents_are_told_apart_by_their_model(world: World, lives: Lives):
    lives.killed(dies_after_speaking, world)
    function = by_model(world, "ba")
    with world.runtime(function, models=models(world)) as runtime:
        [node] = runtime.recover()
        assert result(node) == ["I am b", "I am a"]
    assert world.done("request") == 2


def blocking(world: World) -> CodeFunction:
    step, end = world.tool("step"), end_of(world)

    @composite(world, step, end)
    def blocks(ctx: RunContext) -> list[str]:
        found = [ctx.invoke(step, {"n": n}).result(60) for n in (1, 2)]
        ctx.invoke(end).result(60)
        return found

    return blocks


def dies_in_a_thread(world: World) -> None:
    function = blocking(world)
    with world.runtime(function) as runtime:
        result(runtime.invoke(function))


def test_sync_code_is_run_again_in_the_same_way(world: World, lives: Lives):
    lives.killed(dies_in_a_thread, world)
    function = blocking(world)
    with world.runtime(function) as runtime:
        [node] = runtime.recover()
        assert result(node) == ["step 1", "step 2"]
    assert world.all_done == {"step": 2, "end": 2}


# --- code that has changed meanwhile


def changing(world: World, *numbers: int, slow: bool = False) -> CodeFunction:
    step, end = world.tool("step"), end_of(world)

    async def wait_long(ctx: RunContext) -> None:
        world.add("waits")
        await asyncio.Event().wait()

    waits = CodeFunction(callable=wait_long, repeatable=True)

    @composite(world, step, end, waits)
    async def changes(ctx: RunContext) -> list[str]:
        if slow:
            ctx.invoke(waits)
            await until(lambda: world.done("waits"))
        found = [await ctx.invoke(step, {"n": n}) for n in numbers]
        await ctx.invoke(end)
        return found

    return changes


def dies_after_two_steps(world: World) -> None:
    function = changing(world, 1, 2, slow=True)
    with world.runtime(function) as runtime:
        result(runtime.invoke(function))


def test_calls_that_nobody_asks_for_again_are_noticed_and_open_ones_end_cancelled(
    world: World, lives: Lives
):
    lives.killed(dies_after_two_steps, world)
    function = changing(world, 2, 3)
    with world.runtime(function) as runtime:
        [node] = runtime.recover()
        assert result(node) == ["step 2", "step 3"]
        view = runtime.get_view(node.id)
        assert [(v.path, v.fn, dict(v.inputs), v.state) for v in view.children] == [
            ("1.1", "wait_long", {}, NodeState.Canceled),
            ("1.2", "step", {"n": 1}, NodeState.Success),
            ("1.3", "step", {"n": 2}, NodeState.Success),
            ("1.4", "end", {}, NodeState.Success),
            ("1.5", "step", {"n": 3}, NodeState.Success),
        ]
        [*notices] = view.notices
        assert any("step" in notice for notice in notices)
        assert any("wait_long" in notice for notice in notices)
        numbers = [v.sequence for v in view.children]
        assert numbers == [1, 2, 3, 4, 5]
    assert world.told("step", "n") == [1, 2, 3]


# --- values


class Report(BaseModel):
    title: str
    pages: list[int]


@dataclass
class Point:
    x: int
    y: int
    inner: "Point | None" = None


VALUES: Final[dict[str, Any]] = {
    "model": Report(title="a", pages=[1, 2]),
    "point": Point(1, 2, Point(3, 4)),
    "many": [Report(title="b", pages=[])],
    "by_number": {1: "a", 2: {"b": (3,)}},
    "pair": (1, "two"),
    "numbers": {1, 2, 3},
    "bytes": b"\x00\xff",
    "frozen": frozenset({"a"}),
    "nothing": None,
    "text": "plain \U0001f600 \u2028",
    "half": "\ud83d alone",
    "long": "long " * 5000,
    "float": 1e300,
    "big": 2**70,
    "looks_tagged": {"$": "tuple", "v": [1]},
}


def valued(world: World, seen: list[Any]) -> CodeFunction:
    def model(ctx: RunContext) -> Report:
        return VALUES["model"]

    def point(ctx: RunContext) -> Point:
        return VALUES["point"]

    def many(ctx: RunContext) -> list[Report]:
        return VALUES["many"]

    def plain(ctx: RunContext, name: str) -> Any:
        return VALUES[name]

    typed = [CodeFunction(callable=one) for one in (model, point, many)]
    plainly, end = CodeFunction(callable=plain), end_of(world)

    @composite(world, *typed, plainly, end)
    async def values(ctx: RunContext) -> str:
        found: dict[str, Any] = {one.name: await ctx.invoke(one) for one in typed}
        for name in VALUES.keys() - found.keys():
            found[name] = await ctx.invoke(plainly, {"name": name})
        await ctx.invoke(end)
        seen.append(found)
        return "done"

    return values


def dies_with_values(world: World) -> None:
    function = valued(world, [])
    with world.runtime(function) as runtime:
        result(runtime.invoke(function))


def test_results_come_back_as_they_were(world: World, lives: Lives):
    lives.killed(dies_with_values, world)
    seen: list[Any] = []
    function = valued(world, seen)
    with world.runtime(function) as runtime:
        [node] = runtime.recover()
        assert result(node) == "done"
    [found] = seen
    # the classes of the killed process are those of a module of another name
    assert found == VALUES
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in VALUES.items()
    }


# --- exceptions


class OwnError(Exception):
    """Of this module, which has another name in the other process."""


def raising(world: World) -> CodeFunction:
    def fail(ctx: RunContext, kind: str) -> None:
        world.add("fail")
        match kind:
            case "value":
                raise ValueError("not 4")
            case "key":
                raise KeyError("k")
            case "timeout":
                raise TimeoutError
            case "unicode":
                raise UnicodeDecodeError("utf-8", b"x", 0, 1, "odd")
            case _:
                raise OwnError("own", 3)

    failing, end = CodeFunction(callable=fail), end_of(world)

    @composite(world, failing, end)
    async def catches(ctx: RunContext) -> dict[str, str]:
        found: dict[str, str] = {}
        for kind in ("value", "key", "timeout", "unicode", "own"):
            try:
                await ctx.invoke(failing, {"kind": kind})
            except RecordedError as error:
                found[kind] = f"recorded {error.type}: {error.message}"
            except (ValueError, KeyError, TimeoutError, OwnError) as error:
                found[kind] = f"{type(error).__name__} {error}"
        await ctx.invoke(end)
        return found

    return catches


def dies_with_exceptions(world: World) -> None:
    function = raising(world)
    with world.runtime(function) as runtime:
        result(runtime.invoke(function))


def test_exceptions_come_back_as_the_class_that_they_were(world: World, lives: Lives):
    lives.killed(dies_with_exceptions, world)
    function = raising(world)
    with world.runtime(function) as runtime:
        [node] = runtime.recover()
        found = result(node)
    assert found["value"] == "ValueError not 4"
    assert found["key"].startswith("KeyError")
    assert found["timeout"].startswith("TimeoutError")
    assert "UnicodeDecodeError" in found["unicode"]  # itself, or recorded: it takes five arguments
    assert found["own"].startswith("recorded OwnError: ")  # its module is not loaded here
    assert world.done("fail") == 5


# --- what has no JSON form


def opaque(world: World) -> CodeFunction:
    def lock(ctx: RunContext) -> Any:
        world.add("lock")
        return threading.Lock()

    locking, end = CodeFunction(callable=lock), end_of(world)

    @composite(world, locking, end)
    async def locks(ctx: RunContext) -> str:
        lock = await ctx.invoke(locking)
        world.add("got", type=type(lock).__name__)
        await ctx.invoke(end)
        return type(lock).__name__

    return locks


def dies_with_a_lock(world: World) -> None:
    function = opaque(world)
    with world.runtime(function) as runtime:
        result(runtime.invoke(function))


def test_a_result_without_a_json_form_is_asked_about_when_it_is_needed_again(
    world: World, lives: Lives
):
    lives.killed(dies_with_a_lock, world)
    assert world.told("got", "type") == ["lock"]
    function = opaque(world)
    with world.runtime(function) as runtime:
        [node] = runtime.recover()
        question = question_of(runtime)
        assert question.kind is QuestionKind.InDoubt
        assert runtime.get_view(question.node_id).fn == "lock"
        runtime.answer(question.id, "retry")
        assert result(node) == "lock"
    assert world.all_done == {"lock": 2, "got": 2, "end": 2}


def test_a_value_without_a_json_form_is_kept_as_it_looks(world: World):
    def give(ctx: RunContext, what: Any) -> Any:
        return what

    function, lock = CodeFunction(callable=give), threading.Lock()
    with world.runtime(function) as runtime:
        assert result(runtime.invoke(function, {"what": lock})) is lock
    with world.runtime(function) as runtime:
        [node] = runtime.list_toplevel()
        view = runtime.get_view(node.id)
        assert "lock" in repr(view.outputs)
        assert "lock" in repr(view.inputs["what"])
