"""``treefold replay``: with the functions as they were, and as they are now."""

import json
from pathlib import Path

import pytest

from command_line import ROOT, treefold
from errands import buy, walk
from treefold import Runtime, SqliteStore
from treefold.stores import export_tree

ERRANDS = str(ROOT / "tests" / "errands.py")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run 1 buys a boat and has a key, run 3 walks."""
    path = tmp_path_factory.mktemp("journal") / "run.db"
    with Runtime([buy, walk], store=path) as runtime:
        runtime.invoke(buy, key="boat").result()
        runtime.invoke(walk, {"steps": 2}).result()
    return path


@pytest.fixture
def changed(tmp_path: Path) -> str:
    """The errands with another prompt for buyers."""
    path = tmp_path / "changed.py"
    path.write_text(Path(ERRANDS).read_text("utf-8").replace("Buy {what}.", "Get\\x1b {what}."))
    return str(path)


def test_what_goes_as_it_went_is_exit_code_0(journal: Path):
    for run, said in [
        (["boat"], "buy runs as recorded: 2 calls\n"),
        (["1"], "buy runs as recorded: 2 calls\n"),
        (["last"], "walk runs as recorded: 3 calls\n"),
        ([], "walk runs as recorded: 3 calls\n"),
    ]:
        done = treefold("replay", *run, "--with", ERRANDS, cwd=journal.parent)
        assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_a_call_in_a_run_is_not_replayed_but_the_run_is_named(journal: Path):
    done = treefold("replay", "1.1", "--with", ERRANDS, cwd=journal.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("treefold replay: call 1.1 is not a whole run: give 1\n")


def test_the_first_thing_that_differs_is_shown_as_a_diff(journal: Path, changed: str):
    done = treefold("replay", "boat", "--with", f"{changed}:buy", cwd=journal.parent)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (
        "a request that differs: buy (run 1)\n"
        "--- recorded: buy (run 1)\n"
        "+++ now: buy (run 1)\n"
        "@@ -1 +1 @@\n"
        "-Buy a boat.\n"
        "+Get\\x1b a boat.\n"
    )


def test_json_says_what_and_where(journal: Path, changed: str):
    args = ["--json", "--store", str(journal)]
    same = treefold("replay", "boat", "--with", ERRANDS, *args)
    assert (same.returncode, json.loads(same.stdout)) == (
        0,
        {"same": True, "calls": 2, "divergence": None},
    )
    other = treefold("replay", "boat", "--with", changed, *args)
    diff = "--- recorded: buy (run 1)\n+++ now: buy (run 1)\n@@ -1 +1 @@\n"
    assert (other.returncode, json.loads(other.stdout)) == (
        1,
        {
            "same": False,
            "calls": 1,
            "divergence": {
                "path": "1",
                "function": "buy",
                "what": "a request that differs",
                "expected": "Buy a boat.",
                "actual": "Get\x1b a boat.",
                "diff": f"{diff}-Buy a boat.\n+Get\x1b a boat.",
            },
        },
    )


def test_a_tree_that_was_exported_is_replayed_as_well(journal: Path, changed: str, tmp_path: Path):
    exported = tmp_path / "boat.tree"
    with SqliteStore(journal) as store:
        export_tree(store, 1, exported)
    for module, code in [(ERRANDS, 0), (changed, 1)]:
        done = treefold("replay", "--store", str(exported), "--with", module)
        assert (done.returncode, done.stderr) == (code, "")


def test_what_cannot_be_replayed_is_exit_code_2(journal: Path, tmp_path: Path):
    nowhere = str(tmp_path / "nothing.db")
    for args, words in [
        (["9", "--with", ERRANDS], "there is no run 9"),
        (["boat", "--with", f"{ERRANDS}:walk"], "is a call of buy, which is not among"),
        (["boat", "--with", "nothing.py"], "there is no file nothing.py"),
        (["--with", ERRANDS, "--store", nowhere], "nothing.db: it cannot be read"),
        (["boat"], "Missing option '--with'"),
    ]:
        done = treefold("replay", *args, cwd=journal.parent)
        assert (done.returncode, done.stdout, words in done.stderr) == (2, "", True), done.stderr
    assert not Path(nowhere).exists()
