"""The commands that look at a journal, as people and as programs use them."""

import json
import re
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import warm_python
from treefold import AgentFunction, CodeFunction, RunContext, Runtime, attach
from treefold.cli import main
from treefold.testing import ScriptedModel
from treefold.views import data

Look = Callable[..., tuple[int, str]]

UNDRIVEN = (
    "no process drives this journal now: unfinished runs resume when their program is started"
    " again\n"
)
DRIVER = """
import asyncio, sys
from treefold import RunContext, Runtime, tool

@tool
async def wait(minutes: int) -> None:
    print("waiting", flush=True)
    await asyncio.Event().wait()

@tool(uses=[wait])
async def job(ctx: RunContext) -> None:
    await ctx.invoke(wait, {"minutes": 5})

with Runtime([job], store=sys.argv[1]) as runtime:
    runtime.invoke(job).result()
"""


@pytest.fixture
def look(
    journal: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Look:
    """Run ``treefold`` in the folder of the journal; return its exit code and stdout."""
    monkeypatch.chdir(journal.parent)
    monkeypatch.delenv("TREEFOLD_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*args: str) -> tuple[int, str]:
        status = main(args)
        captured = capsys.readouterr()
        assert captured.err in {"", UNDRIVEN}
        return status, captured.out

    return run


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    """A journal that another process drives."""
    path = tmp_path / "live.db"
    with subprocess.Popen(
        warm_python.command("-c", DRIVER, str(path)), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        yield path
        process.kill()


def as_data(shown: tuple[int, str]) -> Any:
    assert shown[0] == 0
    return json.loads(shown[1])


def timeless(shown: tuple[int, str]) -> list[str]:
    """Return the lines without how long anything took."""
    assert shown[0] == 0
    return [re.sub(r"  [0-9.]+ m?s", "", line) for line in shown[1].splitlines()]


def test_ps_lists_the_runs_newest_last(look: Look):
    status, shown = look("ps")
    head, *lines = (re.split(r"\s{2,}", line) for line in shown.splitlines())
    assert status == 0
    assert head == [
        "RUN", "FUNCTION", "STATE", "STARTED", "ELAPSED", "QUESTIONS", "KEY",
    ]  # fmt: skip
    assert [line[:3] for line in lines] == [
        ["1", "report", "success"],
        ["2", "publish", "error"],
        ["3", "deploy", "parked"],
    ]
    assert (lines[0][-1], lines[2][-1]) == ("nightly", "1")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line[3]) for line in lines)


def test_ps_gives_programs_what_the_viewer_gets(look: Look, journal: Path):
    with attach(journal) as observer:
        expected = [data.tree(tree, int(tree.id == 8)) for tree in observer.trees()]
    assert as_data(look("ps", "--json")) == expected


def test_ps_of_a_journal_without_runs_says_so(look: Look, tmp_path: Path):
    with Runtime(store=tmp_path / "empty.db"):
        pass
    assert look("ps", "--store", str(tmp_path / "empty.db")) == (0, "no runs yet\n")
    assert look("ps", "--json", "--store", str(tmp_path / "empty.db")) == (0, "[]\n")


def test_tree_shows_a_run_and_whatever_is_below_it(look: Look):
    assert timeless(look("tree", "nightly")) == [
        "✓ 1 report(texts=['The sea rises.', 'The sea falls.']) → ['rises', 'falls']"
        "  60 tokens $0.0600",
        "├─ ✓ 1.1 ∥1/2 summarise(text='The sea rises.') → 'rises'  30 tokens $0.0300",
        "│  └─ ✓ 1.1.1 count(text='rises and rises') → 3",
        "├─ ✓ 1.2 ∥2/2 summarise(text='The sea falls.') → 'falls'  30 tokens $0.0300",
        "│  └─ ✓ 1.2.1 count(text='falls and falls') → 3",
        "└─ ✗ 1.3 publish(title='rises') → PermissionError: nobody may publish 'rises'",
    ]
    assert timeless(look("tree")) == ["‖ 3 deploy() … Deploy?"]


def test_tree_stops_at_a_depth_and_says_how_much_is_below(look: Look):
    assert [line[-6:] for line in timeless(look("tree", "1", "--depth", "0"))] == ["  (+5)"]
    lines = timeless(look("tree", "1", "--depth", "1"))
    assert [line.endswith("  (+1)") for line in lines] == [False, True, True, False]
    assert [line.endswith(")") for line in timeless(look("tree", "1", "--depth", "2"))][1:3] == [
        False,
        False,
    ]
    rows = as_data(look("tree", "1", "--depth", "1", "--json"))
    assert [row["path"] for row in rows] == ["1", "1.1", "1.2", "1.3"]
    below = as_data(look("tree", "1.1", "--depth", "1", "--json"))
    assert [row["path"] for row in below] == ["1.1", "1.1.1"]


def test_tree_gives_programs_its_rows(look: Look, journal: Path):
    with attach(journal) as observer:
        assert as_data(look("tree", "1", "--json")) == data.rows(observer.get_view(1))


def test_a_depth_that_is_no_number_is_wrong_usage(capsys: pytest.CaptureFixture[str]):
    for given in ("-1", "x", "²"):
        assert main(["tree", f"--depth={given}"]) == 2
        assert "is not a number of levels, such as 2" in capsys.readouterr().err


def test_stack_shows_the_calls_that_lead_to_one(look: Look):
    status, shown = look("stack", "1.1.1")
    assert status == 0
    assert re.sub(r"node [45]", "node N", shown).splitlines() == [
        "Agent traceback (most recent call last):",
        "  report (code, run 1) texts=['The sea rises.', 'The sea falls.'] | 60 tokens, $0.0600",
        "  summarise (agent, call 1.1) text='The sea rises.'"
        " | scripted, response 2, part 6, 30 tokens, $0.0300",
        "  count (code, call 1.1.1) text='rises and rises'",
    ]


def test_a_run_that_is_live_in_another_process_is_seen(look: Look, live: Path):
    store = ("--store", str(live))
    [run] = as_data(look("ps", "--json", *store))
    assert (run["state"], run["open"], run["ended"]) == ("running", True, None)
    assert [row["state"] for row in as_data(look("tree", "--json", *store))] == ["running"] * 2
    assert look("stack", *store)[1].splitlines() == [
        "Agent traceback (most recent call last):",
        "  job (code, run 1)",
        "  wait (code, call 1.1) minutes=5",
    ]
    frames = as_data(look("stack", "--json", *store))
    assert [frame["path"] for frame in frames] == ["1", "1.1"]
    assert look("ps", *store)[1].splitlines()[1].startswith("1    job       running  ")


def test_calls_that_run_at_the_same_time_have_a_stack_each(look: Look, tmp_path: Path):
    async def ask(ctx: RunContext, what: str) -> str:
        return await ctx.ask(what)

    asking = CodeFunction(callable=ask)

    async def inquire(ctx: RunContext, what: str) -> str:
        return await ctx.invoke(asking, {"what": what})

    inquiring = CodeFunction(callable=inquire, uses=[asking])

    async def both(ctx: RunContext) -> list[str]:
        first = ctx.invoke(inquiring, {"what": "Where?"})
        other = ctx.invoke(asking, {"what": "When?"})
        return [await first, await other]

    path = tmp_path / "run.db"
    top = CodeFunction(callable=both, uses=[inquiring, asking])
    with Runtime([top], store=path) as runtime:
        for _ in runtime.watch(runtime.invoke(top), timeout=30):
            if len(runtime.questions()) == 2:
                break
    store = ("--store", str(path))
    status, shown = look("stack", *store)
    assert status == 0
    # The process that ran them has ended.
    shown = shown.replace(" | interrupted", "")
    assert re.sub(r"node \d", "node N", shown).splitlines() == [
        "Agent traceback (most recent call last):",
        "  both (code, run 1)",
        "  inquire (code, call 1.1) what='Where?'",
        "  ask (code, call 1.1.1) what='Where?'",
        "",
        "Agent traceback (most recent call last):",
        "  both (code, run 1)",
        "  ask (code, call 1.2) what='When?'",
    ]
    paths = [frame["path"] for frame in as_data(look("stack", "--json", *store))]
    assert paths == ["1", "1.1", "1.1.1", "1.2"]
    assert [frame["path"] for frame in as_data(look("stack", "1.1", "--json", *store))] == [
        "1", "1.1", "1.1.1",
    ]  # fmt: skip


def test_unfinished_runs_are_reported_if_no_process_drives_them(
    live: Path, journal: Path, capsys: pytest.CaptureFixture[str]
):
    def told(path: Path, *args: str) -> str:
        assert main([*args, "--store", str(path)]) == 0
        return capsys.readouterr().err

    for command in ("ps", "tree", "stack"):
        assert told(journal, command) == UNDRIVEN
        assert told(journal, command, "--json") == ""
        assert told(live, command) == ""
    for command in ("tree", "stack"):
        assert told(journal, command, "nightly") == ""  # it is over


def test_transcript_shows_a_conversation_with_thinking_folded(look: Look, journal: Path):
    status, shown = look("transcript", "1.1")
    assert status == 0
    assert shown.splitlines() == [
        "── user",
        "Shorter: The sea rises.",
        "── thinking: Count first,\\nthen say rises.  (28 characters; see --thinking)",
        "── model",
        "I count.",
        "── call count(text='rises and rises')  1.1.1",
        "── result of count  1.1.1",
        "3",
        "── model",
        "rises",
    ]
    assert look("transcript", "1.1", "--thinking")[1].splitlines()[2:5] == [
        "── thinking",
        "Count first,",
        "then say rises.",
    ]
    with attach(journal) as observer:
        expected = data.transcript(observer.get_view(2))
    assert as_data(look("transcript", "1.1", "--json")) == expected


def test_transcript_of_code_names_the_agents_below_it(look: Look):
    assert look("transcript", "1") == (
        0,
        "report (run 1) has had no conversation with a model; these calls below it have:"
        " 1.1, 1.2\n",
    )
    assert look("transcript", "3") == (0, "deploy (run 3) has had no conversation with a model\n")
    assert as_data(look("transcript", "3", "--json")) == []


def test_flame_draws_bars_for_money_and_tokens(look: Look):
    assert look("flame", "1", "--by", "money")[1].splitlines() == [
        "$0.06 in all",
        f"{'█' * 40}  1 report  $0.06 ($0)",
        f"{'█' * 20}{' ' * 20}    1.1 summarise  $0.03",
        f"▏{' ' * 39}      1.1.1 count  $0",
        f"{' ' * 20}{'█' * 20}    1.2 summarise  $0.03",
        f"{' ' * 20}▏{' ' * 19}      1.2.1 count  $0",
        f"{' ' * 39}▏    1.3 publish  $0",
    ]
    assert look("flame", "1", "--by", "tokens", "--depth", "0")[1].splitlines() == [
        "60 tokens in all",
        f"{'█' * 40}  1 report  60 tokens (0 tokens)",
    ]
    assert as_data(look("flame", "1", "--by", "tokens", "--json"))["total"] == 60


def test_flame_draws_time(look: Look):
    status, shown = look("flame", "1")
    assert status == 0
    lines = shown.splitlines()
    assert re.fullmatch(r"[0-9.]+ m?s in all", lines[0])
    assert lines[1].startswith("█" * 40 + "  1 report  ")
    assert len(lines) == 7


def test_diff_shows_what_is_different_and_says_so_by_its_exit_code(look: Look):
    assert look("diff", "1.1", "1.2") == (
        1,
        "~ 1.1 summarise / 1.2: inputs, result, transcript\n"
        "  - inputs: text='The sea rises.'\n"
        "  + inputs: text='The sea falls.'\n"
        "  - result: rises\n"
        "  + result: falls\n"
        "  - part 0: user: Shorter: The sea rises.\n"
        "  + part 0: user: Shorter: The sea falls.\n"
        "~ 1.1.1 count / 1.2.1: inputs\n"
        "  - inputs: text='rises and rises'\n"
        "  + inputs: text='falls and falls'\n"
        "2 calls differ, 0 are the same\n",
    )
    assert look("diff", "1", "nightly") == (0, "0 calls differ, 6 are the same\n")
    status, shown = look("diff", "1.3", "2")
    assert (status, shown.splitlines()[0]) == (1, "~ 1.3 publish / 2: inputs, error")
    assert shown.splitlines()[-1] == "1 call differs, 0 are the same"
    status, shown = look("diff", "2", "1")
    functions = ["  - function: publish", "  + function: report"]
    assert (status, shown.splitlines()[1:3]) == (1, functions)
    assert shown.splitlines()[-1] == "6 calls differ, 0 are the same"
    assert "+ 1.1 summarise(text='The sea rises.')" in shown


def test_diff_gives_programs_both_sides(look: Look, journal: Path):
    status, shown = look("diff", "1.1", "1.2", "--json")
    with attach(journal) as observer:
        expected = data.difference(observer.get_view(2), observer.get_view(3))
    assert (status, json.loads(shown)) == (1, expected)
    assert look("diff", "1", "1", "--json")[0] == 0


def test_diff_compares_runs_of_two_journals(look: Look, journal: Path, tmp_path: Path):
    copy = tmp_path / "copy.db"
    copy.write_bytes(journal.read_bytes())
    assert look("diff", "1", "1", "--other", str(copy)) == (0, "0 calls differ, 6 are the same\n")


HOSTILE = "a\x1b[2J\r\nb\u202e\x9b2J[red]"


async def odd(ctx: RunContext, text: str) -> str:
    raise ValueError(text)


def test_nothing_that_a_model_says_reaches_the_terminal_as_it_is(look: Look, tmp_path: Path):
    path = tmp_path / "run.db"
    failing = CodeFunction(callable=odd)
    agent = AgentFunction(
        "odd_agent", "Odd.", system_prompt="", user_prompt_template="Say something odd."
    )
    with Runtime([failing, agent], store=path, models=ScriptedModel(HOSTILE)) as runtime:
        runtime.invoke(agent, key=HOSTILE).result()
        with pytest.raises(ValueError, match="a"):
            runtime.invoke(failing, {"text": HOSTILE}).result()
    for args in (
        ["ps"],
        ["tree", "1"],
        ["tree"],
        ["stack"],
        ["transcript", "1"],
        ["flame"],
        ["diff", "1", "2"],
        ["tree", "--json"],
        ["transcript", "1", "--json"],
    ):
        _, shown = look(*args, "--store", str(path))
        assert all(char == "\n" or char.isprintable() for char in shown), args


def test_what_is_not_there_is_exit_code_2_and_one_sentence(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "text.db").write_text("not a database, and long enough to be looked at" * 100)
    (tmp_path / "empty.db").touch()
    for args, said in [
        (["ps", "--store", str(tmp_path / "no.db")], "no.db: there is no such journal"),
        (["ps", "--store", str(tmp_path)], str(tmp_path)),
        (["tree", "--store", str(tmp_path / "text.db")], "text.db"),
        (["ps", "--store", str(tmp_path / "empty.db")], "empty.db: it is empty; give --store"),
        (["tree", "99", "--store", str(journal)], "there is no run 99"),
        (["diff", "1", "x", "--store", str(journal)], "there is no run with the key 'x'"),
    ]:
        assert main(args) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith(f"treefold {args[0]}: ")
        assert said in shown.err
        assert len(shown.err.splitlines()) == 1
    assert (tmp_path / "empty.db").stat().st_size == 0


def test_a_run_whose_process_was_killed_is_interrupted_and_its_clock_stops(look: Look, live: Path):
    dead = live.with_name("dead.db")
    with closing(sqlite3.connect(live)) as source, closing(sqlite3.connect(dead)) as copy:
        source.backup(copy)  # what a killed process leaves behind
    store = ("--store", str(dead))
    [run] = as_data(look("ps", "--json", *store))
    with attach(dead) as observer:
        [(tree, last)] = observer.interrupted().items()
    assert (run["id"], run["state"], run["open"], run["ended"]) == (tree, "interrupted", True, last)
    rows = as_data(look("tree", "--json", *store))
    assert [(row["state"], row["ended"]) for row in rows] == [
        ("interrupted", pytest.approx(last, abs=1e-3))
    ] * 2
    assert {frame["state"] for frame in as_data(look("stack", "--json", *store))} == {"interrupted"}
    assert all(" | interrupted" in line for line in look("stack", *store)[1].splitlines()[1:])
    flame = as_data(look("flame", "--json", *store))
    assert flame["total"] == pytest.approx(last - run["started"], abs=1e-3)
    assert {frame["state"] for frame in flame["frames"]} == {"interrupted"}
    listed, drawn = look("ps", *store), look("tree", *store)
    assert " interrupted " in listed[1]
    assert [line.lstrip("└─ ")[:2] for line in drawn[1].splitlines()] == ["↯ "] * 2
    assert (look("ps", *store), look("tree", *store)) == (listed, drawn)


def test_a_parked_run_is_parked_though_its_process_has_ended(look: Look):
    assert [run["state"] for run in as_data(look("ps", "--json"))][-1] == "paused"
    assert "parked" in look("ps")[1]
    assert "‖" in look("tree", "last")[1]
