"""Read whole files, and replace them atomically."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from treefold.toolbox.editing.file_error import FileError, short_repr, translate_os_errors
from treefold.toolbox.editing.paths import NO_FOLLOW, ResolvedPath, not_found, open_folder
from treefold.toolbox.editing.temporary import temporary_file

MAX_FILE_BYTES: Final = 1 << 30  # a few copies of a file must fit in memory

_READ: Final = os.O_RDONLY | NO_FOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_ANYBODY: Final = 0o666  # as far as the umask of the process allows
_OWNER: Final = 0o600

_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link in a loop",
}


@dataclass(frozen=True, slots=True)
class Contents:
    """All the bytes of a file, and its status when they were read."""

    raw: bytes
    status: os.stat_result


def is_folder(path: ResolvedPath) -> bool:
    """Whether the path is a folder; ``read_file`` checks everything else."""
    with translate_os_errors(path.given):
        return not path.parts or stat.S_ISDIR(_stat(path).st_mode)


def read_file(path: ResolvedPath) -> Contents:
    """Return the contents of a regular file.

    Raises:
        FileError: it does not exist, is not a regular file, is too large or cannot be read.
    """
    if not path.parts:
        raise _wrong_kind(path, stat.S_IFDIR)
    with translate_os_errors(path.given):
        try:
            with open_folder(path.base, path.parts[:-1]) as folder:
                _check_regular(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False))
                fd = os.open(path.name, _READ, dir_fd=folder)
        except FileNotFoundError as error:
            raise not_found(path) from error
        with open(fd, "rb", buffering=0) as file:
            status = os.fstat(fd)
            _check_regular(path, status)
            return Contents(file.readall(), status)


def read_if_exists(path: ResolvedPath) -> Contents | None:
    """Return the contents of a regular file, or None if it does not exist."""
    try:
        return read_file(path)
    except FileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def write_file(
    path: ResolvedPath, raw: bytes, before: Contents | None, *, like: Contents | None = None
) -> None:
    """Replace the contents *before*, or a missing file if that is None, by *raw*, atomically.

    The file keeps its owner and permissions; a new file gets those of *like*, if given.

    Raises:
        FileError: it cannot be written, or has changed since *before*; then nothing was written.
    """
    with (
        translate_os_errors(path.given),
        open_folder(path.base, path.parts[:-1], make=True) as folder,
    ):
        _check_unchanged(path, before, folder)
        model = before or like
        # The mode of the model comes last, because writing clears some of its bits.
        with temporary_file(folder, mode=_ANYBODY if model is None else _OWNER) as (name, file):
            _write_all(file, raw)
            if model is not None:
                _copy_owner_and_mode(model.status, file)
            os.fsync(file)
            _check_unchanged(path, before, folder)
            os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        _sync_folder(folder)


def remove_file(path: ResolvedPath, before: Contents) -> None:
    """Remove the file, unless it has changed since *before*."""
    with translate_os_errors(path.given), open_folder(path.base, path.parts[:-1]) as folder:
        _check_unchanged(path, before, folder)
        os.unlink(path.name, dir_fd=folder)
        _sync_folder(folder)


def _stat(path: ResolvedPath) -> os.stat_result:
    try:
        with open_folder(path.base, path.parts[:-1]) as folder:
            return os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError as error:
        raise not_found(path) from error


def _check_regular(path: ResolvedPath, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _wrong_kind(path, stat.S_IFMT(status.st_mode))
    if status.st_size > MAX_FILE_BYTES:
        raise FileError(
            f"{short_repr(path.given)} has {status.st_size:,} bytes, and this tool takes files of"
            f" up to {MAX_FILE_BYTES:,}; use programs that work on a part at a time"
        )


def _wrong_kind(path: ResolvedPath, kind: int) -> FileError:
    remedy = "; give the path of a file in it" if kind == stat.S_IFDIR else ""
    what = _KINDS.get(kind, "a special file")
    return FileError(f"{short_repr(path.given)} is {what}, not a text file{remedy}")


def _check_unchanged(path: ResolvedPath, before: Contents | None, folder: int) -> None:
    """Check that the file is still *before*, or still missing, and writable.

    Raises:
        FileError: it is not.
    """
    try:
        now = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    if _identity(now) != _identity(before and before.status):
        raise FileError(
            f"{short_repr(path.given)} was changed by another writer at the same time; view it and"
            " try again"
        )
    if now and not os.access(path.name, os.W_OK, dir_fd=folder, effective_ids=True):
        raise FileError(f"{short_repr(path.given)} is read-only; change its permissions first")


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    if status is None:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)


def _write_all(fd: int, raw: bytes) -> None:
    left = memoryview(raw)
    while left:
        left = left[os.write(fd, left) :]


def _copy_owner_and_mode(old: os.stat_result, fd: int) -> None:
    # Only root may change the owner; the mode is kept in any case.
    with suppress(PermissionError):
        os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))


def _sync_folder(folder: int) -> None:
    """Flush the entries of *folder* to disk, where the system supports it."""
    with suppress(OSError):
        listed = os.open(os.curdir, os.O_RDONLY, dir_fd=folder)
        try:
            os.fsync(listed)
        finally:
            os.close(listed)
