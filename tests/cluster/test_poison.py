"""Trees that end the process of their worker, again and again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.leases import end_lease
from notes_in_files import noted
from support import wait
from treefold import NodeState, Question, QuestionKind, attach
from treefold.runtime.durable.crash_trials import MOST_DEATHS
from work_engines import EXHAUSTIVE
from worker_process import WorkerProcess, result_of, submit


class Nursery:
    """A worker that is started again whenever it has died."""

    def __init__(self, url: str, folder: Path, engine: str) -> None:
        self._url = url
        self._folder = folder
        # Nobody waits for the lease.
        self._options = ("--engine", engine, "--lease", "12")
        self._worker: WorkerProcess | None = None
        self.deaths = 0

    def work(self) -> None:
        """Start a worker if none runs."""
        if self._worker is not None and self._worker.has_ended():
            self.deaths += 1
            end_lease(self._url, self._worker.pid)
            self._worker = None
        if self._worker is None:
            name = f"life-{self.deaths}"
            self._worker = WorkerProcess(self._url, name, self._folder, self._options, doomed=True)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.kill()


@pytest.fixture
def nursery(url: str, tmp_path: Path, engine: str) -> Iterator[Nursery]:
    nursery = Nursery(url, tmp_path, engine)
    yield nursery
    nursery.close()


@pytest.mark.parametrize("answer", ["resume", "cancel"] if EXHAUSTIVE else ["resume"])
def test_a_tree_that_ends_its_workers_becomes_one_question_and_others_go_on(
    url: str, nursery: Nursery, engine: str, tmp_path: Path, answer: str
):
    (tmp_path / "good").touch()
    placed = ("--engine", engine)
    bad = submit(url, "poison", "--folder", tmp_path, "--name", "bad", *placed)
    good = submit(url, "look", "--folder", tmp_path, "--name", "good", *placed)
    with attach(url) as observer:

        def asked() -> list[Question]:
            nursery.work()
            return observer.questions()

        [question] = wait(asked)
        assert (question.node_id, question.kind) == (bad, QuestionKind.Paused)
        assert f"the process died at least {MOST_DEATHS} times while this ran" in question.text
        assert noted(tmp_path, "deaths") == ["bad"] * MOST_DEATHS
        assert result_of(url, good) == "good"
        # It waits for the person, without an owner.
        wait(lambda: not any(tree.driven for tree in observer.trees()))

        # It is tried once more, and no more than that.
        observer.answer(question.id, "resume")
        wait(lambda: len(noted(tmp_path, "deaths")) > MOST_DEATHS)
        [again] = wait(asked)
        assert (again.node_id, again.kind, again.text) == (bad, QuestionKind.Paused, question.text)

        (tmp_path / "bad").touch()
        observer.answer(again.id, answer)
        wait(lambda: observer.get_view(bad).state.final)
        state = observer.get_view(bad).state
    assert state is (NodeState.Success if answer == "resume" else NodeState.Canceled)
    assert len(noted(tmp_path, "deaths")) == MOST_DEATHS + 1 + (answer == "resume")
    nursery.work()
    assert nursery.deaths == MOST_DEATHS + 1
