"""Whole files: read as they are, and replaced at one stroke or not at all."""

import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from treefold.toolbox.editing.file_error import FileError, in_words, shortened
from treefold.toolbox.editing.folders import NO_LINK, not_found, open_folder
from treefold.toolbox.editing.places import Place

LARGEST: Final = 1 << 30  # bytes; a few copies of it have to fit in memory

_READ: Final = os.O_RDONLY | NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | getattr(os, "O_BINARY", 0)

_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link that leads in a circle",
}


@dataclass(frozen=True, slots=True)
class Contents:
    """All the bytes of a file, and what it was when they were read."""

    raw: bytes
    stamp: os.stat_result


def is_folder(place: Place) -> bool:
    """Whether there is a folder; anything else is for ``read_file`` to judge."""
    with in_words(place.shown):
        return not place.parts or stat.S_ISDIR(_look(place).st_mode)


def read_file(place: Place) -> Contents:
    """Return what is in a regular file.

    Raises:
        FileError: there is none, it is something else, too large, or may not be read.
    """
    if not place.parts:
        raise _wrong_kind(place, stat.S_IFDIR)
    with in_words(place.shown):
        try:
            with open_folder(place.base, place.parts[:-1]) as folder:
                _check(place, os.stat(place.name, dir_fd=folder, follow_symlinks=False))
                opened = os.open(place.name, _READ, dir_fd=folder)
        except FileNotFoundError as error:
            raise not_found(place) from error
        with open(opened, "rb", buffering=0) as file:
            stamp = os.fstat(opened)
            _check(place, stamp)
            return Contents(file.readall(), stamp)


def read_if_any(place: Place) -> Contents | None:
    """Return what is in a regular file, or None if there is nothing yet."""
    try:
        return read_file(place)
    except FileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def write_file(
    place: Place, raw: bytes, before: Contents | None, *, like: Contents | None = None
) -> None:
    """Put *raw* in the place of *before*, whose permissions it keeps, or of nothing.

    A new file has the permissions of *like*, if that is given.

    Raises:
        FileError: it cannot be written, or is no longer what it was; then nothing has changed.
    """
    with in_words(place.shown), open_folder(place.base, place.parts[:-1], make=True) as folder:
        _expect(place, before, folder)
        with _temporary(folder) as (name, opened):
            with open(opened, "wb", buffering=0) as file:
                _write_all(file.fileno(), raw)
                if (model := before or like) is not None:
                    _like(model.stamp, file.fileno())
                os.fsync(file.fileno())
            _expect(place, before, folder)
            os.replace(name, place.name, src_dir_fd=folder, dst_dir_fd=folder)
        _keep(folder)


def remove_file(place: Place, before: Contents) -> None:
    """Remove the file, if it still is what it was."""
    with in_words(place.shown), open_folder(place.base, place.parts[:-1]) as folder:
        _expect(place, before, folder)
        os.unlink(place.name, dir_fd=folder)
        _keep(folder)


def _look(place: Place) -> os.stat_result:
    try:
        with open_folder(place.base, place.parts[:-1]) as folder:
            return os.stat(place.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError as error:
        raise not_found(place) from error


def _check(place: Place, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _wrong_kind(place, stat.S_IFMT(found.st_mode))
    if found.st_size > LARGEST:
        raise FileError(
            f"{shortened(place.shown)} has {found.st_size:,} bytes, and this tool takes files of up"
            f" to {LARGEST:,}; use programs that work on a part at a time"
        )


def _wrong_kind(place: Place, kind: int) -> FileError:
    remedy = "; give the path of a file in it" if kind == stat.S_IFDIR else ""
    what = _KINDS.get(kind, "a special file")
    return FileError(f"{shortened(place.shown)} is {what}, not a text file{remedy}")


def _expect(place: Place, before: Contents | None, folder: int) -> None:
    """Refuse to go on if the file is not, or no longer, what is to be replaced."""
    try:
        now = os.stat(place.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    if _identity(now) != _identity(before and before.stamp):
        raise FileError(
            f"{shortened(place.shown)} was changed by somebody else at the same moment; view it and"
            " try again"
        )
    if now and not os.access(place.name, os.W_OK, dir_fd=folder, effective_ids=True):
        raise FileError(
            f"{shortened(place.shown)} is read-only; have its permissions changed first"
        )


def _identity(found: os.stat_result | None) -> tuple[int, ...] | None:
    return found and (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)


@contextmanager
def _temporary(folder: int) -> Generator[tuple[str, int], None, None]:
    """Give the name and descriptor of a new file in *folder* that is gone if anything fails."""
    name = f".treefold-{secrets.token_hex(8)}.tmp"
    opened = os.open(name, _WRITE, 0o666, dir_fd=folder)
    try:
        yield name, opened
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        raise


def _write_all(opened: int, raw: bytes) -> None:
    left = memoryview(raw)
    while left:
        left = left[os.write(opened, left) :]


def _like(old: os.stat_result, opened: int) -> None:
    with suppress(PermissionError):  # only root may give files away; the mode is kept all the same
        os.fchown(opened, old.st_uid, old.st_gid)
    os.fchmod(opened, stat.S_IMODE(old.st_mode))


def _keep(folder: int) -> None:
    """Have the names in *folder* survive a power cut, where the system can promise that."""
    with suppress(OSError):
        listed = os.open(os.curdir, os.O_RDONLY, dir_fd=folder)
        try:
            os.fsync(listed)
        finally:
            os.close(listed)
