"""An edit whose process is killed: what it leaves, and who may read it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from editing import edit
from treefold.toolbox.editing.temporary import temporary_file

PROGRAM = Path(__file__).parent / "editing_process.py"
LONG = 120  # seconds
MOST = 20  # moments; an edit has about seven


def leftovers(folder: Path) -> list[Path]:
    return sorted(folder.glob(".treefold-*.tmp"))


def run_edit(path: Path, moment: int) -> int:
    command = [sys.executable, str(PROGRAM), str(path), str(moment)]
    return subprocess.run(command, timeout=LONG, check=False).returncode


def test_a_killed_edit_of_a_private_file_shows_it_to_nobody_and_the_next_edit_cleans_up(
    tmp_path: Path,
):
    found: list[int] = []
    path = tmp_path
    before = os.umask(0o022)
    try:
        for moment in range(1, MOST):
            folder = tmp_path / str(moment)
            folder.mkdir()
            path = folder / "key"
            path.write_text("a secret\n")
            path.chmod(0o600)

            ended = run_edit(path, moment)

            assert ended in {0, -signal.SIGKILL}
            found += [left.stat().st_mode & 0o777 for left in leftovers(folder) if left.read_text()]
            edit("create", folder / "other", file_text="")
            assert leftovers(folder) == []
            assert path.read_text() in {"a secret\n", "a hidden\n"}
            assert path.stat().st_mode & 0o777 == 0o600
            if ended == 0:
                break
    finally:
        os.umask(before)
    assert path.read_text() == "a hidden\n"
    # It was killed after the contents had been written, and before they were in place.
    assert found
    assert set(found) == {0o600}


def test_the_temporary_file_of_a_running_edit_stays(tmp_path: Path):
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with temporary_file(folder, mode=0o600) as (name, _):
            edit("create", tmp_path / "other", file_text="")
            assert leftovers(tmp_path) == [tmp_path / name]
    finally:
        os.close(folder)
    assert leftovers(tmp_path) == []


def test_files_with_other_names_are_no_leftovers(tmp_path: Path):
    names = {".treefold-notes.tmp", ".treefold-0123456789abcdef.tmp.bak", "treefold-0.tmp"}
    for name in names:
        (tmp_path / name).write_text("")
    edit("create", tmp_path / "new", file_text="")
    assert {path.name for path in tmp_path.iterdir()} == names | {"new"}
