"""Trees that come from others: forks, what is resumed, what is imported, and what is deleted."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from support import double, wait
from treefold import (
    HOOK_PRE_TOOL_USE,
    Budget,
    BudgetExceeded,
    Edit,
    HookDecision,
    MemoryStore,
    ModelProviderException,
    PreToolUseEvent,
    RunContext,
    Runtime,
    StoreError,
    ToolUse,
    agent,
    attach,
    tool,
)
from treefold.core.errors import InvalidValueError, UnknownNodeError, UsageError
from treefold.stores import Entry, TreeRow, export_tree, import_tree
from treefold.testing import ScriptedFailure, ScriptedModel, replay

PATIENCE: Final = 60  # seconds
_PAY: Final = ToolUse("1", "pay", {"amount": 1})


# --- what they cost


def test_what_a_fork_shares_is_counted_once_in_the_budget_of_the_runtime() -> None:
    @agent
    def greet() -> str:
        return "Greet me."

    @tool(uses=[greet])
    async def twice(ctx: RunContext) -> list[str]:
        return [await ctx.invoke(greet), await ctx.invoke(greet)]

    model, budget = ScriptedModel(lambda request: "Hi!"), Budget(calls=4)
    with Runtime([twice], models=model, store=MemoryStore(), budget=budget) as runtime:
        node = runtime.invoke(twice)
        assert node.result(PATIENCE) == ["Hi!", "Hi!"]
        _, _, second = runtime.get_subtree(node.id)
        for _ in range(2):
            assert runtime.fork(second).result(PATIENCE) == ["Hi!", "Hi!"]
        with pytest.raises(BudgetExceeded):
            runtime.fork(second).result(PATIENCE)
    assert len(model.requests) == 4


# --- what a person is asked


def test_who_is_asked_about_a_call_of_a_fork_is_asked_about_what_will_be_done() -> None:
    paid: list[int] = []

    @tool
    async def pay(amount: int) -> int:
        paid.append(amount)
        return amount

    @agent(uses=[pay])
    def settle() -> str:
        return "Settle it."

    async def ask_first(event: PreToolUseEvent) -> HookDecision:
        return HookDecision(ask=f"pay {event.tool_input['amount']}?")

    model = ScriptedModel(_PAY, "paid", "paid")
    hooks = {HOOK_PRE_TOOL_USE: [ask_first]}
    with Runtime([settle], models=model, store=MemoryStore(), hooks=hooks) as runtime:
        node = runtime.invoke(settle)
        [question] = wait(runtime.questions)
        assert question.text == "pay 1?"
        runtime.answer(question.id, "allow")
        assert node.result(PATIENCE) == "paid"
        fork = runtime.fork(runtime.get_subtree(node.id)[1], edit=Edit(args={"amount": 3}))
        [question] = wait(runtime.questions)
        assert question.text == "pay 3?"
        runtime.answer(question.id, "allow")
        assert fork.result(PATIENCE) == "paid"
    assert paid == [1, 3]


# --- which model they go on with


def test_a_tree_whose_model_is_not_there_goes_on_with_another_or_not_at_all() -> None:
    store = MemoryStore()

    @agent
    def greet() -> str:
        return "Greet me."

    big = ScriptedModel(ScriptedFailure(500), name="big")
    with Runtime([greet], models={"big": big}, store=store) as runtime:
        node = runtime.invoke(greet, model="big")
        with pytest.raises(ModelProviderException):
            node.result(PATIENCE)
    small = ScriptedModel("Hi!", name="small")
    with Runtime([greet], models={"small": small}, store=store) as runtime:
        for act in runtime.resume, runtime.fork:
            with pytest.raises(InvalidValueError, match="this runtime has no model 'big'"):
                act(node.id)
        assert len(store.trees()) == 1
        assert runtime.fork(node.id, edit=Edit(model="small")).result(PATIENCE) == "Hi!"


# --- what they share


class Shell:
    """Something that no journal can keep."""


def test_a_fork_makes_a_call_again_whose_result_could_not_be_kept() -> None:
    opened = list[Shell]()

    @tool(repeatable=True)
    async def open_shell() -> object:
        opened.append(Shell())
        return opened[-1]

    @tool(uses=[open_shell, double])
    async def work(ctx: RunContext) -> tuple[bool, int]:
        shell = await ctx.invoke(open_shell)
        return shell is opened[-1], await ctx.invoke(double, {"n": 2})

    store = MemoryStore()
    with Runtime([work], store=store) as runtime:
        node = runtime.invoke(work)
        for _ in range(3):
            assert node.result(PATIENCE) == (True, 4)
            node = runtime.fork(runtime.get_subtree(node.id)[2])
    assert len(opened) == 4
    assert [tree.open for tree in store.trees()] == [False] * 4


def test_a_fork_goes_on_with_a_call_that_was_given_up_and_is_open_again() -> None:
    store, looks, given_up = MemoryStore(), list[int](), threading.Event()
    begun = asyncio.Event()

    @tool(repeatable=True)
    async def look() -> str:
        looks.append(1)
        begun.set()
        if len(looks) < 3:
            await asyncio.Event().wait()
        return "found"

    @tool(uses=[look, double])
    async def work(ctx: RunContext) -> str:
        found = "nothing"
        looking = ctx.invoke(look)
        await begun.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if given_up.is_set() else 0):
                found = await looking
        await ctx.invoke(double, {"n": 2})
        if not given_up.is_set():
            given_up.set()
            await asyncio.Event().wait()
        return found

    runtime = Runtime([work], store=store)
    node = runtime.invoke(work)
    assert given_up.wait(PATIENCE)
    runtime.close()
    runtime = Runtime([work], store=store)
    runtime.recover()
    wait(lambda: len(looks) == 2)
    assert runtime.fork(runtime.get_subtree(node.id)[2]).result(PATIENCE) == "found"
    runtime.close()


def test_a_question_that_waits_is_asked_once_in_a_fork_and_can_be_answered() -> None:
    @tool(repeatable=True)
    async def hear(ctx: RunContext) -> str:
        return await ctx.ask("Well?")

    @tool(uses=[hear, double])
    async def whole(ctx: RunContext) -> tuple[str, int]:
        heard = ctx.invoke(hear)
        n = await ctx.invoke(double, {"n": 1})
        return await heard, n

    store = MemoryStore()
    with Runtime([whole], store=store) as runtime:
        node = runtime.invoke(whole)
        for view in runtime.watch(node, timeout=PATIENCE):
            if len(view.children) == 2 and view.children[0].questions:
                break
        fork = runtime.fork(node.id + 2, edit=Edit(result=3))
        [_, question] = runtime.questions()
        [asked] = runtime.get_view(fork.id + 1).questions
        assert asked == question
        for one in runtime.questions():
            runtime.answer(one.id, f"Well, {one.id}.")
        assert (node.result(PATIENCE), fork.result(PATIENCE)) == (
            ("Well, 2-1.", 2),
            ("Well, 5-1.", 3),
        )
    for tree in store.trees():
        replay([whole], store, tree.id).check()


# --- what is resumed


def resume_from_elsewhere(store: MemoryStore, said: str) -> int:
    """Have a call fail and resume it as others do; return the tree in which it went on."""

    @agent
    def greet(name: str) -> str:
        return f"Greet {name}."

    model = ScriptedModel(ScriptedFailure(500), said)
    with Runtime([greet], models=model, store=store) as runtime, attach(store) as observer:
        node = runtime.invoke(greet, {"name": said})
        with pytest.raises(ModelProviderException):
            node.result(PATIENCE)
        observer.resume(node.id)

        def resumed() -> list[int]:
            return [
                tree.id for tree in observer.trees() if tree.source == node.id and tree.state.final
            ]

        [fork] = wait(resumed)
        assert observer.get_view(fork).outputs == said
        return fork


def test_a_tree_is_resumed_beside_one_that_was_resumed_and_imported(tmp_path: Path) -> None:
    there, here, file = MemoryStore(), MemoryStore(), tmp_path / "tree.jsonl"
    export_tree(there, resume_from_elsewhere(there, "Ada"), file)
    here.join()
    import_tree(here, file)
    here.close()
    fork = resume_from_elsewhere(here, "Grace")
    with attach(here) as observer:
        assert observer.get_view(fork).outputs == "Grace"


# --- what is deleted


class Watched(MemoryStore):
    """A store that lets something happen after it was read, once."""

    after_entries: Callable[[], object] | None = None
    after_trees: Callable[[], object] | None = None

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        found = super().entries(tree, after=after)
        then, self.after_entries = self.after_entries, None
        if then is not None:
            then()
        return found

    def trees(self, **page: Any) -> list[TreeRow]:
        found = super().trees(**page)
        then, self.after_trees = self.after_trees, None
        if then is not None:
            then()
        return found


def test_a_tree_is_not_deleted_while_a_fork_of_it_is_made() -> None:
    store, is_read, may_go_on = Watched(), threading.Event(), threading.Event()
    forked = list[int]()

    def linger() -> None:
        is_read.set()
        may_go_on.wait(0.5)  # a tree that could be deleted now would be, long before that

    with Runtime([double], store=store) as runtime:
        node = runtime.invoke(double, {"n": 2})
        assert node.result(PATIENCE) == 4

        def fork() -> None:
            forked.append(runtime.fork(node).result(PATIENCE))

        store.after_entries = linger
        forking = threading.Thread(target=fork, daemon=True)
        forking.start()
        assert is_read.wait(PATIENCE)
        with pytest.raises(UsageError, match="fork"):
            runtime.delete(node.id)
        may_go_on.set()
        forking.join(PATIENCE)
    assert forked == [4]
    with Runtime([double], store=store) as runtime:
        assert [node.result(PATIENCE) for node in runtime.list_toplevel()] == [4, 4]


def test_a_fork_under_way_that_has_lost_its_source_stops_nobody(tmp_path: Path) -> None:
    path, runs, begun = tmp_path / "run.db", list[int](), threading.Event()

    @tool(repeatable=True)
    async def once() -> None:
        runs.append(1)
        if len(runs) > 1:
            begun.set()
            await asyncio.Event().wait()

    runtime = Runtime([once], store=path)
    node = runtime.invoke(once)
    node.result(PATIENCE)
    fork = runtime.fork(node)
    assert begun.wait(PATIENCE)
    runtime.close()
    with closing(sqlite3.connect(path)) as rows, rows:
        rows.execute("DELETE FROM events WHERE tree = ?", [node.id])
        rows.execute("DELETE FROM nodes WHERE tree = ?", [node.id])
    with Runtime([once, double], store=path) as runtime:
        assert runtime.recover() == []
        assert runtime.invoke(double, {"n": 2}).result(PATIENCE) == 4
        with pytest.raises(
            StoreError, match=f"node:{fork.id} cannot be read: .* no node:{node.id}"
        ):
            runtime.get_view(fork.id)


def test_a_parked_fork_that_has_lost_its_source_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.db"

    @tool(repeatable=True)
    async def hear(ctx: RunContext) -> str:
        return await ctx.ask("Well?")

    with Runtime([hear], store=path) as runtime:
        node = runtime.invoke(hear)
        runtime.answer(wait(runtime.questions)[0].id, "Yes.")
        assert node.result(PATIENCE) == "Yes."
        runtime.fork(node)
        other = runtime.invoke(hear)
        wait(lambda: len(runtime.questions()) == 2)
    with closing(sqlite3.connect(path)) as rows, rows:
        rows.execute("DELETE FROM events WHERE tree = ?", [node.id])
        rows.execute("DELETE FROM nodes WHERE tree = ?", [node.id])
    with Runtime([hear], store=path) as runtime:
        assert [node.id for node in runtime.recover()] == [other.id]
        fork, _ = runtime.list_toplevel()  # which are not read before they are looked into
        with pytest.raises(StoreError, match="has no node:1"):
            fork.get_transcript()
        lost, asked = runtime.questions()
        with pytest.raises(StoreError, match="has no node:1"):
            runtime.answer(lost.id, "Go on.")
        runtime.answer(asked.id, "Go on.")
        assert runtime.recover()[0].result(PATIENCE) == "Go on."
        assert runtime.questions() == [lost]


def test_trees_are_listed_while_another_thread_deletes_one() -> None:
    store = Watched()
    with Runtime([double], store=store) as runtime:
        ids = [runtime.invoke(double, {"n": n}).id for n in range(3)]
    with Runtime([double], store=store) as runtime:

        def delete() -> None:
            deleting = threading.Thread(target=runtime.delete, args=(ids[1],), daemon=True)
            deleting.start()
            deleting.join(PATIENCE)

        store.after_trees = delete
        nodes = runtime.list_toplevel()
        assert [node.result(PATIENCE) for node in nodes if node.id != ids[1]] == [0, 4]
        with pytest.raises(UnknownNodeError, match="deleted"):
            nodes[1].result(PATIENCE)
        assert [node.id for node in runtime.list_toplevel()] == [ids[0], ids[2]]
