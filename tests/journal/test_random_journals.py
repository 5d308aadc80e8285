"""Random lives of a journal, against a small model of what must be in it."""

import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from treefold import (
    AgentFunction,
    CancellationException,
    CodeFunction,
    Edit,
    Function,
    FunctionArg,
    InDoubtError,
    Node,
    NodeState,
    NodeView,
    Observer,
    Question,
    QuestionKind,
    RunContext,
    Runtime,
    SqliteStore,
    StoreError,
    ToolResult,
    ToolUse,
    attach,
)
from treefold.core.errors import FencedError, InvalidValueError, UnknownQuestionError, UsageError
from treefold.core.store import Batch
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.toolbox import human_in_loop

PATIENCE: Final = 60  # seconds
KINDS: Final = ("add", "ask", "compose", "fail", "talk")
PICK: Final = st.integers(0, 1000)


class MortalStore(SqliteStore):
    """Takes a number of entries more, and then none.

    Entries and not batches, because how many there are in one is up to the threads; each beginning
    of what happened is what a crash may leave.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, synchronous="NORMAL")
        self.left: int | None = None
        self.refused = threading.Event()

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        entries = [entry for batch in batches for entry in batch.entries]
        if self.left is None or len(entries) <= self.left:
            self.left = None if self.left is None else self.left - len(entries)
            return super().append(batches)
        kept, self.left = entries[: self.left], 0
        if kept:
            super().append([Batch(entries=kept)])
        self.refused.set()
        raise StoreError(self.name, "the process is dead")


class Stage:
    """The functions; ``effects`` says how often each was really run."""

    def __init__(self) -> None:
        self.effects: Counter[int] = Counter()
        add = CodeFunction(callable=self._add, name="add")
        self.functions: dict[str, Function] = {
            "add": add,
            "ask": CodeFunction(callable=self._ask, name="ask", repeatable=True),
            "compose": CodeFunction(callable=self._compose, name="compose", uses=[add]),
            "fail": CodeFunction(callable=self._fail, name="fail", repeatable=True),
            "talk": AgentFunction(
                "talk",
                "Talk.",
                args=[FunctionArg("n", int)],
                user_prompt_template="{n}",
                uses=[add, human_in_loop],
            ),
        }
        self._added = add

    async def _add(self, ctx: RunContext, n: int) -> str:
        self.effects[n] += 1
        return f"add {n}"

    async def _ask(self, ctx: RunContext, n: int) -> str:
        return f"ask {n}: {await ctx.ask(f'ask {n}?')}"

    async def _compose(self, ctx: RunContext, n: int) -> list[str]:
        first = await ctx.invoke(self._added, {"n": 1000 + n})
        answer = await ctx.ask(f"compose {n}?")
        return [first, answer, await ctx.invoke(self._added, {"n": 2000 + n})]

    async def _fail(self, ctx: RunContext, n: int) -> None:
        raise ValueError(f"fail {n}")

    def reply(self, request: ScriptedRequest) -> Any:
        n = int(getattr(request.transcript[0], "text", ""))
        results = [part.content for part in request.transcript if isinstance(part, ToolResult)]
        calls = [
            ToolUse("1", "add", {"n": 3000 + n}),
            ToolUse("2", "human_in_loop", {"question": f"talk {n}?"}),
        ]
        return calls[len(results)] if len(results) < len(calls) else ", ".join(results)


ADDED: Final = {"add": (0,), "compose": (1000, 2000), "talk": (3000,)}  # to n, by each kind


@dataclass
class Tree:
    """What must be true of one tree."""

    id: int
    kind: str
    n: int
    key: str | None
    source: int = 0
    continues: int = 0  # the tree that it resumes
    answer: str | None = None
    cancelled: bool = False
    doubted: bool = False  # somebody said that a call in it failed
    edited: bool = False

    @property
    def outcome(self) -> Any:
        """What it gives, or the class of what it raises."""
        if self.edited:
            return "edited"
        if self.cancelled:
            return CancellationException
        if self.doubted:
            return InDoubtError
        return {
            "add": f"add {self.n}",
            "ask": f"ask {self.n}: {self.answer}",
            "compose": [f"add {1000 + self.n}", self.answer, f"add {2000 + self.n}"],
            "fail": ValueError,
            "talk": f"add {3000 + self.n}, {self.answer}",
        }[self.kind]


class Journal(RuleBasedStateMachine):  # noqa: PLR0904 - many things can happen
    """What is done to a runtime is done to a dict of what each tree should be.

    How far a call gets before a crash is up to the threads, so no rule has a condition: what is
    drawn must not depend on that.
    """

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.stage = Stage()
        self.trees: dict[int, Tree] = {}
        self.allowed: Counter[int] = Counter()  # how often each effect may have happened
        self.keys = count()
        self.open()

    def open(self) -> None:
        self.store = MortalStore(self.folder / "run.db")
        self.runtime = Runtime(
            self.stage.functions.values(),
            models=ScriptedModel(self.stage.reply),
            store=self.store,
        )
        self.runtime.recover()

    # What may happen

    @rule(kind=st.sampled_from(KINDS), n=st.integers(0, 3), entries=st.integers(-6, 14))
    def invoke(self, kind: str, n: int, entries: int) -> None:
        key = f"key {next(self.keys)}"
        with self.dying(entries) as dies, suppress(StoreError):
            node = self.runtime.invoke(self.stage.functions[kind], {"n": n}, key=key)
            self.add(Tree(node.id, kind, n, key))
        if dies:
            self.reopen()
            if self.trees and self.newest.id not in self.ids:
                del self.trees[self.newest.id]

    @rule(pick=PICK, text=st.sampled_from(["yes", "no"]), entries=st.integers(-6, 14))
    def answer(self, pick: int, text: str, entries: int) -> None:
        if not (waiting := self.waiting(QuestionKind.Human)):
            return
        question = self.picked(waiting, pick)
        tree = self.tree_of(question)
        with self.dying(entries) as dies, suppress(StoreError):
            self.runtime.answer(question.id, text)
            tree.answer = text
        if dies:
            self.reopen()
            if any(one.id == question.id for one in self.runtime.questions()):
                tree.answer = None
        else:
            with pytest.raises(UnknownQuestionError):
                self.runtime.answer(question.id, text)

    @rule(pick=PICK, text=st.sampled_from(["retry", "use", "fail"]), entries=st.integers(-6, 14))
    def decide(self, pick: int, text: str, entries: int) -> None:
        if not (waiting := self.waiting(QuestionKind.InDoubt)):
            return
        question = self.picked(waiting, pick)
        tree, n = self.tree_of(question), self.runtime.get_view(question.node_id).inputs["n"]
        if tree.kind == "talk" and text == "fail":
            text = "use"  # the agent would be told, and go on
        with self.dying(entries) as dies, suppress(StoreError):
            self.runtime.answer(question.id, f"use: add {n}" if text == "use" else text)
        self.allowed[n] += text == "retry"
        if dies:
            self.reopen()
        if text == "fail" and not [q for q in self.runtime.questions() if self.is_of(q, tree)]:
            tree.doubted = True

    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        if not self.trees:
            return
        tree = self.picked(list(self.trees.values()), pick)
        was_open = not self.view(tree).state.final
        self.runtime.cancel(tree.id)
        tree.cancelled = tree.cancelled or was_open
        wait(lambda: self.node(tree).state.final)

    @rule(pick=PICK)
    def resume(self, pick: int) -> None:
        if not self.trees:
            return
        first = self.picked(list(self.trees.values()), pick)
        tree = self.continued(first)
        if not (tree.cancelled or tree.kind == "fail" or tree.doubted) or tree.edited:
            with pytest.raises(UsageError):
                self.runtime.resume(first.id)
            return
        node = self.runtime.resume(first.id)
        self.allowed.update(tree.n + more for more in ADDED.get(tree.kind, ()))
        doubted = tree.doubted and not tree.cancelled
        self.add(
            Tree(
                node.id,
                tree.kind,
                tree.n,
                None,
                source=tree.id,
                continues=tree.id,
                answer=tree.answer,
                doubted=doubted,
            ),
            runs=False,
        )

    @rule(pick=PICK, edited=st.booleans())
    def fork(self, pick: int, *, edited: bool) -> None:
        if not self.trees:
            return
        tree = self.picked(list(self.trees.values()), pick)
        if edited:
            node = self.runtime.fork(tree.id, edit=Edit(result="edited"))
        else:
            at = 0 if tree.kind == "talk" else None
            node = self.runtime.fork(tree.id, at=at)
        self.add(Tree(node.id, tree.kind, tree.n, None, tree.id, edited=edited), runs=not edited)

    @rule(pick=PICK)
    def delete(self, pick: int) -> None:
        if not self.trees:
            return
        tree = self.picked(list(self.trees.values()), pick)
        is_source = any(other.source == tree.id for other in self.trees.values())
        if is_source or not self.view(tree).state.final:
            with pytest.raises(UsageError):
                self.runtime.delete(tree.id)
        else:
            self.runtime.delete(tree.id)
            del self.trees[tree.id]

    @rule(pick=PICK)
    def invoke_again(self, pick: int) -> None:
        if not (keyed := [tree for tree in self.trees.values() if tree.key]):
            return
        tree = self.picked(keyed, pick)
        function = self.stage.functions[tree.kind]
        again = self.runtime.invoke(function, {"n": tree.n}, key=tree.key)
        assert again.id == self.continued(tree).id
        with pytest.raises(InvalidValueError):
            self.runtime.invoke(function, {"n": tree.n + 1}, key=tree.key)

    @rule()
    def crash(self) -> None:
        self.rest()
        self.keep()
        before = {tree.id: numberless(self.view(tree)) for tree in self.trees.values()}
        questions = self.runtime.questions()
        self.store.left = 0
        self.reopen()
        self.rest()
        assert self.runtime.questions() == questions
        assert {tree.id: numberless(self.view(tree)) for tree in self.trees.values()} == before

    # What must hold

    @invariant()
    def each_tree_is_as_it_should_be(self) -> None:
        self.rest()
        assert self.ids == list(self.trees)
        for tree in self.trees.values():
            node = self.node(tree)
            if node.state.final:
                assert outcome(node) == tree.outcome, tree
                continue
            assert not tree.cancelled
            [question] = [q for q in self.runtime.questions() if self.is_of(q, tree)]
            if question.kind is QuestionKind.Human:
                assert tree.answer is None, tree
                assert question.text == f"{tree.kind} {tree.n}?"
            else:
                assert question.kind is QuestionKind.InDoubt
                assert self.runtime.get_view(question.node_id).fn == "add"

    @invariant()
    def no_effect_happened_too_often(self) -> None:
        assert self.stage.effects - self.allowed == Counter()

    def teardown(self) -> None:
        if hasattr(self, "runtime"):
            self.runtime.close()
            shutil.rmtree(self.folder)

    # How it is looked at

    def add(self, tree: Tree, *, runs: bool = True) -> None:
        self.trees[tree.id] = tree
        if runs:
            self.allowed.update(tree.n + more for more in ADDED.get(tree.kind, ()))

    def dying(self, entries: int) -> "Dying":
        """Let the store take only so many *entries* more, if that is not negative."""
        return Dying(self, entries)

    def reopen(self) -> None:
        self.runtime.close()
        self.store.close()
        self.open()
        self.rest()

    def rest(self) -> None:
        """Wait until everything has ended, or waits for a person."""
        wait(self.rests)

    def keep(self) -> None:
        """Wait until the journal has what was said last, which nobody has to wait for."""
        with attach(self.store) as observer:
            wait(lambda: self.store.refused.is_set() or self.is_kept(observer))

    def is_kept(self, observer: Observer) -> bool:
        return observer.questions() == self.runtime.questions() and all(
            numberless(observer.get_view(tree.id)) == numberless(self.view(tree))
            for tree in self.trees.values()
        )

    def rests(self) -> bool:
        if self.store.refused.is_set():
            return True
        asking = {  # and have come so far that they wait for the answer
            q.node_id
            for q in self.runtime.questions()
            if self.runtime.get_view(q.node_id).state is NodeState.Paused
        }
        return all(
            node.state.final or asking & {one.id for one in self.runtime.get_subtree(node.id)}
            for node in self.runtime.list_toplevel()
        )

    def continued(self, tree: Tree) -> Tree:
        """Return what became of *tree*: the tree that resumes it, or the one that resumes that."""
        while later := [one for one in self.trees.values() if one.continues == tree.id]:
            [tree] = later
        return tree

    def waiting(self, kind: QuestionKind) -> list[Question]:
        return [question for question in self.runtime.questions() if question.kind is kind]

    def tree_of(self, question: Question) -> Tree:
        [tree] = [tree for tree in self.trees.values() if self.is_of(question, tree)]
        return tree

    def is_of(self, question: Question, tree: Tree) -> bool:
        return question.node_id in {node.id for node in self.runtime.get_subtree(tree.id)}

    def view(self, tree: Tree) -> NodeView:
        return self.runtime.get_view(tree.id)

    def node(self, tree: Tree) -> Node:
        [node] = [node for node in self.runtime.list_toplevel() if node.id == tree.id]
        return node

    @property
    def ids(self) -> list[int]:
        return [node.id for node in self.runtime.list_toplevel()]

    @property
    def newest(self) -> Tree:
        return list(self.trees.values())[-1]

    @staticmethod
    def picked(things: Sequence[Any], pick: int) -> Any:
        return things[pick % len(things)]


class Dying:
    """A block in which the store may come to its end; true afterwards if it did."""

    def __init__(self, journal: Journal, entries: int) -> None:
        self._journal = journal
        self._entries = entries
        self._died = False

    def __enter__(self) -> "Dying":
        if self._entries >= 0:
            self._journal.store.left = self._entries
        return self

    def __exit__(self, *exception: object) -> None:
        self._journal.rest()
        self._journal.keep()
        self._died = self._journal.store.left is not None
        if self._died:
            self._journal.store.left = 0

    def __bool__(self) -> bool:
        return self._died


def outcome(node: Node) -> Any:
    """Return what a call gave, or the class of what it raised."""
    try:
        return node.result(PATIENCE)
    except (CancellationException, InDoubtError, ValueError) as error:
        kinds = (CancellationException, InDoubtError, ValueError)
        return next(kind for kind in kinds if isinstance(error, kind))


def wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came to rest"
        time.sleep(0.0005)


def numberless(view: NodeView) -> dict[str, Any]:
    """Return *view* without the number that says when it was looked at."""
    fields = {name: getattr(view, name) for name in NodeView.__slots__}
    children = [numberless(child) for child in view.children]
    return fields | {"update_seqnum": 0, "children": children}


TestJournal = Journal.TestCase
TestJournal.settings = settings(
    max_examples=20,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
