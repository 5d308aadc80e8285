"""File descriptors that a child process inherits.

A pipe whose read end is read by the loop, with no task; a file that holds one script at a time.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable
from typing import Final

_FIRST: Final = 100  # out of the way of those that a script uses
_CHUNK: Final = 1 << 16
_CAPACITY: Final = 1 << 20  # bytes that one can hold, at most


class Pipe:
    """What arrives is handed to *receive* as it comes."""

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._end, far = os.pipe()
        try:
            self.far_end: int = _moved_up(far)
        except OSError:
            os.close(self._end)
            raise
        self._far_is_open = self._is_open = True
        os.set_blocking(self._end, False)
        self._loop.add_reader(self._end, self._read)

    def drain(self) -> None:
        """Receive now what has been written by now."""
        left = _CAPACITY  # who goes on writing does not keep us here
        while left > 0 and (got := self._read()):
            left -= got

    def close_far_end(self) -> None:
        """Leave the write end to the child."""
        if self._far_is_open:
            self._far_is_open = False
            os.close(self.far_end)

    def close(self) -> None:
        """Receive no more."""
        self.close_far_end()
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._end)
            os.close(self._end)

    def _read(self) -> int:
        if not self._is_open:
            return 0
        try:
            chunk = os.read(self._end, _CHUNK)
        except BlockingIOError:
            return 0
        if chunk:
            self._receive(chunk)
        else:  # nobody has the other end any more
            self._loop.remove_reader(self._end)
        return len(chunk)


class ScriptFile:
    """An unnamed file that a child can read as ``/dev/fd/N``."""

    def __init__(self) -> None:
        # A script still arrives when the disk is full, where the system has files in memory.
        if hasattr(os, "memfd_create"):
            self.fd: int = _moved_up(os.memfd_create("treefold"))
        else:
            with tempfile.TemporaryFile() as file:
                self.fd = _moved_up(os.dup(file.fileno()))
        self._is_open = True

    def write(self, script: bytes) -> None:
        """Replace the content of the file."""
        os.ftruncate(self.fd, 0)
        os.lseek(self.fd, 0, os.SEEK_SET)
        view = memoryview(script)
        while view:
            view = view[os.write(self.fd, view) :]
        # On macOS the reader shares this position.
        os.lseek(self.fd, 0, os.SEEK_SET)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.fd)


def _moved_up(fd: int) -> int:
    """Replace *fd* by one with a high number."""
    import fcntl  # noqa: PLC0415 - Windows has none; the session refuses to start a shell there

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST)
    finally:
        os.close(fd)
