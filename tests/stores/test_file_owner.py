"""A journal that belongs to another user."""

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from treefold import SqliteStore, StoreError

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root has files of several users"
)
NOBODY, SOMEBODY = 65534, 12345


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may write to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def journal_of(folder: Path, owner: int, name: str = "run.db") -> Path:
    path = folder / name
    SqliteStore(path).close()
    path.chmod(0o666)
    os.chown(path, owner, owner)
    return path


def acquire(path: Path, user: int) -> str:
    """Acquire it in a process of *user*, and return what came of it."""
    reading, writing = os.pipe()
    # Not a program of its own: other users may not be allowed to read this Python.
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(writing, acquired(path).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as told:
        said = told.read()
    os.waitpid(child, 0)
    return said


def acquired(path: Path) -> str:
    with SqliteStore(path) as store:
        assert store.trees() == []
        try:
            store.join()
        except StoreError as error:
            return str(error)
        return "acquired"


def test_another_user_may_read_it_and_not_drive_it(folder: Path):
    path = journal_of(folder, SOMEBODY)
    said = acquire(path, NOBODY)
    nobody = pwd.getpwuid(NOBODY).pw_name
    assert said.startswith(
        f"{path}: it belongs to user {SOMEBODY}, and what is unfinished in it would be run by"
        f" {nobody}; "
    )
    assert said.endswith("copy it to a file of your own if you trust what is in it")


def test_a_copy_of_it_is_accepted(folder: Path):
    path = journal_of(folder, SOMEBODY)
    copy = Path(shutil.copyfile(path, folder / "mine.db"))
    os.chown(copy, NOBODY, NOBODY)
    assert acquire(copy, NOBODY) == "acquired"


@pytest.mark.parametrize(("owner", "user"), [(NOBODY, NOBODY), (0, NOBODY), (SOMEBODY, 0)])
def test_ones_own_journal_and_one_of_root_are_driven_and_root_drives_all(
    folder: Path, owner: int, user: int
):
    assert acquire(journal_of(folder, owner), user) == "acquired"
