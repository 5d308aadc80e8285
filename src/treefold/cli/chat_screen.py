"""The output of a chat.

Answers go to stdout and everything else to stderr, so that a pipe gets only the answers. Text from
a model, a tool or a server is escaped: it cannot move the cursor. On a terminal, answers wrap at
words.
"""

import json
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any, Final, cast

from treefold.cli.word_wrap import WordWrap
from treefold.core.truncation import truncate
from treefold.views.text import printable, readable, short

_PLAIN: Final = "{}"
_DIM: Final = "\x1b[2m{}\x1b[22m"
_NARROWEST: Final = 40
_LONGEST_NAME: Final = 40


class Screen(logging.Handler):
    """Writes the parts of a turn and knows where the cursor is; also a handler for log messages."""

    def __init__(self) -> None:
        super().__init__()
        dull = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self._dims = sys.stdout.isatty() and not dull
        self._wraps = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._wrap = WordWrap()  # of the line that was written last
        self._style: str | None = None  # of the text that was written last
        self._in_line = False  # whether that text did not end its line
        self._call: str | None = None  # the call whose line on stderr waits for its result
        self._room = 0  # columns left in that line
        self._calls: dict[str, str] = {}  # the names of running calls, by id
        self._failure: str | None = None  # the error that was shown last

    def text(self, text: str) -> None:
        """Show a piece of the answer."""
        self._write(text, _PLAIN)

    def thinking(self, text: str) -> None:
        """Show a piece of the thinking, on a terminal only."""
        if self._dims:
            self._write(text, _DIM)

    def call(self, id: str, name: str, args: Mapping[str, Any]) -> None:
        """Show that a call is made; its result ends the line."""
        self._end_lines()
        width = _width()
        given = ", ".join(f"{printable(key)}={short(value)}" for key, value in args.items())
        name = truncate(printable(name), _LONGEST_NAME)
        line = truncate(f"· {name}({given})", width * 2 // 3)
        print(line, end="", file=sys.stderr, flush=True)
        self._call, self._room = id, width - len(line)
        self._calls[id] = name

    def result(self, id: str, value: object, *, is_error: bool) -> None:
        """Show the result of a call, unless the call was not shown, as those of agents below."""
        name = self._calls.pop(id, None)
        if name is None:
            return
        if is_error:
            self.failed(_error_in(value))
        elif self._call == id:
            self._end_call(f" → {_as_text(value)}")
        else:  # other output came in between
            self.note(truncate(printable(f"· {name} → {_as_text(value)}"), _width()))

    def failed(self, error: str) -> None:
        """Show that a call failed or was not made, unless the same was shown just before."""
        if self._call is not None:
            self._end_call(f" ✗ {error}")
        elif error != self._failure:
            self.note(truncate(printable(f"· ✗ {error}"), _width()))
        self._failure = error

    def note(self, text: str) -> None:
        """Show a message of the program itself."""
        self._end_lines()
        print(readable(text), file=sys.stderr, flush=True)

    def emit(self, record: logging.LogRecord) -> None:
        self.note(f"({printable(record.getMessage())})")

    def end(self) -> None:
        """End the output of a turn."""
        self._end_lines()
        self._failure = None
        self._calls.clear()

    def _write(self, text: str, style: str) -> None:
        if self._style != style:
            text = text.lstrip("\n")  # it begins on a new line anyway
        if not text:
            return
        self._end_call()
        if self._style != style:
            self._end_lines()
        shown = readable(text)
        if self._wraps:
            # The variable COLUMNS, which shutil prefers, does not change with the window.
            shown = self._wrap.feed(shown, os.get_terminal_size(sys.stdout.fileno()).columns)
        _print(style.format(shown))
        self._style, self._in_line = style, not text.endswith("\n")

    def _end_lines(self) -> None:
        self._end_call()
        self._style = None
        self._wrap = WordWrap()
        if self._in_line:
            self._in_line = False
            _print("\n")

    def _end_call(self, how: str = "") -> None:
        if self._call is not None:
            print(truncate(printable(how), self._room), file=sys.stderr, flush=True)
            self._call = self._failure = None


def _print(text: str) -> None:
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:  # the reader of the answers has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _width() -> int:
    return max(_NARROWEST, shutil.get_terminal_size().columns - 1)


def _error_in(value: object) -> str:
    """Return the message of an error result."""
    if not isinstance(value, Mapping):
        return str(value)
    return str(cast("Mapping[str, Any]", value).get("error", ""))


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return short(value, 1000)
