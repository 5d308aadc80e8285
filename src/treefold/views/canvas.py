"""Redraw the last lines of a terminal in place.

Knows the cursor, and nothing about what is drawn. Other output of the process appears above it.
"""

import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

_DEFAULT_SIZE: Final = (80, 24)
_UP: Final = "\x1b[{}F"
_END_OF_LINE: Final = "\x1b[K\n"
_NEXT_ROW: Final = "\x1b[K\x1b[E"  # the same, if there is a row below
_CLEAR_BELOW: Final = "\x1b[J"
# Synchronized output: terminals that support it do not flicker.
_BEGIN_UPDATE, _END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"
_SAVE_CURSOR, _RESTORE_CURSOR = "\x1b7", "\x1b8"
# Without wrapping, a line that is wider than was computed still takes one row.
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class Canvas:
    """Draws lines below all other output of *stream*, a terminal; thread-safe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._lines: list[str] = []  # what is on the screen
        self._widths: list[int] = []
        self._size = (0, 0)  # of the terminal, when the lines were drawn

    @property
    def size(self) -> tuple[int, int]:
        """The current number of columns and lines of the terminal."""
        try:
            columns, lines = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return _DEFAULT_SIZE
        return columns or _DEFAULT_SIZE[0], lines or _DEFAULT_SIZE[1]

    def draw(self, lines: Sequence[str], widths: Sequence[int]) -> None:
        """Replace the lines on the screen with *lines*."""
        with self._lock:
            size = self.size
            if self._lines == list(lines) and self._size == size:
                return
            drawn = "".join(line + _END_OF_LINE for line in lines)
            to_start = self._to_start(size[0])
            self._lines, self._widths, self._size = list(lines), list(widths), size
            self._write(
                f"{_BEGIN_UPDATE}{to_start}{_NO_WRAP}{drawn}{_CLEAR_BELOW}{_WRAP}{_END_UPDATE}"
            )

    def release(self) -> int:
        """Leave the drawn lines on the screen, and return how many rows they take.

        What is drawn next appears below them.
        """
        with self._lock:
            rows = self._rows(self._size[0])
            self._lines, self._widths = [], []
            return rows

    def draw_above(self, lines: Sequence[str], rows: int, below: int) -> None:
        """Draw *lines* over the *rows* that were released, and restore the cursor.

        There are *below* rows between them and the row of the cursor. Nothing is drawn if the
        terminal was resized, or if some of these rows have scrolled off the screen.
        """
        with self._lock:
            if self.size != self._size or rows + below >= self._size[1]:
                return
            filled = [*lines, *[""] * (rows - len(lines))][:rows]
            # Without a newline, the terminal driver does not put what the user types in between.
            drawn = "".join(line + _NEXT_ROW for line in filled)
            up = _UP.format(rows + below)
            self._write(
                f"{_BEGIN_UPDATE}{_SAVE_CURSOR}{up}{_NO_WRAP}{drawn}{_RESTORE_CURSOR}{_END_UPDATE}"
            )

    @contextmanager
    def single_row_input(self) -> Generator[None]:
        """Keep what the user types on one row, so that the row of the cursor is known."""
        self._write(_NO_WRAP)
        try:
            yield
        finally:
            self._write(_WRAP)

    @contextmanager
    def detect_output(self, callback: Callable[[], None]) -> Generator[None]:
        """Call *callback* before anything is written to ``sys.stdout`` or ``sys.stderr``."""
        streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        for name, stream in streams.items():
            if stream is not None:
                setattr(sys, name, _ObservedStream(stream, callback))
        try:
            yield
        finally:
            for name, stream in streams.items():
                setattr(sys, name, stream)

    @contextmanager
    def redirect_output(self) -> Generator[None]:
        """Print what is written to ``sys.stdout`` or ``sys.stderr`` above the lines drawn here."""
        streams = {
            name: stream
            for name in ("stdout", "stderr")
            if (stream := getattr(sys, name)) is not None and stream.isatty()
        }
        redirected = {name: _RedirectedStream(stream, self) for name, stream in streams.items()}
        for name, stream in redirected.items():
            setattr(sys, name, stream)
        try:
            yield
        finally:
            for name, stream in redirected.items():
                stream.flush()
                if getattr(sys, name) is stream:
                    setattr(sys, name, streams[name])

    def print_above(self, stream: TextIO, text: str) -> None:
        """Write *text*, complete lines, to *stream*, which is the same terminal."""
        with self._lock:
            self._size = self.size
            drawn = "".join(line + _END_OF_LINE for line in self._lines)
            self._write(self._to_start(self._size[0]) + _CLEAR_BELOW)
            stream.write(text)
            stream.flush()
            self._write(f"{_NO_WRAP}{drawn}{_WRAP}")

    def _to_start(self, columns: int) -> str:
        """Return the escape sequence that moves the cursor to the first drawn line."""
        rows = self._rows(columns)
        return _UP.format(rows) if rows else "\r"

    def _rows(self, columns: int) -> int:
        # A terminal that was made narrower has wrapped the drawn lines.
        return sum(row_count(width, columns) for width in self._widths)

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be closed; the run continues without it
            self._stream.write(text)
            self._stream.flush()


def row_count(width: int, columns: int) -> int:
    """Return how many rows a line of that width takes."""
    return max(1, -(-width // max(1, columns)))


class _ObservedStream:
    """A stream that calls *callback* before each write."""

    def __init__(self, stream: TextIO, callback: Callable[[], None]) -> None:
        self._stream = stream
        self._callback = callback

    def write(self, text: str) -> int:
        self._callback()
        return self._stream.write(text)

    def writelines(self, lines: Sequence[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _RedirectedStream:
    """A stream whose complete lines are printed above a canvas."""

    def __init__(self, stream: TextIO, canvas: Canvas) -> None:
        self._stream = stream
        self._canvas = canvas
        self._lock = threading.Lock()
        self._incomplete = ""  # the line that has no newline yet

    def write(self, text: str) -> int:
        with self._lock:
            lines, newline, self._incomplete = f"{self._incomplete}{text}".rpartition("\n")
            if newline:
                self._canvas.print_above(self._stream, lines + newline)
        return len(text)

    def writelines(self, lines: Sequence[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Print the incomplete line, too: it may be a prompt that waits for input."""
        with self._lock:
            line, self._incomplete = self._incomplete, ""
            if line:
                self._canvas.print_above(self._stream, f"{line}\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
