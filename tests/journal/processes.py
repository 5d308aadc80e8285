"""Programs that are killed in processes of their own, and the folder that outlives them.

A test module has functions that take a World and run a program there. ``Lives`` runs one of them in
a process of its own, which is then killed; the test goes on with the same world in its own process.
"""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final, TypeVar

# Every life would import it with the module of its test.
import pytest  # noqa: F401  # pyright: ignore[reportUnusedImport]

from crash.effects import Effects
from crash.nursery import Life, Nursery
from support import wait
from treefold import (
    CodeFunction,
    Function,
    Node,
    NodeState,
    NodeView,
    Question,
    RunContext,
    Runtime,
    SqliteStore,
)
from treefold.core.fact import replace
from treefold.testing import ScriptedModel

T = TypeVar("T")
Work = Callable[..., Any]

EXHAUSTIVE: Final = os.environ.get("TREEFOLD_CRASH") == "exhaustive"  # as make crash has it
PATIENCE: Final = 60  # seconds


class World:
    """A folder with a journal, and what was done there; *mortal* is who can be killed."""

    def __init__(self, folder: Path, *, mortal: bool = False) -> None:
        self.folder = folder
        self.file = folder / "run.db"
        self.mortal = mortal
        self._effects = Effects(folder / "effects")

    def runtime(
        self, *functions: Function, patience: float | None = None, **options: Any
    ) -> Runtime:
        """Return a runtime on the journal of this world, whose store may have another patience."""
        store = self.file if patience is None else SqliteStore(self.file, patience=patience)
        return Runtime(functions, store=store, **options)

    def add(self, what: str, **more: Any) -> None:
        """Do something that can be seen afterwards."""
        self._effects.add(what, **more)

    def done(self, what: str) -> int:
        """Return how often that was done, by whomever."""
        return self.all_done[what]

    @property
    def all_done(self) -> "Counter[str]":
        """All that was done, and how often."""
        return Counter(line["what"] for line in self._effects.lines())

    def told(self, what: str, field: str) -> list[Any]:
        """Return what was said of each time that it was done."""
        return [line[field] for line in self._effects.lines() if line["what"] == what]

    def die(self) -> None:
        """Be killed, if one can be."""
        if self.mortal:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(PATIENCE)

    def kept_questions(self, count: int = 1) -> list[Question]:
        """Wait until the journal has so many questions, and return them."""
        store = SqliteStore(self.file)
        try:
            return wait(lambda: found if len(found := store.questions()) == count else None) or []
        finally:
            store.close()

    def tool(
        self, name: str, *, value: Any = None, dies: bool = False, **options: Any
    ) -> CodeFunction:
        """Return code that adds its name to what was done, and may be the end of its program."""

        async def work(ctx: RunContext, n: int = 0) -> Any:
            self.add(name, n=n, key=ctx.idempotency_key)
            if dies:
                self.die()
            return f"{name} {n}" if value is None else value

        return CodeFunction(callable=work, name=name, desc=f"To {name}.", **options)

    def model(self, *script: Any) -> ScriptedModel:
        """Return a model that answers by how much was said to it, and adds ``request``."""

        def reply(request: Any) -> Any:
            self.add("request")
            said = [type(part).__name__ for part in request.transcript]
            turns = sum(
                one in {"ModelText", "ToolUse"} and said[place - 1] not in {"ModelText", "ToolUse"}
                for place, one in enumerate(said)
                if place
            )
            answer = script[turns]
            return answer(request) if callable(answer) else answer

        return ScriptedModel(reply)

    def kinds(self, node: Node | int) -> list[str]:
        """Return what the journal has of one node, in order."""
        id = node if isinstance(node, int) else node.id
        store = SqliteStore(self.file)
        try:
            found = store.find(node=id)
            return (
                []
                if found is None
                else [entry.kind for entry in store.entries(found) if entry.node == id]
            )
        finally:
            store.close()


class Lives:
    """Runs programs of a test module in processes of their own."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery

    def run(self, program: Callable[[World], Any], world: World) -> Life:
        """Run *program* in *world*, where it can be killed."""
        file = program.__code__.co_filename
        return self._nursery.live(file, program.__name__, str(world.folder))

    def killed(self, program: Callable[[World], Any], world: World) -> None:
        """Run *program*, which is killed."""
        life = self.run(program, world)
        assert life.status == -signal.SIGKILL, f"{life.status}: {life.complaints}"

    def ended(self, program: Callable[[World], Any], world: World) -> str:
        """Run *program*, which comes to its end; return what it printed."""
        life = self.run(program, world)
        assert life.status == 0, f"{life.status}: {life.complaints}"
        return life.printed


def main(arguments: Sequence[str]) -> None:
    """Run one program of a test module."""
    file, name, folder = arguments
    spec = spec_from_file_location(name_of := Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name_of] = module
    spec.loader.exec_module(module)
    getattr(module, name)(World(Path(folder), mortal=True))


def question_of(runtime: Any) -> Question:
    """Wait for the one open question."""
    [question] = wait(runtime.questions)
    return question


def answer_in_turn(runtime: Any, *texts: str) -> list[Question]:
    """Answer one question after the other as they come, and return them."""
    done: list[Question] = []

    def newest() -> Question | None:
        return next((q for q in runtime.questions() if q not in done), None)

    for text in texts:
        question = wait(newest)
        assert question is not None
        done.append(question)
        runtime.answer(question.id, text)
    return done


def result(node: Node) -> Any:
    """Wait for what came of *node*."""
    return node.result(PATIENCE)


def failure(node: Node) -> BaseException:
    """Wait for what *node* raises."""
    wait(lambda: node.state.final)
    assert node.state is not NodeState.Success, node.outputs
    assert node.exception is not None
    return node.exception


def numberless(view: NodeView) -> NodeView:
    """Return *view* without the number that says when it was looked at."""
    return replace(view, update_seqnum=0, children=tuple(map(numberless, view.children)))
