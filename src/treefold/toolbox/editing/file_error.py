"""What is wrong with a file, in words that a model can act on."""

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from treefold.core.errors import CallError


class FileError(CallError, ValueError):
    """A file cannot be read or changed as asked; the message says why, and what to do instead.

    Example:
        >>> from treefold import Runtime
        >>> from treefold.toolbox import text_editor
        >>> with Runtime() as runtime:
        ...     runtime.invoke(text_editor, {"command": "view", "path": "/dev/null"}).result()
        Traceback (most recent call last):
            ...
        treefold.toolbox.editing.file_error.FileError: '/dev/null' is a device, not a text file
    """


_FULL: Final = "there is no room on the disk for it; free some first. Nothing was changed"

_WORDS: Final = {
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a part of the path is a file or a link, not a folder; view the folder above it",
    errno.EISDIR: "it is a folder; give the path of a file",
    errno.EEXIST: "something was put there at the same moment; view it and try again",
    errno.EACCES: "permission is denied; use another path, or have the permissions changed",
    errno.EPERM: "permission is denied; use another path, or have the permissions changed",
    errno.ENAMETOOLONG: "the path, or a name in it, is too long; give a shorter one",
    errno.ELOOP: "its symbolic links lead in a circle, or changed at the same moment",
    errno.EROFS: "the disk is read-only; use another path",
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
}


@contextmanager
def in_words(shown: str) -> Generator[None, None, None]:
    """Turn what the system says about the file *shown* into a FileError."""
    try:
        yield
    except OSError as error:
        words = _WORDS.get(error.errno or 0) or error.strerror or str(error)
        raise FileError(f"{shortened(shown)}: {words}") from error


def shortened(shown: str, limit: int = 300) -> str:
    """Return *shown* in quotes, without its middle if it is very long."""
    half = limit // 2
    return repr(shown if len(shown) <= limit else f"{shown[:half]}…{shown[-half:]}")
