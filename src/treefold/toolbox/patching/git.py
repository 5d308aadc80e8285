"""Let git apply a patch to a text: in a folder of its own, and knowing nothing of anybody's."""

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treefold.runtime.threads import in_thread
from treefold.toolbox.editing.file_error import translate_os_errors
from treefold.toolbox.patching.fitting import NAME

_PATCH: Final = "patch"
_SAID: Final = "said"
_MOST_TOLD: Final = 200  # characters of what git said
_LAST_WAIT: Final = 1.0  # seconds for what was killed to be gone

# The places of the hunks are known, and so no context needs to tell where they are.
_COMMAND: Final = ("apply", "--unidiff-zero", "--whitespace=nowarn", _PATCH)


@dataclass(frozen=True, slots=True)
class GitRun:
    """What git made of the text; or None, and why it did not."""

    after: bytes | None
    trouble: str = ""


async def apply_by_git(before: bytes, patch: bytes, *, seconds: float = 60.0) -> GitRun:
    """Return *before* with *patch* applied by git, which is killed if it takes too long."""
    program = shutil.which("git")
    if program is None:
        return GitRun(None, "there is no git here")
    with (
        translate_os_errors(tempfile.gettempdir()),
        tempfile.TemporaryDirectory(prefix="treefold-git-", ignore_cleanup_errors=True) as made,
    ):
        folder = Path(made)
        _write(folder, before, patch)
        try:
            code = await _run(program, folder, seconds)
        except subprocess.TimeoutExpired:
            return GitRun(None, f"git took longer than {seconds:g} s and was stopped")
        except OSError as error:
            return GitRun(None, f"git cannot be started ({error.strerror})")
        return _read(folder, code)


def _write(folder: Path, before: bytes, patch: bytes) -> None:
    (folder / NAME).write_bytes(before)
    (folder / _PATCH).write_bytes(patch)


def _read(folder: Path, code: int) -> GitRun:
    if code == 0:
        return GitRun((folder / NAME).read_bytes())
    said = (folder / _SAID).read_text(errors="replace").strip()
    first = said.partition("\n")[0][:_MOST_TOLD] or f"exit code {code}"
    return GitRun(None, f"git did not apply it ({first})")


async def _run(program: str, folder: Path, seconds: float) -> int:
    # Not asyncio's, of which nobody knows the id yet if it is cancelled while it starts.
    process = _start(program, folder)
    try:
        return await in_thread(process.wait, seconds)
    finally:
        _end(process)


def _start(program: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / _SAID).open("wb") as said:
        return subprocess.Popen(
            [program, *_COMMAND],
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it may be a script that runs the real one
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WAIT)


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which git finds no settings, no attributes and no repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": os.path.realpath(folder.parent),
        "LC_ALL": "C",
    }
