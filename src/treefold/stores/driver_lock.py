"""The right to drive a journal: a lock that the kernel takes back when a process ends.

It is on a file of its own beside the journal, since SQLite has locks on that one.
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
from treefold.stores.driver_mark import (
    LAST_AT,
    NOBODY,
    SIZE,
    DriverMark,
    decoded,
    encoded_last,
)
from treefold.stores.refusals import owned

_TRIES: Final = 3  # while a driver has it, which may be about to end
_PATIENCE: Final = 5.0  # seconds, while others only ask whether a driver has it
_PAUSE: Final = 0.01  # seconds

_changing = threading.Lock()  # held while a lock is taken, let go of, or copied by a fork
_taken: "weakref.WeakSet[DriverLock]" = weakref.WeakSet()


class DriverLock:
    """One lock; whoever drops the object lets go of it.

    Args:
        journal: the path of what is driven.
    """

    def __init__(self, journal: str) -> None:
        self._journal = journal
        self._path = f"{journal}-driver"
        self._file: int | None = None
        self._mark: DriverMark | None = None

    def take(self) -> DriverMark | None:
        """Take it; return the mark of the last one who had it, if there is one.

        Raises:
            StoreOwnedError: somebody has it, in whichever process.
            StoreError: it cannot be made.
        """
        with _changing:
            try:
                file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            except OSError as error:
                raise StoreError(
                    self._path, f"{error.strerror}; who drives a journal makes this file beside it"
                ) from error
            try:
                _lock(file)
                former = decoded(os.pread(file, SIZE, 0))
            except BlockingIOError as error:
                owner, _, _ = os.pread(file, SIZE, 0).decode("ascii", "replace").partition("\n")
                os.close(file)
                raise owned(self._journal, owner.strip()) from error
            except OSError as error:
                os.close(file)
                raise StoreError(self._path, f"it cannot be locked: {error.strerror}") from error
            self._file = file
            _taken.add(self)
            return former

    def mark(self, mark: DriverMark | None) -> None:
        """Write the mark of this process, or only its id if there is none.

        Raises:
            StoreError: it cannot be written.
        """
        assert self._file is not None  # it was taken
        self._mark = None
        content = str(os.getpid()).encode() if mark is None else mark.encoded()
        try:
            os.pwrite(self._file, content, 0)
            os.ftruncate(self._file, len(content))
        except OSError as error:
            raise StoreError(self._path, f"it cannot be written: {error.strerror}") from error
        self._mark = mark

    def wrote(self, last: int) -> None:
        """Note that everything up to the entry at this place is committed."""
        if self._mark is None or self._file is None:
            return
        try:
            os.pwrite(self._file, encoded_last(last), LAST_AT)
        except OSError:
            return  # a mark that is too low is never wrong

    def closed(self, *, complete: bool) -> None:
        """Note that the journal was closed; if it is *complete* without its log, nothing stays."""
        if self._file is None:
            return
        with suppress(OSError):
            if complete or (found := decoded(os.pread(self._file, SIZE, 0))) is None:
                os.ftruncate(self._file, 0)
            else:
                os.pwrite(self._file, replace(found, process=NOBODY).encoded(), 0)

    def is_taken(self) -> bool:
        """Whether somebody has it, in whichever process.

        Raises:
            StoreError: that cannot be seen.
        """
        if self._file is not None:
            return True
        with _changing:
            try:
                file = os.open(self._path, os.O_RDONLY)
            except FileNotFoundError:  # nobody ever had it
                return False
            except OSError as error:
                why = f"it cannot be seen who drives the journal: {error.strerror}"
                raise StoreError(self._path, why) from error
            try:
                return _is_driven(file)
            finally:
                os.close(file)

    def let_go(self) -> None:
        """Let others have it; doing so twice is fine."""
        with _changing:
            self.forget()

    def forget(self) -> None:
        """Close it here; for whoever sees to it that nobody takes it meanwhile."""
        file, self._file = self._file, None
        _taken.discard(self)
        if file is not None:
            os.close(file)

    def __del__(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)


def _lock(file: int) -> None:
    """Lock *file*, and wait for those that only ask whether it is locked."""
    import fcntl  # noqa: PLC0415 - Windows has none

    tries, deadline = _TRIES, time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # On a busy machine a process that asks may keep its shared lock for long.
            tries -= _is_driven(file)
            if tries < 0 or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _is_driven(file: int) -> bool:
    """Whether the lock on *file* is that of a driver: it lets no shared one in."""
    import fcntl  # noqa: PLC0415 - Windows has none

    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _forget_in_child() -> None:
    # a copy of the file would keep the lock, whatever became of the parent
    for lock in list(_taken):
        lock.forget()
    _changing.release()


@atexit.register
def _end_in_order() -> None:
    # A process that gets here did not die, though nobody closed the journal.
    for lock in list(_taken):
        lock.closed(complete=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_changing.acquire,
        after_in_parent=_changing.release,
        after_in_child=_forget_in_child,
    )
