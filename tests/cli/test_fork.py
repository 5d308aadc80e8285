"""``treefold fork``: by the process that drives the journal, and here."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

import warm_python
from command_line import PATIENCE, environment
from errands import buy, deploy, walk
from journal_driver import ERRANDS, Drive, act, asked, is_over, seen
from support import heed_interrupts
from treefold import NodeState, Runtime, attach

LATER = (
    "when the program that made it is started again, such as by the same 'treefold run ... --store"
    " run.db' as before"
    "; with --with MODULE[:FUNCTION], 'treefold fork' forks at once, here; given now, it makes both"
    " forks, this one and its own\n"
)
UNKNOWN = (
    "no provider is called 'nobody'; write 'anthropic:MODEL', 'gemini:MODEL', 'openai:MODEL',"
    " 'openai:MODEL@ADDRESS', 'ollama:MODEL', or 'local'"
)


@pytest.fixture
def walked(path: Path) -> Path:
    """A journal in which run 1 bought a boat, and run 3 took two steps."""
    with Runtime([buy, walk], store=path) as runtime:
        runtime.invoke(buy).result()
        runtime.invoke(walk, {"steps": 2}).result()
    return path


def outputs(path: Path) -> list[object]:
    with attach(path) as observer:
        return [observer.get_view(tree.id).outputs for tree in observer.trees()]


def test_the_process_that_drives_the_journal_forks(walked: Path, drive: Drive):
    drive()
    done = act(walked, "fork", "1", "--prompt", "Buy a bike.")
    assert done == (0, "buy (run 1) was forked: the new one is run 3\n", "")
    act(walked, "answer", *asked(walked), "allow")
    assert seen(walked, 6, is_over).outputs == 'Buy a bike. It "paid 5".'
    done = act(walked, "fork", "1", "--at", "1")
    assert done[0] == 0
    assert len(asked(walked)) == 1  # the payment is made again
    assert [line.endswith("  fork of 1") for line in act(walked, "ps")[1].splitlines()[1:]] == [
        False,
        False,
        True,
        True,
    ]


def test_while_nothing_runs_the_next_program_forks(walked: Path, drive: Drive):
    done = act(walked, "fork", "2", "--args", '{"steps": 4}')
    assert done == (0, f"no process drives run.db now: walk (run 2) is forked {LATER}", "")
    assert len(outputs(walked)) == 2
    drive()
    assert seen(walked, 6, is_over).outputs == 4


def test_a_fork_is_timed_from_where_it_began_by_every_command(walked: Path):
    assert act(walked, "fork", "1", "--with", ERRANDS, "--at", "1")[0] == 0
    source, *_, fork = json.loads(act(walked, "ps", "--json")[1])
    top, *_ = json.loads(act(walked, "tree", "last", "--json")[1])
    flame = json.loads(act(walked, "flame", "last", "--json")[1])
    times = [top["started"], top["ended"], flame["started"], flame["started"] + flame["total"]]
    assert times == pytest.approx([fork["started"], fork["ended"]] * 2, abs=1e-3)
    assert top["started"] > source["ended"]


def test_it_is_done_here_with_functions_that_are_given(walked: Path):
    again = ["--with", ERRANDS]
    code, shown, told = act(walked, "fork", "1", *again, "--prompt", "Buy a bike.")
    assert (code, shown) == (0, 'Buy a bike. It "paid 5".\n')
    assert [line.split("  ")[0] for line in told.splitlines()] == [
        """✓ 3 buy() → 'Buy a bike. It "paid 5".'""",
        "└─ ✓ 3.1 pay(amount=5) → 'paid 5'",
    ]
    assert act(walked, "fork", "2", *again, "--args", '{"steps": 3}')[:2] == (0, "3\n")
    assert act(walked, "fork", "1.1", *again, "--result", "lost")[:2] == (
        0,
        'Buy a boat. It "lost".\n',
    )
    assert act(walked, "fork", "1.1", *again, "--args", '{"amount": 7}')[:2] == (
        0,
        'Buy a boat. It "paid 7".\n',
    )
    (walked.parent / "system.txt").write_text("Be quick.")
    for text, system in [("Be slow.", "Be slow."), ("@system.txt", "Be quick."), ("@@you", "@you")]:
        assert act(walked, "fork", "1", *again, "--system", text)[0] == 0
        [first, *_] = json.loads(act(walked, "transcript", "last", "--json")[1])
        assert (first["kind"], first["text"]) == ("system", system)
    assert outputs(walked)[:2] == ['Buy a boat. It "paid 5".', 2]  # as they were


@pytest.mark.parametrize(("kept", "calls"), [([], 0), (["--at", "0"], 0), (["--at", "1"], 1)])
def test_at_is_how_many_responses_are_kept(walked: Path, kept: list[str], calls: int):
    (walked.parent / "other.json").write_text('["Bought."]')
    other = ["--with", ERRANDS, "--model", "scripted:other.json"]
    code, shown, _ = act(walked, "fork", "1", *kept, *other)
    assert (code, shown) == (0, "Bought.\n")
    parts = json.loads(act(walked, "transcript", "last", "--json")[1])
    assert len([part for part in parts if part["kind"] == "call"]) == calls


def test_what_cannot_be_forked_is_exit_code_2_and_nothing_is_left(walked: Path, drive: Drive):
    here = ["--with", ERRANDS]
    for args, said in [
        (["2", "--prompt", "Run!"], "walk is code: it has no prompt and no model"),
        (["2", "--prompt", "Run!", *here], "walk is code: it has no prompt and no model"),
        (["1", "--model", "nobody:knows", *here], UNKNOWN),
        (["1", "--at", "9", *here], "it has had 2 responses, and not 9"),
        (["1", "--args", "5"], """--args takes a JSON object such as '{"name": "Ada"}', not '5'"""),
        (["2", "--system", "x"], "walk is code: it has no prompt and no model"),
        (
            ["1", "--system", "@nowhere.txt"],
            "--system @nowhere.txt: the file cannot be read (No such file or directory);"
            " write @@ for a text that begins with @",
        ),
        (["9"], "there is no run 9; 'treefold ps' lists them"),
        (["9", *here], "there is no run 9; 'treefold ps' lists them"),
        (
            ["1", "--with", f"{ERRANDS}:walk"],
            "run 1 began with buy, and --with has walk, step",
        ),
    ]:
        assert act(walked, "fork", *args) == (2, "", f"treefold fork: {said}\n")
    assert len(outputs(walked)) == 2
    driver = drive()
    code, shown, told = act(walked, "fork", "1", *here)
    assert (code, shown) == (2, "")
    assert f"it is owned by process {driver.pid};" in told
    assert told.endswith(", or leave out --with\n")


def test_a_fork_that_fails_is_exit_code_1(walked: Path):
    code, shown, told = act(walked, "fork", "2", "--with", ERRANDS, "--args", '{"steps": -1}')
    assert (code, shown) == (1, "")
    assert "treefold fork: ValueError: nobody walks backwards\n" in told


def test_a_fork_that_is_interrupted_stays_open(path: Path, drive: Drive):
    with Runtime([deploy, walk], store=path) as runtime:
        runtime.invoke(walk, {"steps": 1}).result()
    args = ["fork", "1", "--with", ERRANDS, "--args", '{"steps": 100000}']
    with subprocess.Popen(
        warm_python.command("-m", "treefold", *args),
        cwd=path.parent,
        env=environment(),
        preexec_fn=heed_interrupts,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        seen(path, 3, lambda view: len(view.children) > 1)
        process.send_signal(signal.SIGINT)
        shown, told = process.communicate(timeout=PATIENCE)
    assert (process.returncode, shown) == (130, "")
    assert told == (
        "treefold fork: interrupted; it stays open in run.db, "
        "and resumes when that is next driven\n"
    )
    far = seen(path, 3, lambda view: view.state is NodeState.Running)
    drive()
    seen(path, 3, lambda view: len(view.children) > len(far.children) + 1)
