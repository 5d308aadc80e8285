"""Apply a patch to a text with git, in a temporary folder, isolated from all settings of git."""

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treefold.core.inherited_variables import inherited_variables
from treefold.runtime.loops.threads import in_thread
from treefold.toolbox.editing.file_error import translate_os_errors
from treefold.toolbox.patching.plan import PATCHED_NAME

_PATCH: Final = "patch"
_STDERR: Final = "stderr"
_MAX_ERROR_CHARS: Final = 200  # of the message of git
_KILL_TIMEOUT: Final = 1.0  # seconds within which a killed process must be gone

# The positions of the hunks are known, so git needs no context to find them.
_COMMAND: Final = ("apply", "--unidiff-zero", "--whitespace=nowarn", _PATCH)


@dataclass(frozen=True, slots=True)
class GitResult:
    """The patched text; or None, and why git could not apply the patch."""

    after: bytes | None
    error: str = ""


async def apply_with_git(before: bytes, patch: bytes, *, seconds: float = 60.0) -> GitResult:
    """Return *before* with *patch* applied by git, which is killed if it takes too long."""
    program = shutil.which("git")
    if program is None:
        return GitResult(None, "git is not installed")
    with (
        translate_os_errors(tempfile.gettempdir()),
        tempfile.TemporaryDirectory(prefix="treefold-git-", ignore_cleanup_errors=True) as made,
    ):
        folder = Path(made)
        _write(folder, before, patch)
        try:
            returncode = await _run(program, folder, seconds)
        except subprocess.TimeoutExpired:
            return GitResult(None, f"git took longer than {seconds:g} s and was stopped")
        except OSError as error:
            return GitResult(None, f"git cannot be started ({error.strerror})")
        return _read_result(folder, returncode)


def _write(folder: Path, before: bytes, patch: bytes) -> None:
    (folder / PATCHED_NAME).write_bytes(before)
    (folder / _PATCH).write_bytes(patch)


def _read_result(folder: Path, returncode: int) -> GitResult:
    if returncode == 0:
        return GitResult((folder / PATCHED_NAME).read_bytes())
    stderr = (folder / _STDERR).read_text(errors="replace").strip()
    first = stderr.partition("\n")[0][:_MAX_ERROR_CHARS] or f"exit code {returncode}"
    return GitResult(None, f"git did not apply it ({first})")


async def _run(program: str, folder: Path, seconds: float) -> int:
    # Not asyncio's subprocess: cancelled while it starts, its process id would be unknown.
    process = _start(program, folder)
    try:
        return await in_thread(process.wait, seconds)
    finally:
        _kill(process)


def _start(program: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / _STDERR).open("wb") as stderr:
        return subprocess.Popen(
            [program, *_COMMAND],
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            # The whole group: git may be a script that runs the real program.
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_TIMEOUT)


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which git finds no settings, no attributes and no repository."""
    return inherited_variables(os.environ) | {
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": os.path.realpath(folder.parent),
        "LC_ALL": "C",
    }
