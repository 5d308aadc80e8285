"""Journals that the tests of commands look at, and processes that drive them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import survey_journals
from journal_driver import Drive, Driver
from postgres_server import empty_journal
from small_journal import write_small_journal
from survey_journals import Journal, driving
from worker_process import StartWorker, WorkerProcess


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a small journal, for tests that only read it."""
    path = tmp_path_factory.mktemp("journal") / "run.db"
    write_small_journal(path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal will be, by the name that commands expect."""
    return tmp_path / "run.db"


@pytest.fixture
def drive(path: Path) -> Iterator[Drive]:
    """Starts a process that drives the journal at *path*, and begins errands."""
    drivers: list[Driver] = []

    def start(*errands: str) -> Driver:
        drivers.append(Driver(path, *errands))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.kill()


@pytest.fixture(scope="module", params=["live", "finished"])
def survey(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Journal]:
    """One survey, once running in another process and once finished."""
    folder = tmp_path_factory.mktemp("survey")
    if request.param == "finished":
        yield survey_journals.finished(folder)
        return
    with driving(folder) as driver:
        yield Journal(driver.file, (driver.survey(key="nightly"),), live=True)


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a store in which there is nothing."""
    with empty_journal() as url:
        yield url


@pytest.fixture
def start_worker(url: str, tmp_path: Path) -> Iterator[StartWorker]:
    """Start workers, which are ended after the test; if it fails, it shows what they said."""
    workers: list[WorkerProcess] = []

    def start(*options: str, name: str = "first") -> WorkerProcess:
        workers.append(WorkerProcess(url, name, tmp_path, options))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()
        print(f"{worker.name} said:\n{worker.said}")  # noqa: T201 - pytest shows it
