"""An open run that is imported into a shared store: no worker runs it until a person resumes it."""

from pathlib import Path

import pytest

from cluster.conftest import Workers
from cluster.test_shared_runtime import PATIENCE, eventually
from treefold import CodeFunction, MemoryStore, NodeState, RunContext, attach
from treefold.core.fact import replace
from treefold.stores import export_tree, import_tree
from treefold.stores.postgres import PostgresStore
from treefold.testing.store_suite import called, write


class Deploy:
    """Counts how often it is done."""

    def __init__(self) -> None:
        self.done = 0
        self.function = CodeFunction(name="f", callable=self._deploy, repeatable=True)

    async def _deploy(self, ctx: RunContext) -> str:
        self.done += 1
        return "deployed"


def imported(url: str, file: Path) -> int:
    """Import a run of ``f`` that has not begun."""
    there = MemoryStore()
    there.join()
    write(there, [replace(called(1, key="=nightly"), body='{"sequence":1,"inputs":{}}')])
    export_tree(there, 1, file)
    with PostgresStore(url) as store:
        return import_tree(store, file)


def test_workers_leave_it_alone_until_one_is_told_to_resume_it(workers: Workers, tmp_path: Path):
    deploy = Deploy()
    tree = imported(workers.url, tmp_path / "run.jsonl")
    runtimes = [workers(deploy.function), workers(deploy.function)]
    # What is submitted later has been run by then.
    assert runtimes[0].invoke(deploy.function).result(PATIENCE) == "deployed"
    assert (deploy.done, runtimes[1].get_view(tree).inert) == (1, True)

    runtimes[1].resume(tree)

    with attach(workers.url) as observer:
        eventually(lambda: observer.get_view(tree).state is NodeState.Success)
        assert not observer.get_view(tree).inert
    assert deploy.done == 2


def test_another_message_for_it_does_not_let_it_run(
    workers: Workers, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    deploy = Deploy()
    tree = imported(workers.url, tmp_path / "run.jsonl")
    with attach(workers.url) as observer:
        observer.pause(tree, "first")
        workers(deploy.function)
        eventually(lambda: "run 1 is held back: it was imported" in caplog.text)
        assert (deploy.done, observer.get_view(tree).inert) == (0, True)
        observer.cancel(tree)
        eventually(lambda: observer.get_view(tree).state is NodeState.Canceled)
    assert deploy.done == 0
