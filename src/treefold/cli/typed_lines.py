"""Lines that are typed or piped, each for as long as anybody wants it."""

import os
import select
import stat
import sys
from collections.abc import Callable
from typing import Final

_LOOKS_EVERY: Final = 0.1  # seconds


class TypedLines:
    """Reads lines from stdin; what was typed of one that is wanted no longer begins the next."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def read(self, is_wanted: Callable[[], bool]) -> str | None:
        """Return the next line, an empty text at the end of all; None once it is not wanted."""
        if not _can_wait():
            return sys.stdin.readline()
        while is_wanted():
            if not select.select([sys.stdin], [], [], _LOOKS_EVERY)[0]:
                continue
            byte = _next_byte()
            self._begun += byte
            if byte in {b"", b"\n"}:
                line = self._begun.decode(sys.stdin.encoding, "replace")
                self._begun.clear()
                return line
        return None


def _next_byte() -> bytes:
    """Return what comes next, nothing at the end of all; what comes after it stays there."""
    try:
        return os.read(sys.stdin.fileno(), 1)
    except OSError:  # the terminal is gone
        return b""


def _can_wait() -> bool:
    """Whether one can wait for stdin and for something else: for a terminal or a pipe."""
    if sys.platform == "win32":
        return False
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # it is no file of the system
        return False
    return sys.stdin.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
