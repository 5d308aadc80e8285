"""Questions, answers and stops from the command line, while another process drives or none does."""

import asyncio
import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

import warm_python
from command_line import PATIENCE, environment, treefold
from journal_driver import ERRANDS, Drive, act, asked, is_over, seen
from support import wait
from terminal import Terminal
from treefold import NodeState, SqliteStore, attach
from treefold.views.liveness import ANSWERED

LATER: Final = (
    "when the program that made it is started again, such as by the same 'treefold run ... --store"
    " run.db' as before\n"
)

NO_TERMS: Final = {"form": None, "default": None, "expires": None, "to": "", "escalations": []}
QUESTIONS: Final = [
    {
        "id": "1-1",
        "node": 1,
        "kind": "human",
        "text": "Deploy here?\x1b[2J",
        "choices": ["yes", "no"],
        **NO_TERMS,
        "tree": 1,
        "path": "1",
        "address": "1",
        "fn": "deploy",
        "args": "",
        "caller": None,
    },
    {
        "id": "3-1",
        "node": 3,
        "kind": "approval",
        "text": "Pay 5?",
        "choices": ["allow", "deny"],
        **NO_TERMS,
        "tree": 2,
        "path": "2.1",
        "address": "2.1",
        "fn": "pay",
        "args": "amount=5",
        "caller": {"id": 2, "path": "2", "fn": "buy", "args": ""},
    },
    {
        "id": "4-1",
        "node": 4,
        "kind": "in_doubt",
        "text": "pay(amount=9, seconds=3600) had begun and was cut off, and nobody knows whether it"
        " was done; retry calls it again, 'use: RESULT' goes on with that result, 'fail: WHY' tells"
        " its caller",
        "choices": ["retry", "use", "fail"],
        **NO_TERMS,
        "tree": 4,
        "path": "3",
        "address": "3",
        "fn": "pay",
        "args": "amount=9, seconds=3600",
        "caller": None,
    },
    {
        "id": "1-2",
        "node": 1,
        "kind": "paused",
        "text": "not now; resume lets its next request or call go on",
        "choices": ["resume", "cancel"],
        **NO_TERMS,
        "tree": 1,
        "path": "1",
        "address": "1:2",
        "fn": "deploy",
        "args": "",
        "caller": None,
    },
]

LISTED: Final = """\
PATH  CALL           CALLED BY
1     deploy()
    Deploy here?\\x1b[2J [yes / no]
2.1   pay(amount=5)  2 buy()
    approval: Pay 5? [allow / deny]"""


# --- questions


def test_every_kind_of_question_is_listed_with_who_asks_it(path: Path, drive: Drive):
    driver = drive("deploy", "buy")
    asked(path, 2)
    driver.end()
    driver = drive("pay")
    seen(path, 4, lambda view: view.state is NodeState.Running)
    driver.kill()
    drive()
    asked(path, 3)
    assert act(path, "pause", "1", "--reason", "not now")[0] == 0
    code, shown, told = act(path, "questions")
    doubt, why = QUESTIONS[2]["text"], QUESTIONS[3]["text"]
    assert (code, told) == (0, "")
    assert shown == (
        "PATH  CALL                         CALLED BY\n"
        "1     deploy()\n    Deploy here?\\x1b[2J [yes / no]\n"
        "2.1   pay(amount=5)                2 buy()\n    approval: Pay 5? [allow / deny]\n"
        f"3     pay(amount=9, seconds=3600)\n    in_doubt: {doubt} [retry / use / fail]\n"
        f"1:2   deploy()\n    paused: {why} [resume / cancel]\n"
    )
    code, shown, told = act(path, "questions", "--json")
    assert (code, json.loads(shown), told) == (0, QUESTIONS, "")


def test_without_questions_it_says_so(path: Path, drive: Drive):
    drive().end()
    assert act(path, "questions") == (0, "no question waits for an answer\n", "")
    assert act(path, "questions", "--json") == (0, "[]\n", "")


# --- answers


def test_a_live_run_continues_with_the_answer(path: Path, drive: Drive):
    drive("deploy")
    asked(path)
    assert act(path, "answer", "1-1", "YES") == (0, "question 1 is answered\n", "")
    assert seen(path, 1, is_over).outputs == "here: yes"


def test_a_question_is_answered_by_the_path_of_its_call_and_the_only_one_without(
    path: Path, drive: Drive
):
    drive("deploy", "buy")
    asked(path, 2)
    assert act(path, "answer", "1", "n") == (0, "question 1 is answered\n", "")
    assert seen(path, 1, is_over).outputs == "here: no"
    assert act(path, "answer", "yes") == (0, "question 2.1 is answered\n", "")
    assert seen(path, 2, is_over).outputs == 'Buy a boat. It "paid 5".'
    no_more = "treefold answer: no question waits for an answer\n"
    assert act(path, "answer", "yes") == (2, "", no_more)


def test_the_only_call_is_approved_with_other_arguments_without_an_id(path: Path, drive: Drive):
    drive("buy")
    asked(path)
    edited = ["--args", '{"amount": 6}']
    assert act(path, "answer", *edited) == (0, "question 1.1 is answered\n", "")
    assert seen(path, 1, is_over).outputs == 'Buy a boat. It "paid 6".'


def test_an_answer_waits_for_a_program_if_none_runs(path: Path, drive: Drive):
    driver = drive("deploy")
    asked(path)
    driver.end()
    later = f"no process drives run.db now: the answer is taken {LATER}"
    assert act(path, "answer", "1-1", "no") == (0, later, "")
    assert act(path, "questions")[1] == "no question waits for an answer\n"
    shown = act(path, "tree")[1]
    assert "deploy(" in shown
    assert " … answered; it resumes when its program runs" in shown
    assert "Deploy here?" not in shown
    assert act(path, "ps")[1].splitlines()[1].split()[1:3] == ["deploy", "answered"]
    drive()
    assert seen(path, 1, is_over).outputs == "here: no"


def test_programs_are_told_that_a_question_is_answered(path: Path, drive: Drive):
    driver = drive("deploy")
    asked(path)
    driver.end()
    act(path, "answer", "1-1", "no")

    def is_answered(row: dict[str, Any]) -> bool:
        return row["questions"] == [] and row["status"] == ANSWERED

    [row] = json.loads(act(path, "tree", "--json")[1])
    assert is_answered(row)
    held = json.loads(act(path, "export", "--json", "-")[1])
    assert held["trees"][0]["questions"] == 0
    assert is_answered(held["rows"][0])
    assert is_answered(held["details"]["1"])
    [pair] = json.loads(act(path, "diff", "1", "1", "--json")[1])["rows"]
    assert is_answered(pair["a"])
    assert is_answered(pair["b"])


def test_a_wrong_answer_lists_the_right_ones_and_the_question_stays(path: Path, drive: Drive):
    drive("deploy", "buy")
    asked(path, 2)
    for args, said in [
        (["1-1", "perhaps"], "'perhaps' does not answer the question: 'yes', 'no'"),
        ([], "the answer is missing: treefold answer CALL TEXT"),
        (
            ["2.1"],
            "2.1 is the call that asks, and the answer is missing: treefold answer CALL TEXT; if"
            " the answer is 2.1, treefold answer 2.1 2.1",
        ),
        (
            ["1-1", "not", "now"],
            "too many words: put an answer of several in quotes, treefold answer CALL 'not now'",
        ),
        (["1-1", "--args", "{}"], "a question of the kind human takes no arguments"),
        (
            ["3-1", "so what"],
            "'so what' does not answer the question: 'allow', 'deny', or edited arguments",
        ),
        (
            ["3-1", "--args", "[5]"],
            """--args takes a JSON object such as '{"name": "Ada"}', not '[5]'""",
        ),
        (
            ["9-9", "yes"],
            f"no question of 9-9 waits for an answer (it may have been answered already);"
            f" open:\n{LISTED}",
        ),
        (
            ["2", "yes"],
            f"no question of 2 waits for an answer (it may have been answered already);"
            f" open:\n{LISTED}",
        ),
        (["4", "yes"], "there is no run 4; 'treefold ps' lists them"),
        (
            ["yes"],
            "2 questions are open: say which call is answered, such as treefold answer 1 yes\n"
            f"{LISTED}",
        ),
    ]:
        assert act(path, "answer", *args) == (2, "", f"treefold answer: {said}\n")
    assert asked(path, 2) == ["1-1", "3-1"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (["allow"], 'Buy a boat. It "paid 5".'),
        (["--args", '{"amount": 2}'], 'Buy a boat. It "paid 2".'),
        (["deny: too dear"], "too dear"),
    ],
)
def test_an_approval_is_given_changed_or_denied(
    path: Path, drive: Drive, answer: list[str], said: str
):
    drive("buy")
    asked(path)
    assert act(path, "answer", "2-1", *answer) == (0, "question 1.1 is answered\n", "")
    assert said in seen(path, 1, is_over).outputs


@pytest.mark.parametrize(
    ("answer", "state", "came"),
    [
        ("use: paid by hand", NodeState.Success, "paid by hand"),
        ("fail: never mind", NodeState.Error, None),
        ("retry", NodeState.Running, None),
    ],
)
def test_an_answer_decides_a_call_in_doubt(
    path: Path, drive: Drive, answer: str, state: NodeState, came: str | None
):
    driver = drive("pay")
    seen(path, 1, lambda view: view.state is NodeState.Running)
    driver.kill()
    drive()
    assert asked(path) == ["1-1"]
    assert act(path, "answer", "1-1", answer)[:2] == (0, "question 1 is answered\n")
    assert seen(path, 1, lambda view: view.state is state).outputs == came


# --- stops


def test_a_live_run_is_paused_and_resumed_and_cancelled(path: Path, drive: Drive):
    drive("walk")
    seen(path, 1, lambda view: len(view.children) > 1)
    name = "walk (run 1)"
    paused = f"{name} is paused; 'treefold resume 1' resumes it\n"
    assert act(path, "pause", "last", "--reason", "look at this") == (0, paused, "")
    assert act(path, "pause", "last") == (0, paused, "")  # it is
    stopped = seen(path, 1, lambda view: view.state is NodeState.Paused)
    assert stopped.status.startswith("look at this; ")
    assert act(path, "resume", "last") == (0, f"{name} resumes\n", "")
    seen(path, 1, lambda view: len(view.children) > len(stopped.children) + 1)
    assert act(path, "cancel", "1", "--reason", "far enough") == (0, f"{name} was cancelled\n", "")
    ended = seen(path, 1, is_over)
    assert ended.exception is not None
    assert "far enough" in ended.exception.message


def test_what_cannot_be_done_is_exit_code_2_and_says_why(path: Path, drive: Drive):
    drive("deploy")
    asked(path)
    idle = "deploy (run 1) is not paused, nor is anything below it"
    assert act(path, "resume", "1") == (2, "", f"treefold resume: {idle}\n")
    act(path, "answer", "1-1", "yes")
    seen(path, 1, is_over)
    for do, done in [("pause", "paused"), ("cancel", "cancelled"), ("resume", "resumed")]:
        over = f"deploy (run 1) has ended (success), and cannot be {done} any more"
        assert act(path, do, "1") == (2, "", f"treefold {do}: {over}\n")
        code, shown, told = act(path, do, "99")
        assert (code, shown, "there is no run 99" in told) == (2, "", True)
        code, shown, told = act(path, do)
        assert (code, shown, "Missing argument 'NODE'" in told) == (2, "", True)
        code, shown, told = act(path, do, "1", "--wait", "-1")
        assert (code, shown, "--wait" in told) == (2, "", True)


def test_while_nothing_runs_a_stop_is_left_for_the_next_program(path: Path, drive: Drive):
    driver = drive("walk", "deploy")
    seen(path, 1, lambda view: len(view.children) > 1)
    asked(path)
    driver.end()
    nobody = "no process drives run.db now:"
    paused = f"{nobody} walk (run 1) is paused {LATER}"
    gone = f"{nobody} deploy (run 2) is cancelled {LATER}"
    assert act(path, "pause", "1") == (0, paused, "")
    assert act(path, "cancel", "2") == (0, gone, "")
    assert act(path, "resume", "1") == (0, f"{nobody} walk (run 1) resumes {LATER}", "")
    assert act(path, "pause", "1") == (0, paused, "")
    drive()
    assert seen(path, 2, is_over).state is NodeState.Canceled
    seen(path, 1, lambda view: view.state is NodeState.Paused)


def test_a_cancelled_run_resumes_as_a_fork(path: Path, drive: Drive):
    drive("deploy")
    asked(path)
    act(path, "cancel", "1")
    assert act(path, "resume", "1") == (0, "deploy (run 1) resumes as run 2\n", "")
    assert asked(path) == ["2-2"]  # the first was of the time before


def test_whoever_resumes_a_run_that_is_cancelled_meanwhile_is_told(path: Path, drive: Drive):
    driver = drive("deploy")
    asked(path)
    act(path, "pause", "1")
    with SqliteStore(path) as store, ThreadPoolExecutor(1) as thread:
        wait(lambda: not store.inbox())
        os.kill(driver.pid, signal.SIGSTOP)
        try:
            act(path, "cancel", "1", "--wait", "0")
            resuming = thread.submit(act, path, "resume", "1")
            wait(lambda: len(store.inbox()) == 2)
        finally:
            os.kill(driver.pid, signal.SIGCONT)
        code, shown, told = resuming.result(PATIENCE)
    assert (code, shown) == (2, "")
    assert "before it could be resumed; resume it again to continue it in a fork" in told
    with attach(path) as observer:
        assert [tree.id for tree in observer.trees()] == [1]


def test_a_driver_that_does_not_come_to_it_is_exit_code_3(path: Path, drive: Drive):
    driver = drive("deploy")
    asked(path)
    os.kill(driver.pid, signal.SIGSTOP)
    try:
        code, shown, told = act(path, "answer", "1-1", "yes", "--wait", "0.2")
    finally:
        os.kill(driver.pid, signal.SIGCONT)
    assert (code, shown) == (3, "")
    assert told == (
        "requested, but not done in 0.2 s: the answer is taken when the process that drives the"
        " journal gets to it; if it cannot be done, the log of that process says why\n"
    )
    assert seen(path, 1, is_over).outputs == "here: yes"


def test_without_a_journal_it_says_how_to_give_one(tmp_path: Path):
    for args in ["questions"], ["answer", "1-1", "yes"], ["cancel", "1"], ["fork", "1"]:
        done = treefold(*args, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"treefold {args[0]}: run.db: there is no such journal; give --store FILE or set"
            " TREEFOLD_STORE\n"
        )


# --- following


def test_a_run_of_another_process_is_followed_to_its_end(path: Path, drive: Drive):
    drive("deploy")
    asked(path)
    following = subprocess.Popen(
        warm_python.command("-m", "treefold", "tree", "--follow"),
        cwd=path.parent,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert act(path, "answer", "1-1", "yes")[0] == 0
    shown, told = following.communicate(timeout=PATIENCE)
    assert (following.returncode, told) == (0, "")
    assert shown.startswith("✓ 1 deploy(")
    assert "'here: yes'" in shown


async def test_an_answer_that_no_process_takes_is_seen_by_followers(path: Path, drive: Drive):
    driver = drive("deploy")
    asked(path)
    driver.end()
    following = ["-m", "treefold", "tree", "--follow", "--store", str(path)]
    async with Terminal(*following, env={}) as terminal:
        await terminal.see_on_screen("? 1 deploy(", "Deploy here?", "? 1 waits for you")
        assert (await asyncio.to_thread(act, path, "answer", "1-1", "yes"))[0] == 0
        await terminal.see_on_screen("‖ 1 deploy(", "answered; it resumes", "‖ 1 paused")
        assert "waits for you" not in "\n".join(terminal.screen)


def test_what_is_followed_is_shown_whole(path: Path, drive: Drive):
    drive("deploy")
    asked(path)
    said = "treefold tree: --follow shows all of a tree: leave out --json and --depth\n"
    for more in ["--json"], ["--depth", "1"]:
        assert act(path, "tree", "--follow", *more) == (2, "", said)


def test_a_run_without_input_is_answered_from_elsewhere(path: Path):
    running = subprocess.Popen(
        warm_python.command("-m", "treefold", "run", f"{ERRANDS}:deploy", "--store", str(path)),
        cwd=path.parent,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait(lambda: path.exists() or None)
    asked(path)
    assert act(path, "answer", "1-1", "yes", "--store", str(path))[0] == 0
    shown, told = running.communicate(timeout=PATIENCE)
    assert (running.returncode, shown) == (0, "here: yes\n")
    assert "stdin has ended" in told
