"""What whoever chats gets to see.

Answers go to stdout and everything around them to stderr, so that a pipe gets the answers alone.
Whatever a model, a tool or a server said is shown escaped: it cannot move the cursor.
"""

import json
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any, Final, cast

from treefold.views.text import cut, printable, readable, short

_PLAIN: Final = "{}"
_DIM: Final = "\x1b[2m{}\x1b[22m"
_NARROWEST: Final = 40
_LONGEST_NAME: Final = 40


class Screen(logging.Handler):
    """Knows where the cursor is; what is logged is shown, too."""

    def __init__(self) -> None:
        super().__init__()
        dull = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self._dims = sys.stdout.isatty() and not dull
        self._style: str | None = None  # of what was written last
        self._line = False  # which does not end its line
        self._call: str | None = None  # whose line on stderr waits for the result
        self._room = 0  # what is left of that line
        self._calls: dict[str, str] = {}  # the names of those that are under way, by id
        self._failure: str | None = None  # that was shown last

    def text(self, text: str) -> None:
        """Show a piece of the answer."""
        self._write(text, _PLAIN)

    def thinking(self, text: str) -> None:
        """Show a piece of what the model thinks, to a person."""
        if self._dims:
            self._write(text, _DIM)

    def call(self, id: str, name: str, args: Mapping[str, Any]) -> None:
        """Show that a call is made; its line ends with what comes of it."""
        self._end_lines()
        width = _width()
        given = ", ".join(f"{printable(key)}={short(value)}" for key, value in args.items())
        name = cut(printable(name), _LONGEST_NAME)
        line = cut(f"· {name}({given})", width * 2 // 3)
        print(line, end="", file=sys.stderr, flush=True)
        self._call, self._room = id, width - len(line)
        self._calls[id] = name

    def result(self, id: str, value: object, *, is_error: bool) -> None:
        """Show what came of a call, if that is shown: it may be one of an agent far below."""
        name = self._calls.pop(id, None)
        if name is None:
            return
        if is_error:
            self.failed(_why(value))
        elif self._call == id:
            self._end_call(f" → {_told(value)}")
        else:  # something else was shown meanwhile
            self.note(cut(printable(f"· {name} → {_told(value)}"), _width()))

    def failed(self, error: str) -> None:
        """Show that a call failed, or was not made, unless that was shown just now."""
        if self._call is not None:
            self._end_call(f" ✗ {error}")
        elif error != self._failure:
            self.note(cut(printable(f"· ✗ {error}"), _width()))
        self._failure = error

    def note(self, text: str) -> None:
        """Show something that neither model nor tool has said."""
        self._end_lines()
        print(readable(text), file=sys.stderr, flush=True)

    def emit(self, record: logging.LogRecord) -> None:
        self.note(f"({printable(record.getMessage())})")

    def end(self) -> None:
        """End what is shown of a turn."""
        self._end_lines()
        self._failure = None
        self._calls.clear()

    def _write(self, text: str, style: str) -> None:
        if self._style != style:
            text = text.lstrip("\n")  # it begins on a line of its own anyway
        if not text:
            return
        self._end_call()
        if self._style != style:
            self._end_lines()
        _print(style.format(readable(text)))
        self._style, self._line = style, not text.endswith("\n")

    def _end_lines(self) -> None:
        self._end_call()
        self._style = None
        if self._line:
            self._line = False
            _print("\n")

    def _end_call(self, how: str = "") -> None:
        if self._call is not None:
            print(cut(printable(how), self._room), file=sys.stderr, flush=True)
            self._call = self._failure = None


def _print(text: str) -> None:
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:  # nobody reads the answers any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _width() -> int:
    return max(_NARROWEST, shutil.get_terminal_size().columns - 1)


def _why(value: object) -> str:
    """Return why there is no result, of what a model is told then."""
    if not isinstance(value, Mapping):
        return str(value)
    return str(cast("Mapping[str, Any]", value).get("error", ""))


def _told(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return short(value, 1000)
