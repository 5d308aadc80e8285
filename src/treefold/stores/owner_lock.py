"""The lock that makes a process the owner of a journal; the kernel frees it when the process ends.

It is on a file of its own beside the journal, because SQLite has locks on the journal itself.
"""

import atexit
import os
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import replace
from typing import Final

from treefold.core.errors import StoreError
from treefold.stores.commit_mark import (
    CLOSED,
    LAST_OFFSET,
    SIZE,
    CommitMark,
    decode_mark,
    encode_last,
    lock_file,
)
from treefold.stores.errors import owned_error

_TRIES: Final = 3  # while an owner has it, which may be about to end
_PATIENCE: Final = 5.0  # seconds, while other processes only check whether it is held
_PAUSE: Final = 0.01  # seconds

_changing = threading.Lock()  # held while a lock is acquired, released, or copied by a fork
_held: "weakref.WeakSet[OwnerLock]" = weakref.WeakSet()


class OwnerLock:
    """One lock; it is released when the object is garbage collected.

    Args:
        journal: the path of the journal.
    """

    def __init__(self, journal: str) -> None:
        self._journal = journal
        self._beside = lock_file(journal)
        self._path = self._beside.path
        self._file: int | None = None
        self._mark: CommitMark | None = None

    def acquire(self) -> CommitMark | None:
        """Acquire the lock; return the mark that the last owner left, if there is one.

        Raises:
            StoreOwnedError: the lock is held, in this or another process.
            StoreError: the lock file cannot be created or locked, or is none.
        """
        with _changing:
            try:
                file = self._beside.open(os.O_CREAT | os.O_RDWR)
            except OSError as error:
                raise StoreError(
                    self._path,
                    f"{error.strerror}; the owner of a journal creates this file beside it",
                ) from error
            try:
                _lock(file)
                former = decode_mark(os.pread(file, SIZE, 0))
            except BlockingIOError as error:
                owner, _, _ = os.pread(file, SIZE, 0).decode("ascii", "replace").partition("\n")
                os.close(file)
                raise owned_error(self._journal, owner.strip()) from error
            except OSError as error:
                os.close(file)
                raise StoreError(self._path, f"it cannot be locked: {error.strerror}") from error
            self._file = file
            _held.add(self)
            return former

    def write_mark(self, mark: CommitMark | None) -> None:
        """Write the mark of this process, or only its id if there is none.

        Raises:
            StoreError: it cannot be written.
        """
        assert self._file is not None  # it is held
        self._mark = None
        content = str(os.getpid()).encode() if mark is None else mark.encode()
        try:
            os.pwrite(self._file, content, 0)
            os.ftruncate(self._file, len(content))
        except OSError as error:
            raise StoreError(self._path, f"it cannot be written: {error.strerror}") from error
        self._mark = mark

    def advance_mark(self, last: int) -> None:
        """Record that all entries up to this position are committed."""
        if self._mark is None or self._file is None:
            return
        try:
            os.pwrite(self._file, encode_last(last), LAST_OFFSET)
        except OSError:
            # A mark that is too low is never wrong.
            return

    def mark_closed(self, *, complete: bool) -> None:
        """Record that the journal was closed; clear the mark if the main file is *complete*."""
        if self._file is None:
            return
        with suppress(OSError):
            if complete or (found := decode_mark(os.pread(self._file, SIZE, 0))) is None:
                os.ftruncate(self._file, 0)
            else:
                os.pwrite(self._file, replace(found, process=CLOSED).encode(), 0)

    def is_held(self) -> bool:
        """Whether the lock is held, in this or another process.

        Raises:
            StoreError: the lock file cannot be read.
        """
        if self._file is not None:
            return True
        with _changing:
            try:
                file = self._beside.open(os.O_RDONLY)
            except FileNotFoundError:  # the journal never had an owner
                return False
            except OSError as error:
                why = f"cannot check whether the journal has an owner: {error.strerror}"
                raise StoreError(self._path, why) from error
            try:
                return _is_exclusive(file)
            finally:
                os.close(file)

    def release(self) -> None:
        """Release the lock; releasing it twice is fine."""
        with _changing:
            self.close_file()

    def close_file(self) -> None:
        """Close the lock file, which releases the lock; the caller holds ``_changing``."""
        file, self._file = self._file, None
        _held.discard(self)
        if file is not None:
            os.close(file)

    def __del__(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)


def _lock(file: int) -> None:
    """Lock *file*, waiting for processes that only check whether it is locked."""
    import fcntl  # noqa: PLC0415 - Windows has none

    tries, deadline = _TRIES, time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # On a busy machine a process that checks may keep its shared lock for long.
            tries -= _is_exclusive(file)
            if tries < 0 or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _is_exclusive(file: int) -> bool:
    """Whether the lock on *file* is that of an owner: a shared lock is refused."""
    import fcntl  # noqa: PLC0415 - Windows has none

    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _close_in_child() -> None:
    # The child's copy of the file would keep the lock after the parent has ended.
    for lock in list(_held):
        lock.close_file()
    _changing.release()


@atexit.register
def _mark_exit() -> None:
    # A process that gets here was not killed, though it did not close the journal.
    for lock in list(_held):
        lock.mark_closed(complete=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_changing.acquire,
        after_in_parent=_changing.release,
        after_in_child=_close_in_child,
    )
