"""The bytes that edits have replaced, so that the edits can be undone."""

import hashlib
import threading
from dataclasses import dataclass
from typing import Final

from treefold.toolbox.editing.lines import common_ends

MAX_CHANGES: Final = 500
MAX_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Change:
    """One edit of one file, kept as the bytes that it removed."""

    path: str
    start: int
    removed: bytes
    added: int  # number of bytes that it inserted
    digest: bytes  # of the whole file after it
    created: bool  # the file did not exist before

    @classmethod
    def between(cls, path: str, old: bytes | None, new: bytes) -> "Change":
        """Return the change from *old*, None if there was no file, to *new*."""
        before = old or b""
        head, tail = common_ends(before, new)
        removed = before[head : len(before) - tail]
        added = len(new) - head - tail
        return cls(path, head, removed, added, _digest(new), created=old is None)

    def is_result(self, raw: bytes) -> bool:
        """Whether *raw* is the content of the file after this change."""
        return _digest(raw) == self.digest

    def revert(self, raw: bytes) -> bytes:
        """Return the content of the file before this change."""
        return b"".join((raw[: self.start], self.removed, raw[self.start + self.added :]))


class History:
    """The latest changes of one caller, over all files; the oldest are discarded."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._changes: list[Change] = []
        self._bytes = 0
        self._lock = threading.Lock()

    def add(self, change: Change) -> bool:
        """Store *change*; return whether it can be undone.

        If it alone exceeds the limit, the earlier changes of its file are discarded as well.
        """
        with self._lock:
            if len(change.removed) > self._max_bytes:
                self._set_changes([kept for kept in self._changes if kept.path != change.path])
                return False
            self._changes.append(change)
            self._bytes += len(change.removed)
            excess = 0
            while self._bytes > self._max_bytes or len(self._changes) - excess > MAX_CHANGES:
                self._bytes -= len(self._changes[excess].removed)
                excess += 1
            del self._changes[:excess]
            return True

    def last(self, path: str) -> Change | None:
        """Return the latest change of a file."""
        with self._lock:
            return next((kept for kept in reversed(self._changes) if kept.path == path), None)

    def forget(self, change: Change) -> None:
        """Remove a change that has been undone."""
        with self._lock:
            self._set_changes([kept for kept in self._changes if kept is not change])

    def _set_changes(self, changes: list[Change]) -> None:
        self._changes = changes
        self._bytes = sum(len(kept.removed) for kept in changes)


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=16).digest()
