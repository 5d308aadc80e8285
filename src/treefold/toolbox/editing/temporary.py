"""The temporary file beside a file that is replaced.

It is locked while its process lives, so that the next edit in the folder can tell one that a killed
process has left, and remove it. Process ids would not do: those of another container mean nothing
here.
"""

import os
import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from treefold.toolbox.editing.paths import NO_FOLLOW

_NAME: Final = re.compile(r"\.treefold-[0-9a-f]{16}\.tmp")
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | getattr(os, "O_BINARY", 0)
_LOOK: Final = os.O_RDONLY | NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)
_LIST: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_TRIES: Final = 100


@contextmanager
def temporary_file(folder: int, *, mode: int) -> Generator[tuple[str, int]]:
    """Yield name and descriptor of a new file in *folder*, which is gone after the block.

    Rename it in the block to keep it. What killed processes have left in *folder* is removed first.
    """
    _remove_abandoned(folder)
    name, file = _create(folder, mode)
    try:
        yield name, file
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        os.close(file)


def _create(folder: int, mode: int) -> tuple[str, int]:
    for _ in range(_TRIES):
        name = f".treefold-{secrets.token_hex(8)}.tmp"
        file = os.open(name, _WRITE, mode, dir_fd=folder)
        # Another process may have removed it in the moment before it was locked.
        if _lock(file) is not False and os.fstat(file).st_nlink:
            return name, file
        os.close(file)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
    raise FileExistsError(None, "other processes remove each temporary file")


def _remove_abandoned(folder: int) -> None:
    # A folder that may be written and not listed is rare; there, files are left.
    with suppress(OSError):
        for name in _names(folder):
            if _NAME.fullmatch(name) is not None:
                with suppress(OSError):
                    _remove_if_abandoned(folder, name)


def _names(folder: int) -> list[str]:
    listed = os.open(os.curdir, _LIST, dir_fd=folder)
    try:
        return os.listdir(listed)
    finally:
        os.close(listed)


def _remove_if_abandoned(folder: int, name: str) -> None:
    file = os.open(name, _LOOK, dir_fd=folder)
    try:
        # Its name is used once, so nothing else can have it meanwhile.
        if _lock(file):
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(file)


def _lock(file: int) -> bool | None:
    """Lock *file*; False if another process has locked it, None if it cannot be locked here."""
    import fcntl  # noqa: PLC0415 - Windows has none

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Some network file systems have no locks.
        return None
    return True
