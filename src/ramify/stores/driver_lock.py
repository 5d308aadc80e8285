"""The right to drive a journal: a lock that the kernel takes back when a process ends.

It is on a file of its own beside the journal, since SQLite has locks on that one.
"""

import os
import threading
import time
import weakref
from contextlib import suppress
from typing import Final

from ramify.core.errors import StoreError
from ramify.stores.refusals import owned

_LONGEST_PID: Final = 20
_TRIES: Final = 3
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

    def take(self) -> None:
        """Take it.

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
                os.ftruncate(file, 0)
                os.pwrite(file, str(os.getpid()).encode(), 0)
            except BlockingIOError as error:
                owner = os.pread(file, _LONGEST_PID, 0).decode("ascii", "replace")
                os.close(file)
                raise owned(self._journal, owner) from error
            except OSError as error:
                os.close(file)
                raise StoreError(self._path, f"it cannot be locked: {error.strerror}") from error
            self._file = file
            _taken.add(self)

    def is_taken(self) -> bool:
        """Whether somebody has it, in whichever process.

        Raises:
            StoreError: that cannot be seen.
        """
        import fcntl  # noqa: PLC0415 - Windows has none

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
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(file)
        return False

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
    """Lock *file*; somebody who only asks whether it is has it for a moment, too."""
    import fcntl  # noqa: PLC0415 - Windows has none

    for again in (True,) * _TRIES + (False,):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not again:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _forget_in_child() -> None:
    # a copy of the file would keep the lock, whatever became of the parent
    for lock in list(_taken):
        lock.forget()
    _changing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_changing.acquire,
        after_in_parent=_changing.release,
        after_in_child=_forget_in_child,
    )
