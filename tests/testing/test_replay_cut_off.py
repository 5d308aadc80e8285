"""Recordings that end before the tree did, and trees that somebody or something stopped."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from replay_journals import Tools, record
from treefold import (
    CodeFunction,
    MemoryStore,
    Node,
    NodeState,
    RunContext,
    Runtime,
    ToolUse,
    agent,
)
from treefold.core.errors import CallTimeoutError
from treefold.testing import HANGS, Replay, ScriptedModel, replay
from treefold.testing.store_suite import write


def cut_off(store: MemoryStore, entries: int) -> MemoryStore:
    """Return the journal, which has no long texts, as it was after so many entries."""
    cut = MemoryStore()
    cut.join()
    write(cut, store.entries(1)[:entries])
    cut.close()
    return cut


@pytest.fixture
def tools() -> Tools:
    return Tools()


def family(tools: Tools, extra: str = "") -> CodeFunction:
    """Code that calls an agent twice at once, and then a function."""
    look_up = tools.look_up()

    @agent(uses=[look_up])
    def explain(word: str) -> str:
        return f"Explain {word}.{extra}"

    async def lead(ctx: RunContext) -> str:
        async with asyncio.TaskGroup() as group:
            for word in ("yew", "ivy"):
                group.create_task(wait_for(ctx.invoke(explain, {"word": word})))
        return await ctx.invoke(look_up, {"word": "oak"})

    return CodeFunction(name="lead", callable=lead, uses=[explain, look_up])


async def wait_for(node: Node) -> None:
    await node


def made(tools: Tools) -> MemoryStore:
    def reply(request: Any) -> Any:
        word = "yew" if "yew" in str(request.transcript) else "ivy"
        used = len(request.transcript) > 1
        return "Done." if used else ToolUse(word, "look_up", {"word": word})

    store = MemoryStore()
    with Runtime([family(tools)], models=ScriptedModel(reply), store=store) as runtime:
        runtime.invoke(runtime.invocable_functions["lead"]).result(timeout=60)
    return store


def test_wherever_a_recording_ends_it_can_be_replayed_up_to_there(tools: Tools):
    store = made(tools)
    length = len(store.entries(1))
    before = list(tools.made)
    ends: list[Replay] = []
    for entries in range(1, length + 1):
        again = replay([family(tools)], cut_off(store, entries))
        assert (entries, again.divergence) == (entries, None)
        ends.append(again)
    assert [again.output for again in ends] == [None] * (length - 2) + ["look_up says oak"] * 2
    assert all(not again.view.state.final for again in ends[:-2])
    assert tools.made == before


def test_what_differs_before_the_end_of_the_recording_is_shown(tools: Tools):
    store = made(tools)
    sent = [e.kind for e in store.entries(1)].index("RequestSent") + 1
    for entries in range(sent, len(store.entries(1))):
        found = replay([family(tools, " Now!")], cut_off(store, entries)).divergence
        assert found is not None
        assert (found.path, found.what) == ("1.1", "a request that differs")


def test_another_call_is_shown_if_one_that_was_recorded_is_left_out(tools: Tools):
    look_up = tools.look_up()

    def reader(word: str) -> CodeFunction:
        async def read(ctx: RunContext) -> Any:
            return await ctx.invoke(look_up, {"word": word})

        return CodeFunction(name="read", callable=read, uses=[look_up])

    store = MemoryStore()
    with Runtime([reader("yew")], store=store) as runtime:
        runtime.invoke(runtime.invocable_functions["read"]).result()
    cut = cut_off(store, 4)
    assert replay([reader("yew")], cut).divergence is None
    found = replay([reader("ivy")], cut).divergence
    assert found is not None
    assert (found.path, found.what) == ("1.2", "a call that was not made before")
    assert (found.expected, found.actual) == ("look_up\nword=yew", "look_up\nword=ivy")


def test_a_question_that_nobody_has_answered_is_the_end(tmp_path: Path, tools: Tools):
    look_up = tools.look_up()

    async def plan(ctx: RunContext) -> str:
        return await ctx.ask("Where?")

    function = CodeFunction(name="plan", callable=plan, uses=[look_up])
    with Runtime([function], store=tmp_path / "run.db") as runtime:
        node = runtime.invoke(function)
        for _ in runtime.watch(node, timeout=60):
            if runtime.questions():
                break
    again = replay([function], tmp_path / "run.db")
    assert (again.divergence, again.output, again.view.state) == (None, None, NodeState.Paused)


def hanging(tools: Tools, began: threading.Event | None = None) -> CodeFunction:
    async def hang(ctx: RunContext, word: str) -> None:
        tools.made.append(word)
        if began is not None:
            began.set()
        await asyncio.Event().wait()

    return CodeFunction(name="hang", callable=hang)


@pytest.mark.parametrize("by_model", [True, False], ids=["in a request", "in a call"])
def test_a_tree_that_was_cancelled_is_cancelled_again(
    tmp_path: Path, tools: Tools, *, by_model: bool
):
    began = threading.Event()
    hang = hanging(tools, began)

    @agent(uses=[hang])
    def explain(word: str) -> str:
        return f"Explain {word}."

    def reply(request: Any) -> Any:
        if not by_model:
            return ToolUse("1", "hang", {"word": "yew"})
        began.set()
        return HANGS

    async def lead(ctx: RunContext) -> str:
        return await ctx.invoke(explain, {"word": "yew"})

    function = CodeFunction(name="lead", callable=lead, uses=[explain])
    with Runtime([function], models=ScriptedModel(reply), store=tmp_path / "run.db") as runtime:
        node = runtime.invoke(function)
        assert began.wait(60)
        node.cancel("enough")
        with pytest.raises(Exception, match="enough"):
            node.result(timeout=60)
    again = replay([function], tmp_path / "run.db")
    assert (again.divergence, again.view.state) == (None, NodeState.Canceled)
    assert tools.made == ([] if by_model else ["yew"])


def test_a_call_whose_time_was_over_is_late_again(tmp_path: Path, tools: Tools):
    hang = hanging(tools)

    @agent(uses=[hang])
    def explain(word: str) -> str:
        return f"Explain {word}."

    async def lead(ctx: RunContext) -> str:
        try:
            return await ctx.invoke(explain, {"word": "yew"}, timeout=0.2)
        except CallTimeoutError as late:
            return f"late: {late}"

    function = CodeFunction(name="lead", callable=lead, uses=[explain])
    node = record(tmp_path / "run.db", function, {}, ToolUse("1", "hang", {"word": "yew"}))
    again = replay([function], tmp_path / "run.db")
    assert (again.divergence, again.output) == (None, node.outputs)
    assert again.output == "late: explain (call 1.1): it took longer than 0.2 s"
    assert tools.made == ["yew"]


def test_what_its_caller_did_not_wait_for_is_given_up_again(tmp_path: Path, tools: Tools):
    hang = hanging(tools)

    @agent
    def explain(word: str) -> str:
        return f"Explain {word}."

    async def lead(ctx: RunContext) -> list[str]:
        heard = list[str]()
        for function in (hang, explain):
            try:
                async with asyncio.timeout(0.05):
                    await ctx.invoke(function, {"word": "yew"})
            except TimeoutError:
                heard.append(f"{function.name} was late")
        return heard

    function = CodeFunction(name="lead", callable=lead, uses=[hang, explain])
    node = record(tmp_path / "run.db", function, {}, HANGS)
    again = replay([function], tmp_path / "run.db")
    assert (again.divergence, again.output) == (None, node.outputs)
    assert again.output == ["hang was late", "explain was late"]


def test_a_call_of_a_model_that_somebody_cancelled_is_told_as_it_was(tmp_path: Path, tools: Tools):
    hang = hanging(tools)

    @agent(uses=[hang])
    def explain(word: str) -> str:
        return f"Explain {word}."

    model = ScriptedModel(ToolUse("1", "hang", {"word": "yew"}), "Never mind.")
    with Runtime([explain], models=model, store=tmp_path / "run.db") as runtime:
        node = runtime.invoke(explain, {"word": "yew"})
        for view in runtime.watch(node, timeout=60):
            if view.children and view.children[0].state is NodeState.Running:
                break
        runtime.cancel(node.id + 1, "enough")
        assert node.result(timeout=60) == "Never mind."
        fork = runtime.fork(node, at=2)  # in which the call has another path
        assert fork.result(timeout=60) == "Never mind."
    for tree in (node, fork):
        replay([explain], tmp_path / "run.db", tree.id).check()
