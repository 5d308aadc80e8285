"""One life of the program: python -m crash.program FILE EFFECTS [--kill WHEN] [--run N] [--look].

It opens the journal FILE, goes on with its one tree, answers what it is asked, and prints what came
of it. WHEN is ``before:N`` or ``after:N`` (the N-th commit of this life), or ``time:T``
(microseconds). With ``--look`` it starts nothing, and prints what the journal holds.
"""

import argparse
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from crash.effects import Effects
from crash.tree import Stage, answered, decide
from treefold import NodeView, Observer, Question, QuestionKind, Runtime, SqliteStore, ToolUse
from treefold.core.errors import FencedError, UnknownQuestionError
from treefold.core.fact import replace
from treefold.core.store import Batch

PATIENCE: Final = 60  # seconds until a life that hangs says where, and ends
KEY: Final = "crash"


class FatalStore(SqliteStore):
    """Kills its process just before or just after a certain commit."""

    def __init__(self, path: str, moment: str = "", number: int = 0) -> None:
        super().__init__(path, synchronous="NORMAL")  # which a killed process cannot tell
        self.commits = 0
        self.fatal_moment = moment
        self.fatal_number = number
        self.one_at_a_time = threading.Lock()

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        with self.one_at_a_time:  # so that no other commit gets in between
            self.commits += 1
            fatal = self.commits == self.fatal_number
            if fatal and self.fatal_moment == "before":
                die()
            place = super().append(batches)
            if fatal and self.fatal_moment == "after":
                die()
            return place


def die() -> None:
    """Leave no time for anything."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(PATIENCE)  # this thread may be the one that runs a little longer


def drive(file: str, effects: Effects, kill: str, run: int) -> dict[str, Any]:
    """Go on with the tree to its end."""
    moment, _, number = kill.partition(":")
    store = FatalStore(file, moment, int(number or 0))
    if moment == "time":
        threading.Timer(int(number) / 1e6, die).start()
    stage = Stage(effects, run)
    models = {"default": stage.model, "crash": stage.model}
    with Runtime([stage.root], models=models, store=store) as runtime:
        node = runtime.invoke(stage.root, {"n": 1}, key=KEY)
        while not node.state.final:
            for question in runtime.questions():
                answer(runtime, effects, question)
            time.sleep(0.0005)
        view = runtime.get_view(node.id)
        return {"result": node.result(), "commits": store.commits, **described(view)}


def answer(runtime: Runtime | Observer, effects: Effects, question: Question) -> None:
    """Say what a person would."""
    view = runtime.get_view(question.node_id)
    text = "red"
    if question.kind is QuestionKind.InDoubt:
        text = decide(effects, view.fn, view.inputs.get("n", 0))
    effects.add(
        "answer",
        kind=question.kind.value,
        id=question.id,
        fn=view.fn,
        args=dict(view.inputs),
        text=text,
    )
    try:
        runtime.answer(question.id, text)
    except UnknownQuestionError:
        effects.add("too late", id=question.id)


def look(file: str) -> dict[str, Any]:
    """Return what the journal holds, without a function that could go on."""
    if not os.path.exists(file):
        return {"nodes": []}
    store = SqliteStore(file)
    try:
        tree = next((row.id for row in store.trees()), None)
        entries = [] if tree is None else store.entries(tree)
    finally:
        store.close()
    if tree is None:
        return {"nodes": []}
    with Runtime([], store=file) as runtime:
        found = described(runtime.get_view(tree))
    for node in found["nodes"]:
        node["kinds"] = [entry.kind for entry in entries if entry.node == node["id"]]
    return found


def described(view: NodeView) -> dict[str, Any]:
    """Return the view as text, and its nodes as data."""
    return {"view": repr(without_number(view)), "nodes": list(nodes_of(view, None))}


def without_number(view: NodeView) -> NodeView:
    """Return *view* as it is whenever it is looked at."""
    children = tuple(map(without_number, view.children))
    return replace(view, update_seqnum=0, children=children)


def nodes_of(view: NodeView, parent: NodeView | None) -> Iterator[dict[str, Any]]:
    """Give every node of *view*, each before those that it called."""
    asked_for = view.tool_use_id is None or (
        parent is not None
        and any(isinstance(p, ToolUse) and p.id == view.tool_use_id for p in parent.transcript)
    )
    yield {
        "id": view.id,
        "path": view.path,
        "fn": view.fn,
        "args": dict(view.inputs),
        "started": view.started_at is not None,
        "ended": view.state.final,
        "state": view.state.value,
        "asked for": asked_for,
        "marks": answered(view.transcript),
        "notices": list(view.notices),
        "questions": {question.id: question.kind.value for question in view.questions},
    }
    for child in view.children:
        yield from nodes_of(child, view)


def main(arguments: Sequence[str]) -> None:
    """Live once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("effects")
    parser.add_argument("--kill", default="")
    parser.add_argument("--run", type=int, default=0)
    parser.add_argument("--look", action="store_true")
    options = parser.parse_args(arguments)
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    if options.look:
        found = look(options.file)
    else:
        effects = Effects(options.effects)
        found = drive(options.file, effects, options.kill, options.run)
        effects.close()
    faulthandler.cancel_dump_traceback_later()
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
