"""The lines typed in earlier chats, which the arrow keys recall."""

import os
import re
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Final

from treefold.core.errors import StoreError
from treefold.stores.data_folder import make_data_folder

_FILE: Final = "chat_history"
_MOST_LINES: Final = 1000

# Lines that seem to contain a secret are not saved; nor are lines that begin with a space, as in
# shells.
_SECRET: Final = re.compile(
    r"""(?ix) \b(sk|pk|rk|ghp|gho|glpat|xox[abp])[-_][\w-]{8,} | \bAIza[\w-]{20,} | \bAKIA\w{12,}
    | \beyJ[\w-]{10,}\. | -----BEGIN | \bbearer\s+\S{8,}
    | (password|passwd|passphrase|secret|token|api[_-]?key)\w*["']?\s*(=|:|\bis\b)\s*\S+ """
)


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
            self._file = make_data_folder() / _FILE
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
