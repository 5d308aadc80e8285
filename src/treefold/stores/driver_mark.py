"""How far a driver has written its journal, kept in its lock file and not in the database.

If the write-ahead log is lost, SQLite opens the main file as if nothing had followed it. The mark
shows that something did: it names the last entry that was committed. It is written after each
commit, so it never names an entry that a killed process did not commit.
"""

import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treefold.core.errors import StoreError

NOBODY: Final = 0  # the process of a journal that was closed while others had its log open
SIZE: Final = 400  # bytes, more than any mark has
_PROCESS: Final = 20  # digits, so that the number after it can be overwritten in place
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_WITH_JOURNAL: Final = 2  # the first version of the tables that has one

_LAST: Final = """
    SELECT id, max(seq, coalesce((SELECT max(seq) FROM events), 0)) FROM journal
"""


@dataclass(frozen=True, slots=True)
class DriverMark:
    """What the driver of a journal has left in its lock file.

    Attributes:
        process: its id, or 0 if it closed the journal.
        last: the place of the last entry that it knows to be committed.
        journal: the id of the journal.
        file: what tells the main file from others on this machine.
        boot: of the machine, if a power cut may undo commits; otherwise empty.
    """

    process: int
    last: int
    journal: str
    file: str
    boot: str = ""

    def encoded(self) -> bytes:
        """Return it as the content of the lock file."""
        head = f"{self.process:<{_PROCESS}}\n"
        return f"{head}{self.last:020}\n{self.journal}\n{self.file}\n{self.boot}\n".encode()


LAST_AT: Final = _PROCESS + 1  # the offset of the last entry's place


def encoded_last(last: int) -> bytes:
    """Return what to write at ``LAST_AT``."""
    return b"%020d" % last


def decoded(content: bytes) -> DriverMark | None:
    """Return the mark, or None if there is none: an older version wrote the process only."""
    try:
        process, last, journal, file, boot, _ = content.decode("ascii").split("\n")
        return DriverMark(int(process), int(last), journal, file, boot)
    except ValueError:
        return None


def read_mark(journal: str) -> DriverMark | None:
    """Return the mark beside the journal at this path, if there is one."""
    try:
        file = os.open(f"{journal}-driver", os.O_RDONLY)
    except OSError:
        return None
    try:
        return decoded(os.pread(file, SIZE, 0))
    except OSError:
        return None
    finally:
        os.close(file)


def forget_mark(journal: str) -> None:
    """Remove the mark of a deleted journal, now that there is a new one at this path."""
    with suppress(OSError):
        os.truncate(f"{journal}-driver", 0)


def new_mark(path: str, journal: str, last: int, *, survives_power_cut: bool) -> DriverMark | None:
    """Return the mark of this process; None if nothing can be said about this journal."""
    boot = "" if survives_power_cut else _boot()
    if boot is None:
        return None
    return DriverMark(os.getpid(), last, journal, _identity(path), boot)


def check_complete(path: str, mark: DriverMark | None, rows: sqlite3.Connection) -> None:
    """Check that the journal that *rows* reads has every entry up to the *mark*.

    The mark has to be read before the snapshot of *rows* begins: a driver may be writing.

    Raises:
        StoreError: entries are missing.
    """
    if mark is None or not mark.last or mark.boot not in {"", _boot()}:
        return
    (version,) = rows.execute("PRAGMA user_version").fetchone()
    journal, last = rows.execute(_LAST).fetchone() if version >= _WITH_JOURNAL else (None, 0)
    if journal is None:  # either the tables were only in the log, or this is another file
        same = os.path.getsize(path) > 0 and mark.file == _identity(path)
    else:
        same = mark.journal == journal
    # A new file at this path makes its process remove the mark of the old one first.
    if same and last < mark.last and read_mark(path) == mark:
        name = os.path.basename(path)
        raise StoreError(
            path,
            f"it has {last} entries, and {mark.last} were committed: {name}-wal, which has the"
            f" rest, is missing or damaged; put {name}-wal back, or put back a copy of both; to"
            f" continue without the lost entries, delete {name}-driver",
        )


def _identity(path: str) -> str:
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}"


def _boot() -> str | None:
    """Return the id of the machine's current boot, where there is one."""
    try:
        return _BOOT.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
