"""What code gets that is run again: what it got before, and what a person has decided."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import BaseModel

from support import forever, wait
from treefold import (
    Agent,
    CancellationException,
    ContextItem,
    Ensemble,
    Function,
    MemoryStore,
    NodeState,
    QuestionKind,
    RunContext,
    Runtime,
    StopReason,
    ToolUse,
    Turn,
    agent,
    attach,
    registries,
    tool,
)
from treefold.core.call_request import CallRequest
from treefold.core.errors import (
    CallTimeoutError,
    ClosedError,
    InvalidValueError,
    TurnTimeoutError,
)
from treefold.testing import ScriptedFailure, ScriptedModel, ScriptedRequest

PATIENCE: Final = 60  # seconds


def leave(function: Function, store: MemoryStore) -> None:
    """Run *function* until it waits for a person, and no longer."""
    with Runtime([function], store=store) as runtime:
        runtime.invoke(function)


def go_on(function: Function, store: MemoryStore, answer: str = "yes") -> Any:
    """Give the answer that the only tree waits for; return what comes of it."""
    with Runtime([function], store=store) as runtime:
        [node] = runtime.recover()
        [question] = wait(runtime.questions)
        runtime.answer(question.id, answer)
        return node.result(PATIENCE)


# --- what its calls gave


class Handle:
    """Something that cannot be written down."""

    def __init__(self, number: int) -> None:
        self.number = number


def test_a_call_whose_result_has_to_be_made_again_gets_what_its_own_calls_gave() -> None:
    store, runs = MemoryStore(), list[str]()

    @tool(repeatable=True)
    async def number() -> int:
        runs.append("number")
        return 7

    @tool(uses=[number])
    async def opened(ctx: RunContext) -> Handle:
        return Handle(await ctx.invoke(number))

    @tool(uses=[opened])
    async def top(ctx: RunContext) -> int:
        handle = await ctx.invoke(opened)
        await ctx.ask("Is it time?")
        return handle.number

    leave(top, store)
    assert go_on(top, store) == 7
    assert runs == ["number"]


class Item(BaseModel):
    n: int


def test_values_that_were_streamed_come_back_as_what_they_were() -> None:
    store, seen = MemoryStore(), list[list[Any]]()

    @tool(repeatable=True)
    async def items() -> AsyncGenerator[Item, None]:
        for n in range(2):
            yield Item(n=n)

    @tool(uses=[items])
    async def top(ctx: RunContext) -> str:
        seen.append([item async for item in Turn(items).yielding()])
        return await ctx.ask("Is it time?")

    leave(top, store)
    assert go_on(top, store) == "yes"
    assert seen == [[Item(n=0), Item(n=1)]] * 2


def test_a_turn_that_took_too_long_has_done_so_in_the_next_process_as_well() -> None:
    store, seen = MemoryStore(), list[Any]()

    @tool(repeatable=True)
    async def slow() -> None:
        await forever()

    @tool(uses=[slow])
    async def outer(ctx: RunContext) -> None:
        await ctx.invoke(slow, timeout=0.01)

    @tool(uses=[slow, outer])
    async def top(ctx: RunContext) -> str:
        for turn in Turn(slow, timeout=0.01), Turn(outer):
            with pytest.raises(CallTimeoutError) as raised:
                await turn.returning()
            seen.append((raised.type, turn.stop_reason))
        return await ctx.ask("Is it time?")

    leave(top, store)
    assert go_on(top, store) == "yes"
    once = [(TurnTimeoutError, StopReason.TIMEOUT), (CallTimeoutError, StopReason.ERROR)]
    assert seen == once * 2


@pytest.mark.parametrize("repeatable", [True, None])
def test_a_stream_of_what_could_not_be_kept_is_not_given_back_as_how_it_looked(
    *, repeatable: bool | None
) -> None:
    store, runs = MemoryStore(), list[str]()

    @tool(repeatable=repeatable)
    async def plan() -> AsyncGenerator[Turn, None]:
        runs.append("plan")
        for n in range(2):
            yield Turn(read, kwargs={"n": n})

    @tool
    async def read(n: int) -> ContextItem:
        runs.append(f"read {n}")
        return ContextItem(n)

    @tool(uses=[plan, read])
    async def top(ctx: RunContext) -> list[int]:
        with registries():
            reader = Agent("reader", "Reads", [plan, read])
        await reader.put(Turn(plan))
        async for _ in reader.run():
            pass
        await ctx.ask("Is it time?")
        return [item.content for item in reader.context_queue]

    leave(top, store)
    with Runtime([top], store=store) as runtime:
        [node] = runtime.recover()
        [question] = runtime.questions()
        runtime.answer(question.id, "yes")
        if repeatable is None:
            [question] = wait(runtime.questions)
            assert question.kind is QuestionKind.InDoubt
            runtime.answer(question.id, "retry")
        assert node.result(PATIENCE) == [0, 1]
    assert runs == ["plan", "read 0", "read 1", "plan"]


class Connection:
    """Something that cannot be written down."""


def test_a_result_that_could_not_be_kept_is_made_again_for_code_that_reads_values() -> None:
    store, seen = MemoryStore(), list[Any]()

    async def sink(value: Any) -> None:
        seen.append(value)

    @tool(repeatable=True)
    async def connect(ctx: RunContext) -> Connection:
        await ctx.send("connects")
        return Connection()

    @tool(uses=[connect])
    async def top(ctx: RunContext) -> str:
        seen.append(type(await ctx.start(CallRequest(connect, {}, sink=sink))))
        return await ctx.ask("Is it time?")

    leave(top, store)
    assert go_on(top, store) == "yes"
    assert seen == ["connects", Connection] * 2


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (dict, {1: "x"}),
        (list, [(1, 2)]),
        (dict[str, Any], {"pairs": [(1, 2), (3, 4)]}),
    ],
)
def test_what_is_inside_of_a_result_comes_back_as_it_was(kind: Any, value: Any) -> None:
    store, seen = MemoryStore(), list[Any]()

    async def gives() -> Any:
        return value

    gives.__annotations__["return"] = kind
    give = tool(repeatable=True)(gives)

    @tool(uses=[give])
    async def top(ctx: RunContext) -> str:
        seen.append(await ctx.invoke(give))
        return await ctx.ask("Is it time?")

    leave(top, store)
    assert go_on(top, store) == "yes"
    assert seen == [value, value]


def test_what_one_function_gave_is_not_given_for_another_with_its_key() -> None:
    store = MemoryStore()

    @tool(repeatable=True)
    async def one() -> str:
        return "one"

    @tool(repeatable=True)
    async def two() -> str:
        return "two"

    called: Function = one

    @tool(uses=[one, two])
    async def top(ctx: RunContext) -> str:
        return await ctx.invoke(called, key="a") + await ctx.ask("Is it time?")

    leave(top, store)
    called = two
    with pytest.raises(InvalidValueError, match="has the key 'a', and is another call"):
        go_on(top, store)


# --- what it did not wait for


def test_code_that_lost_patience_with_a_call_loses_it_again() -> None:
    store = MemoryStore()

    @tool(uses=[forever])
    async def top(ctx: RunContext) -> str:
        try:
            async with asyncio.timeout(0.02):
                await ctx.invoke(forever)
        except TimeoutError:
            return f"without it: {await ctx.ask('Is it time?')}"
        return "with it"

    leave(top, store)
    assert go_on(top, store) == "without it: yes"


def test_code_that_lost_patience_with_a_call_whose_values_it_reads_loses_it_again() -> None:
    store, seen = MemoryStore(), list[Any]()

    async def sink(value: Any) -> None:
        seen.append(value)

    @tool(repeatable=True)
    async def count(ctx: RunContext) -> None:
        await ctx.send(1)
        await forever()

    @tool(uses=[count])
    async def top(ctx: RunContext) -> str:
        try:
            async with asyncio.timeout(0.02):
                await ctx.start(CallRequest(count, {}, sink=sink))
        except TimeoutError:
            return f"without it: {await ctx.ask('Is it time?')}"
        return "with it"

    leave(top, store)
    assert go_on(top, store) == "without it: yes"
    assert seen == [1, 1]


def test_code_whose_other_task_failed_finds_the_same_failure_again() -> None:
    store = MemoryStore()

    @tool
    async def quick() -> str:
        return "quick"

    @tool(uses=[forever, quick])
    async def top(ctx: RunContext) -> str:
        async def fail() -> None:
            raise ValueError(await ctx.invoke(quick))

        async def wait_for_ever() -> None:
            await ctx.invoke(forever)

        failed = list[str]()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(wait_for_ever())
                group.create_task(fail())
        except* ValueError as errors:
            failed = [str(error) for error in errors.exceptions]
        return f"{failed} {await ctx.ask('Is it time?')}"

    leave(top, store)
    assert go_on(top, store) == "['quick'] yes"


# --- what was decided while it was paused


def steps(request: ScriptedRequest) -> ToolUse:
    """Ask for one step after another."""
    said = len(request.transcript)
    return ToolUse(f"{said}", "work", {"n": said})


@pytest.mark.parametrize("kind", ["agent", "code"])
def test_a_paused_call_that_was_cancelled_while_nothing_ran_does_not_go_on(
    tmp_path: Path, kind: str
) -> None:
    path, begun, may_end = tmp_path / "run.db", threading.Event(), threading.Event()
    ran = list[int]()

    @tool(repeatable=True)
    async def work(n: int) -> int:
        ran.append(n)
        begun.set()
        await asyncio.to_thread(may_end.wait, PATIENCE)
        return n

    @tool(uses=[work])
    async def code(ctx: RunContext) -> int:
        return sum([await ctx.invoke(work, {"n": n}) for n in range(3)])

    @agent(uses=[work])
    def talk() -> str:
        return "Go."

    function: Function = talk if kind == "agent" else code
    runtime = Runtime([function], models=ScriptedModel(steps), store=path)
    node = runtime.invoke(function)
    assert begun.wait(PATIENCE)
    runtime.pause(node.id)
    may_end.set()
    paused = runtime.watch(node, timeout=PATIENCE)
    next(view for view in paused if view.state is NodeState.Paused)
    runtime.close()
    with attach(path) as observer:
        [question] = observer.questions()
        observer.answer(question.id, "cancel")
    before, model = list(ran), ScriptedModel(steps)
    with Runtime([function], models=model, store=path) as runtime:
        [node] = runtime.recover()
        with pytest.raises(CancellationException, match="cancelled while it was paused"):
            node.result(PATIENCE)
        assert node.state is NodeState.Canceled
    assert (ran, model.requests) == (before, [])


def test_a_call_that_was_paused_by_its_provider_and_cancelled_asks_no_model(tmp_path: Path) -> None:
    path = tmp_path / "run.db"

    @agent
    def greet() -> str:
        return "Greet me."

    failing, model = ScriptedModel(ScriptedFailure(500)), ScriptedModel("Hi!")
    with Runtime([greet], models=failing, store=path, on_provider_failure="pause") as runtime:
        runtime.invoke(greet)
    with attach(path) as observer:
        [question] = observer.questions()
        observer.answer(question.id, "cancel")
    with Runtime([greet], models=model, store=path, on_provider_failure="pause") as runtime:
        [node] = runtime.recover()
        with pytest.raises(CancellationException):
            node.result(PATIENCE)
    assert model.requests == []


# --- what several agents do at once


def test_a_member_of_an_ensemble_does_not_wait_for_what_a_person_says_to_the_first() -> None:
    store = MemoryStore()

    @agent(uses=[forever])
    def decide() -> str:
        return "Decide."

    both, model = Ensemble(decide, {"m": 2}), ScriptedModel(lambda _: ToolUse("1", "forever", {}))

    def begun() -> bool:
        nodes = runtime.get_subtree(node.id)
        return sum(one.function is forever and one.state is NodeState.Running for one in nodes) == 2

    runtime = Runtime([both], models={"m": model}, store=store)
    node = runtime.invoke(both)
    wait(begun)
    runtime.close()
    with Runtime([both], models={"m": model}, store=store) as runtime:
        runtime.recover()
        wait(lambda: len(runtime.questions()) == 2)


# --- what runs while a runtime is closed


def test_a_call_that_is_made_while_the_runtime_begins_to_close_is_not_lost() -> None:
    store, begun, may_go_on = MemoryStore(), threading.Event(), threading.Event()

    @tool(repeatable=True)
    async def step() -> int:
        return 4

    @tool(uses=[step])
    async def work(ctx: RunContext) -> int:
        begun.set()
        may_go_on.wait(PATIENCE)  # so that the loop cannot end anything meanwhile
        return await ctx.invoke(step)

    def is_closing() -> bool:
        try:
            runtime.recover()
        except ClosedError:
            return True
        return False

    runtime = Runtime([work], store=store)
    runtime.invoke(work)
    assert begun.wait(PATIENCE)
    closing = threading.Thread(target=runtime.close)
    closing.start()
    wait(is_closing)
    may_go_on.set()
    closing.join(PATIENCE)
    with Runtime([work], store=store) as runtime:
        runtime.recover()  # unless it has ended before the other was closed
        [node] = runtime.list_toplevel()
        assert node.result(PATIENCE) == 4
