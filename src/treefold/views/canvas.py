"""The last lines of a terminal, drawn again and again in place.

Knows about the cursor and nothing about what is drawn. What others print meanwhile goes above it.
"""

import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

_USUAL_SIZE: Final = (80, 24)
_UP: Final = "\x1b[{}F"
_END_OF_LINE: Final = "\x1b[K\n"
_CLEAR_BELOW: Final = "\x1b[J"
_TOGETHER, _SHOW = "\x1b[?2026h", "\x1b[?2026l"  # terminals that know these do not flicker
_SAVE, _BACK = "\x1b7", "\x1b8"  # where the cursor is
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

    def leave(self) -> int:
        """Let what is drawn stay where it is, and return how many rows it has.

        The next goes below it.
        """
        with self._lock:
            rows = self._rows(self._size[0])
            self._lines, self._widths = [], []
            return rows

    def draw_above(self, lines: Sequence[str], rows: int, below: int) -> None:
        """Draw *lines* over the *rows* that were left, and put the cursor back to where it is.

        There are *below* rows between them and the row of the cursor. Nothing is drawn if the
        terminal has another size now, or not all of that is on the screen.
        """
        with self._lock:
            if self.size != self._size or rows + below >= self._size[1]:
                return
            filled = [*lines, *[""] * (rows - len(lines))][:rows]
            drawn = "".join(line + _END_OF_LINE for line in filled)
            up = _UP.format(rows + below)
            self._write(f"{_TOGETHER}{_SAVE}{up}{_CUT}{drawn}{_BACK}{_SHOW}")

    @contextmanager
    def typing(self) -> Generator[None]:
        """Keep what is typed on one row, so that it is known which one the cursor is in."""
        self._write(_CUT)
        try:
            yield
        finally:
            self._write(_WRAP)

    @contextmanager
    def printed_by_others(self, told: Callable[[], None]) -> Generator[None]:
        """Call *told* when anything is printed by way of ``sys.stdout`` or ``sys.stderr``."""
        streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        for name, stream in streams.items():
            if stream is not None:
                setattr(sys, name, _Overheard(stream, told))
        try:
            yield
        finally:
            for name, stream in streams.items():
                setattr(sys, name, stream)

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
        rows = self._rows(columns)
        return _UP.format(rows) if rows else "\r"

    def _rows(self, columns: int) -> int:
        return sum(rows_of(width, columns) for width in self._widths)

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be gone, and the run goes on without it
            self._stream.write(text)
            self._stream.flush()


def rows_of(width: int, columns: int) -> int:
    """Return how many rows a line of that width takes."""
    return max(1, -(-width // max(1, columns)))


class _Overheard:
    """Stands for a stream, and tells when something is written to it."""

    def __init__(self, stream: TextIO, told: Callable[[], None]) -> None:
        self._stream = stream
        self._told = told

    def write(self, text: str) -> int:
        self._told()
        return self._stream.write(text)

    def writelines(self, lines: Sequence[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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
