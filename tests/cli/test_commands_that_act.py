"""Pausing, resuming, cancelling, forking and replaying from another process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import survey_journals
from command_results import open_questions, treefold
from support import wait
from survey_journals import SURVEY, Driver, driving


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driving(tmp_path_factory.mktemp("acting")) as driver:
        yield driver


def named(call: object) -> object:
    """Return the address of a call: drivers know the ids of nodes."""
    return f"node:{call}" if isinstance(call, int) else call


def act(driver: Driver, *args: object) -> str:
    done = treefold(*map(named, args), "--store", driver.file)
    assert (done.code, done.err) == (0, ""), done
    return done.out


def rows(driver: Driver, run: object) -> list[dict[str, Any]]:
    done = treefold("tree", named(run), "--json", "--store", driver.file)
    assert done.code == 0, done
    return done.json


def state(driver: Driver, run: object) -> str:
    return rows(driver, run)[0]["state"]


# --- a run that another process drives


def test_cancel_ends_a_live_run_with_everything_below_it(driver: Driver):
    id = driver.survey("cancelled")
    act(driver, "cancel", id)
    assert "ancel" in driver.result(id)
    found = rows(driver, id)
    assert (found[0]["state"], found[-1]["state"]) == ("canceled", "canceled")


def test_cancel_of_a_node_by_its_path_ends_that_call(driver: Driver):
    id = driver.survey("by-path")
    path = rows(driver, id)[-1]["path"]
    act(driver, "cancel", path)
    assert "ancel" in driver.result(id)


def test_pause_and_resume_hold_a_live_run_and_let_it_go(driver: Driver):
    id = driver.survey("held")
    act(driver, "pause", id)
    wait(lambda: [q for q in questions(driver) if q["kind"] == "paused"])
    act(driver, "resume", id)
    wait(lambda: not [q for q in questions(driver) if q["kind"] == "paused"])
    driver.open("held")
    assert driver.result(id) == "Quite short."


def questions(driver: Driver) -> list[dict[str, Any]]:
    return open_questions(driver.file)


@pytest.mark.parametrize("command", ["pause", "cancel"])
def test_what_has_ended_is_refused_with_a_reason(driver: Driver, command: str):
    id = driver.survey(f"ended, {command}")
    driver.open(f"ended, {command}")
    driver.result(id)
    done = treefold(command, named(id), "--store", driver.file)
    assert done.code in {1, 2}, done
    assert "ended" in done.err
    assert "Traceback" not in done.err


def test_resume_of_what_is_not_paused_is_refused(driver: Driver):
    id = driver.survey("not-paused")
    done = treefold("resume", named(id), "--store", driver.file)
    assert done.code in {1, 2}, done
    assert "paused" in done.err
    driver.open("not-paused")


# --- fork


def forks_of(driver: Driver, id: int) -> list[dict[str, Any]]:
    trees = treefold("ps", "--json", "--store", driver.file).json
    return [tree for tree in trees if tree["source"] is not None and tree["id"] > id]


def test_fork_of_a_finished_agent_with_another_prompt_makes_a_new_run(driver: Driver):
    id = driver.survey("forked")
    driver.open("forked")
    driver.result(id)
    judged = next(row for row in rows(driver, id) if row["fn"] == "judge")
    out = act(driver, "fork", judged["path"], "--prompt", "How long is it in metres?")
    wait(lambda: forks_of(driver, id))
    [fork] = forks_of(driver, id)
    assert f"run {fork['number']}" in out
    assert driver.result(fork["id"]) == "Quite short."
    parts = treefold(
        "transcript", next(r for r in rows(driver, fork["id"]) if r["fn"] == "judge")["path"],
        "--json", "--store", driver.file,
    ).json  # fmt: skip
    assert "How long is it in metres?" in [part["text"] for part in parts]


def test_the_source_of_a_fork_stays_as_it_is(driver: Driver):
    id = driver.survey("source")
    driver.open("source")
    driver.result(id)
    before = rows(driver, id)
    judged = next(row for row in before if row["fn"] == "judge")
    act(driver, "fork", judged["path"], "--prompt", "Again.")
    wait(lambda: forks_of(driver, id))
    assert rows(driver, id) == before


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--at", "99"], "99"),
        (["--args", '{"nonsense": 1}'], "nonsense"),
        (["--model", "nosuch"], "nosuch"),
    ],
    ids=["at", "args", "model"],
)
def test_a_fork_that_cannot_be_is_refused(driver: Driver, words: list[str], complaint: str):
    id = driver.survey(f"no fork {words[0]}")
    judged = next(row for row in rows(driver, id) if row["fn"] == "judge")["path"]
    treefold("fork", judged, *words, "--wait", "10", "--store", driver.file).refused(complaint)


# --- nobody drives


def test_what_is_asked_for_waits_for_the_next_driver(tmp_path: Path):
    journal = survey_journals.parked(tmp_path)
    done = treefold("cancel", journal.id, "--store", journal.file)
    assert done.code == 0, done
    assert "next" in done.out + done.err or "drive" in done.out + done.err  # it says so
    with driving(tmp_path) as driver:
        wait(lambda: state(driver, journal.id) == "canceled")


# --- replay


def test_replay_of_the_same_code_is_0(tmp_path: Path):
    journal = survey_journals.finished(tmp_path)
    done = treefold("replay", journal.id, "--with", SURVEY, "--store", journal.file)
    assert done.code == 0, done


def test_replay_of_other_code_is_1_and_shows_the_difference(tmp_path: Path):
    journal = survey_journals.finished(tmp_path)
    other = tmp_path / "other_stage.py"
    text = Path(SURVEY).read_text(encoding="utf-8")
    other.write_text(text.replace("You judge plants.", "You judge stones."), encoding="utf-8")
    done = treefold("replay", journal.id, "--with", other, "--store", journal.file)
    assert done.code == 1, done
    assert "-You judge plants." in done.out
    assert "+You judge stones." in done.out
