"""Questions for values of a type on the command line: prompts, fields and JSON."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import warm_python
from cli.form_functions import book, count, doze
from command_line import environment, treefold
from support import wait
from terminal import Terminal
from treefold import Node, Runtime

FUNCTIONS = Path(__file__).parent / "form_functions.py"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    """A program that asks, on the journal run.db."""
    with Runtime([book, count, doze], store=tmp_path / "run.db") as runtime:
        yield runtime


def asking(runtime: Runtime) -> Node:
    node = runtime.invoke(book)
    wait(runtime.questions)
    runtime.flush()
    return node


def on(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return treefold(*words, cwd=folder, env={"TREEFOLD_STORE": str(folder / "run.db")})


def test_a_run_asks_field_by_field(tmp_path: Path):
    said = "\nRome\nmany\n\nyes\n"
    done = warm_python.run(
        "-m", "treefold", "run", f"{FUNCTIONS}:book", cwd=tmp_path,
        env=environment(), said=said,
    )  # fmt: skip
    assert done.stdout == "Rome for 2, True\n", done
    for told in (
        "Which trip?",
        "    city: text",
        "    nights: a whole number, or 2 by default",
        "    by_train: true or false",
        "(for travel desk)",
        'city: city is missing; "" is an empty text\n',
        "nights [2]: nights must be a whole number, got 'many'\n",
    ):
        assert told in done.stderr, done.stderr


def test_a_run_takes_a_whole_answer_as_json_and_asks_again_if_it_is_refused(tmp_path: Path):
    answers = [{"city": "Atlantis", "by_train": True}, {"city": "Rome", "by_train": False}]
    done = warm_python.run(
        "-m", "treefold", "run", f"{FUNCTIONS}:book", cwd=tmp_path,
        env=environment(), said="".join(f"{json.dumps(one)}\n" for one in answers),
    )  # fmt: skip
    assert done.stdout == "Rome for 2, False\n", done
    assert "there is no such city" in done.stderr


def test_the_fields_of_an_answer_are_given_as_words_or_json(tmp_path: Path, runtime: Runtime):
    node = asking(runtime)
    done = on(tmp_path, "answer", "1-1", "city=Rome", "nights=3", "by_train=no")
    assert (done.returncode, done.stdout) == (0, "question 1 is answered\n"), done
    assert node.result() == "Rome for 3, False"
    asking(runtime)
    done = on(tmp_path, "answer", '{"city": "Ulm", "by_train": true}')
    assert done.returncode == 0, done


def test_a_wrong_answer_is_refused_in_words_and_the_question_stays(
    tmp_path: Path, runtime: Runtime
):
    asking(runtime)
    for words, why in (
        (["city=Rome"], "by_train is missing"),
        (["city=Rome", "nights=many", "by_train=no"], "nights must be a whole number, got 'many'"),
        (["city=Atlantis", "by_train=no"], "there is no such city"),
        (["Rome"], "it must be an object, got 'Rome'"),
    ):
        done = on(tmp_path, "answer", "1-1", *words)
        assert (done.returncode, why in done.stderr) == (2, True), done
        assert wait(lambda: on(tmp_path, "questions", "--json").stdout != "[]\n")
    runtime.get_view(1)
    runtime.answer("1-1", {"city": "Rome", "by_train": True})


async def test_a_person_is_asked_for_the_fields_at_a_terminal(tmp_path: Path, runtime: Runtime):
    node = asking(runtime)
    command = ("-m", "treefold", "answer", "1-1", "--store", str(tmp_path / "run.db"))
    async with Terminal(*command, env=environment()) as terminal:
        await terminal.see("city: ")
        terminal.press("Rome\r")
        await terminal.see("nights [2]: ")
        terminal.press("\r")
        await terminal.see("by_train: ")
        terminal.press("perhaps\r")
        await terminal.see("by_train must be true or false, got 'perhaps'")
        terminal.press("yes\r")
        await terminal.see("question 1 is answered")
        assert await terminal.exit_code() == 0
    assert node.result() == "Rome for 2, True"


def test_questions_are_listed_by_who_is_asked(tmp_path: Path, runtime: Runtime):
    asking(runtime)
    runtime.invoke(count)
    wait(lambda: len(runtime.questions()) == 2)
    runtime.flush()
    listed = on(tmp_path, "questions").stdout
    assert "(for travel desk)" in listed
    assert ", otherwise 7)" in listed
    found = json.loads(on(tmp_path, "questions", "--to", "travel desk", "--json").stdout)
    assert [one["id"] for one in found] == ["1-1"]
    assert on(tmp_path, "questions", "--to", "boss").stdout == "no question waits for an answer\n"
    for question in runtime.questions():
        answer = 3 if question.to == "" else {"city": "Rome", "by_train": True}
        runtime.answer(question.id, answer)


def test_a_run_that_sleeps_is_asleep(tmp_path: Path, runtime: Runtime):
    node = runtime.invoke(doze, {"seconds": 3600})
    wait(lambda: runtime.get_view(node.id).status.startswith("sleeps until"))
    runtime.flush()
    assert "asleep" in on(tmp_path, "ps").stdout
    assert on(tmp_path, "questions").stdout == "no question waits for an answer\n"
