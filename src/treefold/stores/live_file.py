"""What a driver tells those who look on just now: lines in a file beside the journal.

Nothing in it is needed by anybody: it goes when the driver goes, and begins anew when it is long.
What cannot be written is not told.
"""

import json
import os
import time
from contextlib import suppress
from typing import Final

_MOST: Final = 1_000_000  # bytes
_HEADER: Final = 13  # bytes: the number of the file, and a line end
_SHIFT: Final = 2**32


class LiveFile:
    """One such file; for one writer, and any number of readers in other processes.

    A place in it is the number of the file and the bytes before it, in one.
    """

    def __init__(self, journal: str) -> None:
        self._path = f"{journal}-live"
        self._file: int | None = None
        self._number = 0
        self._size = 0

    def tell(self, text: str) -> None:
        """Add a line."""
        line = json.dumps(text).encode() + b"\n"
        try:
            if self._file is None or self._size > _MOST:
                self._begin()
            if self._file is not None:
                self._size += os.write(self._file, line)
        except OSError:
            self.close()

    def _begin(self) -> None:
        self.close()
        number = max(self._number + 1, int(time.time() * 1000) % 10**12)
        new = f"{self._path}-new"
        self._file = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND, 0o600)
        self._size = os.write(self._file, f"{number:012}\n".encode())
        self._number = number
        os.replace(new, self._path)

    def forget(self) -> None:
        """Take away what an earlier driver has left."""
        with suppress(OSError):
            os.unlink(self._path)

    def told(self, after: int) -> tuple[int, list[str]]:
        """Return the lines after that place, and the place after them."""
        try:
            with open(self._path, "rb") as file:
                number = int(file.read(_HEADER))
                known, start = divmod(after, _SHIFT)
                file.seek(start if known == number else _HEADER)
                start = file.tell()
                lines, _, _ = file.read().rpartition(b"\n")  # the last may be half written
        except (OSError, ValueError):
            return after, []
        if not lines:
            return number * _SHIFT + start, []
        place = number * _SHIFT + start + len(lines) + 1
        with suppress(ValueError):
            return place, [json.loads(line) for line in lines.split(b"\n")]
        return place, []

    def close(self) -> None:
        """Take the file away, if it is ours."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
            self.forget()
