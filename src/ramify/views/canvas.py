"""The last lines of a terminal, drawn again and again in place.

Knows about the cursor and nothing about what is drawn. What others print meanwhile goes above it.
"""

import os
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

_USUAL_SIZE: Final = (80, 24)
_UP: Final = "\x1b[{}F"
_END_OF_LINE: Final = "\x1b[K\n"
_CLEAR_BELOW: Final = "\x1b[J"
_TOGETHER, _SHOW = "\x1b[?2026h", "\x1b[?2026l"  # terminals that know these do not flicker
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"  # a line that is wider than was thought stays one line


class Canvas:
    """Draws lines below everything else on *stream*, a terminal; it may be used from any thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._lines: list[str] = []  # what is on the screen
        self._widths: list[int] = []
        self._size = (0, 0)  # of the terminal, when that was drawn

    @property
    def size(self) -> tuple[int, int]:
        """The columns and lines that the terminal has now."""
        try:
            columns, lines = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return _USUAL_SIZE
        return columns or _USUAL_SIZE[0], lines or _USUAL_SIZE[1]

    def draw(self, lines: Sequence[str], widths: Sequence[int]) -> None:
        """Have *lines* on the screen instead of those that were there."""
        with self._lock:
            size = self.size
            if self._lines == list(lines) and self._size == size:
                return
            drawn = "".join(line + _END_OF_LINE for line in lines)
            back = self._back(size[0])
            self._lines, self._widths, self._size = list(lines), list(widths), size
            self._write(f"{_TOGETHER}{back}{_CUT}{drawn}{_CLEAR_BELOW}{_WRAP}{_SHOW}")

    def leave(self) -> None:
        """Let what is drawn stay where it is; the next goes below it."""
        with self._lock:
            self._lines, self._widths = [], []

    @contextmanager
    def printed_above(self) -> Generator[None]:
        """Have what is printed by anybody shown above what is drawn, line by line."""
        streams = {
            name: stream
            for name in ("stdout", "stderr")
            if (stream := getattr(sys, name)) is not None and stream.isatty()
        }
        beside = {name: _Beside(stream, self) for name, stream in streams.items()}
        for name, stream in beside.items():
            setattr(sys, name, stream)
        try:
            yield
        finally:
            for name, stream in beside.items():
                stream.flush()
                if getattr(sys, name) is stream:
                    setattr(sys, name, streams[name])

    def put_above(self, stream: TextIO, text: str) -> None:
        """Write *text*, whole lines, to *stream*, which is the same terminal."""
        with self._lock:
            self._size = self.size
            drawn = "".join(line + _END_OF_LINE for line in self._lines)
            self._write(self._back(self._size[0]) + _CLEAR_BELOW)
            stream.write(text)
            stream.flush()
            self._write(f"{_CUT}{drawn}{_WRAP}")

    def _back(self, columns: int) -> str:
        """Return how to get to the first line; a terminal made narrower has broken the others."""
        rows = sum(max(1, -(-width // columns)) for width in self._widths)
        return _UP.format(rows) if rows else "\r"

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be gone, and the run goes on without it
            self._stream.write(text)
            self._stream.flush()


class _Beside:
    """Stands for a stream while a canvas is drawn; all but writing is the stream's own."""

    def __init__(self, stream: TextIO, canvas: Canvas) -> None:
        self._stream = stream
        self._canvas = canvas
        self._lock = threading.Lock()
        self._begun = ""  # a line that has no end yet

    def write(self, text: str) -> int:
        with self._lock:
            whole, newline, self._begun = f"{self._begun}{text}".rpartition("\n")
            if newline:
                self._canvas.put_above(self._stream, whole + newline)
        return len(text)

    def writelines(self, lines: Sequence[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Show what there is of a line: somebody may be waiting for an answer to it."""
        with self._lock:
            begun, self._begun = self._begun, ""
            if begun:
                self._canvas.put_above(self._stream, f"{begun}\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
