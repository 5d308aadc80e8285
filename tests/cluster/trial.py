"""A tree that one worker starts and another finishes, and what must hold whatever happened.

The first worker is a process that is killed, stopped or cut off; the second is in this process.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import warm_python
from cluster.program import make_stage
from cluster.quick import QUICK
from cluster.serving import Serving
from crash.effects import Effects, Line
from crash.program import answer, nodes_of
from crash.tree import UNREPEATABLE, right_result
from treefold import Runtime, attach
from work_engines import make_engine

PATIENCE: Final = 60.0  # seconds
TESTS: Final = Path(__file__).parent.parent


class Process:
    """A worker in a process of its own."""

    def __init__(self, url: str, effects: Path, *options: str) -> None:
        self._talk = warm_python.Talk(
            "-m", "cluster.program", url, str(effects), *options, cwd=TESTS
        )

    @property
    def pid(self) -> int:
        return self._talk.program.pid

    def ready(self) -> None:
        """Wait until it works."""
        assert self._talk.readline() == "ready\n", self._talk.complaints

    def wait(self) -> int:
        """Wait until it has ended; return its status."""
        return self._talk.program.wait()

    @property
    def is_running(self) -> bool:
        return self._talk.program.poll() is None

    def is_stopped(self) -> bool:
        """Whether it was stopped by a signal, and does not continue."""
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def kill(self) -> None:
        """Kill it, if it runs, and close its pipes."""
        self._talk.kill()

    def close(self) -> int:
        """Have it end, if it has not."""
        return self._talk.end()[0]


@contextmanager
def worker(url: str, effects: Path, engine: str, *options: str) -> Generator[Process]:
    """Start a worker process that starts the tree, and is ended with the block."""
    placed = ("--engine", engine) if engine else ()
    process = Process(url, effects, "--start", *placed, *options)
    try:
        yield process
    finally:
        process.kill()


class Second:
    """The second worker, in this process, and the person who answers."""

    def __init__(self, url: str, effects: Path, engine: str, *, remote: bool = False) -> None:
        self.effects = Effects(effects)
        stage = make_stage(self.effects, 1, remote=remote)
        models = {"default": stage.model, "crash": stage.model}
        placed = make_engine(engine, url) if engine else None
        self.runtime = Runtime([stage.root], models=models, store=url, engine=placed, worker=QUICK)
        self._is_placed = placed is not None
        self._serving: Serving | None = None

    def serve(self) -> None:
        """Begin to run what no other worker runs."""
        if self._is_placed:
            self._serving = Serving(self.runtime)
        else:
            self.runtime.recover()

    def committed(self) -> "Committed":
        """Return what is in the journal now."""
        assert self.runtime.store is not None
        with attach(self.runtime.store) as observer:
            trees = observer.trees()
            nodes = list(nodes_of(observer.get_view(trees[0].id), None)) if trees else []
        return Committed(nodes, len(self.effects.lines()))

    def answer_until(self, is_over: Callable[[], bool]) -> None:
        """Answer what is asked, as a person who looks at the journal."""
        assert self.runtime.store is not None
        end = time.monotonic() + PATIENCE
        with attach(self.runtime.store) as observer:
            while not is_over():
                trees = observer.trees()
                assert time.monotonic() < end, trees and observer.get_view(trees[0].id)
                for question in observer.questions():
                    answer(observer, self.effects, question)
                time.sleep(0.01)

    @property
    def is_over(self) -> bool:
        """Whether the tree has ended."""
        assert self.runtime.store is not None
        trees = self.runtime.store.trees()
        return bool(trees) and not trees[0].open

    def finish(self) -> dict[str, Any]:
        """Answer what is asked until the tree has ended; return its result."""
        self.answer_until(lambda: self.is_over)
        assert self.runtime.store is not None
        with attach(self.runtime.store) as observer:
            return observer.get_view(observer.trees()[0].id).outputs

    def close(self) -> None:
        if self._serving is None:
            self.runtime.close()
        else:
            self._serving.close()
        self.effects.close()


class Committed:
    """What the journal had at some moment, when there were *lines* of effects."""

    def __init__(self, nodes: list[dict[str, Any]], lines: int) -> None:
        # Some calls look alike, and are asked for as often as there are.
        self.marks = Counter(mark for node in nodes for mark in node["marks"])
        self.ended = {_call(node) for node in nodes if node["ended"]}
        self.under_way = {_call(n) for n in nodes if n["started"] and not n["ended"]}
        self.has_tree = bool(nodes)
        self.lines = lines


def faults(
    before: Committed, after: Committed, lines: list[Line], outputs: dict[str, Any]
) -> list[str]:
    """Return which rules were broken between two moments, the second of which is the end."""
    found: list[str] = []
    due = after.marks - before.marks
    for line in lines[before.lines :]:
        if line["what"] == "request":
            due[line["mark"]] -= 1
            if due[line["mark"]] < 0 and line["mark"] in before.marks:
                found.append(f"a committed response was asked for again: {line['mark']}")
        if line["what"] == "begin" and _call(line) in before.ended:
            found.append(f"a call with a committed result ran again: {_call(line)}")
    allowed: Counter[tuple[str, str]] = Counter()
    for line in lines:
        if line["what"] == "answer" and line["text"] == "retry":
            allowed[_call(line)] += 1
        if line["what"] == "begin" and line["fn"] in UNREPEATABLE:
            allowed[_call(line)] -= 1
            if allowed[_call(line)] < -1:
                found.append(f"an unrepeatable call ran twice without a decision: {_call(line)}")
    stamped = not any(line["what"] == "answer" and line["fn"] == "stamp" for line in lines)
    if outputs != right_result(stamped=stamped):
        found.append(f"the result is wrong: {outputs}")
    return found


def _call(line: Any) -> tuple[str, str]:
    return line["fn"], json.dumps(line["args"], sort_keys=True)
