"""Links and files of others at the paths of the files beside a journal."""

import os
import socket
from pathlib import Path

import pytest

from treefold import CodeFunction, RunContext, Runtime, SqliteStore, StoreError
from treefold.runtime.observe.observer import attach

PRECIOUS = "ssh-ed25519 AAAA me\n"
BESIDE = ("driver", "live", "live-new")


async def _add(ctx: RunContext, a: int, b: int) -> int:
    """Add."""
    return a + b


add = CodeFunction(name="add", callable=_add)


def run(path: Path) -> None:
    with Runtime(store=path) as runtime:
        assert runtime.invoke(add, {"a": 1, "b": 2}).result() == 3


def broadcast(path: Path) -> None:
    with SqliteStore(path) as store:
        store.join()
        store.broadcast("hello")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text(PRECIOUS)
    return path


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_not_followed(tmp_path: Path, precious: Path, beside: str, *, exists: bool):
    journal = tmp_path / "run.db"
    if exists:
        run(journal)
    link = Path(f"{journal}-{beside}")
    link.unlink(missing_ok=True)
    link.symlink_to(precious)

    if beside == "live-new":
        # Broadcasts are best effort, and nothing else uses this file.
        broadcast(journal)
    else:
        with pytest.raises(StoreError, match=f"run.db-{beside}: it is a link, and .* move it away"):
            run(journal)

    assert precious.read_text() == PRECIOUS
    assert link.readlink() == precious
    link.unlink()
    run(journal)


@pytest.mark.parametrize("beside", BESIDE)
def test_a_link_to_nothing_creates_nothing(tmp_path: Path, beside: str):
    journal = tmp_path / "run.db"
    Path(f"{journal}-{beside}").symlink_to(tmp_path / "new")
    if beside == "live-new":
        broadcast(journal)
    else:
        with pytest.raises(StoreError, match="it is a link"):
            run(journal)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("beside", BESIDE)
def test_a_hard_link_to_the_file_of_another_program_is_left_as_it_is(
    tmp_path: Path, precious: Path, beside: str
):
    journal = tmp_path / "run.db"
    os.link(precious, f"{journal}-{beside}")
    if beside == "live-new":
        broadcast(journal)
    else:
        with pytest.raises(StoreError, match="its content is not what treefold writes there"):
            run(journal)
    assert precious.read_text() == PRECIOUS
    assert Path(f"{journal}-{beside}").samefile(precious)


@pytest.mark.parametrize("beside", ["driver", "live"])
@pytest.mark.parametrize("make", ["pipe", "socket", "folder"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, beside: str, make: str):
    journal = tmp_path / "run.db"
    path = f"{journal}-{beside}"
    if make == "pipe":
        os.mkfifo(path)
    elif make == "folder":
        os.mkdir(path)
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
    with pytest.raises(StoreError, match=f"run.db-{beside}: "):
        run(journal)


def test_an_observer_reads_no_link_as_live_text(tmp_path: Path, precious: Path):
    journal = tmp_path / "run.db"
    run(journal)
    precious.write_text('000000000001\n"a secret"\n')
    Path(f"{journal}-live").symlink_to(precious)
    with SqliteStore(journal) as store:
        assert store.read_broadcasts() == (0, [])
    with attach(journal) as observer:
        assert [row.function for row in observer.trees()] == ["add"]


def test_the_files_of_a_killed_owner_are_used_again(tmp_path: Path):
    journal = tmp_path / "run.db"
    run(journal)
    for content in ("", "4711", f"{4711:<20}\n{1:020}\nabc\n1:2\n\n", "\0" * 30):
        Path(f"{journal}-driver").write_text(content)
        Path(f"{journal}-live").write_text("000000000001\n")
        Path(f"{journal}-live-new").write_text("000000000001\n")
        broadcast(journal)
        run(journal)
    with attach(journal) as observer:
        assert [row.function for row in observer.trees()] == ["add"] * 5
