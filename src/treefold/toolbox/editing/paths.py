"""Paths of files: resolved, kept inside a root, and opened without following links."""

import difflib
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treefold.core.errors import InvalidArgumentsError
from treefold.toolbox.editing.file_error import FileError, short_repr, translate_os_errors

# O_PATH, where it exists, needs no permission to list the folders on the way.
_TRAVERSE: Final = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_LIST: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A path as it was given, and the file that it leads to."""

    given: str
    base: str  # the folder that it may not leave
    parts: tuple[str, ...]  # below base, without links

    @property
    def real(self) -> str:
        """The absolute path without links."""
        return os.path.join(self.base, *self.parts)

    @property
    def name(self) -> str:
        """The last part."""
        return self.parts[-1]


def resolve_path(path: str, root: Path | None) -> ResolvedPath:
    """Resolve *path*, relative to *root* or else to the current folder, with ``..`` and links.

    Raises:
        InvalidArgumentsError: it is not a valid path.
        FileError: it leads out of *root*.
    """
    _check_path(path)
    home = path == "~" or path.startswith("~/")
    with translate_os_errors(path):
        real = os.path.realpath(
            os.path.join(root or "", os.path.expanduser(path) if home else path)
        )
        base = os.path.realpath(root) if root else os.path.abspath(os.sep)
    if os.path.commonpath([base, real]) != base:
        raise FileError(
            f"{short_repr(path)} leads out of {str(root)!r}, the root of this tool; give a path"
            " inside, such as 'notes.txt'"
        )
    inner = os.path.relpath(real, base)
    return ResolvedPath(path, base, () if inner == os.curdir else tuple(inner.split(os.sep)))


def _check_path(path: str) -> None:
    if not path.strip():
        raise InvalidArgumentsError("path is empty; give the path of a file or folder")
    if "\0" in path:
        raise InvalidArgumentsError(f"path {short_repr(path)} contains a NUL character; remove it")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidArgumentsError(
            f"path {short_repr(path)} contains half of a surrogate pair; write the whole character"
        ) from None


@contextmanager
def open_folder(
    base: str, parts: Sequence[str], *, make: bool = False
) -> Generator[int, None, None]:
    """Open the folder *parts* below *base*; with *make*, create the folders that are missing.

    Each part is opened relative to the one before, and none may be a link. So no link that is put
    there after the check can lead elsewhere.
    """
    folder = os.open(base, _TRAVERSE)
    try:
        for part in parts:
            inner = _open_below(folder, part, make=make)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _open_below(folder: int, part: str, *, make: bool) -> int:
    try:
        return os.open(part, _TRAVERSE | NO_FOLLOW, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # another process created it meanwhile
        os.mkdir(part, dir_fd=folder)
    return os.open(part, _TRAVERSE | NO_FOLLOW, dir_fd=folder)


@contextmanager
def scan(folder: int, name: str = os.curdir) -> Generator[list[os.DirEntry[str]], None, None]:
    """Yield the entries of the folder *name* in an open folder, sorted by name."""
    fd = os.open(name, _LIST | NO_FOLLOW, dir_fd=folder)
    try:
        with os.scandir(fd) as entries:
            yield sorted(entries, key=lambda entry: entry.name)
    finally:
        os.close(fd)


def not_found(path: ResolvedPath) -> FileError:
    """Return the error for a path that does not exist; it suggests similar names that do."""
    for depth in range(len(path.parts) - 1, -1, -1):
        above = path.parts[:depth]
        try:
            with open_folder(path.base, above) as folder, scan(folder) as entries:
                names = [entry.name for entry in entries]
        except FileNotFoundError:
            continue  # this folder does not exist either
        except OSError:
            break  # it cannot be listed
        near = difflib.get_close_matches(path.parts[depth], names, n=3, cutoff=0.5)
        there = near or [name for name in names if not name.startswith(".")][:10]
        what = "the nearest names are" if near else "there are, among others,"
        names_there = f"{what} {', '.join(map(repr, there))}" if there else "there is nothing"
        missing = "file" if depth == len(path.parts) - 1 else "folder"
        return FileError(
            f"{short_repr(path.given)} does not exist: no {missing} is called"
            f" {short_repr(path.parts[depth])} in {os.path.join(path.base, *above)!r},"
            f" where {names_there}"
        )
    return FileError(
        f"{short_repr(path.given)} does not exist; view the folder that it should be in"
    )
