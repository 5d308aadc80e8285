"""The reserved ids of one tree in a shared store."""

import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from treefold.core.cluster import Drives
from treefold.core.errors import StoreError

BLOCK: Final = 64  # ids that a tree gets first; each further block has twice as many
_LARGEST: Final = 4096


class IdBlock:
    """The reserved ids of one tree; the next block is reserved while the last is being used up."""

    def __init__(self, drives: Drives, ids: Iterable[int] = ()) -> None:
        self._drives = drives
        self._ids = deque(ids)
        self._size = max(BLOCK, len(self._ids))
        self._lock = threading.Lock()
        self._is_reserving = False

    def next(self) -> int:
        """Return the next id; this blocks only if many are used before more are reserved."""
        with self._lock:
            if len(self._ids) <= self._size // 4 and not self._is_reserving:
                self._is_reserving = True
                name = "treefold ids"
                threading.Thread(target=self._reserve_quietly, name=name, daemon=True).start()
            if self._ids:
                return self._ids.popleft()
        self._reserve()
        return self.next()

    def _reserve_quietly(self) -> None:
        try:
            # If it fails, the call that needs an id tries again, and raises.
            with suppress(StoreError):
                self._reserve()
        finally:
            self._is_reserving = False

    def _reserve(self) -> None:
        size = min(2 * self._size, _LARGEST)
        first, _ = self._drives.reserve(size)
        with self._lock:
            # Another thread may have reserved a higher block first; ids must only rise.
            if not self._ids or first > self._ids[-1]:
                self._ids.extend(range(first, first + size))
                self._size = size
