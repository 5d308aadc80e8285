"""Folders, opened so that no link can lead elsewhere between looking and acting."""

import difflib
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from treefold.toolbox.editing.file_error import FileError, shortened
from treefold.toolbox.editing.places import Place

# O_PATH, where there is one, asks no permission to list the folders on the way.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_LIST: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)


@contextmanager
def open_folder(
    base: str, parts: Sequence[str], *, make: bool = False
) -> Generator[int, None, None]:
    """Open the folder *parts* below *base* step by step, none of them a link; perhaps make it."""
    folder = os.open(base, _PASS)
    try:
        for part in parts:
            inner = _step(folder, part, make=make)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _step(folder: int, part: str, *, make: bool) -> int:
    try:
        return os.open(part, _PASS | NO_LINK, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # somebody else made it meanwhile
        os.mkdir(part, dir_fd=folder)
    return os.open(part, _PASS | NO_LINK, dir_fd=folder)


@contextmanager
def scan(folder: int, name: str = os.curdir) -> Generator[list[os.DirEntry[str]], None, None]:
    """Give the entries of the folder *name* in an open folder, in order of their names."""
    listed = os.open(name, _LIST | NO_LINK, dir_fd=folder)
    try:
        with os.scandir(listed) as entries:
            yield sorted(entries, key=lambda entry: entry.name)
    finally:
        os.close(listed)


def not_found(place: Place) -> FileError:
    """Return the error for a place where nothing is; it tells the nearest names that there are."""
    for depth in range(len(place.parts) - 1, -1, -1):
        above = place.parts[:depth]
        try:
            with open_folder(place.base, above) as folder, scan(folder) as entries:
                names = [entry.name for entry in entries]
        except FileNotFoundError:
            continue  # there is no such folder either
        except OSError:
            break  # it may not be looked into
        near = difflib.get_close_matches(place.parts[depth], names, n=3, cutoff=0.5)
        there = near or [name for name in names if not name.startswith(".")][:10]
        what = "the nearest names are" if near else "there are, among others,"
        told = f"{what} {', '.join(map(repr, there))}" if there else "there is nothing to see"
        missing = "file" if depth == len(place.parts) - 1 else "folder"
        return FileError(
            f"{shortened(place.shown)} does not exist: no {missing} is called"
            f" {shortened(place.parts[depth])} in {os.path.join(place.base, *above)!r},"
            f" where {told}"
        )
    return FileError(
        f"{shortened(place.shown)} does not exist; view the folder that it should be in"
    )
