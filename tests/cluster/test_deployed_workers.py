"""Workers with different versions of a program, each in a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import warm_python
from cluster.conftest import Workers
from cluster.deployed_worker import SETTINGS, functions
from cluster.leases import end_lease
from command_results import environment
from notes_in_files import noted
from support import wait
from treefold import NodeView, QuestionKind, attach

PROGRAM = Path(__file__).parent / "deployed_worker.py"


class Deployment:
    """Trees that are submitted with some version of the program, and the workers for them."""

    def __init__(self, workers: Workers, folder: Path) -> None:
        self._workers = workers
        self._folder = folder
        self._processes: list[warm_python.Talk] = []

    def submit(self, name: str, version: str) -> int:
        """Submit a tree with a version of the program; return its id."""
        [function] = functions(version)
        runtime = self._workers.submitter(function, worker=SETTINGS)
        node = runtime.invoke(function, {"folder": str(self._folder), "name": name})
        runtime.flush()
        return node.id

    def start(self, version: str, policy: str = "adopt") -> warm_python.Talk:
        """Start a worker."""
        words = (self._workers.url, self._workers.engine, version, policy)
        talk = warm_python.Talk(str(PROGRAM), *words, env=environment())
        self._processes.append(talk)
        return talk

    def begun(self, name: str, version: str = "one") -> int:
        """Submit a tree, and kill the worker that has begun it; return the id of the tree."""
        id = self.submit(name, version)
        worker = self.start(version)
        wait(lambda: name in noted(self._folder, version))
        self.kill(worker)
        return id

    def kill(self, worker: warm_python.Talk) -> None:
        worker.kill()
        end_lease(self._workers.url, worker.program.pid)

    def ended(self, name: str, id: int) -> NodeView:
        """Let the tree end, and return what became of it."""
        (self._folder / name).touch()
        with attach(self._workers.url) as observer:
            wait(lambda: observer.get_view(id).state.final)
            return observer.get_view(id)

    def close(self) -> None:
        for process in self._processes:
            process.kill()


@pytest.fixture
def deployment(placed: Workers, tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(placed, tmp_path)
    yield deployment
    deployment.close()


def test_new_code_adopts_the_trees_of_a_dead_worker_with_a_notice(deployment: Deployment):
    id = deployment.begun("a")
    deployment.start("two")
    view = deployment.ended("a", id)
    assert view.outputs == "two"
    [notice] = view.notices
    assert notice.startswith("report has changed since this call was made (its code)")


def test_new_code_asks_before_it_runs_the_trees_of_a_dead_worker(
    deployment: Deployment, url: str, tmp_path: Path
):
    id = deployment.begun("a")
    deployment.start("two", "pause")
    with attach(url) as observer:
        [question] = wait(observer.questions)
        assert (question.node_id, question.kind) == (id, QuestionKind.Paused)
        assert "report has changed since this call was made" in question.text
        # The tree is given up: whoever answers, and whenever.
        wait(lambda: not observer.trees()[0].driven)
        assert noted(tmp_path, "two") == []
        observer.answer(question.id, "resume")
    assert deployment.ended("a", id).outputs == "two"


def test_a_pinned_tree_waits_for_its_own_version(deployment: Deployment, tmp_path: Path):
    id = deployment.begun("a")
    newer = deployment.start("two", "pin")
    wait(lambda: "on_new_code is 'pin'" in newer.complaints)
    deployment.start("one", "pin")
    view = deployment.ended("a", id)
    assert (view.outputs, view.notices) == ("one", ())
    assert noted(tmp_path, "two") == []


def test_a_tree_waits_for_a_worker_that_has_its_function(deployment: Deployment):
    id = deployment.submit("a", "one")
    without = deployment.start("none")
    wait(lambda: "this process has no function 'report'" in without.complaints)
    deployment.start("one")
    assert deployment.ended("a", id).outputs == "one"


def test_a_tree_without_a_worker_that_has_its_function_can_be_cancelled(
    deployment: Deployment, url: str
):
    id = deployment.submit("a", "one")
    without = deployment.start("none")
    wait(lambda: "this process has no function 'report'" in without.complaints)
    with attach(url) as observer:
        observer.cancel(id, "nobody has it")
        wait(lambda: observer.get_view(id).state.final)
        assert observer.get_view(id).state.value == "canceled"


def test_an_older_worker_beside_a_newer_one_runs_what_was_begun_with_its_code(
    deployment: Deployment, tmp_path: Path
):
    for version in ("one", "two"):
        deployment.start(version, "pin")
    trees = [
        (f"{version}-{n}", version, deployment.submit(f"{version}-{n}", version))
        for n in range(2)
        for version in ("one", "two")
    ]
    for name, version, id in trees:
        assert deployment.ended(name, id).outputs == version
    for version in ("one", "two"):
        assert sorted(noted(tmp_path, version)) == [f"{version}-{n}" for n in range(2)]
