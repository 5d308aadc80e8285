"""What is gone on with when a journal is opened, and by whom."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator, Collection
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from support import wait
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    CancellationException,
    CodeFunction,
    HookDecision,
    MemoryStore,
    NodeState,
    RunContext,
    Runtime,
    StoreError,
    ToolUse,
    Turn,
    attach,
    registries,
    tool,
)
from treefold.stores import Call, Entry, TreeRow
from treefold.testing import ScriptedModel, replay
from treefold.testing.store_suite import write
from treefold.toolbox import human_in_loop

PATIENCE: Final = 60  # seconds


class Stopped:
    """Code that waits the first time, until its runtime is closed, and gives 7 the next."""

    def __init__(self) -> None:
        self.runs = 0
        self.function = CodeFunction(name="work", callable=self._run, repeatable=True)

    async def _run(self, ctx: Any) -> int:
        self.runs += 1
        return 7 if self.runs > 1 else await ctx.ask("Is it time?")


def left_open(work: Stopped) -> MemoryStore:
    """Return a journal with a call that has not ended."""
    store = MemoryStore()
    with Runtime([work.function], store=store) as runtime:
        runtime.invoke(work.function, key="a")
    return store


def test_a_tree_that_was_deleted_is_not_among_those_that_were_recovered() -> None:
    work = Stopped()
    store = left_open(work)
    with Runtime([work.function], store=store) as runtime:
        (node,) = runtime.recover()
        runtime.answer(runtime.questions()[0].id, "yes")
        assert node.result(PATIENCE) == 7
        runtime.delete(node.id)
        assert runtime.recover() == []


def test_an_agent_that_waits_in_a_parked_tree_says_what_for() -> None:
    store, asks = MemoryStore(), ToolUse("1", "human_in_loop", {"question": "Where?"})
    lead = AgentFunction("lead", "", user_prompt_template="Lead.", uses=[human_in_loop])
    with Runtime([lead], models=ScriptedModel(asks, asks), store=store) as runtime:
        runtime.invoke(lead)
        runtime.invoke(lead)
    with Runtime([lead], models=ScriptedModel("done"), store=store) as runtime:
        first, second = runtime.recover()
        assert [first.waiting_on, second.waiting_on] == first.get_children() + second.get_children()
        # Which of the two has asked first is up to the loop.
        asked, awaited = {one.node_id: one.id for one in runtime.questions()}, first.waiting_on
        assert awaited is not None
        runtime.answer(asked[awaited.id], "yes")
        runtime.cancel(second.id)
        assert first.result(PATIENCE) == "done"
        with pytest.raises(CancellationException):
            second.result(PATIENCE)
        assert [first.waiting_on, second.waiting_on] == [None, None]


def test_code_that_is_left_open_makes_no_calls_that_would_be_made_again() -> None:
    store, made = MemoryStore(), list[str]()
    clean = CodeFunction(name="clean", callable=lambda ctx, after: made.append(after))

    async def outer(ctx: Any) -> str:
        answer = "nothing"
        try:
            answer = await ctx.ask("Is it time?")
        finally:
            await ctx.invoke(clean, {"after": answer})
        return answer

    calls = CodeFunction(name="outer", callable=outer, uses=[clean])
    with Runtime([calls], store=store) as runtime:
        runtime.invoke(calls)
    assert made == []
    with Runtime([calls], store=store) as runtime:
        runtime.answer(runtime.questions()[0].id, "yes")
    assert made == ["yes"]


def test_an_agent_that_was_paused_while_its_tool_ran_stays_so() -> None:
    store, begun = MemoryStore(), threading.Event()

    async def wait(ctx: Any) -> str:
        if begun.is_set():
            return "waited"
        begun.set()
        return await asyncio.Event().wait() and ""

    tool = CodeFunction(name="tool", callable=wait, repeatable=True)
    talk = AgentFunction("talk", "Talk.", user_prompt_template="Go.", uses=[tool])
    runtime = Runtime([talk], models=ScriptedModel([ToolUse("1", "tool", {})]), store=store)
    node = runtime.invoke(talk)
    assert begun.wait(PATIENCE)
    runtime.pause(node.id)
    (question,) = runtime.questions()
    runtime.close()
    model = ScriptedModel("Done.")
    with Runtime([talk], models=model, store=store) as runtime:
        (node,) = runtime.recover()
    assert store.questions() == [question]
    assert model.requests == []
    with Runtime([talk], models=model, store=store) as runtime:
        (node,) = runtime.recover()
        runtime.resume(node.id)
        assert node.result(PATIENCE) == "Done."


def test_a_call_that_waits_for_the_end_of_a_pause_is_left_for_later() -> None:
    store, made = MemoryStore(), list[str]()
    tool = CodeFunction(name="tool", callable=lambda ctx: made.append("tool"))
    talk = AgentFunction("talk", "Talk.", user_prompt_template="Go.", uses=[tool])

    async def pause(event: Any) -> HookDecision:
        if not paused:
            paused.append("once")
            runtime.pause(1)
        return HookDecision()

    paused = list[str]()
    model, hooks = ScriptedModel([ToolUse("1", "tool", {})]), {HOOK_PRE_TOOL_USE: [pause]}
    with Runtime([talk], models=model, hooks=hooks, store=store) as runtime:
        runtime.invoke(talk)
    with Runtime([talk], models=ScriptedModel("Done."), hooks=hooks, store=store) as runtime:
        (node,) = runtime.recover()
        assert made == []
        runtime.resume(node.id)
        assert node.result(PATIENCE) == "Done."
    assert made == ["tool"]


def test_a_call_is_gone_on_with_when_somebody_asks_for_it_who_has_its_function() -> None:
    work = Stopped()
    store = left_open(work)
    with Runtime(store=store) as runtime:
        assert runtime.recover() == []
        node = runtime.invoke(work.function, key="a")
        assert runtime.recover() == [node]
        assert runtime.invoke(work.function, key="a") is node
        assert node.result(PATIENCE) == 7


def test_a_streaming_call_that_is_given_up_before_it_gives_its_values_again_is_over() -> None:
    with registries():

        @tool
        async def count() -> AsyncGenerator[int, None]:
            for number in range(3):
                yield number

    store, streams = MemoryStore(), list[asyncio.Task[Any]]()

    async def take() -> list[int]:
        return [value async for value in Turn(count).yielding()]

    async def outer(ctx: Any) -> None:
        streams.append(asyncio.get_running_loop().create_task(take()))
        if len(streams) == 1:
            assert await streams[0] == [0, 1, 2]
            await ctx.ask("Is it time?")
        await asyncio.sleep(0)  # until the call has been asked for, and not longer
        raise ValueError("it was not wanted")

    calls = CodeFunction(name="outer", callable=outer, uses=[count])
    with Runtime([calls], store=store) as runtime:
        runtime.invoke(calls)
    with Runtime([calls], store=store) as runtime:
        (node,) = runtime.recover()
        runtime.answer(runtime.questions()[0].id, "yes")
        with pytest.raises(ValueError, match="it was not wanted"):
            node.result(PATIENCE)


def test_a_streaming_call_that_a_pause_keeps_from_giving_its_values_again_can_be_cancelled() -> (
    None
):
    with registries():

        @tool
        async def count() -> AsyncGenerator[int, None]:
            for number in range(3):
                yield number

    store, is_paused, lives = MemoryStore(), threading.Event(), list[int]()

    async def outer(ctx: Any) -> None:
        lives.append(1)
        if len(lives) == 2:
            await asyncio.to_thread(is_paused.wait)
        assert [value async for value in Turn(count).yielding()] == [0, 1, 2]
        await ctx.ask("Is it time?")

    calls = CodeFunction(name="outer", callable=outer, uses=[count])
    with Runtime([calls], store=store) as runtime:
        runtime.invoke(calls)
    with Runtime([calls], store=store) as runtime:
        (node,) = runtime.recover()
        runtime.answer(runtime.questions()[0].id, "yes")
        wait(lambda: len(lives) == 2)
        runtime.pause(node.id)
        is_paused.set()
        wait(lambda: node.state is NodeState.Paused)
        node.cancel("it is not wanted")
        with pytest.raises(CancellationException, match="it is not wanted"):
            node.result(PATIENCE)


async def test_the_end_of_a_resumed_call_that_never_began_here_is_written_before_it_is_seen() -> (
    None
):
    store = MemoryStore()

    @tool(repeatable=True)
    async def asks(ctx: RunContext) -> str:
        return await ctx.ask("Is it time?")

    async with Runtime([asks], store=store) as runtime:
        runtime.invoke(asks)
    async with Runtime([asks], store=store) as runtime:
        (node,) = runtime.recover()
        runtime.answer(runtime.questions()[0].id, "yes")
        node.cancel()
        with pytest.raises(CancellationException):
            await node
        assert [row.state for row in store.trees()] == [NodeState.Canceled]


def test_a_damaged_tree_whose_function_is_not_known_stops_nobody(tmp_path: Path) -> None:
    path, work = tmp_path / "run.db", Stopped()
    with Runtime([work.function], store=path) as runtime:
        runtime.invoke(work.function)
    with closing(sqlite3.connect(path)) as rows, rows:
        rows.execute("UPDATE events SET body = '{}' WHERE n = 1")
    three = CodeFunction(name="three", callable=lambda ctx: 3)
    with Runtime([three], store=path) as runtime:
        assert runtime.invoke(three).result(PATIENCE) == 3
    with Runtime([three], store=path) as runtime:
        assert runtime.recover() == []


ODD: Final = {
    "too deep": '{"sequence":1,"inputs":' + "[" * 100_000 + "]" * 100_000 + "}",
    "no such writing": '{"sequence":1,"inputs":{"a":{"$":"pieces","v":[["ab",9]]}}}',
    "no arguments": '{"sequence":1,"inputs":"none"}',
    "no text": '{"sequence":1,"inputs":{"a":{"$":"text","v":"ab"}}}',
    "ends before it began": '{"sequence":1,"inputs":{}}',
}


@pytest.mark.parametrize("body", ODD.values(), ids=list(ODD))
def test_a_tree_with_something_odd_in_it_stops_nobody(body: str) -> None:
    work = Stopped()
    store = left_open(work)
    store.join()
    call = Call(parent=0, key="=odd", index=2, function="work")
    odd = Entry(tree=2, node=2, number=1, kind="CallRequested", body=body, call=call)
    late = Entry(tree=2, node=2, number=2, kind="CallStarted", body="{}", at=1e300)
    write(store, [odd, late])
    store.close()
    with attach(store) as observer:
        with pytest.raises(StoreError):
            observer.get_view(2)
        assert observer.get_view(1).fn == "work"
    with Runtime([work.function], store=store) as runtime:
        [question] = runtime.questions()
        runtime.answer(question.id, "yes")
        [node] = runtime.recover()
        assert node.result(PATIENCE) == 7
        assert [root.id for root in runtime.list_toplevel()] == [1]
    with pytest.raises(StoreError):
        replay([work.function], store, 2)


class Unreadable(MemoryStore):
    """A store that cannot say what is asked, until it can."""

    fails = True

    def to_resume(self, functions: Collection[str]) -> list[TreeRow]:
        if self.fails:
            raise StoreError(self.name, "the disk is gone")
        return super().to_resume(functions)


def test_a_journal_that_cannot_be_read_is_let_go_of() -> None:
    work = Stopped()
    store = Unreadable()
    with pytest.raises(StoreError, match="the disk is gone"), Runtime([work.function], store=store):
        pass
    store.fails = False
    with Runtime([work.function], store=store) as runtime:
        assert runtime.recover() == []
