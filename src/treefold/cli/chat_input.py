"""Read prompts and answers from the terminal or from a pipe, with the lines of earlier chats.

The arrow keys recall those lines, if there is readline.
"""

import asyncio
import io
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Final

from treefold.core.errors import StoreError
from treefold.stores.data_folder import make_data_folder

_CONTINUATION_PROMPT = "... "
_CONTINUED = "\\"

_HISTORY_FILE: Final = "chat_history"
_MOST_LINES: Final = 1000

# Lines that seem to contain a secret are not saved; nor are lines that begin with a space, as in
# shells.
_SECRET: Final = re.compile(
    r"""(?ix) \b(sk|pk|rk|ghp|gho|glpat|xox[abp])[-_][\w-]{8,} | \bAIza[\w-]{20,} | \bAKIA\w{12,}
    | \beyJ[\w-]{10,}\. | -----BEGIN | \bbearer\s+\S{8,}
    | (password|passwd|passphrase|secret|token|api[_-]?key)\w*["']?\s*(=|:|\bis\b)\s*\S+ """
)


class LineReader:
    """Reads prompts, one or more lines each, and answers to questions.

    Prompts are read while no event loop runs, with line editing where it is available; Ctrl-C is
    then a KeyboardInterrupt. Answers are read while the turn that asks is running.
    """

    def __init__(self) -> None:
        self.at_terminal = sys.stdin.isatty()
        typed: object = sys.stdin
        if isinstance(typed, io.TextIOWrapper):
            typed.reconfigure(errors="replace")
        edits = self.at_terminal and sys.stdout.isatty()
        self._history = InputHistory() if edits else None

    def read(self, prompt: str) -> str | None:
        """Return the next prompt; None at the end of the input."""
        lines: list[str] = []
        while True:
            line = self._line(_CONTINUATION_PROMPT if lines else prompt)
            if line is None:
                return "\n".join(lines) if lines else None
            if not line.endswith(_CONTINUED):
                return "\n".join([*lines, line])
            lines.append(line.removesuffix(_CONTINUED))

    async def answer(self, prompt: str) -> str | None:
        """Return the next line, which is not saved; None at the end of the input."""
        if self.at_terminal:
            _discard_typed_ahead()  # it was not meant as an answer
        print(prompt, end="", file=sys.stderr, flush=True)
        if self.at_terminal:
            await _until_typed()
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None

    def _line(self, prompt: str) -> str | None:
        if self._history is None:
            if self.at_terminal:  # stdout is a file or a pipe
                print(prompt, end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            return line.rstrip("\r\n") if line else None
        try:
            line = input(prompt)
        except EOFError:
            print(file=sys.stderr)
            return None
        self._history.add(line)
        return line


def _discard_typed_ahead() -> None:
    if sys.platform != "win32":
        import termios  # noqa: PLC0415 - not on Windows

        termios.tcflush(sys.stdin, termios.TCIFLUSH)


async def _until_typed() -> None:
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    try:
        loop.add_reader(sys.stdin, typed.set)
    except NotImplementedError:  # on Windows, where reading blocks the loop
        return
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin)


class InputHistory:
    """A history in a file that only its owner can read; without readline there is none."""

    def __init__(self) -> None:
        self._readline = _readline()
        self._file: Path | None = None
        if self._readline is None:
            return
        self._readline.set_auto_history(False)
        # A chat works without a history, too.
        with suppress(OSError, StoreError):
            self._file = make_data_folder() / _HISTORY_FILE
            for line in self._load():
                self._readline.add_history(line)

    def add(self, line: str) -> None:
        """Save *line*, unless it may be private."""
        if self._readline is None or not line.strip() or line[0] == " " or _SECRET.search(line):
            return
        self._readline.add_history(line)
        if self._file is not None and line.isprintable():
            with suppress(OSError):
                self._write(os.O_APPEND, f"{line}\n")

    def _load(self) -> list[str]:
        if self._file is None or not self._file.exists():
            return []
        lines = self._file.read_text("utf-8", errors="replace").splitlines()
        if len(lines) > 2 * _MOST_LINES:
            self._write(os.O_TRUNC, "".join(f"{line}\n" for line in lines[-_MOST_LINES:]))
        return lines[-_MOST_LINES:]

    def _write(self, flag: int, text: str) -> None:
        assert self._file is not None
        file = os.open(self._file, os.O_CREAT | os.O_WRONLY | flag, 0o600)
        with os.fdopen(file, "w", encoding="utf-8", errors="replace") as opened:
            opened.write(text)


def _readline() -> ModuleType | None:
    try:
        import readline  # noqa: PLC0415 - optional, and importing it changes input()
    except ImportError:
        return None
    return readline
