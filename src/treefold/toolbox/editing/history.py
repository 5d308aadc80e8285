"""What edits have replaced, so that they can be undone."""

import hashlib
import threading
from dataclasses import dataclass
from typing import Final

from treefold.toolbox.editing.difference import common_ends

MOST_CHANGES: Final = 500
MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Change:
    """One edit of one file, kept as the bytes that it took away."""

    path: str
    start: int
    removed: bytes
    added: int  # how many bytes it put there
    digest: bytes  # of the whole file after it
    created: bool  # there was no file before it

    @classmethod
    def between(cls, path: str, old: bytes | None, new: bytes) -> "Change":
        """Return the change that made *new* out of *old*, or out of nothing."""
        before = old or b""
        head, tail = common_ends(before, new)
        removed = before[head : len(before) - tail]
        added = len(new) - head - tail
        return cls(path, head, removed, added, _digest(new), created=old is None)

    def left(self, raw: bytes) -> bool:
        """Whether *raw* is what the file was after it."""
        return _digest(raw) == self.digest

    def undone(self, raw: bytes) -> bytes:
        """Return what the file was before it."""
        return b"".join((raw[: self.start], self.removed, raw[self.start + self.added :]))


class History:
    """The newest changes that one caller made, over all files; the oldest are forgotten."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._changes: list[Change] = []
        self._bytes = 0
        self._lock = threading.Lock()

    def add(self, change: Change) -> bool:
        """Remember *change*, unless it alone is too large; then none of its file can be undone."""
        with self._lock:
            if len(change.removed) > self._most_bytes:
                self._keep([kept for kept in self._changes if kept.path != change.path])
                return False
            self._changes.append(change)
            self._bytes += len(change.removed)
            surplus = 0
            while self._bytes > self._most_bytes or len(self._changes) - surplus > MOST_CHANGES:
                self._bytes -= len(self._changes[surplus].removed)
                surplus += 1
            del self._changes[:surplus]
            return True

    def last(self, path: str) -> Change | None:
        """Return the newest change of a file."""
        with self._lock:
            return next((kept for kept in reversed(self._changes) if kept.path == path), None)

    def forget(self, change: Change) -> None:
        """Forget a change that has been undone."""
        with self._lock:
            self._keep([kept for kept in self._changes if kept is not change])

    def _keep(self, changes: list[Change]) -> None:
        self._changes = changes
        self._bytes = sum(len(kept.removed) for kept in changes)


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=16).digest()
