"""Cancel, pause, resume, fork and answer from any process, in every state of a tree."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import warm_python
from cluster.commanded_functions import ASK, FAR, FUNCTIONS, PAY, SEND, SETTINGS, WORK
from cluster.conftest import Workers
from cluster.leases import end_lease
from cluster.serving import Serving
from command_results import environment, treefold
from notes_in_files import noted
from postgres_server import new_name, shared_url, with_query
from support import wait
from treefold import (
    CodeFunction,
    NodeState,
    Observer,
    Question,
    QuestionKind,
    Runtime,
    TreefoldError,
    attach,
)
from work_engines import EXHAUSTIVE, KINDS, engine_name, make_engine

COMMANDS = ("cancel", "pause", "resume", "fork", "answer")
STATES = (
    "queued", "running", "remote", "paused", "parked", "in doubt", "ended", "orphaned", "draining",
)  # fmt: skip
PROCESSES = ("observer", "runtime", "command line")
TRIED = KINDS if EXHAUSTIVE else ("procrastinate", "hostile")
HOME = "home"  # the queue of a worker that is always there

Case = tuple[str, str, str]


def cases(kind: str) -> list[Case]:
    """Return the cases that are tried on a kind of engine.

    Each command is given in each state: on all kinds and from all processes, or on one kind and
    from one process, so that every kind of engine meets each command and each state.
    """
    table = [(command, state) for state in STATES for command in COMMANDS]
    if EXHAUSTIVE:
        return [(*pair, process) for pair in table for process in PROCESSES]
    # The command line is the slowest: one command in each state.
    return [
        (*pair, "command line" if row % 5 == row // 5 % 5 else PROCESSES[row % 2])
        for row, pair in enumerate(table)
        if TRIED[(row % 5 + row // 5) % len(TRIED)] == kind
    ]


def name_of(case: Case) -> str:
    return "-".join(word.replace(" ", "_") for word in case)


@dataclass
class Stage:
    """A store, workers that are always there, and an observer; for all cases of an engine."""

    workers: Workers
    folder: Path
    observer: Observer
    submitter: Runtime
    orphans: dict[str, int] = field(default_factory=dict)

    def submit(self, function: CodeFunction, name: str, queue: str) -> int:
        """Submit a tree that waits for the file *name*; return its id."""
        args = {"folder": str(self.folder), "name": name}
        node = self.submitter.invoke(function, args, queue=queue)
        self.submitter.flush()
        return node.id

    def serve(self, queue: str) -> Runtime:
        """Run what is in a queue, as another process would."""
        return self.workers(*FUNCTIONS, worker=replace(SETTINGS, queues=[queue]))


@contextmanager
def open_stage(kind: str, folder: Path) -> Generator[Stage]:
    """Open a stage on a kind of engine."""
    url = with_query(shared_url(), schema=new_name())
    workers = Workers(url, engine_name(kind))
    try:
        submitter = workers.submitter(*FUNCTIONS, worker=SETTINGS)
        with attach(url) as observer:
            stage = Stage(workers, folder, observer, submitter)
            stage.serve(HOME)
            stage.serve(FAR)
            _make_orphans(stage, cases(kind))
            yield stage
    finally:
        workers.close()


@pytest.fixture(scope="module")
def stage_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Stage]]:
    """The stage on a kind of engine; that of the kind before is closed then."""
    stages: dict[str, Stage] = {}
    with ExitStack() as stack:

        def stage_on(kind: str) -> Stage:
            if kind not in stages:
                stages.clear()
                stack.close()
                folder = tmp_path_factory.mktemp("notes")
                stages[kind] = stack.enter_context(open_stage(kind, folder))
            return stages[kind]

        yield stage_on


def _make_orphans(stage: Stage, cases: Iterable[Case]) -> None:
    """Have a process run a tree for each case that needs one whose worker is dead, and kill it."""
    names = [name_of(case) for case in cases if case[1] == "orphaned"]
    for name in names:
        stage.orphans[name] = stage.submit(WORK, name, queue=name)
    program = Path(__file__).parent / "commanded_functions.py"
    workers = stage.workers
    talk = warm_python.Talk(str(program), workers.url, workers.engine, *names, env=environment())
    try:
        wait(lambda: set(names) <= set(noted(stage.folder, "begun")))
    finally:
        talk.kill()
    end_lease(workers.url, talk.program.pid)


class Scene:
    """One tree, in the state that a case wants.

    Attributes:
        name: of the case, of the file that the tree waits for, and of its own queue.
        id: of its top-level call.
    """

    def __init__(self, stage: Stage, name: str, state: str) -> None:
        self.stage = stage
        self.name = name
        self._stack = ExitStack()
        self._is_served = True
        self.observer = stage.observer
        self.id = getattr(self, f"_{state.replace(' ', '_')}")()
        self.begun = noted(stage.folder, "begun").count(name)

    def _submit(self, function: CodeFunction, queue: str) -> int:
        return self.stage.submit(function, self.name, queue)

    def _has_begun(self) -> bool:
        return self.name in noted(self.stage.folder, "begun")

    def _queued(self) -> int:
        self._is_served = False
        return self._submit(WORK, self.name)

    def _running(self) -> int:
        id = self._submit(WORK, HOME)
        wait(self._has_begun)
        return id

    def _remote(self) -> int:
        id = self._submit(SEND, HOME)
        wait(self._has_begun)
        return id

    def _paused(self) -> int:
        id = self._running()
        self.observer.pause(id)
        wait(lambda: self.questions(id))
        return id

    def _parked(self) -> int:
        id = self._submit(ASK, HOME)
        wait(lambda: self.questions(id))
        wait(lambda: not next(row for row in self.observer.trees() if row.id == id).driven)
        return id

    def _in_doubt(self) -> int:
        first = self.stage.serve(self.name)
        id = self._submit(PAY, self.name)
        wait(self._has_begun)
        self.stage.workers.close(first)
        self._serve()
        wait(lambda: self.questions(id))
        return id

    def _ended(self) -> int:
        self._open()
        id = self._submit(WORK, HOME)
        wait(lambda: self.observer.get_view(id).state.final)
        return id

    def _orphaned(self) -> int:
        self._is_served = False
        return self.stage.orphans[self.name]

    def _draining(self) -> int:
        self._is_served = False
        workers, settings = self.stage.workers, replace(SETTINGS, queues=[self.name])
        engine = make_engine(workers.engine, workers.url)
        runtime = Runtime(FUNCTIONS, store=workers.url, worker=settings, engine=engine)
        draining = Serving(runtime)
        self._stack.callback(draining.join)
        id = self._submit(PAY, self.name)
        wait(self._has_begun)
        draining.drain()
        return id

    # What it can do

    def _open(self) -> None:
        (self.stage.folder / self.name).touch()

    def serve(self) -> None:
        """See to it that a worker runs the tree, or can take it over."""
        if not self._is_served:
            self._is_served = True
            self._serve()

    def _serve(self) -> None:
        runtime = self.stage.serve(self.name)
        self._stack.callback(self.stage.workers.close, runtime)

    @property
    def trees(self) -> list[int]:
        """The tree and its forks."""
        rows = self.observer.trees()
        return [row.id for row in rows if self.id in {row.id, row.source}]

    def questions(self, tree: int) -> list[Question]:
        """Return the open questions of a tree."""
        asked = self.observer.questions()
        of = self.observer.trees_of([question.node_id for question in asked])
        return [question for question in asked if of.get(question.node_id) == tree]

    def kinds(self) -> list[QuestionKind]:
        """Return what is asked in the tree."""
        return [question.kind for question in self.questions(self.id)]

    def finish(self) -> list[object]:
        """Let everything go on, and answer what is asked; return the results of all trees."""
        self._open()
        self.serve()

        def is_over() -> bool:
            for tree in self.trees:
                for question in self.questions(tree):
                    texts = {"human": "yes", "paused": "resume", "in_doubt": f"use: {self.name}"}
                    # Somebody else may be quicker.
                    _try(lambda q=question, t=texts: self.observer.answer(q.id, t[q.kind.value]))
            return all(self.observer.get_view(tree).state.final for tree in self.trees)

        wait(is_over)
        return [self.observer.get_view(tree).outputs for tree in self.trees]

    def close(self) -> None:
        self._stack.close()


def _try(act: Callable[[], object]) -> str:
    """Return why something is refused; empty if it is not."""
    try:
        act()
    except TreefoldError as error:
        return str(error) or type(error).__name__
    return ""


def give(scene: Scene, command: str, process: str) -> str:
    """Give a command about a tree; return why it is refused."""
    id, asked = scene.id, scene.questions(scene.id)
    question = asked[0].id if asked else f"{id}-1"
    kind = asked[0].kind.value if asked else "human"
    text = {"human": "yes", "paused": "resume", "in_doubt": f"use: {scene.name}"}[kind]
    words = (question, text) if command == "answer" else (id,)
    if process == "command line":
        named = words if command == "answer" else (f"node:{id}",)
        # It would wait until somebody carries the command out.
        done = treefold(command, *named, "--wait", "0", "--store", scene.stage.workers.url)
        assert done.code in {0, 2, 3}, done
        return done.err if done.code == 2 else ""
    giver = scene.observer if process == "observer" else scene.stage.submitter
    return _try(lambda: getattr(giver, command)(*words))


ASKING = {"paused", "parked", "in doubt"}


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        pytest.param(kind, case, id=f"{kind}-{name_of(case)}")
        for kind in TRIED
        for case in cases(kind)
    ],
)
def test_a_command_has_a_definite_outcome(stage_on: Callable[[str], Stage], kind: str, case: Case):
    command, state, process = case
    scene = Scene(stage_on(kind), name_of(case), state)
    try:
        refused = give(scene, command, process)
        CHECKS[command](scene, state, refused)
    finally:
        scene.close()


def _is_unchanged(scene: Scene, refused: str, why: str) -> None:
    assert why in refused
    assert scene.finish() == [f"done {scene.name}"]


def check_cancel(scene: Scene, state: str, refused: str) -> None:
    if state == "ended":
        _is_unchanged(scene, refused, "has ended")
        return
    assert refused == ""
    scene.serve()
    wait(lambda: scene.observer.get_view(scene.id).state is NodeState.Canceled)
    # Nothing began after that, and nobody is asked any more.
    assert noted(scene.stage.folder, "begun").count(scene.name) == scene.begun
    assert scene.finish() == [None]
    assert scene.name not in noted(scene.stage.folder, "stepped")
    assert scene.kinds() == []


def check_pause(scene: Scene, state: str, refused: str) -> None:
    if state == "ended":
        _is_unchanged(scene, refused, "has ended")
        return
    assert refused == ""
    scene.serve()
    expected = {"parked": [QuestionKind.Human], "in doubt": [QuestionKind.InDoubt]}.get(state, [])
    wait(lambda: sorted(scene.kinds()) == sorted([*expected, QuestionKind.Paused]))
    assert noted(scene.stage.folder, "begun").count(scene.name) == scene.begun
    assert scene.name not in noted(scene.stage.folder, "stepped")
    assert scene.finish() == [f"done {scene.name}"]


def check_resume(scene: Scene, state: str, refused: str) -> None:
    if state == "paused":
        assert refused == ""
        wait(lambda: scene.kinds() == [])
        assert scene.finish() == [f"done {scene.name}"]
    else:
        why = "has ended" if state == "ended" else "is not paused"
        _is_unchanged(scene, refused, why)


def check_fork(scene: Scene, state: str, refused: str) -> None:
    assert refused == ""
    scene.serve()
    wait(lambda: len(scene.trees) == 2)
    assert scene.finish() == [f"done {scene.name}"] * 2


def check_answer(scene: Scene, state: str, refused: str) -> None:
    if state not in ASKING:
        _is_unchanged(scene, refused, "question")
        return
    assert refused == ""
    (scene.stage.folder / scene.name).touch()
    wait(lambda: scene.observer.get_view(scene.id).state.final)
    assert scene.finish() == [f"done {scene.name}"]


CHECKS = {
    "cancel": check_cancel,
    "pause": check_pause,
    "resume": check_resume,
    "fork": check_fork,
    "answer": check_answer,
}
