"""What was typed before, to be called back with the arrow keys."""

import os
import re
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Final

from treefold.core.errors import StoreError
from treefold.stores.data_folder import make_data_folder

_FILE: Final = "chat_history"
_KEPT: Final = 1000  # lines

# Lines that seem to have one are not kept; nor is one that begins with a space, as in shells.
_SECRET: Final = re.compile(
    r"""(?ix) \b(sk|pk|rk|ghp|gho|glpat|xox[abp])[-_][\w-]{8,} | \bAIza[\w-]{20,} | \bAKIA\w{12,}
    | \beyJ[\w-]{10,}\. | -----BEGIN | \bbearer\s+\S{8,}
    | (password|passwd|passphrase|secret|token|api[_-]?key)\w*["']?\s*(=|:|\bis\b)\s*\S+ """
)


class InputHistory:
    """Lines in a file that only its owner can read; without readline there are none."""

    def __init__(self) -> None:
        self._readline = _readline()
        self._file: Path | None = None
        if self._readline is None:
            return
        self._readline.set_auto_history(False)
        with suppress(OSError, StoreError):  # then there is none, which is no reason not to chat
            self._file = make_data_folder() / _FILE
            for line in self._kept():
                self._readline.add_history(line)

    def add(self, line: str) -> None:
        """Remember *line*, unless it is nobody's business."""
        if self._readline is None or not line.strip() or line[0] == " " or _SECRET.search(line):
            return
        self._readline.add_history(line)
        if self._file is not None and line.isprintable():
            with suppress(OSError):
                self._write(os.O_APPEND, f"{line}\n")

    def _kept(self) -> list[str]:
        if self._file is None or not self._file.exists():
            return []
        lines = self._file.read_text("utf-8", errors="replace").splitlines()
        if len(lines) > 2 * _KEPT:
            self._write(os.O_TRUNC, "".join(f"{line}\n" for line in lines[-_KEPT:]))
        return lines[-_KEPT:]

    def _write(self, how: int, text: str) -> None:
        assert self._file is not None
        file = os.open(self._file, os.O_CREAT | os.O_WRONLY | how, 0o600)
        with os.fdopen(file, "w", encoding="utf-8", errors="replace") as opened:
            opened.write(text)


def _readline() -> ModuleType | None:
    try:
        import readline  # noqa: PLC0415 - not everywhere, and it changes what input() does
    except ImportError:
        return None
    return readline
