"""``treefold workers``: who shares a store, and how one is asked to stop."""

import os
import platform
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pytest

from command_results import treefold
from notes_in_files import noted
from support import wait
from worker_process import StartWorker, submit


def test_workers_are_listed_with_what_they_do(url: str, start_worker: StartWorker, tmp_path: Path):
    worker = start_worker("--slots", "4", "--queue", "night", "--queue", "day")
    for name in ("one", "two"):
        submit(url, "look", "--folder", tmp_path, "--name", name, "--queue", "day")
    submit(url, "ask", "--text", "Go on?", "--queue", "night")
    wait(lambda: len(noted(tmp_path, "begun")) == 2)

    def at_rest() -> list[dict[str, Any]] | None:
        """Return the list when the run that waits for a person was given up."""
        rows = treefold("workers", "--json", "--store", url).json
        return rows if (rows[0]["running"], rows[0]["owned"]) == (2, 2) else None

    (row,) = wait(at_rest)
    assert row.pop("seen") >= 0
    assert set(row.pop("functions")) >= {"look", "survey", "ask"}
    assert row == {
        "id": 1,
        "name": "first",
        "state": "alive",
        "host": platform.node(),
        "process": worker.pid,
        "queues": ["day", "night"],
        "running": 2,
        "waiting": 0,
        "slots": 4,
        "owned": 2,
    }
    head, line = treefold("workers", "--store", url).out.splitlines()
    assert head.split()[:4] == ["ID", "NAME", "STATE", "HOST"]
    assert line.split()[:3] == ["1", "first", "alive"]
    assert "day, night" in line


def test_an_autoscaler_can_ask_the_database_how_much_waits(
    url: str, start_worker: StartWorker, tmp_path: Path
):
    start_worker("--slots", "1")
    for name in ("one", "two", "three"):
        submit(url, "look", "--folder", tmp_path, "--name", name)
    submit(url, "look", "--folder", tmp_path, "--name", "four", "--queue", "night")
    wait(lambda: len(noted(tmp_path, "begun")) == 1)
    plain, _, schema = url.partition("?schema=")

    def depth() -> list[tuple[str, int, int]]:
        with psycopg.connect(plain, options=f"-c search_path={schema}") as connection:
            assert connection.execute("SELECT 1 FROM depth WHERE oldest < 0").fetchall() == []
            return connection.execute(
                "SELECT queue, owed, running FROM depth ORDER BY queue"
            ).fetchall()

    assert depth() == [("default", 2, 1), ("night", 1, 0)]
    for name in ("one", "two", "three"):
        (tmp_path / name).touch()
    wait(lambda: depth() == [("night", 1, 0)])


def test_what_waits_for_a_worker_or_is_in_doubt_is_said(
    url: str, start_worker: StartWorker, tmp_path: Path
):
    def waiting() -> list[str]:
        lines = treefold("workers", "--store", url).out.splitlines()
        return [re.sub(r"for [\d.]+ ?m?s", "for N", line) for line in lines if " wait" in line]

    submit(url, "mail", "--folder", tmp_path, "--name", "one")
    submit(url, "look", "--folder", tmp_path, "--name", "two", "--queue", "night")
    assert waiting() == ["2 runs wait for a worker, the first for N"]
    first = start_worker("--drain", "0.2", "--health", "0")
    wait(lambda: noted(tmp_path, "begun") == ["one"])
    assert waiting() == ["1 run waits for a worker, the first for N"]
    # It is given up in the middle of a call that must not be repeated.
    first.send(signal.SIGTERM)
    assert first.wait() == 0

    second = start_worker("--health", "0", name="second")

    wait(lambda: waiting()[1:] == ["1 call waits in doubt for a person: treefold questions"])
    with urllib.request.urlopen(f"{second.health}/metrics", timeout=60) as page:
        assert "\ntreefold_doubts 1\n" in page.read().decode()
    (question,) = treefold("questions", "--json", "--store", url).json
    (tmp_path / "one-2").touch()
    assert treefold("answer", question["id"], "use: done", "--store", url).code == 0
    wait(lambda: waiting() == ["1 run waits for a worker, the first for N"])


def test_no_worker_is_said_in_words(url: str, start_worker: StartWorker):
    worker = start_worker()
    worker.send(signal.SIGTERM)
    worker.wait()

    done = treefold("workers", "--store", url)

    assert (done.code, done.out) == (0, "no workers\n")
    assert treefold("workers", "--json", "--store", url).json == []


def test_a_worker_that_was_killed_is_listed_as_dead(url: str, start_worker: StartWorker):
    first = start_worker()
    start_worker(name="second")
    first.send(signal.SIGKILL)
    first.wait()

    def states() -> dict[str, str]:
        rows = treefold("workers", "--json", "--store", url).json
        return {row["name"]: row["state"] for row in rows}

    wait(lambda: states() == {"first": "dead", "second": "alive"})

    treefold("workers", "drain", "first", "--store", url).refused("'first' is dead")


@pytest.mark.parametrize("by", ["first", "id"])
def test_a_worker_is_asked_to_stop(url: str, start_worker: StartWorker, tmp_path: Path, by: str):
    first = start_worker()
    submit(url, "mail", "--folder", tmp_path, "--name", "one")
    wait(lambda: noted(tmp_path, "begun") == ["one"])
    (row,) = treefold("workers", "--json", "--store", url).json

    done = treefold("workers", "drain", by if by == "first" else row["id"], "--store", url)

    assert (done.code, done.out) == (0, "first was asked to stop\n")
    wait(lambda: treefold("workers", "--json", "--store", url).json[0]["state"] == "draining")
    assert not first.has_ended()
    (tmp_path / "one").touch()
    assert first.wait() == 0
    assert "this worker was asked to stop" in first.said


def test_what_cannot_be_drained_is_refused_in_words(url: str, start_worker: StartWorker):
    start_worker()
    start_worker(name="second")
    start_worker("--queue", "night", name="second")

    treefold("workers", "drain", "--store", url).refused("drain which?", "name or the id")
    treefold("workers", "drain", "frist", "--store", url).refused(
        "there is no worker 'frist'", "did you mean 'first'?", "'treefold workers' lists them"
    )
    treefold("workers", "drain", "second", "--store", url).refused(
        "several workers are called 'second'", "give an id"
    )
    treefold("workers", "list", "first", "--store", url).refused("list takes no name")


@pytest.mark.parametrize("command", ["workers", "worker"])
def test_a_store_that_cannot_be_shared_is_refused(command: str, tmp_path: Path):
    more = ["worker_functions"] if command == "worker" else []
    file = tmp_path / "run.db"

    treefold(command, *more).refused("--store postgresql://", "set TREEFOLD_STORE")
    treefold(command, *more, "--store", file).refused("run.db is a file, which one process runs")
    treefold(command, *more, env={"TREEFOLD_STORE": str(file)}).refused("run.db is a file")
    assert not file.exists()


@pytest.mark.parametrize("command", ["workers", "worker"])
def test_a_database_that_cannot_be_reached_is_said_in_one_sentence(command: str):
    more = ["worker_functions"] if command == "worker" else []
    url = "postgresql://ada:secret@127.0.0.1:9/app"

    done = treefold(command, *more, "--store", url)

    done.refused("postgresql://ada@127.0.0.1:9/app: the server cannot be reached")
    assert "secret" not in done.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--engine", "celery"], ["--engine 'celery' is not known", "procrastinate"]),
        (["--engine", "temporal:nowhere"], ["is not temporal:HOST:PORT"]),
        (["--engine", "worker_functions:look"], ["'look' that is a work engine"]),
        (["--engine", "no_such_module:engine"], ["no_such_module cannot be imported"]),
        (["--slots", "0"], ["--slots must be at least 1, got 0"]),
        (["--slots", "many"], ["--slots", "many"]),
        (["--lease", "1"], ["--lease must be at least 2 s, got 1"]),
        (["--drain", "soon"], ["'soon' is not a number of seconds"]),
        (["--health", "somewhere"], ["PORT or HOST:PORT", "'somewhere'"]),
        (["--queue", ""], ["--queue must be the name of a queue, got ''"]),
        (["--model", "gpt"], ["gpt"]),
    ],
)
def test_wrong_options_of_a_worker_are_refused(url: str, options: list[str], words: list[str]):
    treefold("worker", "worker_functions", "--store", url, *options).refused(*words)


def test_an_engine_that_cannot_be_reached_is_said_in_one_sentence(url: str):
    done = treefold(
        "worker", "worker_functions", "--store", url, "--engine", "temporal:127.0.0.1:9"
    )

    assert (done.code, done.out) == (2, "")
    assert "Temporal" in done.err
    assert "Traceback" not in done.err


def test_a_port_that_is_taken_is_refused(url: str, start_worker: StartWorker):
    taken = start_worker("--health", "0").health.rpartition(":")[2]

    done = treefold("worker", "worker_functions", "--store", url, "--health", taken)

    done.refused(f"cannot listen on 127.0.0.1:{taken}", os.strerror(98))


def test_a_module_without_functions_is_refused(url: str):
    treefold("worker", "json", "--store", url).refused("json has no public functions")
    treefold("worker", "nowhere.py", "--store", url).refused("nowhere.py cannot be imported")
    treefold("worker", "--store", url).refused("MODULE")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--detach", "--view"], ["--view is for a run of this process", "treefold view"]),
        (["--queue", "night"], ["--queue is for --detach"]),
        (["--engine", "in-process"], ["--engine is for --detach"]),
        (["--detach", "--model", "local"], ["--model is for agents, and look is code"]),
        (["--detach", "--model", "scripted:a.json"], ["in this process only"]),
    ],
)
def test_wrong_options_of_a_detached_run_are_refused(
    url: str, options: list[str], words: list[str]
):
    call = ["run", "worker_functions:look", "--folder", ".", "--name", "one", "--store", url]

    treefold(*call, *options).refused(*words)


def test_a_detached_run_needs_a_store_that_workers_share(tmp_path: Path):
    call = ["run", "worker_functions:look", "--folder", ".", "--name", "one", "--detach"]

    treefold(*call, "--store", tmp_path / "run.db").refused("is a file, which one process runs")
    treefold(*call).refused("--store postgresql://")
