"""FileError, and the messages of system errors as a model can act on them."""

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from treefold.core.errors import CallError
from treefold.core.truncation import truncate_middle


class FileError(CallError, ValueError):
    """A file cannot be read or changed as requested; the message says why, and what to do instead.

    Example:
        >>> from treefold import Runtime
        >>> from treefold.toolbox import text_editor
        >>> with Runtime() as runtime:
        ...     runtime.invoke(text_editor, {"command": "view", "path": "/dev/null"}).result()
        Traceback (most recent call last):
            ...
        treefold.errors.FileError: '/dev/null' is a device, not a text file
    """


_FULL: Final = "the disk is full; free some space first. Nothing was changed"

_MESSAGES: Final = {
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a part of the path is a file or a link, not a folder; view the parent folder",
    errno.EISDIR: "it is a folder; give the path of a file",
    errno.EEXIST: "it was created by another writer at the same time; view it and try again",
    errno.EACCES: "permission is denied; use another path, or have the permissions changed",
    errno.EPERM: "permission is denied; use another path, or have the permissions changed",
    errno.ENAMETOOLONG: "the path, or a name in it, is too long; give a shorter one",
    errno.ELOOP: "its symbolic links form a loop, or were changed at the same time",
    errno.EROFS: "the disk is read-only; use another path",
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
}


@contextmanager
def translate_os_errors(path: str) -> Generator[None, None, None]:
    """Raise an OSError about the file *path* as a FileError."""
    try:
        yield
    except OSError as error:
        message = _MESSAGES.get(error.errno or 0) or error.strerror or str(error)
        raise FileError(f"{short_repr(path)}: {message}") from error


def short_repr(text: str, limit: int = 300) -> str:
    """Return the repr of *text*, without its middle if it is very long."""
    return repr(truncate_middle(text, limit, "…"))
