"""Processes of the guarded program: ``main`` runs one, in the nursery of the crash tests.

``begin FOLDER GUARD KILL`` starts a guarded run, and is killed at a commit; ``resume FOLDER GUARD``
is another program, which has the functions and knows nothing of the guard.
"""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from guards.guarded import model_for, options_of, plan
from treefold import Runtime
from treefold.core.store import Entry
from treefold.stores import SqliteStore

PATIENCE = 20.0  # seconds


class FatalStore(SqliteStore):
    """Kills its process before or after a commit, counted from 1."""

    def __init__(self, path: Path, kill: str) -> None:
        super().__init__(path)
        moment, _, number = kill.partition(":")
        self._moment, self._left = moment, int(number or 0)

    def append(self, entries: Sequence[Entry]) -> int:
        self._left -= 1
        if not self._left and self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        place = super().append(entries)
        if not self._left and self._moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return place


def main(arguments: Sequence[str]) -> None:
    """Run one process."""
    what, folder, guard, *rest = arguments
    os.environ["GUARDED"] = folder
    if what == "begin":
        begin(Path(folder), guard, *rest)
    else:
        with Runtime([plan], models=model_for(guard), store=Path(folder) / "run.db") as runtime:
            until_it_rests(runtime)


def begin(folder: Path, guard: str, kill: str) -> None:
    """Start a guarded run; deny what it asks, unless the process is killed before."""
    store = FatalStore(folder / "run.db", kill)
    options = options_of(guard)
    with Runtime([plan], models=model_for(guard), store=store, **options) as runtime:
        runtime.invoke(plan)
        until_it_rests(runtime)
        for question in runtime.questions():
            runtime.answer(question.id, "deny")


def until_it_rests(runtime: Runtime) -> None:
    """Wait until each run has ended, is held back, or waits for a person."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        held = {node.id for node in runtime.held_back()}
        waits = {question.node_id for question in runtime.questions()}
        moving = [
            node
            for node in runtime.list_toplevel()
            if not node.state.final
            and node.id not in held
            and not waits & {one.id for one in runtime.get_subtree(node.id)}
        ]
        if not moving:
            return
        time.sleep(0.01)
    raise AssertionError("a run neither ends nor waits")
