"""The files that a journal has beside it, opened without following links.

A journal may be in a folder that came from elsewhere, such as a cloned repository. What is at the
path of such a file is used only if it is a regular file with content that treefold has written.
"""

import os
import re
import stat
from contextlib import suppress
from typing import Final

from treefold.core.errors import StoreError

# O_NONBLOCK: opening a pipe would wait for its other end.
_SAFE: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class SideFile:
    """One such file.

    Args:
        path: where it is.
        content: what the beginning of its content matches; an empty file does so, too.
        longest: how many bytes of the content to look at.
    """

    def __init__(self, path: str, content: re.Pattern[bytes], longest: int) -> None:
        self.path = path
        self._content = content
        self._longest = longest

    def open(self, flags: int) -> int:
        """Open it and return its descriptor; *flags* must allow reading.

        Raises:
            StoreError: it is a link, no regular file, or has other content.
            OSError: it cannot be opened.
        """
        try:
            file = os.open(self.path, flags | _SAFE, 0o600)
        except OSError:
            with suppress(FileNotFoundError):
                self._check_kind(os.lstat(self.path).st_mode)
            raise
        try:
            self._check_kind(os.fstat(file).st_mode)
            self._check_content(os.pread(file, self._longest, 0))
        except BaseException:
            os.close(file)
            raise
        return file

    def check(self) -> None:
        """Raise StoreError if there is something else at its path."""
        with suppress(FileNotFoundError):
            os.close(self.open(os.O_RDONLY))

    def remove(self) -> None:
        """Remove the file, if it is there.

        Raises:
            StoreError: something else is there, and stays.
            OSError: it cannot be removed.
        """
        with suppress(FileNotFoundError):
            os.close(self.open(os.O_RDONLY))
            os.unlink(self.path)

    def _check_kind(self, mode: int) -> None:
        if not stat.S_ISREG(mode):
            raise self._foreign("it is a link" if stat.S_ISLNK(mode) else "it is no regular file")

    def _check_content(self, start: bytes) -> None:
        # A power cut may leave zeros.
        if start.strip(b"\0") and self._content.match(start) is None:
            raise self._foreign("its content is not what treefold writes there")

    def _foreign(self, why: str) -> StoreError:
        return StoreError(
            self.path,
            f"{why}, and the journal needs a file of its own at this path; if you do not know what"
            " it is, do not trust the folder; move it away, or give the journal another path",
        )
