"""Git runs in a temporary folder, finds no settings there, and is killed after its timeout."""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from treefold import CancellationException, Runtime
from treefold.toolbox import FileError, apply_diff_patch
from treefold.toolbox.patching.file_diff import parse_patch
from treefold.toolbox.patching.git import GitResult, apply_with_git
from treefold.toolbox.patching.plan import make_plan

BEFORE = b"one\ntwo\n"
PATCH = "@@ -1,2 +1,2 @@\n one\n-two\n+three  \n"
AFTER = b"one\nthree  \n"


def patch_for(before: bytes) -> bytes:
    [file_diff] = parse_patch(PATCH.encode())
    return make_plan(before, file_diff.hunks).patch


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary folders, in which nothing may be left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder with programs; there are none in it but those that scripts need."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("sh", "sleep"):
        (folder / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(folder))
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def paths_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def install(programs: Path, script: str) -> None:
    (programs / "git").write_text(f"#!/bin/sh\n{script}\n")
    (programs / "git").chmod(0o755)


async def test_git_applies_a_patch_and_leaves_nothing_behind(temporary: Path):
    assert await apply_with_git(BEFORE, patch_for(BEFORE)) == GitResult(AFTER)
    assert names_in(temporary) == []


async def test_what_git_refuses_is_told_in_its_words(temporary: Path):
    run = await apply_with_git(b"other\n", patch_for(BEFORE))
    assert run == GitResult(None, "git did not apply it (error: patch failed: text:1)")
    assert names_in(temporary) == []


@pytest.mark.usefixtures("temporary")
async def test_no_settings_repository_or_variables_of_the_user_have_a_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def git(*args: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *args], check=True, capture_output=True)

    git("init")
    git("config", "apply.whitespace", "fix")
    git("config", "core.autocrlf", "true")
    home = tmp_path / "home"
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".gitconfig").write_text("[apply]\nwhitespace = error-all\n[core]\nautocrlf = true\n")
    (home / ".config" / "git" / "attributes").write_text("* text eol=crlf\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
    before = paths_in(tmp_path)

    assert await apply_with_git(BEFORE, patch_for(BEFORE)) == GitResult(AFTER)

    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_WORK_TREE")
    assert await apply_with_git(BEFORE, patch_for(BEFORE)) == GitResult(AFTER)
    assert paths_in(tmp_path) == before


@pytest.mark.usefixtures("programs")
async def test_without_git_it_is_said_that_there_is_none():
    assert await apply_with_git(BEFORE, b"") == GitResult(None, "git is not installed")


async def test_a_git_that_cannot_be_started_is_told(programs: Path):
    (programs / "git").write_bytes(b"\x7fELF")
    (programs / "git").chmod(0o755)
    run = await apply_with_git(BEFORE, b"")
    assert run.after is None
    assert run.error.startswith("git cannot be started (")


async def test_a_git_that_fails_without_a_word_is_told(programs: Path):
    install(programs, "exit 3")
    run = await apply_with_git(BEFORE, b"")
    assert run == GitResult(None, "git did not apply it (exit code 3)")


async def gone(pid_file: Path) -> None:
    async with asyncio.timeout(60):
        while is_alive(pid_file):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.01)


async def started(pid_file: Path) -> None:
    async with asyncio.timeout(60):
        while not is_alive(pid_file):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.01)


def is_alive(pid_file: Path) -> bool:
    """Whether the process runs whose id is in a file; one that waits for its parent does not."""
    try:
        return bool(Path(f"/proc/{int(pid_file.read_text())}/cmdline").read_bytes())
    except (OSError, ValueError):
        return False


HANGS = "sleep 300 & echo $! > {pid}; wait"


async def test_a_git_that_hangs_is_killed_with_what_it_started(
    programs: Path, tmp_path: Path, temporary: Path
):
    install(programs, HANGS.format(pid=tmp_path / "pid"))
    run = await apply_with_git(BEFORE, b"", seconds=0.5)
    assert run == GitResult(None, "git took longer than 0.5 s and was stopped")
    await gone(tmp_path / "pid")
    assert names_in(temporary) == []


async def test_cancelling_the_call_kills_git_and_changes_nothing(
    programs: Path, tmp_path: Path, temporary: Path
):
    install(programs, HANGS.format(pid=tmp_path / "pid"))
    file = tmp_path / "file"
    file.write_bytes(BEFORE)
    async with Runtime() as runtime:
        node = runtime.invoke(apply_diff_patch, {"file": str(file), "patch": PATCH})
        await started(tmp_path / "pid")
        begun = time.monotonic()
        node.cancel("enough")
        with pytest.raises(CancellationException, match="enough"):
            await node
        assert time.monotonic() - begun < 30
    await gone(tmp_path / "pid")
    assert file.read_bytes() == BEFORE
    assert names_in(temporary) == []


async def test_a_file_that_changes_while_git_runs_is_not_overwritten(
    programs: Path, tmp_path: Path
):
    file = tmp_path / "file"
    file.write_bytes(BEFORE)
    install(programs, f"echo theirs >> {file}")
    async with Runtime() as runtime:
        node = runtime.invoke(apply_diff_patch, {"file": str(file), "patch": PATCH})
        with pytest.raises(FileError, match="changed by another writer"):
            await node
    assert file.read_bytes() == BEFORE + b"theirs\n"


async def test_no_file_descriptors_or_processes_are_left():
    await apply_with_git(BEFORE, patch_for(BEFORE))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await apply_with_git(BEFORE, patch_for(BEFORE))
    assert len(os.listdir("/proc/self/fd")) <= before
