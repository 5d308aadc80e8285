"""Journals of every kind for the tests of commands and the viewer, and a process that drives one.

``python -m survey_journals FILE`` drives a journal and does what the lines on its stdin say,
each one JSON; each is answered by one. ``Driver`` is the other end of it.
"""

import json
import logging
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import survey_functions
import treefold
import warm_python
from command_results import PATIENCE, environment
from support import wait
from survey_functions import (
    FUNCTIONS,
    TEXTS,
    choosing,
    fail,
    forest,
    parrot,
    runtime,
    survey,
)
from treefold import Edit, Node, NodeState, Observer, Runtime, StoreError
from view_trees import flat

SURVEY: Final = str(Path(survey_functions.__file__))

HOSTILE: Final = (
    "</script><script>alert(1)</script><!--<script><img src=x onerror=alert(2)>"
    "\x1b[2J\x1b]0;title\x07\x9b31m\u202egnp.exe\u2066 \u2028 &quot; 'end'"
)


# --- journals


@dataclass(frozen=True)
class Journal:
    """A journal and the top-level calls in it."""

    file: Path
    ids: tuple[int, ...]
    live: bool = False

    @property
    def id(self) -> int:
        """The newest run."""
        return self.ids[-1]


def finished(folder: Path, *, texts: Sequence[str] = TEXTS, key: str = "nightly") -> Journal:
    """Return a journal with one survey that came to its end."""
    (folder / "open").touch()
    with runtime(folder / "run.db") as made:
        args = {"hold": str(folder / "open"), "texts": list(texts)}
        node = made.invoke(survey, args, key=key)
        node.result(PATIENCE)
    return Journal(folder / "run.db", (node.id,))


def failed(folder: Path) -> Journal:
    """Return a journal with one run that failed, and one that was cancelled."""
    with runtime(folder / "run.db") as made:
        first = made.invoke(fail, {"text": "gravel"}, key="bad")
        failure(first)
        second = made.invoke(survey, {"hold": str(folder / "never")}, key="stopped")
        wait(lambda: _running(made, second.id, "gate"))
        made.cancel(second.id, "enough")
        failure(second)
    return Journal(folder / "run.db", (first.id, second.id))


def forked(folder: Path) -> Journal:
    """Return a journal with a survey and a fork of it that was told something else."""
    journal = finished(folder)
    with runtime(journal.file) as made:
        [asked] = [view for view in flat(made.get_view(journal.id)) if view.fn == "judge"]
        other = made.fork(asked.id, edit=Edit(result="Rather long."))
        other.result(PATIENCE)
    return Journal(journal.file, (journal.id, other.id))


def parked(folder: Path) -> Journal:
    """Return a journal with a run that asks which colour, and that nobody drives."""
    with runtime(folder / "run.db") as made:
        node = made.invoke(choosing, key="colours")
        wait(made.questions)
    return Journal(folder / "run.db", (node.id,))


def hostile(folder: Path) -> Journal:
    """Return a journal in which names, arguments, results, models and errors mean harm."""
    with runtime(folder / "run.db") as made:
        node = made.invoke(parrot, {"text": HOSTILE}, key="<b>\x1b[31mkey</b>")
        node.result(PATIENCE)
        bad = made.invoke(fail, {"text": HOSTILE})
        failure(bad)
    return Journal(folder / "run.db", (node.id, bad.id))


def large(folder: Path, branches: int = 99, width: int = 100) -> Journal:
    """Return a journal with one run of 10,000 nodes."""
    with runtime(folder / "run.db") as made:
        node = made.invoke(forest, {"branches": branches, "width": width})
        node.result(PATIENCE * 2)
    return Journal(folder / "run.db", (node.id,))


# --- a run that is alive in another process


class Driver:
    """A process that drives a journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "run.db"
        self._talk = warm_python.Talk("-m", "survey_journals", str(self.file), env=environment())
        self.told(self._talk.readline())

    def call(self, function: str, key: str | None = None, **args: Any) -> int:
        """Start a call, and return its id."""
        return self.tell(do="call", function=function, key=key, args=args)

    def survey(self, hold: str = "never", key: str | None = None) -> int:
        """Start a survey that waits for the file *hold*, and return its id when it does."""
        id = self.call("survey", key, hold=str(self.folder / hold))
        self.tell(do="until", id=id, function="gate")
        return id

    def asking(self, function: str, **args: Any) -> tuple[int, str]:
        """Start a call that asks something; return its id and that of the question."""
        id = self.call(function, **args)
        return id, self.tell(do="asked", id=id)

    def open(self, hold: str = "never") -> None:
        """Let those go on who wait for the file *hold*."""
        (self.folder / hold).touch()

    def tell(self, **line: Any) -> Any:
        """Have the driver do something, and return what came of it."""
        return self.told(self._talk.tell(json.dumps(line)))

    def result(self, id: int) -> Any:
        """Wait for what came of a call: its result, or what it raised as text."""
        return self.tell(do="result", id=id)

    def kill(self) -> None:
        """Be gone at once."""
        self._talk.kill()

    def close(self) -> None:
        """Leave open what is open."""
        self._talk.end()

    def told(self, line: str) -> Any:
        assert line, f"the driver is gone: {self._talk.kill()[1]}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]


@contextmanager
def driving(folder: Path) -> Generator[Driver]:
    """Have another process drive the journal in *folder*."""
    driver = Driver(folder)
    try:
        yield driver
    finally:
        driver.close()


def _obey(made: Runtime, seen: Observer, line: Mapping[str, Any]) -> Any:
    """Do what *line* says; what is told is in the journal, for all to see."""
    match line["do"]:
        case "call":
            function = next(f for f in FUNCTIONS if f.name == line["function"])
            id = made.invoke(function, line["args"], key=line["key"]).id
            return wait(lambda: [tree.id for tree in seen.trees() if tree.id == id])[0]
        case "result":
            node = next(n for n in made.list_toplevel() if n.id == line["id"])
            try:
                return node.result(PATIENCE)
            except Exception as error:  # noqa: BLE001 - it is what came of it
                return f"{type(error).__name__}: {error}"
        case "until":
            return wait(lambda: _running(seen, line["id"], line["function"]))
        case "asked":
            return wait(lambda: _questions_below(seen, line["id"]))[0]
        case unknown:
            raise ValueError(unknown)


def _running(seen: Runtime | Observer, id: int, function: str) -> bool:
    views = flat(seen.get_view(id))
    return any(view.fn == function and view.state is NodeState.Running for view in views)


def _questions_below(seen: Observer, id: int) -> list[str]:
    inside = {view.id for view in flat(seen.get_view(id))}
    return [q.id for q in seen.questions() if q.node_id in inside]


def main(path: str) -> None:
    """Drive the journal at *path* until stdin ends."""
    logging.basicConfig(stream=sys.stderr)
    made = runtime(Path(path))
    made.recover()
    print('{"value": "ready"}', flush=True)  # noqa: T201 - it is what the test waits for
    with treefold.attach(path) as seen:
        for line in sys.stdin:
            try:
                told = {"value": _obey(made, seen, json.loads(line))}
            except Exception as error:  # noqa: BLE001 - the test is to see it
                told = {"error": repr(error)}
            print(json.dumps(told), flush=True)  # noqa: T201
    made.close()


def has_begun(file: Path) -> bool:
    """Return whether the journal *file* has a call that runs."""
    if not file.exists():
        return False
    try:
        with treefold.attach(file) as observer:
            return any(tree.state is NodeState.Running for tree in observer.trees())
    except StoreError:  # it is just being made
        return False


def failure(node: Node) -> None:
    """Wait until *node* has failed."""
    with suppress(Exception):
        node.result(PATIENCE)
    assert node.state.final, node.state


if __name__ == "__main__":
    main(sys.argv[1])
