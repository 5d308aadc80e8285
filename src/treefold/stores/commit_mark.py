"""The commit mark: the last committed entry of a journal, kept in its lock file.

If the write-ahead log is lost, SQLite opens the main file as if nothing had followed it. The mark,
which names the last committed entry, shows that entries are missing. It is written after each
commit, so it never names an entry that a killed process did not commit.
"""

import os
import re
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treefold.core.errors import StoreError
from treefold.stores.side_file import SideFile

CLOSED: Final = 0  # the process of a journal that was closed while others had its log open
SIZE: Final = 400  # bytes; no mark is longer
_PROCESS_WIDTH: Final = 20  # digits, so that the number after it can be overwritten in place
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
# The process id alone, or a mark; after it may be the end of a longer one.
_CONTENT: Final = re.compile(rb"\d+( *\n|\Z)")

_LAST: Final = """
    SELECT id, max(seq, coalesce((SELECT max(seq) FROM events), 0)) FROM journal
"""


@dataclass(frozen=True, slots=True)
class CommitMark:
    """The content of the lock file of a journal.

    Attributes:
        process: the id of the owner's process, or 0 if it closed the journal.
        last: the position of the last entry that is known to be committed.
        journal: the id of the journal.
        file: the device and inode of the main file.
        boot: the id of the machine's boot, if a power cut may undo commits; otherwise empty.
    """

    process: int
    last: int
    journal: str
    file: str
    boot: str = ""

    def encode(self) -> bytes:
        """Return the content of the lock file."""
        head = f"{self.process:<{_PROCESS_WIDTH}}\n"
        return f"{head}{self.last:020}\n{self.journal}\n{self.file}\n{self.boot}\n".encode()


LAST_OFFSET: Final = _PROCESS_WIDTH + 1  # of the position of the last entry, in the lock file


def encode_last(last: int) -> bytes:
    """Return the bytes to write at ``LAST_OFFSET``."""
    return b"%020d" % last


def decode_mark(content: bytes) -> CommitMark | None:
    """Return the mark; None if there is none."""
    try:
        process, last, journal, file, boot, _ = content.decode("ascii").split("\n")
        return CommitMark(int(process), int(last), journal, file, boot)
    except ValueError:
        return None


def lock_file(journal: str) -> SideFile:
    """Return the lock file of the journal at this path, which has its mark."""
    return SideFile(f"{journal}-driver", _CONTENT, SIZE)


def read_mark(journal: str) -> CommitMark | None:
    """Return the mark beside the journal at this path, if there is one.

    Raises:
        StoreError: what is there is no lock file.
    """
    try:
        file = lock_file(journal).open(os.O_RDONLY)
    except OSError:
        return None
    try:
        return decode_mark(os.pread(file, SIZE, 0))
    except OSError:
        return None
    finally:
        os.close(file)


def clear_mark(journal: str) -> None:
    """Remove the mark of a deleted journal, because a new one is created at its path."""
    with suppress(OSError):
        file = lock_file(journal).open(os.O_RDWR)
        try:
            os.ftruncate(file, 0)
        finally:
            os.close(file)


def new_mark(path: str, journal: str, last: int, *, survives_power_cut: bool) -> CommitMark | None:
    """Return the mark of this process; None if the system does not identify its boots."""
    boot = "" if survives_power_cut else _boot_id()
    if boot is None:
        return None
    return CommitMark(os.getpid(), last, journal, _file_id(path), boot)


def check_complete(path: str, mark: CommitMark | None, rows: sqlite3.Connection) -> None:
    """Check that the journal that *rows* reads has every entry up to the *mark*.

    Read the mark before the snapshot of *rows* begins: an owner may be writing.

    Raises:
        StoreError: entries are missing.
    """
    if mark is None or not mark.last or mark.boot not in {"", _boot_id()}:
        return
    (version,) = rows.execute("PRAGMA user_version").fetchone()
    journal, last = rows.execute(_LAST).fetchone() if version else (None, 0)
    if journal is None:  # either the tables were only in the log, or this is another file
        same = os.path.getsize(path) > 0 and mark.file == _file_id(path)
    else:
        same = mark.journal == journal
    # The process that creates a new file at this path removes the mark of the old one first.
    if same and last < mark.last and read_mark(path) == mark:
        name = os.path.basename(path)
        raise StoreError(
            path,
            f"it has {last} entries, and {mark.last} were committed: {name}-wal, which has the"
            f" rest, is missing or damaged; put {name}-wal back, or put back a copy of both; to"
            f" continue without the lost entries, delete {name}-driver",
        )


def _file_id(path: str) -> str:
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}"


def _boot_id() -> str | None:
    """Return the id of the machine's current boot, where the system has one."""
    try:
        return _BOOT.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
