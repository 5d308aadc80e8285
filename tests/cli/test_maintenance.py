"""``treefold import``, ``delete`` and ``vacuum``."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from command_line import PATIENCE, environment
from journal_driver import Drive, act, asked, seen
from terminal import CTRL_C, CTRL_D, Terminal
from treefold import attach
from treefold.views import data

GONE: Final = "report (run 1) was deleted; 'treefold vacuum' returns its space to the disk\n"
ASKED: Final = "delete report (run 1)? It cannot be restored. [y/N] "


@pytest.fixture
def own(journal: Path, path: Path) -> Path:
    """A copy of the small journal, as run.db in a folder of its own."""
    shutil.copy(journal, path)
    return path


@pytest.fixture
def file(own: Path) -> Path:
    """The run with the key nightly, exported."""
    assert act(own, "export", "nightly", "--tree", "run.jsonl") == (0, "", "")
    return own.parent / "run.jsonl"


def runs(path: Path) -> list[tuple[int, str, str]]:
    with attach(path) as observer:
        return [(tree.id, tree.function, tree.key) for tree in observer.trees()]


BEFORE: Final = [(1, "report", "nightly"), (7, "publish", ""), (8, "deploy", "")]


# --- import


def test_an_exported_run_is_imported_into_a_new_journal(own: Path, file: Path):
    other = own.parent / "archive.db"
    done = act(own, "import", "--tree", file.name, "--store", other.name)
    assert done == (0, "report is now run 1 of archive.db\n", "")
    assert other.stat().st_mode & 0o777 == 0o600
    assert runs(other) == BEFORE[:1]
    with attach(own) as here, attach(other) as there:
        details = [data.details(one.get_view(1)) for one in (there, here)]
    for detail in details:
        del detail[1]["seq"]  # there is one event more, which says that it was imported
    assert details[0] == details[1]


@pytest.mark.usefixtures("file")
def test_beside_the_run_itself_it_has_ids_of_its_own_and_no_key(own: Path):
    assert runs(own) == BEFORE
    done = act(own, "import", "--tree", "run.jsonl")
    said = "report is now run 4 of run.db; its key 'nightly' belongs to another run\n"
    assert done == (0, said, "")
    assert runs(own) == [*BEFORE, (9, "report", "")]
    assert act(own, "diff", "1", "4")[0] == 0


def test_what_is_exported_into_a_pipe_is_read_from_it(own: Path):
    line = "{0} export nightly --tree - | {0} import --tree - --store other.db"
    done = subprocess.run(
        ["bash", "-c", line.format(f"{sys.executable} -m treefold")],
        cwd=own.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    said = "report is now run 1 of other.db\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_a_fork_comes_with_the_run_that_it_is_based_on(path: Path, drive: Drive):
    drive("deploy")
    asked(path)
    act(path, "cancel", "1")
    act(path, "resume", "1")
    assert asked(path) == ["2-2"]
    assert act(path, "export", "2", "--tree", "fork.jsonl")[0] == 0
    code, shown, told = act(path, "import", "--tree", "fork.jsonl", "--store", "other.db")
    assert (code, shown) == (
        0,
        "deploy is now run 1 of other.db\ndeploy is now run 2 of other.db\n",
    )
    assert told == (
        "deploy (run 2) has not ended, and stays as it is in other.db until 'treefold resume 2'"
        " lets it run; the run that it is a copy of continues in its own journal\n"
    )


def test_a_file_that_cannot_be_imported_creates_no_journal(own: Path, file: Path):
    cut = own.parent / "cut.jsonl"
    cut.write_bytes(file.read_bytes()[:-50])
    before = sorted(own.parent.iterdir())
    for name, why in [
        ("cut.jsonl", "it cannot be imported: it is damaged or incomplete; get"),
        ("run.db", "it cannot be imported: it is not an exported tree; give the path of another"),
        ("none.jsonl", "it cannot be read (No such file or directory)"),
        (".", "it cannot be read (Is a directory)"),
        ("-", "it cannot be imported: it is not an exported tree; give the path of another"),
    ]:
        code, shown, told = act(own, "import", "--tree", name, "--store", "other.db")
        where = "stdin" if name == "-" else (own.parent / name).resolve()
        assert (code, shown) == (2, "")
        assert told.startswith(f"treefold import: {where}: {why}")
        assert told.count("\n") == 1
    assert sorted(own.parent.iterdir()) == before
    assert act(own, "import")[0] == 2


@pytest.mark.usefixtures("file")
def test_a_journal_that_is_none_is_left_as_it_is(own: Path):
    other = own.parent / "notes.txt"
    other.write_text("not a database\n" * 1000)
    code, shown, told = act(own, "import", "--tree", "run.jsonl", "--store", other.name)
    assert (code, shown) == (2, "")
    assert told.startswith(f"treefold import: {other.resolve()}: it is not a database; ")
    assert other.read_text() == "not a database\n" * 1000


# --- delete


def test_a_run_is_deleted_and_its_key_is_free_again(own: Path, file: Path):
    assert act(own, "delete", "nightly", "--yes") == (0, GONE, "")
    assert runs(own) == BEFORE[1:]
    assert act(own, "tree", "1")[0] == 2
    done = act(own, "import", "--tree", file.name)
    assert done == (0, "report is now run 4 of run.db\n", "")
    assert runs(own)[-1] == (9, "report", "nightly")


def test_without_a_terminal_yes_is_required(own: Path):
    said = "cannot ask whether to delete report (run 1): no terminal. Give --yes"
    assert act(own, "delete", "1") == (2, "", f"treefold delete: {said}\n")
    line = f"{sys.executable} -m treefold delete 1 <&-"
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=own.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (2, f"treefold delete: {said}\n")
    assert runs(own) == BEFORE


@pytest.mark.parametrize(
    ("keys", "code", "said"),
    [
        ("y\r", 0, GONE),
        ("YES\r", 0, GONE),
        ("\r", 2, "nothing was deleted\n"),
        ("no\r", 2, "nothing was deleted\n"),
        (CTRL_D, 2, "nothing was deleted\n"),
    ],
)
async def test_the_user_at_a_terminal_is_asked(own: Path, keys: str, code: int, said: str):
    args = ["-m", "treefold", "delete", "nightly", "--store", str(own)]
    async with Terminal(*args, env={}) as terminal:
        await terminal.see(ASKED)
        terminal.press(keys)
        await terminal.see(said)
        assert await terminal.exit_code() == code
    assert runs(own) == (BEFORE if code else BEFORE[1:])


async def test_an_interrupt_is_no_consent(own: Path):
    args = ["-m", "treefold", "delete", "nightly", "--store", str(own)]
    async with Terminal(*args, env={}) as terminal, asyncio.TaskGroup() as group:
        await terminal.see(ASKED)
        ended = group.create_task(terminal.exit_code())
        while not ended.done():  # Python does not hear one that comes right before it reads
            terminal.press(CTRL_C)
            await asyncio.wait([ended], timeout=5)
        assert ended.result() == 130
    assert runs(own) == BEFORE


async def test_the_user_is_not_asked_about_what_cannot_be_deleted(own: Path):
    args = ["-m", "treefold", "delete", "last", "--store", str(own)]
    async with Terminal(*args, env={}) as terminal:
        await terminal.see("treefold delete: run 3 has not ended; cancel it first")
        assert await terminal.exit_code() == 2
        assert "[y/N]" not in terminal.shown


def test_unfinished_runs_and_runs_with_a_fork_stay(path: Path, drive: Drive):
    driver = drive("deploy")
    asked(path)
    act(path, "cancel", "1")
    act(path, "resume", "1")
    assert asked(path) == ["2-2"]
    driver.end()
    kept = runs(path)
    for run, said in [
        ("2", "run 2 has not ended; cancel it first"),
        ("1", "run 1 was forked; delete run 2 first, which shares its calls"),
    ]:
        assert act(path, "delete", run, "--yes") == (2, "", f"treefold delete: {said}\n")
    assert runs(path) == kept


def test_only_whole_runs_that_are_there_are_deleted(own: Path):
    part = "call 1.3 is not a whole run: give 1"
    assert act(own, "delete", "1.3", "--yes") == (2, "", f"treefold delete: {part}\n")
    for args in ["99"], ["weekly"], []:
        code, shown, told = act(own, "delete", *args, "--yes")
        assert (code, shown, "Traceback" in told) == (2, "", False)
    assert runs(own) == BEFORE


# --- vacuum


def test_the_room_of_what_was_deleted_is_given_back(own: Path):
    act(own, "delete", "1", "--yes")
    size = own.stat().st_size
    code, shown, told = act(own, "vacuum")
    given = size - own.stat().st_size
    assert given > 0
    assert (code, shown, told) == (0, f"{given:,} bytes were returned\n", "")
    assert act(own, "vacuum") == (0, "0 bytes were returned\n", "")
    assert runs(own) == BEFORE[1:]


# --- all of them


@pytest.mark.parametrize("args", [["delete", "1", "--yes"], ["vacuum"]])
def test_without_a_journal_none_is_made(tmp_path: Path, args: list[str]):
    said = f"treefold {args[0]}: run.db: there is no such journal; give --store FILE or set"
    assert act(tmp_path / "run.db", *args) == (2, "", f"{said} TREEFOLD_STORE\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    "args", [["import", "--tree", "run.jsonl"], ["delete", "1", "--yes"], ["vacuum"]]
)
def test_a_journal_that_another_process_drives_is_left_alone(
    own: Path, drive: Drive, args: list[str]
):
    driver = drive("walk")
    seen(own, 9, lambda view: bool(view.children))
    kept = runs(own)
    code, shown, told = act(own, *args)
    assert (code, shown) == (2, "")
    assert told.startswith(
        f"treefold {args[0]}: {own.resolve()}: it is owned by"
        f" process {driver.pid}; stop that process"
    )
    assert runs(own) == kept
