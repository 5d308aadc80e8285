"""The health checks and metrics of ``treefold worker``."""

import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from command_results import treefold
from notes_in_files import noted
from postgres_server import PostgresServer
from support import wait
from treefold import WorkerPhase, WorkerSettings, WorkerStatus
from treefold.cli.health import LONGEST_BLOCK, LONGEST_SILENCE, Health
from treefold.stores.postgres.store import PostgresStore
from worker_process import StartWorker, WorkerProcess, submit

READY = WorkerStatus(phase=WorkerPhase.Ready, slots=4)
LEASE = 12.0  # seconds


def get(url: str) -> tuple[int, str]:
    """Return the status and the text of a page."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metrics_of(text: str) -> dict[str, float]:
    """Return the samples of a page of metrics; every line has to be well-formed."""
    found: dict[str, float] = {}
    described: set[str] = set()
    for line in text.splitlines():
        if about := re.fullmatch(r"# (?:HELP|TYPE) (treefold_\w+) .+", line):
            described.add(about[1])
        else:
            labels = r'(\{\w+="[^"]*"(?:,\w+="[^"]*")*\})'
            sample = re.fullmatch(rf"(treefold_(\w+?)){labels}? ([0-9.]+)", line)
            assert sample is not None, line
            assert sample[1] in described, line
            found[sample[2] + (sample[3] or "")] = float(sample[4])
    return found


def test_a_worker_is_ready_until_it_drains(url: str, start_worker: StartWorker, tmp_path: Path):
    worker = start_worker("--health", "0")
    at = worker.health
    assert at.startswith("http://127.0.0.1:")
    assert get(f"{at}/ready") == (200, "ready\n")
    assert get(f"{at}/alive") == (200, "alive\n")
    assert get(f"{at}/other")[0] == 404
    submit(url, "mail", "--folder", tmp_path, "--name", "one")
    wait(lambda: noted(tmp_path, "begun") == ["one"])

    worker.send(signal.SIGTERM)

    wait(lambda: get(f"{at}/ready") == (503, "it is draining\n"))
    assert get(f"{at}/alive") == (200, "alive\n")
    assert metrics_of(get(f"{at}/metrics")[1])["draining"] == 1
    (tmp_path / "one").touch()
    assert worker.wait() == 0


def test_the_metrics_are_those_of_the_worker_and_of_its_queues(
    url: str, start_worker: StartWorker, tmp_path: Path
):
    worker = start_worker("--health", "0", "--slots", "1", "--queue", "day", "--queue", "night")
    for name in ("one", "two", "three"):
        submit(url, "look", "--folder", tmp_path, "--name", name, "--queue", "day")
    wait(lambda: len(noted(tmp_path, "begun")) == 1)

    def metrics() -> dict[str, float]:
        return metrics_of(get(f"{worker.health}/metrics")[1])

    found = metrics()
    exact = ("up", "draining", "slots", "running", "waiting", "lost_total", "doubts")
    assert {name: found[name] for name in exact} == {
        "up": 1, "draining": 0, "slots": 1, "running": 1, "waiting": 0, "lost_total": 0,
        "doubts": 0,
    }  # fmt: skip
    assert (found['owed{queue="day"}'], found['owed{queue="night"}']) == (2, 0)
    assert found['oldest_owed_seconds{queue="day"}'] > 0
    assert found['oldest_owed_seconds{queue="night"}'] == 0
    assert 1 <= found["appends_total"] <= found["entries_total"]
    assert found["heartbeat_age_seconds"] < 10
    assert found["event_loop_age_seconds"] < 10
    for name in ("one", "two", "three"):
        (tmp_path / name).touch()
    wait(lambda: metrics()['owed{queue="day"}'] == metrics()["running"] == 0)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A database that can be stopped."""
    with PostgresServer() as started:
        yield started


def test_a_worker_whose_database_is_away_is_not_ready_and_goes_on_when_it_is_back(
    server: PostgresServer, tmp_path: Path
):
    url = server.url()
    worker = WorkerProcess(url, "first", tmp_path, ["--health", "0"])
    try:
        node = submit(url, "survey", "--folder", tmp_path, "--names", '["one", "two"]')
        wait(lambda: noted(tmp_path, "begun") == ["one"])
        at = worker.health
        server.stop()
        wait(lambda: get(f"{at}/ready")[0] == 503)
        status, text = get(f"{at}/ready")
        assert (status, re.sub(r"\d+", "N", text)) == (503, "the store has not answered for N s\n")
        assert get(f"{at}/alive") == (200, "alive\n")
        assert metrics_of(get(f"{at}/metrics")[1])["up"] == 0
        for name in ("one", "two"):
            (tmp_path / name).touch()

        server.start()

        wait(lambda: not treefold("ps", "--json", "--store", url).json[0]["open"])
        assert treefold("ps", "--json", "--store", url).json[0]["id"] == node
        # It counted as dead if the database was away for longer than its lease.
        assert worker.has_ended() or wait(lambda: get(f"{at}/ready") == (200, "ready\n"))
    finally:
        worker.kill()


@pytest.fixture
def shared(url: str) -> Iterator[PostgresStore]:
    """A store for health checks of a worker that is made up."""
    with PostgresStore(url) as store:
        yield store


@dataclass(frozen=True)
class Working:
    """A worker of one store that is made up."""

    store: PostgresStore
    status: WorkerStatus

    @property
    def worker_settings(self) -> WorkerSettings:
        return WorkerSettings(lease=LEASE)

    def worker_status(self) -> WorkerStatus:
        return self.status


def health(store: PostgresStore, *statuses: WorkerStatus, busy: float = 0.0) -> Health:
    """Return the health checks of a worker that does as *statuses* say, in a store each."""
    return Health([Working(store, one) for one in statuses or (READY,)], busy=lambda: busy)


@pytest.mark.parametrize("phase", [WorkerPhase.Starting, WorkerPhase.Draining, WorkerPhase.Dead])
def test_only_a_worker_that_takes_work_is_ready(shared: PostgresStore, phase: WorkerPhase):
    page = health(shared, WorkerStatus(phase=phase)).ready()

    assert (page.status, page.text) == (503, f"it is {phase.value}\n")


def test_a_worker_whose_event_loop_is_blocked_is_not_alive(shared: PostgresStore):
    assert health(shared, busy=LONGEST_BLOCK).alive().status == 200

    page = health(shared, busy=LONGEST_BLOCK + 1).alive()

    assert (page.status, page.text) == (503, "its event loop has been blocked for 61 s\n")


def test_a_worker_that_hears_nothing_of_the_store_for_several_leases_is_not_alive(
    shared: PostgresStore,
):
    silence = LONGEST_SILENCE * LEASE
    short = WorkerStatus(phase=WorkerPhase.Ready, is_reachable=False, beaten=silence)
    long = WorkerStatus(phase=WorkerPhase.Ready, is_reachable=False, beaten=silence + 1)

    assert health(shared, short).alive().status == 200
    assert health(shared, short).ready().status == 503
    page = health(shared, long).alive()

    assert (page.status, page.text) == (503, "the store has not answered for 121 s\n")


def test_a_worker_that_counted_as_dead_is_not_alive(shared: PostgresStore):
    page = health(shared, WorkerStatus(phase=WorkerPhase.Dead)).alive()

    assert (page.status, page.text) == (503, "it counted as dead, and others run its trees\n")


def test_the_event_loop_being_blocked_does_not_stop_the_health_checks(
    url: str, start_worker: StartWorker
):
    worker = start_worker("--health", "0")
    submit(url, "block", "--seconds", "4")

    wait(lambda: metrics_of(get(f"{worker.health}/metrics")[1])["event_loop_age_seconds"] > 2)

    assert get(f"{worker.health}/alive") == (200, "alive\n")
