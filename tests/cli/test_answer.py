"""All four kinds of questions are answered from the command line, with a driver or without."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import survey_functions
import survey_journals
from command_results import Done, open_questions, treefold
from support import wait
from survey_journals import Driver, driving


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driving(tmp_path_factory.mktemp("questions")) as driver:
        yield driver


def asked(file: Path, id: str) -> dict[str, Any]:
    found = open_questions(file)
    [question] = [q for q in found if q["id"] == id]
    return question


def answer(file: Path, id: str, *words: str) -> Done:
    return treefold("answer", id, *words, "--store", file)


def accepted(file: Path, id: str, *words: str) -> None:
    done = answer(file, id, *words)
    assert (done.code, done.err) == (0, ""), done


def next_question(driver: Driver, id: int, last: str) -> str:
    def newer() -> str | None:
        found = driver.tell(do="asked", id=id)
        return found if found != last else None

    found = wait(newer)
    assert found is not None
    return found


# --- alive


def test_a_person_is_asked_with_choices_and_then_in_free_text(driver: Driver):
    id, first = driver.asking("choose")
    question = asked(driver.file, first)
    assert (question["kind"], question["choices"]) == ("human", ["red", "blue"])
    accepted(driver.file, first, "blue")
    second = next_question(driver, id, first)
    accepted(driver.file, second, "it is calm; 'and' \"so on\"")
    assert driver.result(id) == "blue it is calm; 'and' \"so on\""


def test_a_call_is_approved(driver: Driver):
    id, question = driver.asking("tidy", folder="attic")
    found = asked(driver.file, question)
    assert (found["kind"], found["text"]) == ("approval", "Really delete old?")
    accepted(driver.file, question, "allow")
    assert driver.result(id) == "Tidied."
    rows = treefold("tree", f"node:{id}", "--json", "--store", driver.file).json
    assert rows[-1]["result"] == "deleted old"


def test_a_call_is_denied(driver: Driver):
    id, question = driver.asking("tidy", folder="attic")
    accepted(driver.file, question, "deny")
    assert driver.result(id) == "Tidied."
    rows = treefold("tree", f"node:{id}", "--json", "--store", driver.file).json
    assert "deleted old" not in [row["result"] for row in rows]


def test_a_paused_run_is_answered_resume(driver: Driver):
    id = driver.survey("paused")
    assert treefold("pause", f"node:{id}", "--store", driver.file).code == 0
    question = driver.tell(do="asked", id=id)
    assert asked(driver.file, question)["kind"] == "paused"
    accepted(driver.file, question, "resume")
    driver.open("paused")
    assert driver.result(id) == "Quite short."


def test_a_paused_run_is_answered_cancel(driver: Driver):
    id = driver.survey("stopped")
    assert treefold("pause", f"node:{id}", "--store", driver.file).code == 0
    accepted(driver.file, driver.tell(do="asked", id=id), "cancel")
    assert "ancel" in driver.result(id)


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, list[int]]]:
    """Who goes on where another was killed, and the calls that it was in the middle of."""
    folder = tmp_path_factory.mktemp("doubt")
    ids = in_doubt(folder, "use", "fail", "retry")
    with driving(folder) as driver:
        yield driver, ids


@pytest.mark.parametrize(
    ("place", "text", "outcome"),
    [
        (0, "use: paid by hand", "paid by hand"),
        (1, "fail: no proof", "no proof"),
        (2, "retry", "paid"),
    ],
    ids=["use", "fail", "retry"],
)
def test_a_call_in_doubt_is_settled(
    survivor: tuple[Driver, list[int]], place: int, text: str, outcome: str
):
    driver, ids = survivor
    question = driver.tell(do="asked", id=ids[place])
    found = asked(driver.file, question)
    assert (found["kind"], found["choices"]) == ("in_doubt", ["retry", "use", "fail"])
    accepted(driver.file, question, text)
    if text == "retry":
        driver.open("retry")
    assert outcome in driver.result(ids[place])


def in_doubt(folder: Path, *names: str) -> list[int]:
    """Kill a program in the middle of what must not be done twice."""
    driver = Driver(folder)
    ids = [driver.call("settle", file=str(folder / name)) for name in names]
    for id in ids:
        driver.tell(do="until", id=id, function="pay")
    driver.kill()
    driver.close()
    return ids


# --- left, and nobody drives


def left_human(folder: Path) -> None:
    survey_journals.parked(folder)


def left_approval(folder: Path) -> None:
    with survey_functions.runtime(folder / "run.db") as made:
        made.invoke(survey_functions.tidy, {"folder": "attic"})
        wait(made.questions)


def left_doubt(folder: Path) -> None:
    in_doubt(folder, "pay")
    with survey_functions.runtime(folder / "run.db") as made:
        made.recover()
        wait(made.questions)


def left_paused(folder: Path) -> None:
    with driving(folder) as driver:
        id = driver.survey("later")
        assert treefold("pause", f"node:{id}", "--store", driver.file).code == 0
        driver.tell(do="asked", id=id)
    (folder / "later").touch()


@pytest.mark.parametrize(
    ("leave", "kind", "text", "state"),
    [
        (left_human, "human", "red", "paused"),
        (left_approval, "approval", "allow", "success"),
        (left_doubt, "in_doubt", "use: paid", "success"),
        (left_paused, "paused", "resume", "success"),
    ],
    ids=["human", "approval", "in_doubt", "paused"],
)
def test_a_question_that_was_left_is_answered_for_the_next_driver(
    tmp_path: Path, leave: Callable[[Path], None], kind: str, text: str, state: str
):
    leave(tmp_path)
    file = tmp_path / "run.db"
    [question] = open_questions(file)
    assert question["kind"] == kind
    accepted(file, question["id"], text)
    assert open_questions(file) == []
    with driving(tmp_path):
        wait(lambda: treefold("tree", "--json", "--store", file).json[0]["state"] == state)


# --- what is no answer


def test_an_answer_that_is_none_of_the_choices_lists_them_and_leaves_it_open(tmp_path: Path):
    journal = survey_journals.parked(tmp_path)
    answer(journal.file, "1-1", "green").refused("red", "blue")
    assert asked(journal.file, "1-1")["text"] == "Which colour?"


def test_a_question_can_be_answered_once(tmp_path: Path):
    journal = survey_journals.parked(tmp_path)
    accepted(journal.file, "1-1", "red")
    done = answer(journal.file, "1-1", "blue")
    assert done.code in {1, 2}
    assert "1-1" in done.err


def test_answers_with_escapes_are_taken_as_text(driver: Driver):
    id, first = driver.asking("choose")
    accepted(driver.file, first, "red")
    accepted(driver.file, next_question(driver, id, first), "\x1b[31m<b>")
    assert driver.result(id) == "red \x1b[31m<b>"
