"""Broadcasts of the owner of a journal to current observers: lines in a file beside the journal.

Best effort: a line that cannot be written is dropped. The file is removed when the owner closes the
journal, and is started anew when it gets long.
"""

import json
import os
import re
import time
from contextlib import suppress
from typing import Final

from treefold.core.errors import StoreError
from treefold.stores.side_file import SideFile

_MAX_SIZE: Final = 1_000_000  # bytes
_HEADER: Final = 13  # bytes: the number of the file, and a newline
_SHIFT: Final = 2**32
_CONTENT: Final = re.compile(rb"\d{12}\n")


class BroadcastFile:
    """One such file, for one writer and any number of readers in other processes.

    A position combines the number of the file with an offset in bytes.
    """

    def __init__(self, journal: str) -> None:
        self._path = f"{journal}-live"
        self._beside = SideFile(self._path, _CONTENT, _HEADER)
        self._new = SideFile(f"{self._path}-new", _CONTENT, _HEADER)
        self._file: int | None = None
        self._number = 0
        self._size = 0

    def write(self, text: str) -> None:
        """Append a line."""
        line = json.dumps(text).encode() + b"\n"
        try:
            if self._file is None or self._size > _MAX_SIZE:
                self._start()
            if self._file is not None:
                self._size += os.write(self._file, line)
        except (OSError, StoreError):
            self.close()

    def _start(self) -> None:
        self.close()
        number = max(self._number + 1, int(time.time() * 1000) % 10**12)
        self._beside.check()
        self._new.remove()
        new = self._new.path
        self._file = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        self._size = os.write(self._file, f"{number:012}\n".encode())
        self._number = number
        os.replace(new, self._path)

    def remove(self) -> None:
        """Remove the file, which may be that of an earlier owner.

        Raises:
            StoreError: what is there is no such file; it stays.
        """
        with suppress(OSError):
            self._beside.remove()

    def read(self, after: int) -> tuple[int, list[str]]:
        """Return the position after the last line, and the lines after the position *after*."""
        try:
            with open(self._beside.open(os.O_RDONLY), "rb") as file:
                number = int(file.read(_HEADER))
                known, start = divmod(after, _SHIFT)
                file.seek(start if known == number else _HEADER)
                start = file.tell()
                # The last line may be half written.
                lines, _, _ = file.read().rpartition(b"\n")
        except (OSError, StoreError, ValueError):
            return after, []
        if not lines:
            return number * _SHIFT + start, []
        position = number * _SHIFT + start + len(lines) + 1
        with suppress(ValueError):
            return position, [json.loads(line) for line in lines.split(b"\n")]
        return position, []

    def close(self) -> None:
        """Remove the file if this object wrote it."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
            with suppress(StoreError):
                self.remove()
