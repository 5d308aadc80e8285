"""Where a path leads: links and ``..`` resolved, and never outside of a root if there is one."""

import os
from dataclasses import dataclass
from pathlib import Path

from treefold.core.errors import InvalidArgumentsError
from treefold.toolbox.editing.file_error import FileError, in_words, shortened


@dataclass(frozen=True, slots=True)
class Place:
    """A path as it was given, and the one place that it stands for."""

    shown: str
    base: str  # the folder that it may not leave
    parts: tuple[str, ...]  # from there, free of links

    @property
    def real(self) -> str:
        """The absolute path without links."""
        return os.path.join(self.base, *self.parts)

    @property
    def name(self) -> str:
        """The last part, by which its folder knows it."""
        return self.parts[-1]


def find_place(path: str, root: Path | None) -> Place:
    """Return where *path* leads, seen from *root* or else from the current folder.

    Raises:
        InvalidArgumentsError: no file can have such a path.
        FileError: it leads out of *root*.
    """
    _check(path)
    home = path == "~" or path.startswith("~/")
    with in_words(path):
        real = os.path.realpath(
            os.path.join(root or "", os.path.expanduser(path) if home else path)
        )
        base = os.path.realpath(root) if root else os.path.abspath(os.sep)
    if os.path.commonpath([base, real]) != base:
        raise FileError(
            f"{shortened(path)} leads out of {str(root)!r}, which is as far as this tool may go;"
            " give a path inside, such as 'notes.txt'"
        )
    inner = os.path.relpath(real, base)
    return Place(path, base, () if inner == os.curdir else tuple(inner.split(os.sep)))


def _check(path: str) -> None:
    if not path.strip():
        raise InvalidArgumentsError("path is empty; give the path of a file or folder")
    if "\0" in path:
        raise InvalidArgumentsError(f"path {shortened(path)} holds a NUL character; leave it out")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidArgumentsError(
            f"path {shortened(path)} holds half a character, which no file name can; write it anew"
        ) from None
