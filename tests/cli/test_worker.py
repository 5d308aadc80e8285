"""``treefold worker`` and ``treefold run --detach``: real processes on a real PostgreSQL."""

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from cluster.leases import end_lease
from command_results import treefold
from notes_in_files import noted
from postgres_server import PostgresServer, empty_journal, shared_url
from support import wait
from treefold import attach
from work_engines import EXHAUSTIVE, KINDS, engine_name
from worker_process import TESTS, StartWorker, WorkerProcess, detach, result_of, submit


def test_what_is_detached_is_run_by_a_worker(url: str, start_worker: StartWorker, tmp_path: Path):
    (tmp_path / "one").touch()
    options = ("--folder", tmp_path, "--names", '["one"]')

    done = detach(url, "survey", *options)

    assert done.code == 0
    node = int(done.out)
    assert f"treefold tree {node} --store 'postgresql://" in done.err
    assert "no worker that serves 'default' has survey now" in done.err
    (run,) = treefold("ps", "--json", "--store", url).json
    assert run["state"] == "waiting"
    worker = start_worker()
    assert result_of(url, node) == ["said one", "one"]
    assert noted(tmp_path, "asked") == ["one"]
    assert "survey (run 1) started" in worker.said
    assert "resumed" not in worker.said
    assert "no worker" not in detach(url, "survey", *options).err


def test_the_same_key_is_the_same_run(url: str, start_worker: StartWorker, tmp_path: Path):
    start_worker()
    (tmp_path / "one").touch()
    options = ("--folder", tmp_path, "--name", "one", "--key", "nightly")

    first = submit(url, "look", *options)
    result_of(url, first)
    again = detach(url, "look", *options)
    other = detach(url, "look", "--folder", tmp_path, "--name", "two", "--key", "nightly")

    assert (again.code, int(again.out)) == (0, first)
    assert "has ended" in again.err
    other.refused("has the key 'nightly'", "give another key")
    assert noted(tmp_path, "begun") == ["one"]


def test_a_worker_runs_its_own_queues_only(url: str, start_worker: StartWorker, tmp_path: Path):
    start_worker()
    for name in ("one", "two"):
        (tmp_path / name).touch()

    night = submit(url, "look", "--folder", tmp_path, "--name", "one", "--queue", "night")
    day = submit(url, "look", "--folder", tmp_path, "--name", "two")

    assert result_of(url, day) == "two"
    assert noted(tmp_path, "begun") == ["two"]
    start_worker("--queue", "night", "--queue", "evening", name="second")
    assert result_of(url, night) == "one"


def on(*kinds: str) -> pytest.MarkDecorator:
    """Run a test on some kinds of engine; ``make cluster`` runs it on all."""
    tried = (*KINDS, "in-process") if EXHAUSTIVE else kinds
    return pytest.mark.parametrize("engine", tried, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine."""
    return engine_name(request.param)


@on("procrastinate")
def test_sigterm_hands_over_what_may_be_done_again(
    url: str, start_worker: StartWorker, tmp_path: Path, engine: str
):
    first = start_worker("--engine", engine)
    names = ["one", "two", "three", "four"]
    nodes = [
        submit(
            url, "survey", "--folder", tmp_path, "--names", json.dumps([name]), "--engine", engine
        )
        for name in names
    ]
    wait(lambda: sorted(noted(tmp_path, "begun")) == sorted(names))
    first.send(signal.SIGTERM)
    assert first.wait() == 0
    assert "SIGTERM: it gives up what it runs" in first.said
    assert first.said.endswith("treefold worker: stopped\n")

    start_worker("--engine", engine, name="second")
    for name in names:
        (tmp_path / name).touch()

    assert [result_of(url, node) for node in nodes] == [[f"said {name}", name] for name in names]
    # Nothing is in doubt, no reply of the model was asked for again, and each look was repeated.
    assert treefold("questions", "--json", "--store", url).json == []
    assert sorted(noted(tmp_path, "asked")) == sorted(names)
    assert sorted(noted(tmp_path, "begun")) == sorted(2 * names)


@on("temporal")
def test_sigterm_waits_for_what_must_not_be_done_again(
    url: str, start_worker: StartWorker, tmp_path: Path, engine: str
):
    first = start_worker("--engine", engine)
    node = submit(url, "mail", "--folder", tmp_path, "--name", "one", "--engine", engine)
    wait(lambda: noted(tmp_path, "begun") == ["one"])
    first.send(signal.SIGTERM)
    wait(lambda: "SIGTERM" in first.said)
    assert not first.has_ended()
    (tmp_path / "one").touch()

    assert first.wait() == 0

    assert noted(tmp_path, "ended") == ["one"]
    start_worker("--engine", engine, name="second")
    (tmp_path / "one-2").touch()
    assert result_of(url, node) == "one-2"
    assert noted(tmp_path, "ended") == ["one", "one-2"]


@on("hostile")
def test_after_the_time_to_drain_the_rest_is_given_up_and_a_person_decides(
    url: str, start_worker: StartWorker, tmp_path: Path, engine: str
):
    first = start_worker("--drain", "0.2", "--engine", engine)
    node = submit(url, "mail", "--folder", tmp_path, "--name", "one", "--engine", engine)
    wait(lambda: noted(tmp_path, "begun") == ["one"])

    first.send(signal.SIGTERM)

    assert first.wait() == 0
    start_worker("--engine", engine, name="second")
    questions = wait(lambda: treefold("questions", "--json", "--store", url).json)
    assert [question["kind"] for question in questions] == ["in_doubt"]
    (tmp_path / "one-2").touch()
    answered = treefold("answer", questions[0]["id"], "use: done", "--store", url)
    assert answered.code == 0, answered
    assert result_of(url, node) == "one-2"
    assert noted(tmp_path, "begun") == ["one", "one-2"]


def test_a_second_signal_ends_it_at_once(url: str, start_worker: StartWorker, tmp_path: Path):
    worker = start_worker()
    submit(url, "mail", "--folder", tmp_path, "--name", "one")
    wait(lambda: noted(tmp_path, "begun") == ["one"])
    worker.send(signal.SIGTERM)
    wait(lambda: "another signal ends it at once" in worker.said)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 143


def test_ctrl_c_drains_as_well(start_worker: StartWorker):
    worker = start_worker()

    worker.send(signal.SIGINT)

    assert worker.wait() == 0
    assert "SIGINT: it gives up what it runs" in worker.said


@on("in-process")
def test_a_worker_that_was_killed_is_replaced_by_another(
    url: str, start_worker: StartWorker, tmp_path: Path, engine: str
):
    first = start_worker("--slots", "2", "--engine", engine)
    names = [["one", "two"], ["three", "four"]]
    nodes = [
        submit(url, "survey", "--folder", tmp_path, "--names", json.dumps(some), "--engine", engine)
        for some in names
    ]
    wait(lambda: len(noted(tmp_path, "begun")) == 2)
    (tmp_path / "one").touch()
    wait(lambda: "two" in noted(tmp_path, "begun"))
    start_worker("--slots", "2", "--engine", engine, name="second")

    first.send(signal.SIGKILL)

    assert first.wait() == -signal.SIGKILL
    end_lease(url, first.pid)
    for name in ("two", "three", "four"):
        (tmp_path / name).touch()
    assert [result_of(url, node) for node in nodes] == [
        ["said one", "one", "said two", "two"],
        ["said three", "three", "said four", "four"],
    ]
    # What had ended was not done again, and no reply was asked for twice.
    assert noted(tmp_path, "ended").count("one") == 1
    assert sorted(noted(tmp_path, "asked")) == ["four", "one", "three", "two"]


def test_a_worker_that_was_stopped_for_long_loses_its_run_and_works_on(
    url: str, start_worker: StartWorker, tmp_path: Path
):
    first = start_worker()
    node = submit(url, "survey", "--folder", tmp_path, "--names", '["one"]')
    wait(lambda: noted(tmp_path, "begun") == ["one"])
    first.send(signal.SIGSTOP)
    second = start_worker(name="second")
    wait(lambda: noted(tmp_path, "begun") == ["one", "one"])

    first.send(signal.SIGCONT)

    (tmp_path / "one").touch()
    assert result_of(url, node) == ["said one", "one"]
    assert noted(tmp_path, "asked") == ["one"]
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    again = submit(url, "survey", "--folder", tmp_path, "--names", '["one"]')
    assert result_of(url, again) == ["said one", "one"]


def test_what_it_takes_and_gives_up_is_logged(url: str, start_worker: StartWorker):
    worker = start_worker()
    node = submit(url, "ask", "--text", "Go on?")

    wait(lambda: "ask (run 1) only waits, and was given up" in worker.said)

    assert "ask (run 1) was taken" in worker.said
    question = treefold("questions", "--json", "--store", url).json[0]
    treefold("answer", question["id"], "yes", "--store", url)
    assert result_of(url, node) == "yes"
    assert worker.said.count("ask (run 1) was taken") == 2


def test_a_worker_without_the_dependencies_of_a_run_leaves_it_to_others(
    url: str, start_worker: StartWorker, tmp_path: Path
):
    without = start_worker(name="without")
    deps = ("--deps", "worker_functions:connect")

    node = submit(url, "remind", "--folder", tmp_path, *deps)

    why = "its dependencies came from worker_functions:connect, and this process has none"
    wait(lambda: f"run {node} is held back: {why}" in without.said)
    assert "held back: its dependencies" in treefold("tree", node, "--store", url).out
    assert noted(tmp_path, "reminded") == []
    start_worker(*deps, name="with")
    # Otherwise it may be delivered to that one again and again, and later each time.
    without.send(signal.SIGTERM)
    assert without.wait() == 0
    assert result_of(url, node) == "mailer-of-remind"
    assert noted(tmp_path, "reminded") == ["mailer-of-remind"]


@pytest.fixture
def other_url() -> Iterator[str]:
    """The URL of another store in which there is nothing."""
    with empty_journal() as url:
        yield url


@pytest.fixture
def serving_both(url: str, other_url: str, start_worker: StartWorker) -> WorkerProcess:
    """A worker that serves two stores."""
    worker = start_worker("--store", url, "--store", other_url, "--health", "0")
    wait(lambda: worker.said.count(" is ready ") == 2)
    return worker


def metrics_of(worker: WorkerProcess) -> str:
    return urllib.request.urlopen(f"{worker.health}/metrics", timeout=60).read().decode()


def running(store: str) -> dict[int, int]:
    """Return how many trees each worker has said that it runs, by process."""
    rows = treefold("workers", "--json", "--store", store).json
    return {row["process"]: row["running"] for row in rows}


def test_a_worker_serves_several_stores_and_gives_up_the_runs_of_all(
    url: str, other_url: str, serving_both: WorkerProcess, start_worker: StartWorker, tmp_path: Path
):
    names = {url: "one", other_url: "two"}
    runs = {
        store: submit(store, "survey", "--folder", tmp_path, "--names", json.dumps([name]))
        for store, name in names.items()
    }
    wait(lambda: sorted(noted(tmp_path, "begun")) == ["one", "two"])
    assert metrics_of(serving_both).count("treefold_running{store=") == 2
    for store in names:
        wait(lambda store=store: running(store) == {serving_both.pid: 1})

    serving_both.send(signal.SIGTERM)

    assert serving_both.wait() == 0
    for store, name in names.items():
        (tmp_path / name).touch()
        start_worker("--store", store, name=f"second {name}")
        assert result_of(store, runs[store]) == [f"said {name}", name]


def test_what_asks_a_worker_to_stop_in_one_store_stops_it_in_all(
    url: str, other_url: str, serving_both: WorkerProcess
):
    assert treefold("workers", "drain", "first", "--store", other_url).code == 0

    assert serving_both.wait() == 0
    assert treefold("workers", "--json", "--store", url).json == []


def test_a_worker_that_was_forgotten_in_one_store_gives_up_the_runs_of_the_others(
    url: str, other_url: str, serving_both: WorkerProcess, tmp_path: Path
):
    node = submit(url, "survey", "--folder", tmp_path, "--names", '["one"]')
    wait(lambda: noted(tmp_path, "begun") == ["one"])
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        schema = sql.Identifier(other_url.rpartition("schema=")[2])
        connection.execute(sql.SQL("DELETE FROM {}.workers").format(schema))

    assert serving_both.wait() == 1

    assert "so start it again" in serving_both.said
    with attach(url) as observer:
        [row] = observer.trees()
        assert (row.id, row.open, row.driven) == (node, True, False)


def test_a_worker_whose_second_database_is_away_goes_on_with_the_first(
    url: str, start_worker: StartWorker, tmp_path: Path
):
    with PostgresServer() as server:
        worker = start_worker("--store", url, "--store", server.url(), "--health", "0")
        wait(lambda: worker.said.count(" is ready ") == 2)
        server.stop()

        def refusal() -> str:
            try:
                with urllib.request.urlopen(f"{worker.health}/ready", timeout=60):
                    return ""
            except urllib.error.HTTPError as error:
                with error:
                    return error.read().decode()

        wait(lambda: f":{server.port}/postgres has not answered for" in refusal())
        (tmp_path / "one").touch()
        node = submit(url, "look", "--folder", tmp_path, "--name", "one")
        assert result_of(url, node) == "one"
        up = [line for line in metrics_of(worker).splitlines() if "treefold_up{" in line]
        assert sorted(line.rpartition(" ")[2] for line in up) == ["0", "1"]
        worker.kill()


def test_an_engine_of_a_program_serves_one_store_only(url: str, other_url: str, tmp_path: Path):
    (tmp_path / "app.py").write_text(
        "from treefold.engines import InProcess\n"
        "from treefold import tool\n"
        "engine = InProcess()\n"
        "@tool\nasync def nothing() -> str: return ''\n"
    )
    options = ("--engine", "app.py:engine", "--store", url, "--store", other_url)
    treefold("worker", "app.py", *options, cwd=tmp_path).refused(
        "--engine app.py:engine is one engine, which serves one store"
    )


PROGRAM = """
import os
from guards.guarded import model_for, other, plan
from treefold import Budget, Runtime, WorkerSettings
from treefold.engines import Procrastinate

def runtime() -> Runtime:
    url = os.environ["TREEFOLD_STORE"]
    return Runtime(
        [plan, other], models=model_for("disallowed"), store=url, engine=Procrastinate(url),
        disallowed_tools=["write"], budget=Budget(calls=4),
        worker=WorkerSettings(name="own", queues=["night"], slots=3, lease=3.0, beat=0.7),
    )

alone = Runtime([other], store="run.db")
"""


def test_a_runtime_of_a_program_works_with_all_that_it_has(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GUARDED", str(tmp_path))
    (program := tmp_path / "app.py").write_text(PROGRAM.replace("run.db", str(tmp_path / "run.db")))
    worker = WorkerProcess(url, "first", tmp_path, program=f"{program}:runtime")
    try:
        assert "own is ready" in worker.said
        assert f"queue night; 3 slots; placed by the engine of {program}:runtime" in worker.said
        place = ("--detach", "--queue", "night", "--store", url)
        with attach(url) as observer:
            for _ in range(2):
                submitted = treefold("run", "guards/guarded.py:plan", *place, cwd=TESTS)
                assert submitted.code == 0, submitted.err
                wait(lambda: not any(row.open for row in observer.trees()))
            ends = [observer.get_view(row.id).state.value for row in observer.trees()]
    finally:
        worker.kill()
    # The model of the runtime asks for a write; it may be asked four times in all.
    assert noted(tmp_path, "effects") == []
    assert ends == ["success", "error"]


def test_a_worker_refuses_what_its_runtime_has_itself_or_lacks(url: str, tmp_path: Path):
    (tmp_path / "app.py").write_text(PROGRAM)
    env = {"TREEFOLD_STORE": url}
    options = ("--slots", "3", "--name", "mine", "--budget", "calls=2")
    treefold("worker", "app.py:runtime", *options, cwd=tmp_path, env=env).refused(
        "app.py:runtime is a Runtime, which has that itself: leave out --budget, --slots, --name"
    )
    treefold("worker", "app.py:alone", cwd=tmp_path, env=env).refused(
        "a worker needs a store that several processes share"
    )
